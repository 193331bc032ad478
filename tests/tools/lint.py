#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""clang-format and clang-tidy over the tree, two processes at a time.

lint.py BUILD [--format] [FILE ...]: files default to every .cc that BUILD compiles; --format leaves
clang-tidy out, which takes about ten processor minutes. Kernels are left to the
compiler: clang-tidy takes minutes on intrinsics and finds nothing there.
"""
import concurrent.futures
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def prepare(build):
    """The build's commands without what only gcc knows, in a folder of their own."""
    with open(os.path.join(ROOT, build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    for command in commands:
        command["command"] = command["command"].replace("-fno-gnu-unique", "")
    folder = os.path.join(ROOT, build, "lint")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump(commands, f)
    return folder, commands


def sources(commands):
    files = {os.path.normpath(os.path.join(c["directory"], c["file"])) for c in commands}
    return sorted(f for f in files if f.endswith(".cc") and "/kernels/" not in f
                  and f.startswith(ROOT) and "/subprojects/" not in f)


def formatted(files):
    extra = []
    for folder in ("hal/host", "hal/proxy", "hal/sdk", "models", "engine", "backends", "plugins", "tests"):
        for base, _, names in os.walk(os.path.join(ROOT, folder)):
            extra += [os.path.join(base, n) for n in names
                      if n.endswith((".h", ".cc")) and "_tables." not in n]
    listed = sorted(set(files) | set(extra))
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *listed], cwd=ROOT,
                          capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[:4000])
        print("run ./dev fmt")
    return done.returncode == 0


def tidy(args):
    folder, file = args
    command = ["clang-tidy", "--quiet", "-p", folder, file]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    bad = done.returncode != 0 or "warning:" in done.stdout or "error:" in done.stdout
    return file, bad, done.stdout + (done.stderr if done.returncode else "")


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    format_only = "--format" in sys.argv
    folder, commands = prepare(build)
    files = [a for a in sys.argv[2:] if a != "--format"] or sources(commands)
    ok = formatted(files)
    if format_only:
        return 0 if ok else 1
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for file, bad, text in pool.map(tidy, [(folder, f) for f in files]):
            if bad:
                ok = False
                print(f"--- {os.path.relpath(file, ROOT)}\n{text[:3000]}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
