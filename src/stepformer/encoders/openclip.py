"""Any OpenCLIP or SigLIP model by name, through ``open_clip_torch``: pictures averaged over each second.

    stepformer prepare features SRC DST --encoder openclip:ViT-B-32/laion2b_s34b_b79k
    stepformer prepare features SRC DST --encoder openclip:hf-hub:timm/ViT-B-16-SigLIP

The name is open_clip's: MODEL/PRETRAINED (a tag or a checkpoint file), or a hub id. Pictures arrive resized; they are
normalised here by the model's own mean and deviation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch

from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.errors import MissingError, UsageError, missing_extra
from stepformer.media.picture import FrameSpec

_BATCH_PICTURES = 32
_BATCH_TEXTS = 64
_PICTURES_PER_S = 2


def _open_clip() -> Any:
    try:
        import open_clip
    except ImportError as error:
        if error.name == "open_clip":
            raise missing_extra("open_clip_torch", "openclip", "encoder openclip") from error
        raise MissingError(
            f"open_clip_torch is installed but cannot be imported ({error}); it needs a torchvision that "
            "matches the installed torch"
        ) from error
    return open_clip


class OpenClipEncoder:
    """The two pictures of each second to one (N, D) unit vector; texts to (L, D)."""

    license = "as the model's card states"
    rate_hz = 1.0
    structure_dim = 0

    def __init__(self, model: str = "", *, device: str = "cpu", network: Any = None) -> None:
        if not model:
            raise UsageError(
                "encoder openclip needs a model: openclip:MODEL/PRETRAINED, for instance openclip:ViT-B-32/openai"
            )
        open_clip = _open_clip()
        whole = model.startswith(("hf-hub:", "local-dir:"))  # names architecture and weights at once
        architecture, _, pretrained = (model, "", "") if whole else model.partition("/")
        if network is None:
            if not pretrained and not whole:
                tags = [tag for name, tag in open_clip.list_pretrained() if name == architecture]
                raise UsageError(
                    f"openclip:{architecture} needs its weights named too: {architecture}/{{{','.join(tags)}}}"
                )
            try:
                network = open_clip.create_model(architecture, pretrained=pretrained or None, device=device)
            except (RuntimeError, ValueError, OSError) as error:
                raise MissingError(f"open_clip cannot load {model}: {error}") from error
        self._network = network.eval().to(device)
        self._tokenize = open_clip.get_tokenizer(architecture)
        self._device = device
        config = open_clip.get_model_preprocess_cfg(self._network)
        size = config.get("size", 224)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        resize: Literal["crop", "fit"] = "fit" if config.get("resize_mode") == "squash" else "crop"
        self.wants = FrameSpec((height, width), _PICTURES_PER_S, float(_PICTURES_PER_S), resize)
        self._mean = torch.tensor(config["mean"], device=device).view(1, 3, 1, 1)
        self._deviation = torch.tensor(config["std"], device=device).view(1, 3, 1, 1)
        self.name = f"openclip:{model}"
        self.fingerprint = f"openclip:{model}:{_PICTURES_PER_S}:{_weights_digest(self._network)}"
        self.dim = self.encode_text(["a"]).shape[1]

    @torch.inference_mode()
    def encode_video(self, frames: Frames) -> Encoded:
        """Pictures (N, T, H, W, 3) to (N, D): each picture's unit vector, averaged over its second, of unit length."""
        frames = check_frames(frames, self.wants, self.name)
        count = len(frames)
        flat = frames.reshape(-1, *frames.shape[-3:])
        vectors = []
        for start in range(0, len(flat), _BATCH_PICTURES):
            pictures = torch.from_numpy(np.ascontiguousarray(flat[start : start + _BATCH_PICTURES])).to(self._device)
            pixels = (pictures.permute(0, 3, 1, 2).float() / 255.0 - self._mean) / self._deviation
            vectors.append(self._network.encode_image(pixels, normalize=True).float().cpu())
        if not vectors:
            return Encoded(np.zeros((0, self.dim), np.float32))
        seconds = torch.cat(vectors).reshape(count, self.wants.frames, -1).mean(1)
        return Encoded(torch.nn.functional.normalize(seconds, dim=-1).numpy())

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, D) unit vectors."""
        vectors = []
        for start in range(0, len(texts), _BATCH_TEXTS):
            tokens = self._tokenize(list(texts[start : start + _BATCH_TEXTS])).to(self._device)
            vectors.append(self._network.encode_text(tokens, normalize=True).float().cpu())
        return torch.cat(vectors).numpy() if vectors else np.zeros((0, self.dim), np.float32)


def _weights_digest(network: Any) -> str:
    """Tells two sets of weights apart by the first values of every tensor: cheap, and the same on every machine."""
    digest = hashlib.sha256()
    for key, value in sorted(network.state_dict().items()):
        digest.update(key.encode())
        digest.update(value.detach().flatten()[:64].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
