"""Features you already have: .npy, .npz, safetensors or a feature store; any dimension, any rate.

A folder, with folders in it, holds one file per video (``VIDEO.npy``, ``VIDEO.mp4.npy``), each (N, D), row i for the
seconds [i / rate, (i + 1) / rate).
The text side is yours to say: the name of an encoder whose space the features are in ("sentence", "univl:FOLDER"),
or an .npz of texts and their vectors made by the text tower that goes with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stepformer.base.arrays import matrix, unit
from stepformer.base.guard import load_array, load_arrays, plain_file, reader, reading
from stepformer.data.records import find_features, video_id
from stepformer.data.store import INFO_FILE, FeatureStore
from stepformer.encoders.base import Encoded, Vectors
from stepformer.errors import InputError, UsageError

SUFFIXES = (".npy", ".npz", ".safetensors")
_FEATURE_KEYS = ("features", "video_features", "video", "vectors", "arr_0")
_TEXT_KEYS = ("text", "texts", "names", "labels", "phrases")
_VECTOR_KEYS = ("emb", "embeddings", "vectors", "features")


def read_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """The named arrays of an .npy ("features"), .npz or .safetensors file. Nothing is unpickled."""
    path = Path(path)
    if path.suffix == ".npy":
        return {"features": load_array(path)}
    if path.suffix == ".npz":
        return load_arrays(path)
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return dict(load_file(plain_file(path)))
    raise InputError(f"{path} is none of {', '.join(SUFFIXES)}")


def _pick(arrays: Mapping[str, NDArray[Any]], keys: Sequence[str], where: str, what: str) -> NDArray[Any]:
    for key in keys:
        if key in arrays:
            return arrays[key]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise InputError(f"{where} has no {what}: it holds {', '.join(arrays)}; name one of {', '.join(keys)}")


def _matrix(array: NDArray[Any], where: str) -> Vectors:
    if array.ndim == 3 and array.shape[0] == 1:  # many extractors leave a batch axis of one
        array = array[0]
    if not len(array):
        raise InputError(f"{where}: there are no vectors")
    return matrix(array, f"{where}: features")


@reader("array of features")
def read_features(path: str | Path) -> Encoded:
    """The features (N, D) of one file, and the structure (N, S) if it has one."""
    arrays = read_arrays(path)
    structure = arrays.pop("structure", None)
    vectors = _matrix(_pick(arrays, _FEATURE_KEYS, str(path), "features"), str(path))
    return Encoded(vectors, None if structure is None else _matrix(structure, f"{path}, structure"))


def _key(text: str) -> str:
    return " ".join(text.lower().split())


class TextTable:
    """A text side that is a table: the vectors of known texts, from an .npz."""

    def __init__(self, path: str | Path) -> None:
        with reading(path, "table of text vectors"):
            arrays = read_arrays(path)
            texts = _pick(arrays, _TEXT_KEYS, str(path), "texts")
            self._vectors = _matrix(_pick(arrays, _VECTOR_KEYS, str(path), "text vectors"), str(path))
            if len(texts) != len(self._vectors):
                raise InputError(f"{path}: {len(texts)} texts and {len(self._vectors)} vectors do not match")
            self._rows = {_key(str(text)): row for row, text in enumerate(texts.tolist())}
        self._path = path
        self.dim = self._vectors.shape[1]

    def knows(self, texts: Sequence[str]) -> list[bool]:
        """Which texts are in the table."""
        return [_key(text) in self._rows for text in texts]

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """The vectors (L, D) of texts that are in the table, of unit length."""
        if missing := [text for text in texts if _key(text) not in self._rows]:
            raise InputError(f"{self._path} has no vector for {len(missing)} texts, for instance {missing[0]!r}")
        found = self._vectors[[self._rows[_key(text)] for text in texts]].reshape(len(texts), self.dim)
        return unit(found, np.float32)


def text_side(name: str) -> Any:
    """What embeds texts: the table in a file, or the encoder so called."""
    if name.endswith(SUFFIXES):
        return TextTable(name)
    from stepformer import encoders

    return encoders.load(name)


class PrecomputedEncoder:
    """Features from a folder of files or a feature store.

    ``rate_hz`` is theirs (a store knows its own). ``text`` names the text side: an encoder, or an .npz of texts and
    vectors; without it, only what needs no text works. On a command line all of it is one word:
    ``precomputed:FOLDER?rate_hz=2&text=vectors.npz``. ``name`` tells features of different origin apart; it is
    the folder's name unless given.
    """

    license = "as the features' source states"
    wants = None

    def __init__(
        self, source: str | Path, *, rate_hz: float | None = None, text: str | None = None, name: str | None = None
    ) -> None:
        self._source = Path(source)
        if not self._source.exists():
            raise InputError(f"there are no features at {self._source}")
        self._store: Any = FeatureStore(self._source) if (self._source / INFO_FILE).is_file() else None
        if self._store is not None:
            info = self._store.info
            if rate_hz is not None and rate_hz != info.rate_hz:
                raise UsageError(f"{self._source} is a store at {info.rate_hz:g} vectors per second, not {rate_hz:g}")
            self.name, self.fingerprint = name or info.encoder, info.fingerprint
            self.rate_hz, self.dim, self.structure_dim = info.rate_hz, info.dim, info.structure_dim
        else:
            self.rate_hz = 1.0 if rate_hz is None else float(rate_hz)
            if not (np.isfinite(self.rate_hz) and self.rate_hz > 0):
                raise UsageError(f"rate_hz must be vectors per second, got {rate_hz}")
            self._files = find_features(self._source, SUFFIXES) if self._source.is_dir() else {"": self._source}
            if not self._files:
                raise InputError(f"{self._source} holds no features: no file ends in {', '.join(SUFFIXES)}")
            encoded = read_features(next(iter(self._files.values())))
            self.dim = encoded.vectors.shape[1]
            self.structure_dim = 0 if encoded.structure is None else encoded.structure.shape[1]
            self.name = name or self._source.stem
            self.fingerprint = f"precomputed:{self.name}:{self.dim}@{self.rate_hz:g}Hz"
        self._text = None if text is None else text_side(text)
        if self._text is not None and self._text.dim != self.dim:
            raise UsageError(f"the features have {self.dim} dimensions and the text side {text} has {self._text.dim}")

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, D), by the text side that was named."""
        if self._text is None:
            raise UsageError(
                f"features {self.name} have no text side here; name the encoder that made them, or an .npz of texts "
                "and vectors: precomputed:FOLDER?text=..."
            )
        vectors: Vectors = self._text.encode_text(texts)
        return vectors

    @property
    def has_text(self) -> bool:
        """Whether a text side was named."""
        return self._text is not None

    def knows(self, texts: Sequence[str]) -> list[bool]:
        """Which texts the text side has vectors of: a table those in it, an encoder all."""
        knows = getattr(self._text, "knows", None)
        return [True] * len(texts) if knows is None else knows(texts)

    def features(self, video: str | Path) -> Encoded:
        """The features of one video, found by its name."""
        video = Path(video)
        if self._store is not None:
            for key in (video.stem, video.name, str(video)):
                if key in self._store:
                    stored = self._store[key]
                    return Encoded(stored.features, stored.structure)
            raise InputError(f"{self._source} has no video {video.stem!r}")
        encoded = read_features(self._file_of(video))
        if (got := encoded.vectors.shape[1]) != self.dim:
            raise InputError(f"the features of {video.stem} have {got} dimensions, those of the others {self.dim}")
        return encoded

    def _file_of(self, video: Path) -> Path:
        if self._source.is_file():
            return self._source
        # a video's own name may hold dots, so both the stem and the whole name are tried
        for name in (str(video), video_id(video.name), video.stem, video.name):
            if name in self._files:
                return self._files[name]
        raise InputError(f"{self._source} has no features of {video.stem}: no {video.stem}{{{','.join(SUFFIXES)}}}")
