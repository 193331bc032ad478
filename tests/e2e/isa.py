#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each instruction set that this host has: bit-equal in reference mode, else in agreement.

Agreement: the reference's tokens are fed, the best token is compared at every position; another
choice counts only where the reference's best two differ by more than CLEAR logits. While the fast
answer follows the reference's tokens, one request stands for all its positions.
"""
import os
import sys

import harness
from harness import contains, equal

NAMES = ("baseline", "avx2", "avx512", "avx512vnni")
ANSWER = 30 if harness.SANITIZED else 200  # times the prompts: 2,000 positions
CLEAR = 0.05
STARTS = ("Once upon a time", "Tell me a story.", "The server", "Which command lists the dies?",
          "a", "In the garden", "The plugin", "One day a dragon", "Why", "She said")


def serve(exe, folder, isa, numerics):
    # One thread: bits do not depend on it, and on a busy machine barriers cost more than they save.
    options = f"{{ isa: {isa}, numerics: {numerics}, threads: 1 }}"
    text = f"plugins: {{ cpu: {{ options: {options} }} }}\n"
    path = harness.profile(folder, f"{isa}-{numerics}.yaml", text)
    return harness.Server(exe, folder, ["--model", harness.DEMO, "--context", "1024"],
                          ["--profile", path])


def present(exe, folder, isa):
    """Whether this host has it; what it has not is refused by name."""
    path = harness.profile(folder, "probe.yaml",
                           f"plugins: {{ cpu: {{ options: {{ isa: {isa} }} }} }}\n")
    done = harness.run(exe, ["--profile", path, "devices"], folder)
    if done.code == 0:
        return True
    contains(done.err, isa)
    return False


def greedy(server, prompt, tokens):
    answer = server.complete(prompt, max_tokens=tokens, ignore_eos=True, logprobs=2)
    return answer["choices"][0]["logprobs"]


def reference_answers(exe, folder, isa, prompts=None):
    """(prompts as ids, answers: ids with the two best logprobs at each)"""
    with serve(exe, folder, isa, "reference") as server:
        if prompts is None:
            prompts = [greedy(server, start, 8)["token_ids"] for start in STARTS]
        return prompts, [greedy(server, prompt, ANSWER) for prompt in prompts]


def agreement(server, prompts, answers):
    """(positions, raw mismatches, mismatches at clear choices)"""
    count = raw = clear = 0
    for prompt, answer in zip(prompts, answers):
        ids, at = answer["token_ids"], 0
        while at < len(ids):
            found = greedy(server, prompt + ids[:at], len(ids) - at)["token_ids"]
            same = next((i for i, (a, b) in enumerate(zip(found, ids[at:])) if a != b), len(found))
            at += same
            if at < len(ids):
                best, second = sorted(answer["top_ids"][at].values(), reverse=True)[:2]
                raw += 1
                clear += best - second > CLEAR
                at += 1
        count += len(ids)
    return count, raw, clear


def main():
    exe = os.path.abspath(sys.argv[1])
    cases = harness.Cases()
    with harness.Folder() as folder:
        names = []
        for isa in NAMES:
            with cases.case(f"{isa}: offered or refused by name"):
                if present(exe, folder, isa):
                    names.append(isa)
                else:
                    cases.skip(f"this host has no {isa}")
        with cases.case("an instruction set that nobody knows is refused"):
            equal(present(exe, folder, "zebra"), False)
        prompts, oracle = reference_answers(exe, folder, "baseline")
        for isa in names:
            if isa != "baseline":
                with cases.case(f"{isa}: reference mode is bit-equal to the baseline's"):
                    equal(reference_answers(exe, folder, isa, prompts[:3])[1], oracle[:3])
            with cases.case(f"{isa}: fast mode agrees"):
                with serve(exe, folder, isa, "fast") as server:
                    count, raw, clear = agreement(server, prompts, oracle)
                print(f"  {isa}: {count} positions, {raw} differ, {clear} at clear choices")
                equal(count, ANSWER * len(STARTS))
                assert clear <= 0.005 * count, (clear, count)
    cases.finish()


if __name__ == "__main__":
    main()
