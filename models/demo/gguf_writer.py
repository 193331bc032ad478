# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF version 3: metadata and tensors in F32 or Q8_0, little-endian, aligned to 32 bytes.

Knows nothing of what the keys mean. The one idea: a value's Python type is its type in the
file: int is u32, float is f32, and a list takes the type of its elements (int in a list is i32).
"""
import struct

import numpy

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
TENSOR_F32, TENSOR_Q8_0 = 0, 8
BLOCK = 32  # values of a Q8_0 block: one f16 scale and 32 signed bytes


def write(path, metadata, tensors):
    """metadata: {key: value}; tensors: [(name, float32 array, TENSOR_*)] in file order."""
    head = b"GGUF" + struct.pack("<Iqq", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += _string(key) + _value(value)
    data, offset = [], 0
    for name, values, kind in tensors:
        body = quantise_q8_0(values) if kind == TENSOR_Q8_0 else values.astype("<f4").tobytes()
        head += _string(name) + struct.pack("<I", values.ndim)
        head += struct.pack(f"<{values.ndim}q", *reversed(values.shape))  # GGUF: fastest axis first
        head += struct.pack("<IQ", kind, offset)
        data.append(body + bytes(-len(body) % ALIGNMENT))
        offset += len(data[-1])
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + b"".join(data))


def q8_0_parts(values):
    """(scales as f16, signed bytes) of each block of 32; scale = largest magnitude / 127."""
    blocks = values.astype(numpy.float32).reshape(-1, BLOCK)
    scales = numpy.abs(blocks).max(axis=1, keepdims=True) / numpy.float32(127)
    inverse = numpy.divide(1, scales, out=numpy.zeros_like(scales), where=scales > 0)
    scaled = blocks * inverse
    rounded = numpy.sign(scaled) * numpy.floor(numpy.abs(scaled) + numpy.float32(0.5))
    return scales.astype("<f2"), rounded.astype(numpy.int8)


def quantise_q8_0(values):
    if values.shape[-1] % BLOCK:
        raise ValueError(f"row of {values.shape[-1]} values is no multiple of {BLOCK}")
    scales, quants = q8_0_parts(values)
    return numpy.concatenate([scales.view(numpy.int8), quants], axis=1).tobytes()


def through_q8_0(values):
    """What a reader of the file gets back: the values after quantising, as float32."""
    scales, quants = q8_0_parts(values)
    return (scales.astype(numpy.float32) * quants).reshape(values.shape)


def _string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(value):
    if isinstance(value, list):
        kind = {str: STRING, int: I32, float: F32}[type(value[0])]
        head = struct.pack("<IIQ", ARRAY, kind, len(value))
        return head + b"".join(_payload(element, kind) for element in value)
    kind = {bool: BOOL, int: U32, float: F32, str: STRING}[type(value)]
    return struct.pack("<I", kind) + _payload(value, kind)


def _payload(value, kind):
    if kind == STRING:
        return _string(value)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)
