#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""names.py mutants.list names.h: the names of the mutants that are an option, as C strings."""
import sys


def rows(path):
    """(name, what, case, file or "") of each line"""
    with open(path, encoding="ascii") as file:
        for line in file:
            parts = [part.strip() for part in line.split("|")]
            if line.startswith("#") or len(parts) < 3:
                continue
            yield (*parts, "")[:4]


def main():
    names = [name for name, _, _, file in rows(sys.argv[1]) if not file]
    if len(set(names)) != len(names):
        sys.exit("a name stands twice in " + sys.argv[1])
    with open(sys.argv[2], "w", encoding="ascii") as out:
        out.writelines(f'"{name}",\n' for name in names)


if __name__ == "__main__":
    main()
