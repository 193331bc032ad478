#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Logits against the golden files: exact types within 1e-4, quantised ones beside llama.cpp.

quality.py LOGITS PLUGIN. LOGITS is tests/support/logits. For a quantised file the reference is exact
arithmetic on the decoded weights (numerics=reference); the plugin's fast kernels may be off from it by
no more than 1.2 times the NMSE of llama.cpp, whose logits the golden files hold.
"""
import json
import os
import subprocess
import sys
import tempfile
from array import array

import harness

QUANTISED = ("Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K_M", "Q5_K_M", "Q6_K")
FLOATS = ("f16", "BF16")
EXACT = 1e-4     # of the largest logit, F32 files
NMSE_TIMES = 1.2  # of llama.cpp's


def read(path):
    values = array("f")
    with open(path, "rb") as f:
        values.frombytes(f.read())
    return values


class Rig:
    def __init__(self, tool, plugin, folder):
        self.tool, self.plugin, self.folder = tool, plugin, folder

    def logits(self, model, ids, *options):
        out = os.path.join(self.folder, "out.f32")
        done = subprocess.run([self.tool, self.plugin, model, out, *options],
                              input=" ".join(map(str, ids)), text=True, capture_output=True)
        if done.returncode:
            raise AssertionError(done.stderr)
        return read(out)


def nmse(values, reference):
    difference = sum((a - b) ** 2 for a, b in zip(values, reference))
    return difference / sum(b * b for b in reference)


def golden_cases(models, folder, name):
    """(ids, golden logits) of each case that stored its logits."""
    with open(os.path.join(models, "golden", folder, name + ".json"), encoding="utf-8") as f:
        for case in json.load(f):
            if "logits" in case:
                yield case["ids"], read(os.path.join(models, "golden", folder, case["logits"]))


def check_exact(rig, models):
    worst = 0
    for name in ("stories260K-f32", "TinyStories-656K-f32"):
        file = os.path.join(models, "real", name + ".gguf")
        for ids, golden in golden_cases(models, "real-logits", name):
            for numerics in ("fast", "reference"):
                ours = rig.logits(file, ids, "numerics=" + numerics)
                harness.equal(len(ours), len(golden))
                off = max(abs(a - b) for a, b in zip(ours, golden)) / max(map(abs, golden))
                worst = max(worst, off)
                if off > EXACT:
                    raise AssertionError(f"{name} {numerics}: off by {off:.2e} of the largest")
    print(f"F32 logits: off by at most {worst:.1e} of the largest")


def check_type(rig, models, kind):
    file = os.path.join(models, "quant", f"tiny-llama-{kind}.gguf")
    ours = theirs = 0
    for ids, golden in golden_cases(models, "quant", f"tiny-llama-{kind}"):
        reference = rig.logits(file, ids, "numerics=reference")
        fast = rig.logits(file, ids, "numerics=fast")
        ours += nmse(fast, reference)
        theirs += nmse(golden, reference)
    print(f"| {kind:6} | {ours:.3e} | {theirs:.3e} | {ours / theirs if theirs else 0:.2f} |")
    if ours > NMSE_TIMES * theirs:
        raise AssertionError(f"{kind}: NMSE {ours:.3e} against llama.cpp's {theirs:.3e}")


def main():
    shared = harness.shared()
    if not shared:
        print("SKIP: ../shared with models and golden files is absent")
        return 0
    models = os.path.join(shared, "models")
    cases = harness.Cases()
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(sys.argv[1], sys.argv[2], folder)
        with cases.case("F32 logits are the golden ones"):
            check_exact(rig, models)
        print("| type | NMSE ours | NMSE llama.cpp | ratio |\n|---|---|---|---|")
        for kind in QUANTISED + FLOATS:
            with cases.case(f"{kind} is as exact as llama.cpp"):
                check_type(rig, models, kind)
    return cases.finish()


if __name__ == "__main__":
    sys.exit(main())
