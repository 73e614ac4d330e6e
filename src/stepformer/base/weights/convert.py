"""From the formats that registry packages carry to those that are loaded here: 8-bit weights out of ONNX graphs.

A graph is read as data, never run. What is quantised is a product of integers and one scale, or one per column; which
layer it belongs to is in the name of the node that uses it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.guard import reading
from stepformer.errors import InputError

Arrays = dict[str, NDArray[Any]]
_KINDS = {1: "<f4", 2: "u1", 3: "i1"}  # of tensors, by ONNX's numbers; others have no values here
_INTEGER_PRODUCTS = (b"MatMulInteger", b"ConvInteger")


def clip_from_onnx(folder: Path) -> None:
    """CLIP's image tower, key for key as the hub publishes the float one.

    A matrix that the graph keeps as integers becomes "NAME.weight" (out, in) int8 and "NAME.scale" (out,) float32: the
    weight is their product. The graph itself is left behind: processors without VNNI overflow in its integer products.
    """
    from safetensors.numpy import save_file

    source = folder / "clip_encoder.int8.onnx"
    with reading(source, "ONNX graph of CLIP's image tower"):
        arrays, products = _read(source)
        out = {name: array for name, array in arrays.items() if name.endswith((".weight", ".bias", "class_embedding"))}
        for name, stored in products.items():
            if arrays[f"{stored}_zero_point"].any():
                raise InputError(f"{source}: {name} is not quantised around zero")
            out[f"{name}.weight"] = np.ascontiguousarray(arrays[f"{stored}_quantized"].T)
            out[f"{name}.scale"] = arrays[f"{stored}_scale"]
    save_file(out, folder / "model.safetensors")
    source.unlink()


def whisper_from_onnx(folder: Path) -> None:
    """Whisper for CTranslate2, in 8 bits, from the graphs of its encoder and decoder and its configuration."""
    from ctranslate2.specs import WhisperSpec

    with reading(folder.name, "Whisper model in ONNX graphs"):
        sizes, how, tokens = (
            json.loads((folder / name).read_text("utf-8"))
            for name in ("sizes.json", "generation_config.json", "tokenizer.json")
        )
        counts = (sizes[f"{side}_{what}"] for side in ("encoder", "decoder") for what in ("layers", "attention_heads"))
        spec = WhisperSpec(*counts)
        for side in ("encoder", "decoder"):
            _fill(getattr(spec, side), _floats(folder / f"{side}.onnx"))
        spec.config.alignment_heads, spec.config.lang_ids = how["alignment_heads"], sorted(how["lang_to_id"].values())
        spec.config.suppress_ids, spec.config.suppress_ids_begin = how["suppress_tokens"], how["begin_suppress_tokens"]
        numbers = {**tokens["model"]["vocab"], **{token["content"]: token["id"] for token in tokens["added_tokens"]}}
        words = sorted(numbers, key=numbers.__getitem__)
        words += [f"<|{0.02 * i:.2f}|>" for i in range(sizes["vocab_size"] - len(words))]
        spec.register_vocabulary(words)
        spec.validate()
        spec.optimize(quantization="int8")
        spec.save(str(folder))
    for name in ("encoder.onnx", "decoder.onnx", "sizes.json", "generation_config.json"):
        (folder / name).unlink()


def _fill(spec: Any, arrays: Arrays) -> None:
    """One side of Whisper: CTranslate2 keeps the projections that read the same as one matrix."""

    def norm(to: Any, name: str) -> None:
        to.gamma, to.beta = arrays[f"{name}.weight"], arrays[f"{name}.bias"]

    def linear(to: Any, *names: str) -> None:
        weights = [arrays[f"{name}.weight"] for name in names]
        biases = [
            arrays.get(f"{name}.bias", np.zeros(len(w), np.float32)) for name, w in zip(names, weights, strict=True)
        ]
        to.weight, to.bias = np.concatenate(weights), np.concatenate(biases)

    for name in ("conv1", "conv2"):
        if hasattr(spec, name):
            getattr(spec, name).weight, getattr(spec, name).bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]
    if hasattr(spec, "embeddings"):
        spec.embeddings.weight = spec.projection.weight = arrays["embed_tokens.weight"]
    spec.position_encodings.encodings = arrays["embed_positions.weight"]
    norm(spec.layer_norm, "layer_norm")
    for number, layer in enumerate(spec.layer):
        here = f"layers.{number}"
        q, k, v, out = (f"{here}.self_attn.{which}_proj" for which in ("q", "k", "v", "out"))
        norm(layer.self_attention.layer_norm, f"{here}.self_attn_layer_norm")
        linear(layer.self_attention.linear[0], q, k, v)
        linear(layer.self_attention.linear[1], out)
        if hasattr(layer, "attention"):
            q, k, v, out = (f"{here}.encoder_attn.{which}_proj" for which in ("q", "k", "v", "out"))
            norm(layer.attention.layer_norm, f"{here}.encoder_attn_layer_norm")
            for to, names in zip(layer.attention.linear, ((q,), (k, v), (out,)), strict=True):
                linear(to, *names)
        norm(layer.ffn.layer_norm, f"{here}.final_layer_norm")
        linear(layer.ffn.linear_0, f"{here}.fc1")
        linear(layer.ffn.linear_1, f"{here}.fc2")


def _floats(path: Path) -> Arrays:
    """All weights of a graph, by the names of their layers, in float32; matrices as (out, in)."""
    arrays, products = _read(path)

    def plain(name: str) -> str:
        return name.removesuffix("_merged_0").removeprefix("model.decoder.")

    def product(stored: str) -> NDArray[Any]:
        whole, zero, scale = (arrays[f"{stored}_{part}"] for part in ("quantized", "zero_point", "scale"))
        return np.asarray((whole.astype(np.float32) - np.float32(zero)) * scale, np.float32)

    out = {plain(name): array for name, array in arrays.items() if name.endswith((".weight", ".bias", "_merged_0"))}
    for name, stored in products.items():
        weight = product(stored)
        out[f"{plain(name)}.weight"] = np.ascontiguousarray(weight.T) if weight.ndim == 2 else weight
    for name in arrays:
        if "embed_tokens" in name and name.endswith("_quantized"):
            stored = name.removesuffix("_quantized")
            out[plain(stored)] = product(stored)
    return out


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    """The arrays of an ONNX file by name; and for every layer that multiplies integers what its weight is called."""
    arrays: Arrays = {}
    products: dict[str, str] = {}
    for graph in _graphs(_fields(_fields(path.read_bytes())[7][0])):
        arrays.update(map(_tensor, graph[5]))
        for node in map(_fields, graph[1]):
            stored = node[1][1].decode() if node[4][0] in _INTEGER_PRODUCTS else ""
            if stored.endswith("_quantized"):
                name = node[3][0].decode().strip("/").rpartition("/")[0].replace("/", ".")
                products.setdefault(name, stored.removesuffix("_quantized"))
    return arrays, {name: stored for name, stored in products.items() if f"{stored}_quantized" in arrays}


def _graphs(graph: dict[int, list[Any]]) -> Iterator[dict[int, list[Any]]]:
    """A graph, and those that its nodes choose between."""
    yield graph
    for node in map(_fields, graph[1]):
        for attribute in map(_fields, node[5]):
            for inner in attribute[6]:
                yield from _graphs(_fields(inner))


def _fields(message: bytes) -> dict[int, list[Any]]:
    """The values of a protocol buffer message, bytes or numbers, by the number of their field."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet

    values: dict[int, list[Any]] = defaultdict(list)
    try:
        for field in UnknownFieldSet(Empty.FromString(message)):
            values[field.field_number].append(field.data)
    except DecodeError as error:
        raise InputError(str(error)) from None
    return values


def _tensor(message: bytes) -> tuple[str, NDArray[Any]]:
    """Name and array of a TensorProto: raw bytes (field 9), or a list of floats (4) or of integers (5)."""
    tensor = _fields(message)
    name, kind = tensor[8][0].decode(), _KINDS.get(tensor[2][0])
    if kind is None:
        return name, np.zeros(0, np.float32)
    if raw := [values for values in (*tensor[9], *(tensor[4] if kind == "<f4" else ())) if values]:
        return name, np.frombuffer(raw[0], kind).reshape(tensor[1])
    listed = [number for part in tensor[5] for number in (_numbers(part) if isinstance(part, bytes) else (part,))]
    return name, (np.asarray(listed, np.int64) & 0xFF).astype("u1").view(kind).reshape(tensor[1])


def _numbers(packed: bytes) -> Iterator[int]:
    """The low 32 bits of variable-length integers."""
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number & 0xFFFFFFFF
            number = shift = 0


CONVERSIONS: dict[str, Callable[[Path], None]] = {"clip": clip_from_onnx, "whisper": whisper_from_onnx}
"""Each turns the files of a folder into those that are loaded."""
