# SPDX-License-Identifier: Apache-2.0
"""The rules by which the demo model passes; shared by its training and by tests/e2e/demo_chat.

Knows nothing of servers or of training: it takes answers and says what is wrong with them.
"""
import collections
import json
import os
import re

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data")
QUESTIONS_TO_PASS = 36
STORY_WORDS = 60
GRAM = 4
GRAM_REPEATS = 3


def load_questions():
    """[(question, compiled pattern of a right answer)]"""
    with open(os.path.join(DATA, "demo_questions.json"), encoding="ascii") as file:
        return [(q["ask"], re.compile(q["expect"])) for q in json.load(file)["questions"]]


def load_story_prompts():
    with open(os.path.join(DATA, "demo_stories.json"), encoding="ascii") as file:
        return json.load(file)["prompts"]


def names_right_command(pattern, answer):
    return pattern.search(answer) is not None


def words(text):
    return re.findall(r"[A-Za-z0-9']+", text.lower())


def most_repeated_gram(text, size=GRAM):
    """(times, words) of the most frequent run of `size` words; (0, ()) in a shorter text."""
    parts = words(text)
    grams = collections.Counter(tuple(parts[i:i + size]) for i in range(len(parts) - size + 1))
    best = grams.most_common(1)
    return (best[0][1], best[0][0]) if best else (0, ())


def story_faults(text, ended):
    """What is wrong with a story, [] if nothing; ended: the model itself ended it (EOS)."""
    faults = []
    if not ended:
        faults.append("not ended by EOS")
    if len(words(text)) < STORY_WORDS:
        faults.append(f"{len(words(text))} words, want {STORY_WORDS}")
    times, gram = most_repeated_gram(text)
    if times > GRAM_REPEATS:
        faults.append(f"\"{' '.join(gram)}\" {times} times, want at most {GRAM_REPEATS}")
    return faults


def judge(answer_of):
    """Asks everything: answer_of(list of requests) -> [(text, ended)].

    Returns (right answers, failed questions, good stories, failed stories); a failure is
    (request, answer, why).
    """
    questions = load_questions()
    wrong = []
    for (ask, pattern), (text, _) in zip(questions, answer_of([q for q, _ in questions])):
        if not names_right_command(pattern, text):
            wrong.append((ask, text, pattern.pattern))
    prompts = load_story_prompts()
    bad = []
    for ask, (text, ended) in zip(prompts, answer_of(prompts)):
        faults = story_faults(text, ended)
        if faults:
            bad.append((ask, text, "; ".join(faults)))
    return len(questions) - len(wrong), wrong, len(prompts) - len(bad), bad


def passes(right, good):
    return right >= QUESTIONS_TO_PASS and good == len(load_story_prompts())
