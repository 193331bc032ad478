# SPDX-License-Identifier: Apache-2.0
"""Choices, slots and text files of the generator.

Knows nothing of what the texts say. The one idea: a template is text with [x|y] choices, which may
nest, and {slots}; everything random comes from the one random.Random that the caller passes.
"""
import os
import re

TEXT_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "text")
INNERMOST = re.compile(r"\[([^\[\]]*)\]")
SLOT = re.compile(r"\{([^{}]+)\}")
BEFORE_VOWEL = re.compile(r"\b([Aa]) (?=[aeiou]|honest)(?!one\b|uni|use)")


def choose(template, rng):
    """Resolves every [x|y], innermost first."""
    while True:
        found = INNERMOST.search(template)
        if not found:
            return template
        pick = rng.choice(found.group(1).split("|"))
        template = template[:found.start()] + pick + template[found.end():]


def fill(template, slots):
    """Replaces {name}; {name^} is the same with a capital first letter. Unknown names raise."""
    def one(match):
        name = match.group(1)
        return upper_first(slots[name[:-1]]) if name.endswith("^") else slots[name]
    return BEFORE_VOWEL.sub(r"\1n ", SLOT.sub(one, template))


def upper_first(text):
    return text[:1].upper() + text[1:]


def lower_first(text):
    return text[:1].lower() + text[1:]


def lines(name):
    """Lines of a text file without comments and empty lines."""
    with open(os.path.join(TEXT_FOLDER, name), encoding="ascii") as file:
        for line in file:
            line = line.rstrip("\n")
            if line.strip() and not line.startswith("#"):
                yield line


def word_lists():
    """words.txt as {list name: [words]}."""
    lists = {}
    for line in lines("words.txt"):
        name, words = line.split(":", 1)
        lists[name] = [word.strip() for word in words.split(",")]
    return lists


def blocks(name):
    """A file of "= key" blocks as [{key, flags, letter: [templates]}]."""
    found = []
    for line in lines(name):
        if line.startswith("= "):
            key, *flags = line[2:].split()
            found.append({"key": key, "flags": flags})
        else:
            found[-1].setdefault(line[0], []).append(line[2:])
    return found


def sections(name):
    """A file of "= section" headings as {section: [lines]}."""
    found = {}
    for line in lines(name):
        if line.startswith("= "):
            section = found.setdefault(line[2:], [])
        else:
            section.append(line)
    return found
