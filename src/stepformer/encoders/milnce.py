"""MIL-NCE on HowTo100M (Miech et al. 2020): S3D for video and word vectors for text, one 512-d space.

Needs the authors' files ``s3d_howto100m.pth`` and ``s3d_dict.npy`` (Apache-2.0, antoine77340/S3D_HowTo100M) in one
folder: ``stepformer.encoders.load("milnce:FOLDER")``.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from stepformer.base import guard
from stepformer.base.cache import cache_folder
from stepformer.base.files import no_such
from stepformer.encoders import s3d
from stepformer.encoders.base import Encoded, Frames, Vectors, check_frames
from stepformer.encoders.checkpoints import find_checkpoint, fingerprint_of, load_published, read_checkpoint
from stepformer.errors import InputError, MissingError
from stepformer.media.picture import FrameSpec

S3D_FILES = ("s3d_howto100m.safetensors", "s3d_howto100m.pth")
SOURCE = "the repository antoine77340/S3D_HowTo100M"
DICTIONARY = "s3d_dict.npy"
_WORD = re.compile(r"[\w']+")


class MilNceEncoder:
    """Clips of 32 frames at 10 a second, as it was trained, to (N, 512); texts to (L, 512) by their words."""

    name = "milnce"
    license = "Apache-2.0"
    dim = s3d.JOINT_DIM
    structure_dim = 0
    rate_hz = 1.0
    wants = FrameSpec((224, 224), 32, 10.0)

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, device: str = "cpu") -> None:
        home = encoder_folder(folder, self.name)
        path = find_checkpoint(home, S3D_FILES, self.name, SOURCE)
        words = read_dictionary(home / DICTIONARY)
        self._ids = {word: index + 1 for index, word in enumerate(words)}  # 0 is padding
        self._model = s3d.S3D().eval().to(device)
        load_published(self._model, read_checkpoint(path), str(path))
        self._device = device
        said = hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
        self.fingerprint = fingerprint_of("milnce", "1", self._model.state_dict(), self.wants, self.rate_hz, said)

    def encode_video(self, frames: Frames) -> Encoded:
        """Clips (N, 32, 224, 224, 3) to vectors (N, 512), raw: their length carries meaning in this space."""
        return s3d.run_clips(self._model, check_frames(frames, self.wants, self.name), self._device)

    @torch.inference_mode()
    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to unit vectors (L, 512). A text of which no word is known becomes what padding alone gives."""
        ids = np.array([self.word_ids(text) for text in texts], np.int64).reshape(-1, s3d.MAX_WORDS)
        vectors = torch.nn.functional.normalize(self._model.text_module(torch.from_numpy(ids).to(self._device)), dim=-1)
        return vectors.cpu().numpy()

    def word_ids(self, text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The ids of a text's known words, in lower case, at most 16, filled up with 0: (16,)."""
        known = [self._ids[word] for word in _WORD.findall(text.lower()) if word in self._ids]
        return np.array([*known, *[0] * s3d.MAX_WORDS][: s3d.MAX_WORDS], np.int64)


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
    if words.ndim != 1 or words.dtype.kind not in "US" or len(words) >= s3d.VOCABULARY:
        raise InputError(
            f"{path} must hold fewer than {s3d.VOCABULARY} words, got {words.dtype} of shape {words.shape}"
        )
    return [word.decode("utf-8", "replace") if isinstance(word, bytes) else str(word) for word in words.tolist()]
