#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py OUT FILE ...: a header with {name, text} of each file, for a list's initialiser."""
import os
import sys

PART = 12000  # characters of one literal; compilers promise 65,535


def main():
    with open(sys.argv[1], "w", encoding="ascii") as out:
        for path in sys.argv[2:]:
            with open(path, encoding="ascii") as file:
                text = file.read()
            parts = [text[i:i + PART] for i in range(0, len(text), PART)]
            literal = "\n".join(f'R"PNX({part})PNX"' for part in parts)
            out.write(f'    {{"{os.path.basename(path)}", {literal}}},\n')


if __name__ == "__main__":
    main()
