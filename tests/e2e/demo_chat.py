#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bundled model chats: 40 questions on commands, 10 stories, greedy; rules in demo_check."""
import concurrent.futures
import sys

import demo_check
import harness


def main():
    cases = harness.Cases()
    with harness.Folder() as folder:
        # No model is named: this is what `serve` alone serves.
        with harness.Server(sys.argv[1], folder, ["--slots", "4"]) as server:
            def ask(text):
                answer = server.chat(text)
                return harness.text_of(answer), harness.finish_of(answer) == "stop"

            def ask_all(texts):
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    return list(pool.map(ask, texts))

            right, wrong, good, bad = demo_check.judge(ask_all)
        for question, answer, why in wrong + bad:
            print(f"  {question!r} -> {answer!r}: {why}")
        with cases.case(f"{right} of 40 questions name the right command"):
            harness.equal(len(demo_check.load_questions()), 40)
            assert right >= demo_check.QUESTIONS_TO_PASS, right
        with cases.case(f"{good} of 10 stories are long, varied and ended"):
            harness.equal(len(demo_check.load_story_prompts()), 10)
            harness.equal(good, 10)
    cases.finish()


if __name__ == "__main__":
    main()
