#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No VEX or EVEX instruction where any x86-64 must run, and none outside the wide kernels.

vex.py --clean FILE ... --mutant FILE [--shared SO --wide LIB ...]
  --clean   programs, objects, archives that must hold no such instruction
  --mutant  an object built with -mavx2: the check must flag it, or it checks nothing
  --shared  a plugin that holds wide kernels: its VEX functions must all be defined in a --wide
            archive, and these must define no weak function, since the linker keeps one copy of an
            inline function and it may be the one that was compiled for the newer machine

Decides by bytes, not by names: in 64-bit code C4, C5 and 62 as the first byte after segment and
address-size prefixes begin a VEX or EVEX instruction and nothing else.
"""
import argparse
import re
import subprocess
import sys

PREFIXES = {"26", "2e", "36", "3e", "64", "65", "67"}
VEX = {"c4", "c5", "62"}
FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")


def disassembly(path):
    command = ["objdump", "-d", "-w", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def vex_functions(path):
    """(instructions seen, {function: first VEX instruction in it})"""
    seen, found, function = 0, {}, "?"
    for line in disassembly(path):
        head = FUNCTION.match(line)
        if head:
            function = head.group(1)
            continue
        parts = line.split("\t")
        if len(parts) < 3:
            continue
        seen += 1
        codes = parts[1].split()
        while codes and codes[0] in PREFIXES:
            codes.pop(0)
        if codes and codes[0] in VEX and "(bad)" not in parts[2]:
            found.setdefault(function, " ".join(parts[2].split()))
    return seen, found


def symbols(path):
    """(kind, name) of what the object defines"""
    text = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True,
                          check=True).stdout
    rows = [line.split() for line in text.splitlines()]
    return [(row[1], row[2]) for row in rows if len(row) == 3]


def stem(name):
    """Without what the compiler appends to parts of a function (.cold, .constprop.0, ...)."""
    return name.split(".", 1)[0]


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def expect(self, ok, text):
        self.passed += int(ok)
        self.failed += int(not ok)
        print(("ok   " if ok else "FAIL ") + text)

    def clean(self, path):
        seen, found = vex_functions(path)
        self.expect(seen > 0 and not found, f"{path}: {seen} instructions, {len(found)} functions "
                    f"with VEX{': ' if found else ''}{dict(list(found.items())[:8]) or ''}")

    def shared(self, path, archives):
        allowed, weak = set(), []
        for archive in archives:
            for kind, name in symbols(archive):
                allowed.add(stem(name))
                if kind in "WVu":
                    weak.append(name)
        _, found = vex_functions(path)
        strays = {f: i for f, i in found.items() if stem(f) not in allowed}
        self.expect(bool(found), f"{path}: {len(found)} functions with VEX are seen at all")
        self.expect(not strays, f"{path}: VEX outside the wide kernels: {strays or 'none'}")
        self.expect(not weak, f"wide kernels define weak functions: {weak or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clean", nargs="+", default=[])
    parser.add_argument("--mutant", required=True)
    parser.add_argument("--shared")
    parser.add_argument("--wide", nargs="+", default=[])
    args = parser.parse_args()
    checks = Checks()
    for path in args.clean:
        checks.clean(path)
    if args.shared:
        checks.shared(args.shared, args.wide)
    _, found = vex_functions(args.mutant)
    checks.expect(bool(found), f"the mutant is flagged: {found}")
    print(f"CASES: {checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
