"""UniVL (Luo et al. 2020), the paper's encoder: S3D clips through a video transformer, BERT for text, 768-d.

Needs, in one folder, ``univl.pretrained.bin`` (MIT, microsoft/UniVL) and ``s3d_howto100m.pth`` (Apache-2.0,
antoine77340/S3D_HowTo100M); BERT's ``vocab.txt`` from there too, or from MiniLM, which has the same. S3D features that
are there already (HowTo100M's are one .npy per video, [seconds, 1024]) go in at :meth:`UniVLEncoder.finish`.

UniVL was trained on clips of at most 64 seconds. Here each second keeps its own output, in windows that overlap; it
takes its vector from the window in which it lies nearest to the middle.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from stepformer.base import weights
from stepformer.encoders import milnce
from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.encoders.bert import Bert, BertConfig, WordPiece
from stepformer.encoders.checkpoints import find_checkpoint, fingerprint_of, load_published, read_checkpoint
from stepformer.errors import InputError
from stepformer.media.picture import FrameSpec

FILES = ("univl.pretrained.safetensors", "univl.pretrained.bin")
SOURCE = "the releases of the repository microsoft/UniVL"
DIM = 768
MAX_POSITIONS = 512
MAX_TOKENS = 48  # of a text, as in training
WINDOW = 48  # seconds
# parts for captions and re-ranking
_UNUSED = ("cross.", "decoder.", "cls.", "cls_visual.", "similarity_dense.", "bert.pooler.", "visual.pooler.")
_TEXT_BATCH = 32


class _Embeddings(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.word_embeddings = nn.Linear(milnce.POOLED_DIM, DIM)
        self.position_embeddings = nn.Embedding(MAX_POSITIONS, DIM)
        self.LayerNorm = nn.LayerNorm(DIM, 1e-12)

    def forward(self, seconds: Tensor) -> Tensor:  # (B, T, 1024) -> (B, T, 768)
        positions = self.position_embeddings.weight[: seconds.shape[1]]
        normed: Tensor = self.LayerNorm(self.word_embeddings(seconds) + positions)
        return normed


class UniVL(nn.Module):
    """The two towers of UniVL, with the key names of the published checkpoint."""

    def __init__(self, text_layers: int = 12, visual_layers: int = 6) -> None:
        super().__init__()
        self.bert = Bert(BertConfig(num_hidden_layers=text_layers))
        # the video transformer's layers are BERT's
        self.visual = Bert(BertConfig(vocab_size=1, num_hidden_layers=visual_layers, max_position_embeddings=1))
        self.visual.embeddings = _Embeddings()  # type: ignore[assignment]
        self.normalize_video = nn.ModuleDict({"visual_norm2d": nn.LayerNorm(milnce.POOLED_DIM, 1e-12)})

    def encode_seconds(self, seconds: Tensor) -> Tensor:
        """S3D's pooled features of consecutive seconds (B, T, 1024) -> (B, T, 768), T at most 512."""
        out: Tensor = self.visual(self.normalize_video["visual_norm2d"](seconds), None)
        return out

    def encode_tokens(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Token ids and mask (B, T) -> the mean over the tokens but the first, [CLS]: (B, 768)."""
        hidden = self.bert(ids, mask)
        keep = mask.clone()
        keep[:, 0] = False
        weights = keep[:, :, None].to(hidden.dtype)
        mean: Tensor = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
        return mean


class UniVLEncoder:
    """Clips of 16 frames, one per second, to (N, 768); texts to (L, 768).

    ``encode_video`` gives S3D's 1024-d features of each clip; :meth:`finish` puts those of the whole video through
    the transformer, ``WINDOW`` seconds at a time.
    """

    name = "univl"
    license = "MIT (UniVL), Apache-2.0 (S3D)"
    dim = DIM
    structure_dim = 0
    rate_hz = 1.0
    wants = FrameSpec((224, 224), 16, 16.0)

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, device: str = "cpu") -> None:
        home = milnce.encoder_folder(folder, self.name)
        path = find_checkpoint(home, FILES, self.name, SOURCE)
        s3d_path = find_checkpoint(home, milnce.S3D_FILES, self.name, milnce.SOURCE)
        state = read_checkpoint(path)
        self._model = UniVL(_layers(state, "bert"), _layers(state, "visual")).eval().to(device)
        load_published(self._model, state, str(path), _UNUSED)
        self._s3d = milnce.S3D(words=False).eval().to(device)
        load_published(self._s3d, read_checkpoint(s3d_path), str(s3d_path), ("text_module.",))
        own = home / "vocab.txt"
        self._words = WordPiece(own if own.is_file() else weights.pull("minilm") / "vocab.txt")
        self._device = device
        both = {**self._model.state_dict(), **{f"s3d.{k}": v for k, v in self._s3d.state_dict().items()}}
        self.fingerprint = fingerprint_of("univl", "1", both, self.wants, WINDOW)

    def encode_video(self, frames: Frames) -> Encoded:
        """Clips (N, 16, 224, 224, 3) to S3D features (N, 1024), for :meth:`finish`."""
        return milnce.run_clips(self._s3d.pooled, check_frames(frames, self.wants, self.name), self._device)

    @torch.inference_mode()
    def finish(self, whole: Encoded) -> Encoded:
        """S3D features of a whole video (N, 1024) to UniVL's vectors (N, 768)."""
        if whole.vectors.shape[1] != milnce.POOLED_DIM:
            raise InputError(f"UniVL takes S3D features of {milnce.POOLED_DIM} columns, got {whole.vectors.shape[1]}")
        seconds = torch.from_numpy(np.ascontiguousarray(whole.vectors, np.float32)).to(self._device)
        out = np.empty((len(seconds), DIM), np.float32)
        for first, last, keep_first, keep_last in windows(len(seconds), WINDOW):
            encoded = self._model.encode_seconds(seconds[None, first:last])[0].cpu().numpy()
            out[keep_first:keep_last] = encoded[keep_first - first : keep_last - first]
        return Encoded(out)

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to unit vectors (L, 768)."""
        out = np.zeros((len(texts), DIM), np.float32)
        for rows, ids, mask in self._words.batches(texts, MAX_TOKENS, _TEXT_BATCH):
            vectors = self._model.encode_tokens(ids.to(self._device), mask.to(self._device))
            out[rows] = nn.functional.normalize(vectors, dim=-1).cpu().numpy()
        return out


def windows(count: int, size: int) -> list[tuple[int, int, int, int]]:
    """Windows over ``count`` seconds: (first, last, keep first, keep last), half open; the kept parts tile the video.

    Windows of ``size`` overlap by half, the last is moved back to end with the video, and each second is kept from
    the window in which it is nearest to the middle.
    """
    if count <= size:
        return [(0, count, 0, count)] if count else []
    step = max(1, size - size // 2)
    starts = [*range(0, count - size, step), count - size]
    # half-way between the middles of two windows
    edges = [0, *((before + after + size) // 2 for before, after in itertools.pairwise(starts)), count]
    return [(start, start + size, *kept) for start, kept in zip(starts, itertools.pairwise(edges), strict=True)]


def _layers(state: Mapping[str, Tensor], tower: str) -> int:
    """How many transformer layers a tower of the checkpoint has."""
    prefix = f"{tower}.encoder.layer."
    return len({key.split(prefix)[1].split(".")[0] for key in state if prefix in key and "decoder" not in key})
