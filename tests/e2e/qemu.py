#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The program on a processor without AVX, emulated: same text as the baseline kernels here."""
import shutil
import sys

import harness
from harness import contains, equal


def main():
    exe = sys.argv[1]
    cases = harness.Cases()
    emulator = shutil.which("qemu-x86_64") or shutil.which("qemu-x86_64-static")
    if harness.SANITIZED:
        cases.skip("the emulator has no room for a sanitizer's shadow memory")
        cases.finish()
    if emulator is None:
        cases.skip("no qemu-x86_64: apt-get install qemu-user")
        cases.finish()
    nehalem = [emulator, "-cpu", "Nehalem", exe]
    question = ["--temp", "0", "-n", "24", "-p", "Which command lists the dies?"]
    with harness.Folder() as folder:
        with cases.case("run on an emulated Nehalem prints what the baseline kernels print here"):
            found = harness.run(nehalem, ["run", harness.DEMO, *question], folder, 240).expect(0)
            contains(found.out, "devices")
            profile = harness.profile(folder, "p.yaml",
                                      "plugins: { cpu: { options: { isa: baseline } } }\n")
            here = harness.run(exe, ["--profile", profile, "run", harness.DEMO, *question],
                               folder).expect(0)
            equal(found.out, here.out)
        with cases.case("a wider instruction set is refused there by name"):
            wide = harness.profile(folder, "w.yaml",
                                   "plugins: { cpu: { options: { isa: avx2 } } }\n")
            done = harness.run(nehalem, ["--profile", wide, "run", harness.DEMO, *question], folder,
                               240)
            assert done.code > 0, done.code
            contains(done.err, "avx2")
    cases.finish()


if __name__ == "__main__":
    main()
