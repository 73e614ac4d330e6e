"""A small untrained model and an encoder that looks at colours: everything of the product but the weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from stepformer.app.discover.stepformer import StepFormer
from stepformer.core.checkpoint import Checkpoint, save_checkpoint
from stepformer.core.model import StepDecoder, preset
from stepformer.core.options import DEFAULT_INFERENCE
from stepformer.encoders.base import Encoded
from stepformer.media.picture import FrameSpec

WIDTH = 64
INFERENCE = replace(DEFAULT_INFERENCE, contrast_from=1e9, contrast_to=1e9)  # untrained slots know no background


def tiny_decoder() -> StepDecoder:
    torch.manual_seed(0)
    return StepDecoder(preset("default", feature_dim=WIDTH, dim=WIDTH, feedforward=128, layers=2, slots=32)).eval()


def tiny_checkpoint(path):
    save_checkpoint(path, tiny_decoder(), "colours", {"made": "for tests"}, INFERENCE)
    return path


class ColourEncoder:
    """One vector per second: the picture's mean colour through a fixed random map; texts are bags of words."""

    name = "colours"
    license = "test"
    dim = WIDTH
    fingerprint = "colours-1"
    rate_hz = 1.0
    wants = FrameSpec(size=(16, 16))
    structure_dim = 8

    def __init__(self):
        rng = np.random.default_rng(3)
        self._map = rng.standard_normal((4, self.dim)).astype(np.float32)
        self._other = rng.standard_normal((4, 8)).astype(np.float32)
        self.videos_encoded = 0

    def encode_text(self, texts):
        import hashlib

        out = np.zeros((len(texts), self.dim), np.float32)
        for i, text in enumerate(texts):
            for word in text.lower().split() or [""]:
                seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "little")
                out[i] += np.random.default_rng(seed).standard_normal(self.dim).astype(np.float32)
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-9)

    def encode_video(self, frames):
        self.videos_encoded += 1
        colour = frames.reshape(len(frames), -1, 3).mean(1) / 255.0
        seen = np.concatenate([colour, np.full((len(colour), 1), 0.2)], 1).astype(np.float32)
        return Encoded(seen @ self._map, seen @ self._other)


def tiny_model() -> StepFormer:
    checkpoint = Checkpoint(tiny_decoder(), "colours", inference=INFERENCE, hash="0" * 64)
    return StepFormer(checkpoint, "tiny", ColourEncoder())


def planted(lengths=(12, 20, 8, 30, 15), noise=0.4, width=WIDTH, seed=0):
    """Vectors of steps that follow each other, each around a centre of its own; also the centres and the cuts."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((len(lengths), width))
    x = np.repeat(centres, lengths, 0) + noise * rng.standard_normal((sum(lengths), width))
    return x.astype(np.float32), centres.astype(np.float32), np.cumsum((0, *lengths)).tolist()


def write_video(path, colours, seconds_each=4, rate=5, size=(64, 48)):
    """An mp4 (or mkv) of plain colours, ``seconds_each`` of each."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=rate)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for colour in colours:
            picture = np.full((size[1], size[0], 3), colour, np.uint8)
            for _ in range(int(seconds_each * rate)):
                for packet in stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")):
                    container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path
