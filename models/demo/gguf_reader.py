# SPDX-License-Identifier: Apache-2.0
"""Reads back what gguf_writer.py writes, for tests and goldens; not a general reader.

The one idea: the inverse of the writer, in the same order, with values in the Python types that the
writer takes.
"""
import struct

import numpy

import gguf_writer as writer

SCALARS = {writer.U32: "<I", writer.I32: "<i", writer.F32: "<f", writer.BOOL: "<?"}


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values[0] if len(values) == 1 else values

    def string(self):
        size = self.take("<Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8")

    def value(self, kind):
        if kind == writer.ARRAY:
            element, count = self.take("<IQ")
            return [self.value(element) for _ in range(count)]
        return self.string() if kind == writer.STRING else self.take(SCALARS[kind])


def read(path):
    """({key: value}, [(name, float32 array, TENSOR_*)])"""
    with open(path, "rb") as file:
        cursor = Cursor(file.read())
    magic, version, n_tensors, n_keys = cursor.take("<4sIqq")
    if (magic, version) != (b"GGUF", 3):
        raise ValueError(f"{path}: want GGUF version 3, found {magic!r} version {version}")
    metadata = {}
    for _ in range(n_keys):
        key = cursor.string()
        metadata[key] = cursor.value(cursor.take("<I"))
    infos = []
    for _ in range(n_tensors):
        name, n_dims = cursor.string(), cursor.take("<I")
        shape = [cursor.take("<q") for _ in range(n_dims)][::-1]
        infos.append((name, shape, *cursor.take("<IQ")))
    begin = -(-cursor.at // writer.ALIGNMENT) * writer.ALIGNMENT
    return metadata, [(name, _values(cursor.data, begin + offset, shape, kind), kind)
                      for name, shape, kind, offset in infos]


def _values(data, at, shape, kind):
    count = int(numpy.prod(shape))
    if kind == writer.TENSOR_F32:
        return numpy.frombuffer(data, "<f4", count, at).reshape(shape)
    block = numpy.dtype([("scale", "<f2"), ("quants", "i1", writer.BLOCK)])
    blocks = numpy.frombuffer(data, block, count // writer.BLOCK, at)
    return (blocks["scale"].astype(numpy.float32)[:, None] * blocks["quants"]).reshape(shape)
