#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of small models against llama.cpp's, and other files refused by name.

F32 files must give every golden token and text. On all others llama.cpp also rounds or quantises the
activations, so each golden token is fed and ours is compared: another choice counts as a near tie
only while the golden token is less than NEAR logits behind ours. Their texts must mostly be equal.
"""
import glob
import json
import os
import sys

import gguf
import harness
from harness import equal

TOKENS = 64
NEAR = {"half": 0.05, "quantised": 0.25}  # logits
HALF = {"F32", "F16", "BF16"}
# A sanitizer build looks at code, not at numbers: one file a kind of code.
FEW = {"stories260K-f32", "tiny-llama-moe-f16", "tiny-llama-Q8_0", "tiny-llama-Q4_K_M"}


def golden(shared, folder, name):
    with open(os.path.join(shared, "models", "golden", folder, name + ".json"), "rb") as file:
        return json.loads(file.read().decode("utf-8", "replace"))


def texts_by_run(exe, folder, path, entries):
    """How many texts are the golden one."""
    same = 0
    for entry in entries:
        args = ["run", path, "--raw", "--temp", "0", "-n", str(TOKENS), "--kv", "f32",
                "--ignore-eos", "-p", entry["text"]]
        found, wanted = harness.run(exe, args, folder).expect(0).out, entry["greedy_text"]
        if len(entry["greedy"]) < TOKENS:
            found = found[:len(wanted)]
        same += found.rstrip("\n") == wanted.rstrip("\n")
    return same


def ids_by_api(server, entries):
    for entry in entries:
        answer = server.complete(entry["ids"], max_tokens=len(entry["greedy"]), logprobs=1,
                                 ignore_eos=True)
        equal(answer["choices"][0]["logprobs"]["token_ids"], entry["greedy"], str(entry["ids"]))


def ids_when_fed(server, entries, near_logits):
    """(equal, near ties, positions); a choice that is no near tie raises."""
    same = near = count = 0
    for entry in entries:
        for at, token in enumerate(entry["greedy"]):
            prompt = entry["ids"] + entry["greedy"][:at]
            answer = server.complete(prompt, max_tokens=1, logprobs=20, ignore_eos=True)
            found = answer["choices"][0]["logprobs"]
            count += 1
            if found["token_ids"][0] == token:
                same += 1
                continue
            tops = {int(k): v for k, v in found["top_ids"][0].items()}
            assert token in tops, f"golden {token} is not among our best 20 at {at}: {tops}"
            gap = found["token_logprobs"][0] - tops[token]
            assert gap < near_logits, f"golden {token} is {gap:.3f} logits behind our choice at {at}"
            near += 1
    return same, near, count


def check_model(exe, path, entries, cases, counts):
    kinds = gguf.File(path).type_names()
    exact = kinds == {"F32"}
    near_logits = NEAR["half" if kinds <= HALF else "quantised"]
    name = os.path.basename(path)
    with harness.Folder() as folder:
        given = [e for e in entries if "text" in e]
        if given:
            with cases.case(f"{name}: run prints the golden text of {len(given)} prompts"):
                same = texts_by_run(exe, folder, path, given)
                assert same >= len(given) - (not exact), f"{same} of {len(given)}"
        with harness.Server(exe, folder, ["--model", path, "--kv", "f32"]) as server:
            if exact:
                with cases.case(f"{name}: the API gives the golden ids"):
                    ids_by_api(server, entries)
                return
            with cases.case(f"{name}: golden ids where the choice is clear"):
                same, near, count = ids_when_fed(server, entries, near_logits)
                print(f"  {name}: {same} of {count} equal, {near} near ties")
                counts[0] += same
                counts[1] += count


def check_refused(exe, path, cases):
    model = gguf.File(path)
    architecture = model.text("general.architecture")
    culprit = {architecture} if architecture != "llama" else model.type_names() - gguf.SUPPORTED
    with cases.case(f"{os.path.basename(path)} is refused by name: {sorted(culprit)}"):
        with harness.Folder() as folder:
            done = harness.run(exe, ["run", path, "--raw", "-p", "x"], folder).expect(harness.MODEL)
            assert any(word in done.err for word in culprit), done.err
            equal(done.out, "")


def main():
    exe = sys.argv[1]
    cases = harness.Cases()
    shared = harness.shared()
    if shared is None:
        cases.skip("no folder of small models: set PN_SHARED")
        cases.finish()
    counts = [0, 0]
    for path in sorted(glob.glob(os.path.join(shared, "models", "*", "*.gguf"))):
        folder, name = path.split(os.sep)[-2], os.path.basename(path).removesuffix(".gguf")
        if not gguf.File(path).supported():
            check_refused(exe, path, cases)
        elif folder != "arch" and (name in FEW or not harness.SANITIZED):
            check_model(exe, path, golden(shared, folder, name), cases, counts)
    with cases.case("at least 95 % of these tokens are equal"):
        assert counts[1] and counts[0] >= 0.95 * counts[1], counts
    cases.finish()


if __name__ == "__main__":
    main()
