"""Upstream formats to safetensors, once, when weights are pulled."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.errors import InputError


def clip_from_onnx(source: Path, target: Path) -> None:
    """CLIP's image tower out of an ONNX graph with 8-bit weights, key for key as the hub publishes the float one.

    A matrix that the graph keeps as integers becomes "NAME.weight" (out, in) int8 and "NAME.scale" (out,) float32: the
    weight is their product. The graph itself is left behind: processors without VNNI overflow in its integer products.
    """
    from safetensors.numpy import save_file

    try:
        graph = memoryview(next(_fields(memoryview(source.read_bytes()), 7)))
        arrays = dict(_onnx_tensor(tensor) for tensor in _fields(graph, 5))
        out = {name: array for name, array in arrays.items() if name.endswith((".weight", ".bias", "class_embedding"))}
        for node in _fields(graph, 1):
            if bytes(next(_fields(node, 4))) != b"MatMulInteger":
                continue
            name = bytes(next(_fields(node, 3))).decode().strip("/").removesuffix("/MatMul_quant").replace("/", ".")
            stored = [bytes(value).decode() for value in _fields(node, 1)][1].removesuffix("_quantized")
            if arrays[f"{stored}_zero_point"].any():
                raise InputError(f"{source}: {name} is not quantised around zero")
            out[f"{name}.weight"] = np.ascontiguousarray(arrays[f"{stored}_quantized"].T)
            out[f"{name}.scale"] = arrays[f"{stored}_scale"]
    except (StopIteration, KeyError, IndexError, ValueError, struct.error) as error:
        raise InputError(f"{source} is not the ONNX graph that was expected: {error}") from error
    save_file(out, target)


def _fields(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """The values of one field of a protocol buffer message; a number comes as its eight bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            value = memoryview(struct.pack("<Q", varint() & (1 << 64) - 1))
        elif key & 7 in (1, 2, 5):
            size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
            value = message[at : at + size]
            at += size
        else:
            raise ValueError(f"field type {key & 7}")
        if key >> 3 == wanted:
            yield value


def _onnx_tensor(tensor: memoryview) -> tuple[str, Any]:
    """Name and array of a TensorProto of float32 or int8; any other type has no values here.

    Values are raw bytes (field 9) or lists: of floats (4), or of variable-length integers (5), which are one byte each
    where all are from 0 to 127, as the zero points of symmetric weights are; any other list does not fit its shape.
    """
    name = bytes(next(_fields(tensor, 8))).decode()
    kind = struct.unpack("<Q", next(_fields(tensor, 2)))[0]
    if kind not in (1, 3):
        return name, np.zeros(0, np.float32)
    dtype, listed = ("<f4", 4) if kind == 1 else ("i1", 5)
    raw = next(_fields(tensor, 9), None) or next(_fields(tensor, listed))
    shape = [struct.unpack("<Q", value)[0] for value in _fields(tensor, 1)]
    return name, np.frombuffer(raw, dtype).reshape(shape)


CONVERSIONS: dict[str, Callable[[Path, Path], None]] = {"clip": clip_from_onnx}
