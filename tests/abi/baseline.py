# SPDX-License-Identifier: Apache-2.0
#
# Gate 1 of the ABI: abidiff of today's library against the stored view of a released minor, which
# must end with 0 and needs no suppression. An append behind #if PN_ABI_MINOR passes, because the
# library is built with that minor.
#
#   baseline.py STORED LIBRARY
#   abidw --no-comp-dir-path --no-corpus-path --no-show-locs LIBRARY > STORED    for a new minor
import shutil
import subprocess
import sys


def main(stored, library):
    if shutil.which("abidiff") is None:
        print("skipped: abidiff is not installed (apt-get install abigail-tools)")
        return 77
    same = subprocess.run(["abidiff", stored, library], text=True, capture_output=True)
    print(same.stdout, same.stderr)
    return 0 if same.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
