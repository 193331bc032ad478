# SPDX-License-Identifier: Apache-2.0
"""Just enough GGUF to look into a small file and to write a changed copy of it.

Owns keys and tensor descriptions as lists that a test may edit; the tensor data is kept as it is.
Independent of the product, so that what a file holds is not taken from the program under test.
"""
import struct

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q",
           11: "<q", 12: "<d"}
STRING, ARRAY = 8, 9
TYPES = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 10: "Q2_K",
         11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 20: "IQ4_NL", 23: "IQ4_XS", 30: "BF16",
         35: "TQ2_0", 39: "MXFP4"}
SUPPORTED = {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"}


class Tensor:
    def __init__(self, name, dims, kind, offset):
        self.name, self.dims, self.kind, self.offset = name, dims, kind, offset


class File:
    """version, keys {name: (type, value)}, tensors; data: bytes of the data section."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.raw = file.read()
        self.at = 4
        assert self.raw[:4] == b"GGUF", path
        self.version = self._scalar(4)
        tensors, keys = self._scalar(10), self._scalar(10)
        self.keys = {}
        for _ in range(keys):
            name = self._string().decode()
            kind = self._scalar(4)
            self.keys[name] = (kind, self._value(kind))
        self.tensors = []
        for _ in range(tensors):
            name = self._string().decode()
            dims = [self._scalar(10) for _ in range(self._scalar(4))]
            kind = self._scalar(4)
            self.tensors.append(Tensor(name, dims, kind, self._scalar(10)))
        self.header_end = self.at
        self.alignment = self.keys.get("general.alignment", (4, 32))[1]
        self.data = self.raw[-(-self.at // self.alignment) * self.alignment:]

    def _scalar(self, kind):
        form = SCALARS[kind]
        value = struct.unpack_from(form, self.raw, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def _string(self):
        size = self._scalar(10)
        self.at += size
        return self.raw[self.at - size:self.at]

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            inner = self._scalar(4)
            return inner, [self._value(inner) for _ in range(self._scalar(10))]
        return self._scalar(kind)

    def text(self, key):
        return self.keys[key][1].decode() if key in self.keys else ""

    def type_names(self):
        return {TYPES.get(t.kind, f"type {t.kind}") for t in self.tensors}

    def supported(self):
        return self.text("general.architecture") == "llama" and self.type_names() <= SUPPORTED

    def set_text(self, key, value):
        self.keys[key] = (STRING, value.encode())

    def write(self, path):
        out = bytearray(b"GGUF")
        out += struct.pack("<IQQ", self.version, len(self.tensors), len(self.keys))
        for name, (kind, value) in self.keys.items():
            out += pack_string(name.encode()) + struct.pack("<I", kind) + pack(kind, value)
        for t in self.tensors:
            out += pack_string(t.name.encode()) + struct.pack("<I", len(t.dims))
            out += b"".join(struct.pack("<Q", d) for d in t.dims)
            out += struct.pack("<IQ", t.kind, t.offset)
        out += b"\0" * (-len(out) % self.alignment)
        with open(path, "wb") as file:
            file.write(out + self.data)
        return path


def pack_string(raw):
    return struct.pack("<Q", len(raw)) + raw


def pack(kind, value):
    if kind == STRING:
        return pack_string(value)
    if kind == ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(pack(inner, v) for v in items)
    return struct.pack(SCALARS[kind], value)
