"""Weights out of ONNX graphs that are written here byte by byte, as the packages have them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from stepformer.base.weights.convert import clip_from_onnx, whisper_from_onnx
from stepformer.errors import InputError


def field(number, value):
    """A protocol buffer field: bytes, text or a number."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def tensor(name, array, listed=False):
    kind = {"float32": 1, "uint8": 2, "int8": 3}[array.dtype.name]
    shape = b"".join(field(1, n) for n in array.shape)
    if not listed:
        values = field(9, array.tobytes())
    elif kind == 1:
        values = field(4, array.tobytes())
    else:
        values = field(5, b"".join(varint(int(value) & (1 << 64) - 1) for value in array.flat))
    return field(5, shape + field(2, kind) + field(8, name) + values)


def node(place, operation, *inputs):
    return field(1, b"".join(field(1, name) for name in inputs) + field(2, "y") + field(3, place) + field(4, operation))


# -- CLIP ---------------------------------------------------------------------------------------------------------


def clip_graph(weight, scale, zero):
    given = ("x", "onnx::7_quantized", "x_zero", "onnx::7_zero_point")
    body = node("/add", "Add", "a")
    body += node("/vision_model/encoder/layers.0/mlp/fc1/MatMul_quant", "MatMulInteger", *given)
    body += tensor("vision_model.pre_layrnorm.bias", np.arange(3, dtype=np.float32))
    body += tensor("onnx::7_quantized", weight) + tensor("onnx::7_scale", scale, listed=True)
    return field(1, 8) + field(7, body + tensor("onnx::7_zero_point", zero, listed=True))


def test_clip_comes_out_of_an_onnx_graph(tmp_path):
    from safetensors.numpy import load_file

    weight = np.array([[1, -2], [3, 127], [-128, 0]], np.int8)  # (in, out)
    scale = np.array([0.5, 0.25], np.float32)
    (tmp_path / "clip_encoder.int8.onnx").write_bytes(clip_graph(weight, scale, np.zeros(2, np.int8)))
    clip_from_onnx(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    found = load_file(tmp_path / "model.safetensors")
    name = "vision_model.encoder.layers.0.mlp.fc1"
    assert set(found) == {"vision_model.pre_layrnorm.bias", f"{name}.weight", f"{name}.scale"}
    np.testing.assert_array_equal(found[f"{name}.weight"], weight.T)
    np.testing.assert_array_equal(found[f"{name}.scale"], scale)


@pytest.mark.parametrize("size", [0, 11, 60])
def test_what_is_no_graph_is_refused(tmp_path, size):
    graph = clip_graph(np.ones((1, 2), np.int8), np.ones(2, np.float32), np.zeros(2, np.int8))
    (tmp_path / "clip_encoder.int8.onnx").write_bytes(b"not a graph" if size == 11 else graph[:size])
    with pytest.raises(InputError):
        clip_from_onnx(tmp_path)


def test_weights_around_another_zero_are_refused(tmp_path):
    graph = clip_graph(np.ones((1, 2), np.int8), np.ones(2, np.float32), np.array([0, -1], np.int8))
    (tmp_path / "clip_encoder.int8.onnx").write_bytes(graph)
    with pytest.raises(InputError, match="not quantised around zero"):
        clip_from_onnx(tmp_path)


# -- Whisper ------------------------------------------------------------------------------------------------------

WIDTH, HEADS, WORDS, PLACES = 16, 2, 70, 1500


class Sizes:
    """A side of a small Whisper: its arrays under the published names, some of which a graph keeps as integers."""

    def __init__(self, decoder: bool) -> None:
        rng = np.random.default_rng(int(decoder))
        self.plain, self.whole = {}, {}

        def linear(name, out, given, bias=True):
            self.whole[name] = rng.integers(0, 256, (given, out)).astype(np.uint8), rng.uniform(0.002, 0.004)
            if bias:
                self.plain[f"{name}.bias"] = rng.normal(size=out).astype(np.float32)

        def norm(name):
            self.plain[f"{name}.weight"] = rng.normal(1, 0.1, WIDTH).astype(np.float32)
            self.plain[f"{name}.bias"] = rng.normal(0, 0.1, WIDTH).astype(np.float32)

        places = 448 if decoder else PLACES
        self.plain["embed_positions.weight"] = rng.normal(size=(places, WIDTH)).astype(np.float32)
        norm("layer_norm")
        for attention in ("self_attn", "encoder_attn")[: 1 + decoder]:
            norm(f"layers.0.{attention}_layer_norm")
            for which in ("q", "k", "v", "out"):
                linear(f"layers.0.{attention}.{which}_proj", WIDTH, WIDTH, bias=which != "k")
        norm("layers.0.final_layer_norm")
        linear("layers.0.fc1", 4 * WIDTH, WIDTH)
        linear("layers.0.fc2", WIDTH, 4 * WIDTH)
        if decoder:
            self.words = rng.integers(0, 256, (WORDS, WIDTH)).astype(np.uint8), 0.01
        else:
            self.convs = {
                f"conv{i}": (rng.integers(0, 256, (WIDTH, given, 3)).astype(np.uint8), 0.002)
                for i, given in ((1, 80), (2, WIDTH))
            }
            for name in self.convs:
                self.plain[f"{name}.bias"] = rng.normal(size=WIDTH).astype(np.float32)

    def float(self, name):
        """A weight as it is meant, (out, in)."""
        whole, scale = self.whole[name]
        return ((whole.astype(np.float32) - 128) * np.float32(scale)).T


def stored(name, whole, scale):
    """Integers with a zero in the middle, which takes two bytes in a list."""
    made = tensor(f"{name}_quantized", whole) + tensor(f"{name}_scale", np.float32(scale).reshape(()))
    return made + tensor(f"{name}_zero_point", np.uint8(128).reshape(()), listed=True)


def encoder_graph(side):
    body = b"".join(tensor(name, array) for name, array in side.plain.items())
    for i, (name, (whole, scale)) in enumerate(side.whole.items()):
        body += stored(f"onnx::{i}", whole, scale)
        body += node(f"/{name}/MatMul_quant", "MatMulInteger", "x", f"onnx::{i}_quantized")
    for name, (whole, scale) in side.convs.items():
        body += stored(f"{name}.weight", whole, scale)
        body += node(f"/{name}/Conv_quant", "ConvInteger", "x", f"{name}.weight_quantized")
    return field(1, 8) + field(7, body)


def decoder_graph(side):
    """As the package has it: weights outside, and nodes in the two graphs of a choice."""
    body = b"".join(tensor(f"model.decoder.{name}_merged_0", array) for name, array in side.plain.items())
    body += stored("model.decoder.embed_tokens.weight_merged_0", *side.words)
    inner = b""
    for i, (name, (whole, scale)) in enumerate(side.whole.items()):
        body += stored(f"onnx::{i}_merged_0", whole, scale)
        inner += node(f"/model/decoder/{name}/MatMul_quant", "MatMulInteger", "x", f"onnx::{i}_merged_0_quantized")
    inner += node("/proj_out/MatMul_quant", "MatMulInteger", "x", "elsewhere")
    choice = field(4, "If") + b"".join(field(5, field(1, "branch") + field(6, inner)) for _ in range(2))
    return field(1, 8) + field(7, body + field(1, choice))


@pytest.fixture
def whisper(tmp_path):
    encoder, decoder = Sizes(False), Sizes(True)
    (tmp_path / "encoder.onnx").write_bytes(encoder_graph(encoder))
    (tmp_path / "decoder.onnx").write_bytes(decoder_graph(decoder))
    sizes = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in
             (("layers", 1), ("attention_heads", HEADS))}  # fmt: skip
    (tmp_path / "sizes.json").write_text(json.dumps({**sizes, "vocab_size": WORDS}))
    how = {"alignment_heads": [[0, 1]], "lang_to_id": {"<|en|>": 52, "<|de|>": 51}, "suppress_tokens": [1, 2],
           "begin_suppress_tokens": [0]}  # fmt: skip
    (tmp_path / "generation_config.json").write_text(json.dumps(how))
    words = {f"w{i}": i for i in range(50)}
    added = [{"id": i, "content": f"<|{i}|>"} for i in range(50, 60)]
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": words}, "added_tokens": added}))
    return tmp_path, encoder, decoder


def test_whisper_comes_out_of_two_onnx_graphs(whisper, monkeypatch):
    from ctranslate2.specs import WhisperSpec

    folder, _, decoder = whisper
    seen = []
    monkeypatch.setattr(WhisperSpec, "optimize", lambda spec, **_: seen.append(spec))
    whisper_from_onnx(folder)
    (spec,) = seen
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["config.json", "model.bin", "tokenizer.json", "vocabulary.json"]
    assert json.loads((folder / "vocabulary.json").read_text())[49:62] == [
        "w49", *(f"<|{i}|>" for i in range(50, 60)), "<|0.00|>", "<|0.02|>",
    ]  # fmt: skip
    kept = json.loads((folder / "config.json").read_text())
    assert kept["lang_ids"] == [51, 52] and kept["alignment_heads"] == [[0, 1]] and kept["suppress_ids"] == [1, 2]
    own, cross = spec.decoder.layer[0].self_attention, spec.decoder.layer[0].attention
    both = [decoder.float(f"layers.0.encoder_attn.{which}_proj") for which in "kv"]
    np.testing.assert_allclose(cross.linear[1].weight.numpy(), np.concatenate(both), rtol=1e-6)
    biases = [decoder.plain[f"layers.0.self_attn.{which}_proj.bias"] for which in "qv"]
    np.testing.assert_array_equal(own.linear[0].bias.numpy(), np.concatenate([biases[0], np.zeros(WIDTH), biases[1]]))
    words = (decoder.words[0].astype(np.float32) - 128) * np.float32(0.01)
    np.testing.assert_allclose(spec.decoder.embeddings.weight.numpy(), words, rtol=1e-6)


def test_the_encoder_hears_what_its_weights_say(whisper):
    ctranslate2 = pytest.importorskip("ctranslate2")
    folder, side, _ = whisper
    whisper_from_onnx(folder)
    model = ctranslate2.models.Whisper(str(folder), device="cpu", compute_type="float32")
    sound = np.random.default_rng(5).normal(size=(1, 80, 2 * PLACES)).astype(np.float32)
    found = np.array(model.encode(ctranslate2.StorageView.from_array(sound)))

    def linear(x, name):
        bias = side.plain.get(f"layers.0.{name}.bias")
        return F.linear(x, torch.tensor(side.float(f"layers.0.{name}")), None if bias is None else torch.tensor(bias))

    def norm(x, name):
        return F.layer_norm(x, (WIDTH,), *(torch.tensor(side.plain[f"{name}.{what}"]) for what in ("weight", "bias")))

    x = torch.tensor(sound)
    for stride, (name, (whole, scale)) in enumerate(side.convs.items(), 1):
        weight = torch.tensor((whole.astype(np.float32) - 128) * np.float32(scale))
        x = F.gelu(F.conv1d(x, weight, torch.tensor(side.plain[f"{name}.bias"]), stride=stride, padding=1))
    x = x.mT + torch.tensor(side.plain["embed_positions.weight"])
    y = norm(x, "layers.0.self_attn_layer_norm")
    q, k, v = (linear(y, f"self_attn.{w}_proj").view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for w in "qkv")
    x = x + linear(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2), "self_attn.out_proj")
    x = x + linear(F.gelu(linear(norm(x, "layers.0.final_layer_norm"), "fc1")), "fc2")
    expected = norm(x, "layer_norm").numpy()
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()  # its weights are rounded to 8 bits again


def test_a_graph_that_lacks_a_layer_is_refused(whisper):
    folder, encoder, _ = whisper
    del encoder.whole["layers.0.fc2"]
    (folder / "encoder.onnx").write_bytes(encoder_graph(encoder))
    with pytest.raises(InputError, match=r"layers\.0\.fc2"):
        whisper_from_onnx(folder)
