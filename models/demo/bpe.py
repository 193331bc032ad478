# SPDX-License-Identifier: Apache-2.0
"""A byte-level BPE tokenizer in the manner of GPT-2: training, encoding, and the names GGUF wants.

Knows nothing of documents or roles. The one idea: words are cut by one pattern first, merges never
cross a word, so training works on counted words and encoding on a cache of words. Ids are: control
tokens, then the 256 bytes, then the merges in the order learned.
"""
import collections
import re

# GPT-2's pattern; \p{L} is spelled [^\W\d_] and \p{N} \d: the same on the text we generate.
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W\d_]+| ?\d+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")


def byte_names():
    """The printable character that stands for each byte in token names (GPT-2's table)."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {byte: chr(byte) for byte in keep}
    for byte in range(256):
        if byte not in names:
            names[byte] = chr(0x100 + len(names) - len(keep))
    return [names[byte] for byte in range(256)]


class Tokenizer:
    def __init__(self, control, merges):
        """control: names of control tokens; merges: [(left bytes, right bytes)] by rank."""
        self.control = list(control)
        self.merges = merges
        self.vocab = [bytes([b]) for b in range(256)] + [left + right for left, right in merges]
        self.id_of = {piece: len(control) + i for i, piece in enumerate(self.vocab)}
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.cache = {}

    def __len__(self):
        return len(self.control) + len(self.vocab)

    def control_id(self, name):
        return self.control.index(name)

    def encode(self, text):
        """Ids of plain text; names of control tokens in it are plain text too."""
        ids = []
        for word in WORD.findall(text):
            known = self.cache.get(word)
            if known is None:
                known = self.cache[word] = self._encode_word(word.encode("utf-8"))
            ids += known
        return ids

    def decode(self, ids):
        """Text of the ids; control tokens give nothing."""
        first = len(self.control)
        return b"".join(self.vocab[i - first] for i in ids if i >= first).decode("utf-8", "replace")

    def token_names(self):
        names = byte_names()
        return self.control + ["".join(names[b] for b in piece) for piece in self.vocab]

    def merge_names(self):
        names = byte_names()
        spell = lambda piece: "".join(names[b] for b in piece)
        return [spell(left) + " " + spell(right) for left, right in self.merges]

    def _encode_word(self, data):
        parts = [data[i:i + 1] for i in range(len(data))]
        while len(parts) > 1:
            ranks = [self.rank.get(pair, len(self.rank)) for pair in zip(parts, parts[1:])]
            best = min(ranks)
            if best == len(self.rank):
                break
            at = ranks.index(best)
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return [self.id_of[part] for part in parts]


def train(texts, size, control):
    """A tokenizer of `size` tokens. Ties go to the pair that sorts first, so runs agree."""
    counts = collections.Counter()
    for text in texts:
        counts.update(WORD.findall(text))
    words = [([bytes([b]) for b in word.encode("utf-8")], n) for word, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for index, (parts, n) in enumerate(words):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += n
            where[pair].add(index)
    merges = []
    while len(merges) < size - 256 - len(control):
        best = min(pairs.items(), key=lambda item: (-item[1], item[0]), default=(None, 0))
        if best[1] < 2:
            raise ValueError(f"text too small: {len(merges)} merges found, {size} tokens asked for")
        merges.append(best[0])
        _apply(best[0], words, pairs, where)
    return Tokenizer(control, merges)


def _apply(pair, words, pairs, where):
    """Merges `pair` in every word that has it, and keeps the pair counts right."""
    for index in sorted(where.pop(pair)):
        parts, n = words[index]
        for old in zip(parts, parts[1:]):
            pairs[old] -= n
        merged, i = [], 0
        while i < len(parts):
            if tuple(parts[i:i + 2]) == pair:
                merged.append(parts[i] + parts[i + 1])
                i += 2
            else:
                merged.append(parts[i])
                i += 1
        words[index] = (merged, n)
        for new in zip(merged, merged[1:]):
            pairs[new] += n
            where[new].add(index)
    del pairs[pair]
