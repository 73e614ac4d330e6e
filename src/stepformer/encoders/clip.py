"""CLIP ViT-B/16 offline: its own image tower, and a text tower that was learned to go with it.

A package registry has only the image tower. The text side is the sentence encoder with a change of low rank
in each layer, and a small network on its vector: a linear map and a two-layer perceptron into CLIP's space. Changes and
network ship with this package, learned from pictures with captions and from texts whose true CLIP vectors are published
(``docs/sight.md`` has the sources, the licences and the command). ``clip:openai`` takes the text tower that OpenAI
published, through open_clip, from the model hub. Pictures are the same either way, so that one StepFormer serves both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from stepformer.base import weights
from stepformer.base.arrays import unit
from stepformer.base.files import sha256_of
from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.encoders.clip_vit import ClipViT
from stepformer.encoders.openclip import OpenClipEncoder
from stepformer.encoders.sentence import SentenceEncoder, default_sentence_encoder
from stepformer.errors import MissingError, UsageError
from stepformer.media.picture import FrameSpec

_VERSION = "3"  # of the arithmetic below: part of the fingerprint
_BATCH, _SMALL = 4, 16  # pictures at once, whole and at half size: more gains nothing on a CPU
_BATCH_GPU = 256
STILL = 0.015
"""Pictures whose structure differs by less (1 - cosine) share a vector."""
_OPENAI = "ViT-B-16-quickgelu/openai"  # open_clip's name for the published tower


class TextTower(nn.Module):
    """Sentence vectors (L, 384) to unit vectors (L, 512) in the space of CLIP ViT-B/16."""

    def __init__(self, size_in: int = 384, hidden: int = 512, size_out: int = 512) -> None:
        super().__init__()
        self.linear = nn.Linear(size_in, size_out)
        self.widen = nn.Linear(size_in, hidden)
        self.narrow = nn.Linear(hidden, size_out)
        nn.init.zeros_(self.narrow.weight)  # training starts at the linear map
        nn.init.zeros_(self.narrow.bias)

    def forward(self, sentences: Tensor) -> Tensor:
        """(L, 384) -> (L, 512)."""
        mapped = self.linear(sentences) + self.narrow(nn.functional.gelu(self.widen(sentences)))
        return nn.functional.normalize(mapped, dim=-1)

    @classmethod
    def of(cls, state: Mapping[str, Tensor]) -> TextTower:
        """The tower of a state dict, in any precision."""
        hidden, size_in = state["widen.weight"].shape
        tower = cls(size_in, hidden, len(state["linear.bias"]))
        tower.load_state_dict({key: value.float() for key, value in state.items()})
        return tower.eval()


class ClipText:
    """Texts to (L, 512) unit vectors through the learned tower.

    ``path`` is another tower's file, ``sentences`` another sentence encoder (it has ``encode_text``).
    """

    name = "clip-text"
    license = "the tower: CC BY-NC-SA 4.0, after its sources; the sentence encoder: Apache-2.0"
    dim = 512

    def __init__(self, path: str | Path | None = None, *, sentences: Any = None) -> None:
        file = Path(path) if path else Path(__file__).with_name("clip_text.safetensors")
        if not file.is_file():
            raise MissingError(f"there is no text tower {file}; train one with: stepformer bench tower")
        state = load_file(file)
        self._changes = {key: state.pop(key).float() for key in list(state) if key.endswith((".up", ".down"))}
        self._tower = TextTower.of(state)
        self._given: SentenceEncoder | None = sentences
        self.fingerprint = f"clip-text:{sha256_of(file)[:12]}"

    def encode_sentences(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, 384) unit vectors of what they mean, not of what it looks like."""
        return self._sentences.encode_text(texts)

    @cached_property
    def _sentences(self) -> SentenceEncoder:
        return self._given or default_sentence_encoder()  # loaded for the first text

    @cached_property
    def _tuned(self) -> SentenceEncoder:
        return self._sentences.tuned(self._changes)

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, 512) unit vectors."""
        sentences = torch.from_numpy(self._tuned.encode_text(texts))
        return np.asarray(self._tower(sentences).numpy(), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class PictureStatistics:
    """How pictures at large lie in a joint space: enough to say whether a text is nearer to one than to any.

    Some texts are near to every picture, so a text's cosine is read beside its mean and spread over pictures at large.
    Of unit vectors of pictures: ``mean`` (D,), and the covariance as ``factors`` (R, D) and ``rest`` (D,): factors'
    factors plus the diagonal of the rest.
    """

    mean: NDArray[np.float32]
    factors: NDArray[np.float32]
    rest: NDArray[np.float32]

    @classmethod
    def of(cls, pictures: NDArray[Any], rank: int = 48) -> PictureStatistics:
        """The statistics of pictures (N, D)."""
        x = np.asarray(unit(pictures), np.float64)
        covariance = np.cov(x, rowvar=False, bias=True)
        values, vectors = np.linalg.eigh(covariance)
        factors = (vectors[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))).T
        rest = np.maximum(np.diag(covariance) - (factors**2).sum(0), 0.0)
        return cls(*(np.asarray(part, np.float32) for part in (x.mean(0), factors, rest)))

    def scaled(self, texts: NDArray[Any]) -> NDArray[np.float32]:
        """Texts (P, D) of unit length, divided by the spread of their cosines over pictures."""
        t = np.asarray(unit(texts), np.float32)
        spread = np.sqrt(((t @ self.factors.T) ** 2).sum(1) + (t**2) @ self.rest)
        return np.asarray(t / np.maximum(spread, 1e-6)[:, None], np.float32)

    def standard(self, vectors: NDArray[Any], scaled: NDArray[np.float32]) -> NDArray[np.float32]:
        """(M, P) cosines of pictures (M, D) with texts, in standard deviations above the text's mean; ``scaled``
        (P, D) is what :meth:`scaled` made of the texts."""
        return np.asarray((unit(vectors) - self.mean).astype(np.float32) @ scaled.T)


@lru_cache(maxsize=1)
def clip_pictures() -> PictureStatistics:
    """Of CLIP ViT-B/16, over photographs of everyday life (Flickr8k, COCO); made by ``stepformer bench names``."""
    state = load_file(Path(__file__).with_name("clip_pictures.safetensors"))
    mean, factors, rest = (np.asarray(state[name], np.float32) for name in ("mean", "factors", "rest"))
    return PictureStatistics(mean, factors, rest / 1e3)


class ClipEncoder:
    """Pictures to (N, 512) unit vectors and (N, 768) structure vectors, one per second; texts to (L, 512).

    ``towers`` is "" (texts by our tower) or "openai" (by theirs). A picture is looked at whole, scaled into 224 by 224
    with its aspect kept. One whose structure is nearer than ``still`` (1 - cosine) to that of the last picture that
    went through the network gets that picture's vector and saves nine tenths of the time. ``text`` and ``network`` are
    towers to use instead.
    """

    license = "MIT (CLIP); the text tower: CC BY-NC-SA 4.0, after its sources"
    dim = 512
    structure_dim = 768
    rate_hz = 1.0
    wants = FrameSpec((224, 224), resize="whole")

    def __init__(
        self, towers: str = "", *, still: float = STILL, device: str = "cpu", text: Any = None, network: Any = None
    ) -> None:
        if towers not in ("", "openai"):
            raise UsageError(f"encoder clip is clip (with its own towers) or clip:openai; got clip:{towers}")
        self.name = "clip:openai" if towers else "clip"
        self._still = still
        self._text: Any = text or (OpenClipEncoder(_OPENAI, device=device) if towers else ClipText())
        self.encode_text: Callable[[Sequence[str]], Vectors] = self._text.encode_text
        self.encode_sentences = getattr(self._text, "encode_sentences", self.encode_text)
        self._given, self._device, self.batch = network, device, at_once(device)
        self._file = None if network else weights.pull("clip-vit-b16-image")
        # pictures of either are in one space; texts differ by more than rounding, so features are kept apart by them
        self.fingerprint = f"clip-vit-b16-{_VERSION}:{still:g}:{self._text.fingerprint}"

    @cached_property
    def _network(self) -> Any:
        """Built for the first picture: features that were kept need none."""
        return self._given if self._file is None else ClipViT(load_file(self._file), device=self._device)

    @property
    def at_once(self) -> int:
        """How many batches threads of the caller's may encode at the same time: on a CPU, as torch has threads. The
        network is built here, by the caller, not in each thread."""
        self._network  # noqa: B018
        return torch.get_num_threads() if self._device == "cpu" else 1

    @property
    def pictures(self) -> PictureStatistics:
        """How pictures at large lie in this space."""
        return clip_pictures()

    def encode_video(self, frames: Frames) -> Encoded:
        """Pictures (N, H, W, 3) to vectors (N, 512) and structure (N, 768), both of unit length."""
        return self._looked_at(frames, 1, self._still)

    def encode_often(self, frames: Frames, times: int) -> Encoded:
        """As :meth:`encode_video`, of pictures that come ``times`` as often as vectors are worth: each has its own
        structure, and of ``times`` neighbours the middle one's vector. 1: every picture, still or not, has its own."""
        return self._looked_at(frames, times, self._still if times > 1 else 0.0)

    def _looked_at(self, frames: Frames, times: int, still: float) -> Encoded:
        frames = check_frames(frames, self.wants, self.name)
        batch, small = self.batch, max(self.batch, _SMALL)
        structure = np.concatenate(
            [np.empty((0, self.structure_dim), np.float32)]
            + [_array(self._network.structure(frames[i : i + small])) for i in range(0, len(frames), small)]
        )
        source: list[int] = []  # for every picture, whose vector it gets
        for first in range(0, len(frames), times):
            last = min(first + times, len(frames))
            middle = (first + last) // 2
            # compared with the last one looked at, not with its neighbour, so that slow change is seen; the first of a
            # call is always looked at, so that no vector hangs on what was encoded before
            alike = still and source and 1.0 - structure[middle] @ structure[source[-1]] < still
            source += [source[-1] if alike else middle] * (last - first)
        vectors = np.empty((len(frames), self.dim), np.float32)
        looked = np.unique(np.asarray(source, np.int64))
        for i in range(0, len(looked), batch):
            some = looked[i : i + batch]
            vectors[some] = _array(self._network.vectors(frames[some]))
        return Encoded(vectors[source], structure)


def at_once(device: str) -> int:
    """How many whole pictures a device takes at a time."""
    return _BATCH if torch.device(device).type == "cpu" else _BATCH_GPU


def _array(x: Tensor) -> Vectors:
    return np.asarray(x.float().cpu().numpy())
