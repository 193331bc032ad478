# SPDX-License-Identifier: Apache-2.0
"""Writes the training text of the demo model: the same seed gives the same text on every machine.

The one idea: a document is one conversation (ChatML) or one bare story; conversations mix questions
on commands, stories, small talk and things beyond the model, as people do. Standard library only.

    python3 generate.py --seed 1 --count 5          # prints five documents
"""
import argparse
import random
import re

import grammar
import questions
import stories

START, END, STOP = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
SYSTEMS = grammar.sections("frames.txt")["system"]


class Writer:
    """Documents from one seed. Requests in `exclude` (see plain) never occur in them."""

    def __init__(self, seed, exclude=()):
        self.rng = random.Random(seed)
        self.questioner = questions.Questioner()
        self.teller = stories.StoryTeller()
        self.exclude = {plain(text) for text in exclude}
        self.dropped = 0

    def document(self):
        """("story", text) or ("chat", [(role, text)])."""
        rng = self.rng
        if rng.random() < 0.05:
            return "story", self.teller.tell(rng)["text"]
        turns = []
        if rng.random() < 0.25:
            turns.append(("system", rng.choice(SYSTEMS)))
        for _ in range(rng.choices((1, 2, 3, 5, 8), (64, 15, 10, 8, 3))[0]):
            for ask, answer in self._exchange():
                if plain(ask) in self.exclude:
                    self.dropped += 1
                    break
                turns += [("user", ask), ("assistant", answer)]
        return ("chat", turns) if turns and turns[-1][0] == "assistant" else self.document()

    def _exchange(self):
        """Request and answer, then perhaps another that needs the first."""
        rng = self.rng
        kind = rng.random()
        if kind < 0.20:
            story = self.teller.tell(rng)
            pairs = [(self.teller.ask(story, rng), story["text"])]
            while rng.random() < 0.25:
                pairs.append(self.teller.follow_up(story, rng))
        elif kind < 0.30:
            pairs = [self.questioner.small_talk(rng, beyond=False)]
        elif kind < 0.38:
            pairs = [self.questioner.small_talk(rng, beyond=True)]
        else:
            topic, ask, answer = self.questioner.topic(rng)
            pairs = [(ask, answer)]
            if rng.random() < 0.12:
                pairs.append((self.questioner.more(rng), self.questioner.example(topic, rng)))
        return pairs


def plain(text):
    """Letters, digits and dashes only: requests that differ in case or marks are the same."""
    return " ".join(re.findall(r"[a-z0-9-]+", text.lower()))


def chatml(turns, ask_next=False):
    """The text that the chat template makes of the turns."""
    text = "".join(f"{START}{role}\n{content}{END}\n" for role, content in turns)
    return text + f"{START}assistant\n" if ask_next else text


def main():
    parser = argparse.ArgumentParser(description="prints training documents")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=5)
    args = parser.parse_args()
    writer = Writer(args.seed)
    for _ in range(args.count):
        kind, content = writer.document()
        print((content if kind == "story" else chatml(content)) + STOP)


if __name__ == "__main__":
    main()
