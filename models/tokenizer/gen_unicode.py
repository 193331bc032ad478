#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes unicode_data.inc: runs of code points with the same class, from Python's unicodedata.

    python3 models/tokenizer/gen_unicode.py > models/tokenizer/unicode_data.inc

Only the classes that pre-tokenizers ask for are told apart. White_Space is not a general category:
its code points are listed by Unicode in PropList.txt and come first here.
"""
import sys
import unicodedata

CLASSES = ["other", "space", "upper", "lower", "letter", "mark", "number", "punct", "symbol"]
WHITE_SPACE = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028,
               0x2029, 0x202F, 0x205F, 0x3000}
CATEGORY = {"Lu": "upper", "Lt": "upper", "Ll": "lower", "Lm": "letter", "Lo": "letter",
            "M": "mark", "N": "number", "P": "punct", "S": "symbol"}


def class_of(point):
    if point in WHITE_SPACE:
        return "space"
    category = unicodedata.category(chr(point))
    return CATEGORY.get(category, CATEGORY.get(category[0], "other"))


def main():
    runs = []
    for point in range(0x110000):
        value = CLASSES.index(class_of(point))
        if not runs or runs[-1] & 15 != value:
            runs.append(point << 4 | value)
    print("// SPDX-License-Identifier: Apache-2.0")
    print("//")
    print("// Written by gen_unicode.py: do not edit. Each entry is (first code point << 4 | class) and")
    print("// holds until the next one. Classes in order: " + " ".join(CLASSES[:5]))
    print("// " + " ".join(CLASSES[5:]) + ".")
    print(f'inline constexpr char kUnicodeVersion[] = "{unicodedata.unidata_version}";')
    print("inline constexpr uint32_t kClassRuns[] = {")
    line = "   "
    for run in runs:
        word = f" {run:#x},"
        if len(line) + len(word) > 100:
            print(line)
            line = "   "
        line += word
    print(line)
    print("};")
    print(f"{len(runs)} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
