# SPDX-License-Identifier: Apache-2.0
"""The demo model's text, rules and file, without the model: standard library only.

The one idea: what the scores rest on is tested apart from them: the text is the same everywhere,
holds no request of the tests, and the rules fail what they should.
"""
import hashlib
import json
import os
import random
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
DEMO = os.path.join(HERE, "..", "..", "models", "demo")
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, DEMO]
import bpe  # noqa: E402
import demo_check  # noqa: E402
import generate  # noqa: E402
import stories  # noqa: E402

MOST_BYTES = 4 << 20


def texts(writer, count):
    """Every text of `count` documents, as (role, text)."""
    for _ in range(count):
        kind, content = writer.document()
        yield from [("story", content)] if kind == "story" else content


def requests(writer, count):
    """What users ask in `count` documents, in plain form."""
    return {generate.plain(text) for role, text in texts(writer, count) if role == "user"}


class Generator(unittest.TestCase):
    def test_same_seed_same_text(self):
        writer = generate.Writer(5)
        text = ""
        for _ in range(200):
            kind, content = writer.document()
            text += content if kind == "story" else generate.chatml(content)
            text += generate.STOP + "\n"
        self.assertEqual(hashlib.md5(text.encode()).hexdigest(), "7908afcd8a9422dd5bcb5777fffdb457",
                         "the text changed: train again, then put the new sum here")

    def test_excluded_requests_never_occur(self):
        common = {"hello", "tell me a joke"}
        self.assertLessEqual(common, requests(generate.Writer(3), 3000), "nothing to guard")
        guarded = generate.Writer(3, ["HELLO", "Tell me a joke!"])
        self.assertFalse(common & requests(guarded, 3000))
        self.assertGreater(guarded.dropped, 0)

    def test_no_test_request_in_the_training_text(self):
        wanted = [q for q, _ in demo_check.load_questions()] + demo_check.load_story_prompts()
        wanted = {generate.plain(text) for text in wanted}
        self.assertEqual(len(wanted), 50)
        self.assertFalse(wanted & requests(generate.Writer(1000, wanted), 6000))

    def test_stories_keep_the_rules(self):
        teller, rng = stories.StoryTeller(), random.Random(11)
        for _ in range(1500):
            story = teller.tell(rng)
            self.assertEqual(demo_check.story_faults(story["text"], ended=True), [])
            self.assertNotRegex(story["text"], r"[\[\]{}|]|  |\b[Aa] [aei]")


class Tokenizer(unittest.TestCase):
    def test_round_trip_and_words(self):
        sample = [text for _, text in texts(generate.Writer(1), 300)]
        tokenizer = bpe.train(sample, 600, [generate.STOP, generate.START, generate.END])
        self.assertEqual(len(tokenizer), 600)
        for text in sample[:50] + ["caf\u00e9 \u65e5\u672c \U0001f600\n\n x", ""]:
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)
        self.assertEqual(bpe.WORD.findall("it's  8080!\n\n x"),
                         ["it", "'s", " ", " 8080", "!", "\n\n", " x"])


class Rules(unittest.TestCase):
    def test_right_command(self):
        pattern = dict(demo_check.load_questions())["Which backends would be used right now?"]
        self.assertTrue(demo_check.names_right_command(pattern, "Use `pantheon --backend`."))
        wrong = "Use `pantheon --backend-plugin`."
        self.assertFalse(demo_check.names_right_command(pattern, wrong))

    def test_stories_that_fail(self):
        good = " ".join(f"word{i}" for i in range(60))
        self.assertEqual(demo_check.story_faults(good, True), [])
        self.assertEqual(len(demo_check.story_faults(good, False)), 1)
        self.assertEqual(len(demo_check.story_faults(good.rsplit(" ", 1)[0], True)), 1)
        self.assertEqual(demo_check.story_faults(good + " the red fox ran." * 3, True), [])
        self.assertEqual(len(demo_check.story_faults(good + " the red fox ran." * 4, True)), 1)

    def test_judge_counts(self):
        parrot = lambda asks: [("pantheon serve", True)] * len(asks)
        right, wrong, good, bad = demo_check.judge(parrot)
        self.assertEqual((right, len(wrong), good, len(bad)), (1, 39, 0, 10))
        self.assertFalse(demo_check.passes(36, 9))
        self.assertFalse(demo_check.passes(35, 10))
        self.assertTrue(demo_check.passes(36, 10))


class File(unittest.TestCase):
    def test_size_and_goldens(self):
        self.assertLessEqual(os.path.getsize(os.path.join(DEMO, "pantheon-demo.gguf")), MOST_BYTES)
        with open(os.path.join(HERE, "data", "demo_golden.json"), encoding="ascii") as file:
            golden = json.load(file)
        self.assertGreaterEqual(len(golden["cases"]), 8)
        for case in golden["cases"]:
            for kind in ("f32", "q8_0"):
                self.assertEqual(len(case[kind]["greedy"]), 64)
                self.assertEqual(case[kind]["greedy"][0], case[kind]["top"][0][0])


if __name__ == "__main__":
    unittest.main()
