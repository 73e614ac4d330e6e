"""Features people already have, into a store: the released StepFormer's tars, and folders of arrays.

Both give (name, video or error) one at a time, so that a bad sample is listed and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import math
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo
from stepformer.errors import InputError, StepFormerError

RELEASED = StoreInfo("univl", "univl-released", 768, 1.0, 0, {"source": "the released StepFormer's tars"})
"""What the tars hold: UniVL's vectors, one a second. Their fingerprint is their own: how they were made is unknown."""

Sample = tuple[str, StoredVideo | StepFormerError]


_NUMPY_MAGIC = b"\x93NUMPY"
_SAMPLE_KEYS = ("npy", "pyd", "pickle", "pkl", "pth", "pt", "")
"""A WebDataset member's key is what follows the dot of its name; a sample's other members (json, txt) are not read."""


def find_tars(src: str | Path) -> list[Path]:
    """The tars of a folder and the folders in it, or the one given."""
    path = Path(src)
    found = (
        sorted(one for ending in ("*.tar", "*.tar.gz", "*.tgz") for one in path.rglob(ending))
        if path.is_dir() else [path]
    )  # fmt: skip
    if not found or not found[0].is_file():
        raise InputError(f"{path} is not a tar of the released code, nor a folder of them")
    return found


def released_samples(tar: Path, info: StoreInfo = RELEASED) -> Iterator[Sample]:
    """The samples of one tar, read through the restricted unpickler: no code in them runs."""
    try:
        with tarfile.open(tar) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if not member.isfile() or name.startswith(".") or name.rpartition(".")[2] not in (*_SAMPLE_KEYS, name):
                    continue
                stream = archive.extractfile(member)
                data = stream.read() if stream is not None else b""
                try:
                    video = released_sample(data, f"{tar.name}:{member.name}", info)
                    yield video.video, video
                except StepFormerError as error:
                    yield f"{tar.name}:{member.name}", error
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        yield tar.name, InputError(f"{tar} cannot be read on: {error}")


def released_sample(data: bytes, where: str, info: StoreInfo = RELEASED) -> StoredVideo:
    """One sample: ``{name, json: {phrases, start, end}, text_features [L, D], video_features [N, D]}``.

    ``data`` is a NumPy file whose zero-dimensional object array holds that dictionary, as the released code's loader
    reads it, or the dictionary pickled as it is. A phrase without a start time is left out with its vector.
    """
    from stepformer.base.safe_pickle import load_restricted, load_restricted_npy

    sample = load_restricted_npy(data, where) if data.startswith(_NUMPY_MAGIC) else load_restricted(data)
    if not isinstance(sample, Mapping):
        raise InputError(f"{where} is not a sample: it holds {type(sample).__name__}, not a dictionary")
    try:
        said = sample["json"]
        said = json.loads(said) if isinstance(said, str | bytes) else said
        texts, starts, ends = (list(said[key]) for key in ("phrases", "start", "end"))
        name, video, text = str(sample["name"]), _array(sample["video_features"]), _array(sample["text_features"])
        if not len(texts) == len(starts) == len(ends) == len(text):
            raise InputError(
                f"{where}: {len(texts)} phrases, {len(starts)} starts, {len(ends)} ends, {len(text)} vectors "
                "do not match"
            )
        timed = [i for i, start in enumerate(starts) if start is not None and not math.isnan(float(start))]
        phrases = tuple(_phrase(str(texts[i]), float(starts[i]), ends[i]) for i in timed)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{where} is not a sample of the released code: {type(error).__name__}: {error}") from None
    for what, array, rows in (("video", video, "N"), ("text", text, "L")):
        if array.shape[1] != info.dim:
            raise InputError(f"{where}: {what} features have the shape {array.shape}, not ({rows}, {info.dim})")
    return StoredVideo(
        name, video, info.rate_hz, len(video) / info.rate_hz, None, phrases, text[timed], {"source": {"file": where}}
    )


def _phrase(words: str, start_s: float, end: Any) -> StoredPhrase:
    """A phrase whose end may be missing, or lie before its start."""
    end_s = start_s if end is None or math.isnan(float(end)) else float(end)
    return StoredPhrase(words, start_s, max(start_s, end_s))


def array_samples(
    folder: Path,
    encoder: Any,
    captions: Path | None = None,
    phrase_options: Any = None,
    have: Callable[[str, Mapping[str, Any]], bool] = lambda name, source: False,
) -> Iterator[Sample | tuple[str, None]]:
    """Feature files of a folder (.npy, .npz, safetensors), one a video, with phrases from a HowTo100M caption file.

    ``encoder`` says whose features they are: rows of its ``dim`` are taken as they are; S3D's 1024-d ones go through
    UniVL's transformer when it is UniVL. Its text side embeds the phrases. ``have(name, source)`` says which are done
    already, made from the same file and captions: those come as None, and cost nothing.
    """
    from stepformer.data.precomputed import SUFFIXES

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of feature files")
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not files:
        raise InputError(f"{folder} holds no feature file ({', '.join(SUFFIXES)})")
    said = _captions(captions, {path.stem for path in files}) if captions is not None else {}
    for path in files:
        cues = said.get(path.stem, [])
        source = _source(path, cues)
        if have(path.stem, source):
            yield path.stem, None
            continue
        try:
            yield path.stem, _array_sample(path, encoder, cues, phrase_options, source)
        except StepFormerError as error:
            yield path.stem, error


def _source(path: Path, cues: list[Any]) -> dict[str, Any]:
    """What a sample is made from: another file, or other captions, make another sample."""
    stat = path.stat()
    source: dict[str, Any] = {"file": path.name, "bytes": stat.st_size, "mtime_s": int(stat.st_mtime)}
    if cues:
        words = json.dumps([(cue.start_s, cue.end_s, cue.text) for cue in cues])
        source["captions"] = hashlib.sha256(words.encode()).hexdigest()[:16]
    return source


def _array_sample(
    path: Path, encoder: Any, cues: list[Any], phrase_options: Any, source: dict[str, Any]
) -> StoredVideo:
    from stepformer.data.precomputed import read_features

    encoded = read_features(path)
    finish = getattr(encoder, "finish", None)
    if encoded.vectors.shape[1] != encoder.dim and finish is not None:
        encoded = finish(encoded)
    if encoded.vectors.shape[1] != encoder.dim:
        raise InputError(
            f"{path} has {encoded.vectors.shape[1]} columns, {encoder.name!r} has {encoder.dim}: not its features"
        )
    phrases: list[Any] = []
    if cues:
        from stepformer.narration import PhraseOptions, extract_phrases

        phrases = list(extract_phrases(cues, phrase_options or PhraseOptions.training()))
    return StoredVideo(
        path.stem, encoded.vectors, encoder.rate_hz, len(encoded.vectors) / encoder.rate_hz,
        encoded.structure if getattr(encoder, "structure_dim", 0) else None, tuple(phrases),
        encoder.encode_text([phrase.text for phrase in phrases]) if phrases else None,
        {"source": source},
    )  # fmt: skip


def _captions(path: Path, wanted: set[str]) -> dict[str, list[Any]]:
    """Cues of the wanted videos from a caption file that may be larger than memory."""
    from stepformer.data.howto100m import parse_cues, stream_captions

    found = {}
    for video, entry in stream_captions(path):
        if video in wanted:
            found[video] = list(parse_cues(video, entry, lambda problem: None))
    return found


def _array(value: Any) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A NumPy array or torch tensor as float32 NumPy."""
    if hasattr(value, "detach"):
        value = value.detach().cpu().float().numpy()
    array = np.asarray(value, np.float32)
    if array.ndim == 1 and not len(array):  # no phrases: whoever wrote it had nothing to give columns to
        array = array.reshape(0, RELEASED.dim)
    if array.ndim != 2:
        raise ValueError(f"features must be (rows, columns), got {array.shape}")
    return array
