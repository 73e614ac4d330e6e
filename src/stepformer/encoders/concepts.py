"""What an action classifier and an object classifier see, said in the sentence encoder's space.

Each second of video is classified twice: a short clip by I3D (400 actions of Kinetics), its middle picture by
EfficientNet-lite2 (1,000 objects of ImageNet). Each classifier's probabilities mix the sentence vectors of its class
names (a convex combination of semantic embeddings, Norouzi et al. 2014), less the mean over all names, so that what
says nothing points nowhere. The two halves weigh the same. Text goes through the sentence encoder as it is.

Beside it comes a "structure" vector, the pooled features of both networks, for placing boundaries: where all of a
video is "washing hands", the names cannot tell its steps apart, and the features can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.base import weights
from stepformer.base.cache import cache_folder, keep_arrays, kept_arrays
from stepformer.encoders import efficientnet, i3d, i3d_int8
from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.encoders.sentence import SentenceEncoder, default_sentence_encoder
from stepformer.errors import UsageError
from stepformer.media.picture import FrameSpec

ACTION_TEMPERATURE = 1.0
OBJECT_TEMPERATURE = 2.0
_VERSION = "1"  # of the arithmetic below: part of the fingerprint
_BATCH_CLIPS = 2  # more gains nothing on a CPU and costs memory


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is computed for one second: pictures a clip, and the pixels each network sees."""

    frames: int
    action_pixels: int
    object_pixels: int
    integers: bool  # the action network in 8-bit integers, where the processor has the kernels


EFFORTS = {
    "fast": Effort(16, 224, 224, integers=True),
    "full": Effort(16, 224, 224, integers=False),
}


def class_names(kind: str) -> list[str]:
    """The class names of "kinetics400" or "imagenet1k", in the order of the networks' outputs."""
    text = resources.files("stepformer.encoders").joinpath(f"{kind}.txt").read_text(encoding="utf-8")
    return text.splitlines()


class ConceptsEncoder:
    """Clips to (N, 384) vectors in MiniLM's space and (N, 2304) structure vectors, one of each a second.

    ``effort`` is "fast" (the default) or "full", the float arithmetic it is measured against. Their vectors are close
    enough (cosine .99 and more) to go by one fingerprint, so that features made on a machine with integer kernels and
    on one without can be used together.
    """

    license = "Apache-2.0 (weights); trained on Kinetics-400 and ImageNet, whose own terms may bind you"
    rate_hz = 1.0
    structure_dim = i3d.FEATURE_DIM + efficientnet.FEATURE_DIM

    def __init__(self, effort: str | Effort = "fast", *, device: str = "cpu", quiet: bool = False) -> None:
        if isinstance(effort, str) and effort not in EFFORTS:
            raise UsageError(f"encoder concepts has no effort {effort!r}; there are: {', '.join(EFFORTS)}")
        self.effort = EFFORTS[effort] if isinstance(effort, str) else effort
        self.name = "concepts" if self.effort == EFFORTS["fast"] else f"concepts:{effort}"
        self._device = device
        self._sentences: SentenceEncoder = default_sentence_encoder()
        self.dim = self._sentences.dim
        side = max(self.effort.action_pixels, self.effort.object_pixels)
        self.wants = FrameSpec(size=(side, side), frames=self.effort.frames, fps=float(self.effort.frames))
        self._actions = _action_network(_state("i3d-kinetics400", quiet), device, self.effort.integers)
        self._efficientnet = efficientnet.EfficientNetLite()
        self._efficientnet.load_published(_state("efficientnet-lite2", quiet))
        _laid_out(self._efficientnet, device, torch.channels_last)
        prints = [weights.entry(name).fingerprint for name in ("i3d-kinetics400", "efficientnet-lite2", "minilm")]
        e = self.effort
        self.fingerprint = f"concepts-{_VERSION}:{e.frames}x{e.action_pixels}+{e.object_pixels}:" + "-".join(
            p[:8] for p in prints
        )
        self._action_names = torch.from_numpy(self._name_vectors("kinetics400")).to(device)  # (400, D)
        self._object_names = torch.from_numpy(self._name_vectors("imagenet1k")).to(device)  # (1000, D)

    def _name_vectors(self, kind: str) -> Vectors:
        """Sentence vectors of the class names less their mean; kept on disk, for they take seconds to make."""
        path = cache_folder("derived") / f"{kind}-{weights.entry('minilm').fingerprint}.safetensors"
        kept = kept_arrays(path)
        vectors: Vectors = self._sentences.encode_text(class_names(kind)) if kept is None else kept[0]["vectors"]
        if kept is None:
            keep_arrays(path, {"vectors": vectors})
        return np.asarray(vectors - vectors.mean(0), np.float32)

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, 384) unit vectors."""
        return self._sentences.encode_text(texts)

    def encode_video(self, frames: Frames) -> Encoded:
        """Clips (N, T, H, W, 3) to vectors (N, 384) and structure (N, 2304), both of unit length."""
        return self.halves(frames)["both"]

    @torch.inference_mode()
    def halves(self, frames: Frames) -> dict[str, Encoded]:
        """What each half says alone, "actions" and "objects", and "both", from one look at the clips."""
        actions, objects, structure = self.look(frames)
        doing = _unit(torch.softmax(actions / ACTION_TEMPERATURE, -1) @ self._action_names)
        seeing = _unit(torch.softmax(objects / OBJECT_TEMPERATURE, -1) @ self._object_names)
        cut = i3d.FEATURE_DIM
        return {
            "actions": Encoded(_numpy(doing), _numpy(_unit(structure[:, :cut]))),
            "objects": Encoded(_numpy(seeing), _numpy(_unit(structure[:, cut:]))),
            "both": Encoded(_numpy(_unit(doing + seeing)), _numpy(structure)),
        }

    @torch.inference_mode()
    def look(self, frames: Frames) -> tuple[Tensor, Tensor, Tensor]:
        """What the networks say of clips (N, T, H, W, 3): action scores (N, 400), object scores (N, 1000) and the
        structure vectors (N, 2304), the two networks' features each of unit length, side by side."""
        clips = check_frames(frames, self.wants, self.name)
        parts = [self._look_some(clips[i : i + _BATCH_CLIPS]) for i in range(0, len(clips), _BATCH_CLIPS)]
        if not parts:
            empty = torch.zeros(0)
            return (
                empty.view(0, i3d.NUM_CLASSES),
                empty.view(0, efficientnet.NUM_CLASSES),
                empty.view(0, self.structure_dim),
            )
        actions, action_features, objects, object_features = (torch.cat(column) for column in zip(*parts, strict=True))
        structure = _unit(torch.cat([_unit(action_features), _unit(object_features)], -1))
        return actions, objects, structure

    def _look_some(self, clips: Frames) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        n, t = clips.shape[:2]
        pixels = torch.from_numpy(np.ascontiguousarray(clips)).to(self._device)  # (n, T, H, W, 3)
        pictures = pixels[:, t // 2].permute(0, 3, 1, 2)  # (n, 3, H, W)
        pictures = (_resized(pictures, self.effort.object_pixels).float() - 127.0) / 128.0
        objects, object_features = self._efficientnet(pictures.contiguous(memory_format=torch.channels_last))
        flat = pixels.flatten(0, 1).permute(0, 3, 1, 2)  # (n T, 3, H, W)
        small = _resized(flat, self.effort.action_pixels)
        actions, action_features = self._actions(small.reshape(n, t, *small.shape[1:]).transpose(1, 2))
        return actions, action_features, objects, object_features


def _laid_out(network: torch.nn.Module, device: str, layout: torch.memory_format) -> None:
    """Readies a network for inference, its kernels laid out as the CPU's convolutions like them best."""
    network.eval().to(device)
    network.to(memory_format=layout)  # type: ignore[call-overload]


def _action_network(state: dict[str, Tensor], device: str, integers: bool) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """uint8 clips (n, 3, T, h, w) to action scores (n, 400) and features (n, 1024)."""
    if integers and device == "cpu" and i3d_int8.available():
        return i3d_int8.I3DInt8(state)
    network = i3d.I3D()
    network.load_published(state)
    _laid_out(network, device, torch.channels_last_3d)

    def run(clips: Tensor) -> tuple[Tensor, Tensor]:
        values = clips.float() / 127.5 - 1.0
        scores: tuple[Tensor, Tensor] = network(values.contiguous(memory_format=torch.channels_last_3d))
        return scores

    return run


def _resized(pictures: Tensor, side: int) -> Tensor:
    """uint8 pictures (n, 3, H, W) at another size, uint8 again."""
    if pictures.shape[-1] == side:
        return pictures
    smaller = torch.nn.functional.interpolate(pictures.float(), (side, side), mode="bilinear", antialias=True)
    return smaller.round().to(torch.uint8)


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=-1)


def _numpy(x: Tensor) -> NDArray[Any]:
    return x.float().cpu().numpy()


def _state(name: str, quiet: bool) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    path: Path = weights.pull(name, quiet=quiet)
    return dict(load_file(path))
