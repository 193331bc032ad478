# SPDX-License-Identifier: Apache-2.0
#
# Gate 2 of the ABI: every released "struct | offset | field" is still there.
#
#   layout.py CLANG SOURCE INCLUDE GOLDEN [FLAG...]           prints what was lost
#   layout.py --write CLANG SOURCE INCLUDE GOLDEN [FLAG...]   the golden file of a new minor
#
# Knows nothing of what the fields mean. Lines that are new are fine: structs grow at their ends.
import re
import subprocess
import sys

SKIP = 77  # meson's number for a skipped test


def layout(clang, source, include, extra=()):
    """The sorted lines of all pn_ structs that the source needs."""
    dump = subprocess.run(
        [clang, "-std=c11", "-fsyntax-only", "-Xclang", "-fdump-record-layouts", "-I", include,
         *extra, source], capture_output=True, text=True, check=True).stdout
    lines, struct = set(), None
    for line in dump.splitlines():
        top = re.match(r"\s*0 \| struct (pn_\w+)$", line)
        field = re.match(r"\s*(\d+) \|   (\S.*)$", line)
        size = re.match(r"\s*\| \[sizeof=(\d+)", line)
        if top:
            struct = top.group(1)
        elif field and struct:
            lines.add(f"{struct} | {int(field.group(1)):4d} | {field.group(2)}")
        elif size:
            struct = None
    return sorted(lines)


def main(args):
    write = args[0] == "--write"
    clang, source, include, golden, *extra = args[1:] if write else args
    try:
        now = layout(clang, source, include, extra)
    except FileNotFoundError:
        print(f"skipped: {clang} is not installed (apt-get install clang)")
        return SKIP
    if write:
        with open(golden, "w") as out:
            out.write("\n".join(now) + "\n")
        return 0
    with open(golden) as stored:
        released = [line for line in stored.read().splitlines() if line]
    lost = sorted(set(released) - set(now))
    for line in lost:
        print("lost:", line)
    print(f"{len(released)} released lines, {len(lost)} lost, {len(set(now) - set(released))} new")
    return 1 if lost or len(released) < 300 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
