#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs every suite, prints a time budget a suite, and ends with one line of counts.

A suite is a build folder and a meson suite selection. What is counted: doctest's test cases where a
program prints them, else the program itself. A line "SKIP: reason" in a program's output counts as
one skipped test and is printed with its reason. Exit status 1 when anything failed.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DOCTEST = re.compile(r"test cases:\s*(\d+)\s*\|\s*(\d+) passed\s*\|\s*(\d+) failed")
PYTEST = re.compile(r"^CASES: (\d+) passed, (\d+) failed$", re.M)
SKIP = re.compile(r"^\s*SKIP: (.*)$", re.M)
STRICT = ["-Dwerror=true"]
# Line tables only, -O1 and clang: one file took 1.7 s of processor time, 6.5 s with g++ 12, and
# reports still name lines. It is also the build that holds clang to no warnings.
SANITIZED = STRICT + ["-Doptimization=1", "-Db_lundef=false",
                      "-Dcpp_args=-g1 -fno-omit-frame-pointer",
                      "-Dc_args=-g1 -fno-omit-frame-pointer"]
ASAN = SANITIZED + ["-Db_sanitize=address,undefined"]
TSAN = SANITIZED + ["-Db_sanitize=thread"]


class Suite:
    """One build folder with its options, its meson suites, and the minutes it may take."""

    def __init__(self, name, folder, minutes, options=(), suites=(), env=None, targets=(), tests=()):
        self.tests = list(tests)  # by name; none: all of the suites
        self.clang = "-Db_sanitize" in " ".join(options)
        self.name, self.folder, self.minutes = name, folder, minutes
        self.options, self.suites, self.env = list(options), list(suites), env or {}
        self.targets = list(targets)  # none: everything


def suites(args):
    release = Suite("release", "build", 22, STRICT, ["unit", "negative", "tidy", "abi", "e2e"])
    if args.quick:
        return [release]
    # The hour holds the unit tests under both sanitizers; the e2e tests follow with --long.
    some, targets = (["unit", "e2e"], []) if args.long else (["unit"], ["units"])
    asan = Suite("asan+ubsan", "build-asan", 16, ASAN, some,
                 {"ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1",
                  "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}, targets)
    # What runs threads; the rest has nothing for this one to find.
    threaded = ["unit_hal", "unit_cpu", "unit_engine", "unit_oploop", "unit_serve"]
    tsan = Suite("tsan", "build-tsan", 16, TSAN, some,
                 {"TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"},
                 [] if args.long else ["unit_plugins", *(f"tests/unit/{name}" for name in threaded)],
                 [] if args.long else threaded)
    long = [Suite("long", "build", 240, STRICT, ["long"])] if args.long else []
    return [release, asan, tsan, *long]


def run(command, env=None, quiet=False):
    full = dict(os.environ, **(env or {}))
    return subprocess.run(command, cwd=ROOT, env=full,
                          stdout=subprocess.DEVNULL if quiet else None).returncode


def compilers(suite):
    """The suite's compilers, through ccache where it is installed."""
    if "CC" in os.environ or "CXX" in os.environ:
        return {}
    cc, cxx = ("clang", "clang++") if suite.clang else ("gcc", "g++")
    cache = "ccache " if shutil.which("ccache") else ""
    return {"CC": cache + cc, "CXX": cache + cxx, "CCACHE_NOHASHDIR": "1"}


def prepare(suite):
    if not os.path.exists(os.path.join(ROOT, suite.folder, "build.ninja")):
        if run(["meson", "setup", suite.folder, *suite.options], compilers(suite), quiet=True) != 0:
            return False
    return run(["ninja", "-C", suite.folder, *suite.targets], compilers(suite), quiet=True) == 0


class Counts:
    def __init__(self):
        self.passed = self.failed = 0
        self.skips = []

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skips += other.skips


def read_log(path):
    """Counts of one meson test log (a JSON object a line)."""
    counts = Counts()
    with open(path, encoding="utf-8", errors="replace") as log:
        for line in log:
            test = json.loads(line)
            text = test.get("stdout", "") + test.get("stderr", "")
            counts.skips += [f"{test['name']}: {reason}" for reason in SKIP.findall(text)]
            cases = [tuple(map(int, m)) for m in DOCTEST.findall(text)]
            passed = sum(c[1] for c in cases) + sum(int(m[0]) for m in PYTEST.findall(text))
            failed = sum(c[2] for c in cases) + sum(int(m[1]) for m in PYTEST.findall(text))
            result = test["result"]
            if result == "SKIP" and not SKIP.findall(text):
                counts.skips.append(f"{test['name']}: skipped")
            elif result in ("FAIL", "ERROR", "TIMEOUT", "INTERRUPT"):
                counts.failed += max(failed, 1)
                counts.passed += passed
                print(f"--- {test['name']}: {result}\n{text[-6000:]}", flush=True)
            elif result == "OK":
                counts.passed += passed or 1
    return counts


def run_suite(suite):
    start = time.monotonic()
    counts = Counts()
    if not prepare(suite):
        counts.failed += 1
        print(f"{suite.name}: the build failed", flush=True)
        return counts
    built = time.monotonic() - start
    command = ["meson", "test", "-C", suite.folder, "--no-rebuild", *suite.tests]
    for name in suite.suites:
        command += ["--suite", name]
    code = run(command, suite.env, quiet=True)
    counts = read_log(os.path.join(ROOT, suite.folder, "meson-logs", "testlog.json"))
    if code != 0 and counts.failed == 0:
        counts.failed += 1
        print(f"{suite.name}: meson test exited with {code}", flush=True)
    spent = time.monotonic() - start
    print(f"suite {suite.name}: {counts.passed} passed, {counts.failed} failed, "
          f"{len(counts.skips)} skipped; {spent / 60:.1f} of {suite.minutes} min "
          f"(build {built / 60:.1f})", flush=True)
    return counts


def lint():
    """clang-format and clang-tidy."""
    start = time.monotonic()
    counts = Counts()
    code = run([sys.executable, "tests/tools/lint.py", "build"])
    counts.passed, counts.failed = int(code == 0), int(code != 0)
    print(f"suite lint: {'passed' if code == 0 else 'failed'}; "
          f"{(time.monotonic() - start) / 60:.1f} of 10 min", flush=True)
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="release build only")
    parser.add_argument("--long", action="store_true", help="also what does not fit into an hour")
    args = parser.parse_args()
    total = Counts()
    for suite in suites(args):
        total.add(run_suite(suite))
    if not args.quick:
        total.add(lint())
    for skip in total.skips:
        print(f"skipped: {skip}")
    print(f"{total.passed} passed, {total.failed} failed, {len(total.skips)} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
