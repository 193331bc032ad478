# SPDX-License-Identifier: Apache-2.0
"""Questions about Pantheon's commands, small talk, and their answers.

The one idea: what is asked (a verb phrase, a name, a whole question) and how it is asked (a frame)
are drawn apart, then roughened (case, contractions, typing errors, lost words), so that the model
learns the meaning of phrases and not a list of questions.
"""
import grammar

FRAMES = grammar.sections("frames.txt")
CONTRACTIONS = [line.split(" => ") for line in FRAMES["contraction"]]
SYNONYMS = [line.split(" => ") for line in FRAMES["synonym"]]
FORM_ODDS = {"v": 6, "q": 4, "n": 2}
NAMES_AS_THEY_ARE = ("-", "/", "PANTHEON", "the ", "fallback")


class Questioner:
    def __init__(self):
        self.topics = [dict(t, group="commands") for t in grammar.blocks("commands.txt")]
        self.topics += [dict(t, group="flags") for t in grammar.blocks("flags.txt")]
        self.weights = [int(flag[1:]) for t in self.topics for flag in t["flags"] or ["*1"]]
        self.talk = grammar.blocks("smalltalk.txt")
        self.words = grammar.word_lists()

    def topic(self, rng):
        """(topic, question, answer) about a command, a flag or a word of Pantheon."""
        topic = rng.choices(self.topics, self.weights)[0]
        forms = [form for form in FORM_ODDS if form in topic]
        form = rng.choices(forms, [FORM_ODDS[form] for form in forms])[0]
        question, name = self._question(topic, form, rng)
        answers = topic["w"] if name and "w" in topic else topic["a"]
        if name and rng.random() < 0.12:
            question = grammar.fill(grammar.choose(rng.choice(FRAMES["example"]), rng), {"n": name})
            answer = self.example(topic, rng)
        else:
            answer = grammar.choose(rng.choice(answers), rng)
        if not name and rng.random() < 0.1:
            question += " " + self._question(topic, form, rng)[0]
        return topic, roughen(question, rng), answer

    def example(self, topic, rng):
        return grammar.fill(rng.choice(FRAMES["example-answer"]), {"e": rng.choice(topic["e"])})

    def more(self, rng):
        """A request for an example of what was just explained."""
        return roughen(grammar.choose(rng.choice(FRAMES["more"]), rng), rng)

    def small_talk(self, rng, beyond):
        """(question, answer); beyond: about something that the model does not know."""
        block = rng.choice([t for t in self.talk if ("~" in t["flags"]) == beyond])
        slots = {name: rng.choice(self.words[name]) for name in ("place.off", "offtopic", "job")}
        slots["num"] = str(rng.randrange(2, 2000))
        question = grammar.fill(grammar.choose(rng.choice(block["q"]), rng), slots)
        return roughen(" ".join(question.split()), rng, 0.4), rng.choice(block["a"])

    def _question(self, topic, form, rng):
        """(question, name); the name is empty unless the question names a command or flag."""
        if form == "q":
            return finish(grammar.choose(rng.choice(topic["q"]), rng), rng), ""
        if form == "v":
            verb = grammar.choose(rng.choice(topic["v"]), rng).strip()
            flag = topic["group"] == "flags" and rng.random() < 0.25
            frame = rng.choice(FRAMES["flag" if flag else "verb"])
            return grammar.fill(frame, {"v": verb, "V": grammar.upper_first(verb),
                                        "v3": third_person(verb)}), ""
        name = rng.choice(topic["n"])
        kind = "flag" if name.startswith("-") else "endpoint" if name.startswith("/") else "command"
        with_program = 0.7 if name.startswith(("--backend", "--version")) else 0.3
        if not name.startswith(NAMES_AS_THEY_ARE) or with_program == 0.7:
            name = "pantheon " + name if rng.random() < with_program else name
        question = grammar.fill(rng.choice(FRAMES["name"]), {"n": name, "kind": kind})
        if name.startswith("the "):
            question = question.replace("`", "").replace("the the", "the")
        return finish(question, rng), name


def finish(question, rng):
    """A closing mark where a template has none."""
    if question[-1:].isalnum() and rng.random() < 0.7:
        question += rng.choice("?.!?")
    return " ".join(question.split())


def third_person(verb_phrase):
    """"list the dies" -> "lists the dies"."""
    verb, _, rest = verb_phrase.partition(" ")
    if verb.endswith(("s", "sh", "ch", "x")):
        verb += "es"
    elif verb.endswith("y") and verb[-2] not in "aeiou":
        verb = verb[:-1] + "ies"
    else:
        verb = {"have": "has", "do": "does", "be": "is"}.get(verb, verb + "s")
    return (verb + " " + rest).strip()


def roughen(question, rng, much=1.0):
    """What people do to a question: greetings, contractions, other words, lost words, slips."""
    if rng.random() < 0.15 * much:
        question = swap_word(question, rng)
    if rng.random() < 0.2:
        for long, short in CONTRACTIONS:
            question = question.replace(long + " ", short + " ")
    if rng.random() < 0.1 and much == 1.0 and question[-1:] in ".?!" and "." not in question[:-1]:
        where = rng.choice([" with Pantheon", " in Pantheon", " here", " then"])
        question = question[:-1] + where + question[-1]
    if rng.random() < 0.12 * much:
        prefix = rng.choice(FRAMES["prefix"])
        keep = prefix[-1] in "!." or question.startswith(("I ", "I'", "-"))
        question = prefix + " " + (question if keep else grammar.lower_first(question))
    if rng.random() < 0.07 * much:
        question += " " + rng.choice(FRAMES["suffix"])
    if rng.random() < 0.12 * much:
        question = lose_word(question, rng)
    if rng.random() < 0.04:
        question = slip(question, rng)
    case = rng.random()
    if case < 0.12:
        question = question.lower() if case < 0.06 else grammar.lower_first(question)
    if rng.random() < 0.12:
        question = question.rstrip(".?!")
    return question or "Hello"


def swap_word(question, rng):
    padded = " " + question
    for word, other in rng.sample(SYNONYMS, 8):
        if " " + word + " " in padded:
            padded = padded.replace(" " + word + " ", " " + other + " ", 1)
            break
    return padded[1:]


def lose_word(question, rng):
    """Drops one short word without marks; names of commands keep theirs."""
    words = question.split(" ")
    light = [i for i, word in enumerate(words) if word.isalpha() and len(word) < 5]
    if light and len(words) > 3:
        del words[rng.choice(light)]
    return " ".join(words)


def slip(question, rng):
    """Two neighbouring letters of a longer word change places."""
    words = question.split(" ")
    long = [i for i, word in enumerate(words) if word.isalpha() and len(word) > 4]
    if long:
        i = rng.choice(long)
        at = rng.randrange(1, len(words[i]) - 2)
        word = words[i]
        words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2:]
    return " ".join(words)
