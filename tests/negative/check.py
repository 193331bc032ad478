# SPDX-License-Identifier: Apache-2.0
#
# Code that must not compile. Each source compiles with -DPN_ALLOWED (so it is not broken by
# accident), and without it fails with the text that its "expect:" comment gives.
#
#   check.py SOURCE COMPILER [FLAG...]
import re
import subprocess
import sys


def main(source, *compiler):
    with open(source) as f:
        wanted = re.search(r"expect: (.+)", f.read())
    if wanted is None:
        return f"{source}: no 'expect: REGEX' comment"
    command = [*compiler, "-fsyntax-only", source]
    good = subprocess.run([*command, "-DPN_ALLOWED"], text=True, capture_output=True)
    if good.returncode != 0:
        return f"does not compile even when allowed:\n{good.stderr}"
    bad = subprocess.run(command, text=True, capture_output=True)
    if bad.returncode == 0:
        return f"{source} compiles, and must not"
    if re.search(wanted.group(1), bad.stderr) is None:
        return f"fails for another reason than '{wanted.group(1)}':\n{bad.stderr}"
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
