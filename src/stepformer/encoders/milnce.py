"""MIL-NCE on HowTo100M (Miech et al. 2020): S3D with gating for video and word vectors for text, one 512-d space.

Needs the authors' files ``s3d_howto100m.pth`` and ``s3d_dict.npy`` (Apache-2.0, antoine77340/S3D_HowTo100M) in one
folder: ``stepformer.encoders.load("milnce:FOLDER")``. The network, which ``univl`` uses too, is plain torch after the
papers (Xie et al. 2018; Miech et al. 2020). Its parameters have the published names; a checkpoint that differs is
refused.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from stepformer.base import guard
from stepformer.base.cache import cache_folder
from stepformer.base.files import no_such
from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.encoders.checkpoints import find_checkpoint, fingerprint_of, load_published, read_checkpoint
from stepformer.errors import InputError, MissingError
from stepformer.media.picture import FrameSpec

S3D_FILES = ("s3d_howto100m.safetensors", "s3d_howto100m.pth")
SOURCE = "the repository antoine77340/S3D_HowTo100M"
DICTIONARY = "s3d_dict.npy"
_WORD = re.compile(r"[\w']+")
POOLED_DIM = 1024
JOINT_DIM = 512
VOCABULARY = 66_250
WORD_DIM = 300
TEXT_HIDDEN = 2048
MAX_WORDS = 16
_BATCH = 4  # clips through the network at once

# widths of the six convolutions of each Inception block
_UNITS = {
    "mixed_3b": (64, 96, 128, 16, 32, 32),
    "mixed_3c": (128, 128, 192, 32, 96, 64),
    "mixed_4b": (192, 96, 208, 16, 48, 64),
    "mixed_4c": (160, 112, 224, 24, 64, 64),
    "mixed_4d": (128, 128, 256, 24, 64, 64),
    "mixed_4e": (112, 144, 288, 32, 64, 64),
    "mixed_4f": (256, 160, 320, 32, 128, 128),
    "mixed_5b": (256, 160, 320, 32, 128, 128),
    "mixed_5c": (384, 192, 384, 48, 128, 128),
}


_Sides = tuple[int, int, int]


class _Conv(nn.Module):
    """Convolution, batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: _Sides = (1, 1, 1), padding: _Sides = (0, 0, 0)) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, outputs, kernel, padding=padding, bias=False)
        self.bn1 = nn.BatchNorm3d(outputs)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        return torch.relu_(self.bn1(self.conv1(x)))


class _Cube(_Conv):
    """A convolution over 3 x 3 x 3, split into a spatial and a temporal one."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, (1, 3, 3), (0, 1, 1))
        self.conv2 = nn.Conv3d(outputs, outputs, (3, 1, 1), padding=(1, 0, 0), bias=False)
        self.bn2 = nn.BatchNorm3d(outputs)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        return torch.relu_(self.bn2(self.conv2(super().forward(x))))


class _Gate(nn.Module):
    """Weighs channels by what the whole clip shows."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:  # (B, C, T, H, W)
        weights = torch.sigmoid(self.fc(x.mean((2, 3, 4))))
        return x * weights[:, :, None, None, None]


class _Inception(nn.Module):
    def __init__(self, inputs: int, sizes: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        b0, b1_in, b1, b2_in, b2, b3 = sizes
        self.conv_b0 = _Conv(inputs, b0)
        self.conv_b1_a, self.conv_b1_b = _Conv(inputs, b1_in), _Cube(b1_in, b1)
        self.conv_b2_a, self.conv_b2_b = _Conv(inputs, b2_in), _Cube(b2_in, b2)
        self.conv_b3_b = _Conv(inputs, b3)
        self.gating_b0, self.gating_b1 = _Gate(b0), _Gate(b1)
        self.gating_b2, self.gating_b3 = _Gate(b2), _Gate(b3)

    def forward(self, x: Tensor) -> Tensor:
        pooled = nn.functional.max_pool3d(x, 3, stride=1, padding=1)
        branches = (
            self.gating_b0(self.conv_b0(x)),
            self.gating_b1(self.conv_b1_b(self.conv_b1_a(x))),
            self.gating_b2(self.conv_b2_b(self.conv_b2_a(x))),
            self.gating_b3(self.conv_b3_b(pooled)),
        )
        return torch.cat(branches, dim=1)


class _Words(nn.Module):
    """The text side: word vectors, a hidden layer, the maximum over the words, a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.word_embd = nn.Embedding(VOCABULARY, WORD_DIM)
        self.fc1 = nn.Linear(WORD_DIM, TEXT_HIDDEN)
        self.fc2 = nn.Linear(TEXT_HIDDEN, JOINT_DIM)

    def forward(self, ids: Tensor) -> Tensor:  # (L, MAX_WORDS) -> (L, 512)
        # the padding word 0 takes part in the maximum: that is how it was trained
        hidden = torch.relu(self.fc1(self.word_embd(ids)))
        joint: Tensor = self.fc2(hidden.amax(1))
        return joint


class S3D(nn.Module):
    """Clips (B, 3, T, H, W) with values in [0, 1]; T, H and W even, T at least 8. ``words=False``: no text side."""

    def __init__(self, *, words: bool = True) -> None:
        super().__init__()
        # 2x2x2 cubes of pixels become channels first, so that the stride of two is in the data, not in the kernel
        self.conv1 = _Conv(24, 64, (2, 4, 4), (1, 2, 2))
        self.conv_2b, self.conv_2c = _Conv(64, 64), _Cube(64, 192)
        self.gating = _Gate(192)
        channels = 192
        for name, sizes in _UNITS.items():
            setattr(self, name, _Inception(channels, sizes))
            channels = sizes[0] + sizes[2] + sizes[4] + sizes[5]
        self.fc = nn.Linear(channels, JOINT_DIM)
        if words:
            self.text_module = _Words()

    def pooled(self, clips: Tensor) -> Tensor:
        """The averaged last layer: (B, 3, T, H, W) -> (B, 1024)."""
        x = self.conv1(_cubes_to_channels(clips))[:, :, 1:, 1:, 1:]  # as "same" padding with an even kernel
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        x = self.gating(self.conv_2c(self.conv_2b(x)))
        x = _pool(x, (1, 3, 3), (1, 2, 2))
        for name in _UNITS:
            if name == "mixed_4b":
                x = _pool(x, (3, 3, 3), (2, 2, 2))
            elif name == "mixed_5b":
                x = _pool(x, (2, 2, 2), (2, 2, 2))
            x = getattr(self, name)(x)
        pooled: Tensor = x.mean((2, 3, 4))
        return pooled

    def forward(self, clips: Tensor) -> Tensor:
        """Clips into the space shared with text: (B, 3, T, H, W) -> (B, 512)."""
        joint: Tensor = self.fc(self.pooled(clips))
        return joint


def _cubes_to_channels(x: Tensor) -> Tensor:
    """(B, C, T, H, W) -> (B, 8 C, T/2, H/2, W/2); the place inside a cube counts before the colour."""
    batch, colours, time, height, width = x.shape
    if time % 2 or height % 2 or width % 2:
        raise InputError(f"S3D takes clips with an even number of frames, rows and columns, got {tuple(x.shape)}")
    x = x.reshape(batch, colours, time // 2, 2, height // 2, 2, width // 2, 2)
    return x.permute(0, 3, 5, 7, 1, 2, 4, 6).flatten(1, 4)


def _pool(x: Tensor, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> Tensor:
    """Max pooling with "same" padding; values are not negative here, so zeros are neutral."""
    extra = [k - s for k, s in zip(kernel, stride, strict=True)]
    padding = [side for e in reversed(extra) for side in (e // 2, e - e // 2)]
    return nn.functional.max_pool3d(nn.functional.pad(x, padding), kernel, stride, ceil_mode=True)


def to_clips(frames: Any) -> Tensor:
    """uint8 (N, T, H, W, 3) to float (N, 3, T, H, W) in [0, 1]."""
    return torch.from_numpy(frames).permute(0, 4, 1, 2, 3).float().div_(255.0)


@torch.inference_mode()
def run_clips(network: Callable[[Tensor], Tensor], frames: Any, device: str) -> Encoded:
    """uint8 clips (N, T, H, W, 3) through a network, a few at once: 32 frames of 224 x 224 take 19 MB as floats."""
    parts = [network(to_clips(frames[i : i + _BATCH]).to(device)).cpu() for i in range(0, len(frames), _BATCH)]
    return Encoded(torch.cat(parts).numpy())


class MilNceEncoder:
    """Clips of 32 frames at 10 per second, as it was trained, to (N, 512); texts to (L, 512) by their words."""

    name = "milnce"
    license = "Apache-2.0"
    dim = JOINT_DIM
    structure_dim = 0
    rate_hz = 1.0
    wants = FrameSpec((224, 224), 32, 10.0)

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, device: str = "cpu") -> None:
        home = encoder_folder(folder, self.name)
        path = find_checkpoint(home, S3D_FILES, self.name, SOURCE)
        words = read_dictionary(home / DICTIONARY)
        self._ids = {word: index + 1 for index, word in enumerate(words)}  # 0 is padding
        self._model = S3D().eval().to(device)
        load_published(self._model, read_checkpoint(path), str(path))
        self._device = device
        said = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
        self.fingerprint = fingerprint_of("milnce", "1", self._model.state_dict(), self.wants, self.rate_hz, said)

    def encode_video(self, frames: Frames) -> Encoded:
        """Clips (N, 32, 224, 224, 3) to vectors (N, 512), raw: their length carries meaning in this space."""
        return run_clips(self._model, check_frames(frames, self.wants, self.name), self._device)

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to unit vectors (L, 512). A text of which no word is known becomes what padding alone gives."""
        ids = np.array([self.word_ids(text) for text in texts], np.int64).reshape(-1, MAX_WORDS)
        vectors = torch.nn.functional.normalize(self._model.text_module(torch.from_numpy(ids).to(self._device)), dim=-1)
        return vectors.cpu().numpy()

    def word_ids(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The ids of a text's known words, in lower case, at most 16, filled up with 0: (16,)."""
        known = [self._ids[word] for word in _WORD.findall(text.lower()) if word in self._ids]
        return np.array([*known, *[0] * MAX_WORDS][:MAX_WORDS], np.int64)


def encoder_folder(folder: str | os.PathLike[str] | None, name: str) -> Path:
    """Where an encoder's files are: the folder given, or its place in the cache."""
    if folder is not None:
        if not Path(folder).is_dir():
            raise no_such(folder, f"folder of encoder {name!r}")
        return Path(folder)
    return cache_folder("weights") / name


@guard.reader("array of words")
def read_dictionary(path: Path) -> list[str]:
    """The words of ``s3d_dict.npy`` in the order of their ids, from 1 on."""
    if not path.is_file():
        raise MissingError(f"encoder 'milnce' needs {DICTIONARY} beside its checkpoint; get it from {SOURCE}")
    words = guard.load_array(path)
    if words.ndim != 1 or words.dtype.kind not in "US" or len(words) >= VOCABULARY:
        raise InputError(f"{path} must hold fewer than {VOCABULARY} words, got {words.dtype} of shape {words.shape}")
    return [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in words.tolist()]
