"""Features people already have, into a store: the released StepFormer's tars, and folders of arrays.

Both give (name, video or error) one at a time, so that a bad sample is listed and the others go on.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.guard import tar_files
from stepformer.data.records import find_features, video_id
from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo
from stepformer.data.store_writer import file_stamp
from stepformer.errors import InputError, StepFormerError
from stepformer.narration import Cue

RELEASED = StoreInfo("univl", "univl-released", 768, 1.0, 0, {"source": "the released StepFormer's tars"})
"""What the tars hold: UniVL's vectors, one per second. The fingerprint is their own: how they were made is unknown."""

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
        for member, read in tar_files(tar):
            name = member.rpartition("/")[2]
            if name.startswith(".") or name.rpartition(".")[2] not in (*_SAMPLE_KEYS, name):
                continue
            try:
                video = released_sample(read(), f"{tar.name}:{member}", info)
                yield video.video, video
            except StepFormerError as error:
                yield f"{tar.name}:{member}", error
    except StepFormerError as error:
        yield tar.name, error


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


@dataclass(slots=True)
class Captioned:
    """What became of the captions of a folder of arrays: counts that grow while its samples are read."""

    files: int = 0  # feature files
    captioned: int = 0  # videos in the captions
    matched: int = 0  # feature files that have captions
    unreadable: list[str] = field(default_factory=list)  # why, one per subtitle file that cannot be read
    read: int = 0  # captions that were read for phrases; less than matched where some were done before
    phrases: int = 0
    without_vector: int = 0  # phrases of which the text side has no vector: left out
    example: str = ""  # one of them

    def sentences(self) -> list[str]:
        """What is worth a warning."""
        said = []
        if self.matched < self.files:
            said.append(f"{self.files - self.matched} of {self.files} feature files have no captions, and no phrases")
        if self.without_vector:
            said.append(
                f"{self.without_vector} of {self.phrases} phrases have no vector and are left out, "
                f"for instance {self.example!r}"
            )
        if self.unreadable:
            said.append(f"{len(self.unreadable)} subtitle files cannot be read, for instance {self.unreadable[0]}")
        if self.read and not self.phrases:
            said.append(f"no phrase was found in the captions of {self.read} videos: there is nothing to train on")
        return said


def array_samples(
    folder: Path,
    encoder: Any,
    captions: Path | None = None,
    phrase_options: Any = None,
    have: Callable[[str, Mapping[str, Any]], bool] = lambda name, source: False,
    count: Captioned | None = None,
) -> Iterator[Sample | tuple[str, None]]:
    """Feature files of a folder and its folders (.npy, .npz, safetensors), one per video, with phrases from captions.

    ``encoder`` says whose features they are: rows of its ``dim`` are taken as they are; S3D's 1024-d ones go through
    UniVL's transformer when it is UniVL. Its text side embeds the phrases. ``captions`` is a HowTo100M caption file, or
    a folder of subtitle files, one per video: any format, CSV too. ``have(name, source)`` says which are done already,
    made from the same file and captions: those come as None, and cost nothing. ``count`` is filled on the way.

    Raises:
        InputError: there are no feature files, or captions that go with none of them.
        UsageError: captions were given and the encoder has no text side.
    """
    from stepformer.data.precomputed import SUFFIXES

    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder of feature files")
    files = find_features(folder, SUFFIXES)
    if not files:
        raise InputError(f"{folder} holds no feature file ({', '.join(SUFFIXES)})")
    count = Captioned() if count is None else count
    count.files = len(files)
    said: dict[str, list[Cue]] = {}
    if captions is not None:
        if not getattr(encoder, "has_text", True):
            encoder.encode_text(["a phrase"])  # raises, with the encoder's own words
        said = _captions(captions, files, count)
    for name, path in files.items():
        cues = said.get(name, [])
        source = _source(path, cues)
        if have(name, source):
            yield name, None
            continue
        try:
            yield name, _array_sample(name, path, encoder, cues, phrase_options, source, count)
        except StepFormerError as error:
            yield name, error


def _captions(captions: Path, files: Mapping[str, Path], count: Captioned) -> dict[str, list[Cue]]:
    """Cues by the name of the feature file, from a caption file that may be larger than memory, or a folder."""
    wanted: dict[str, list[str]] = {}
    for name, path in files.items():
        own = video_id(path.stem)
        # CrossTask's features are called <task>_<video>; the captions know the video alone
        task, _, video = own.partition("_")
        for key in dict.fromkeys((name, own, video if task.isdecimal() and video else own)):
            wanted.setdefault(key, []).append(name)
    found: dict[str, list[Cue]] = {}
    other = ""
    for video, read in _caption_entries(captions):
        count.captioned += 1
        other = other or video
        names = wanted.get(video_id(video))
        if names:
            try:
                cues = read()
            except StepFormerError as error:
                count.unreadable.append(str(error))
                cues = []
            for name in names:
                found.setdefault(name, cues)
    count.matched = len(found)
    if not found:
        raise InputError(
            f"{captions} has captions of {count.captioned} videos{f', for instance {other!r},' if other else ''} and "
            f"none of the {len(files)} feature files, for instance {next(iter(files))!r}: the names must be the same"
        )
    return found


def _caption_entries(captions: Path) -> Iterator[tuple[str, Callable[[], list[Cue]]]]:
    """(video, how to read its cues) of a HowTo100M caption file, or of a folder of subtitle files."""
    from stepformer.data.howto100m import caption_file
    from stepformer.narration.readers import SUFFIXES, read_subtitles, tidy
    from stepformer.narration.readers.structured import cues_of, iter_captions

    one = caption_file(captions) if captions.is_dir() else captions
    if one is not None:
        for video, entry in iter_captions(one):
            yield video, lambda video=video, entry=entry: tidy(cues_of(entry, f"video {video}"))  # type: ignore[misc]
        return
    for path in sorted(captions.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file():
            yield path.stem, lambda path=path: read_subtitles(path)  # type: ignore[misc]


def _source(path: Path, cues: list[Cue]) -> dict[str, Any]:
    """What a sample is made from: another file, or other captions, make another sample."""
    source = file_stamp(path)
    if cues:
        words = json.dumps([(cue.start_s, cue.end_s, cue.text) for cue in cues])
        source["captions"] = hashlib.sha256(words.encode()).hexdigest()[:16]
    return source


def _array_sample(
    name: str, path: Path, encoder: Any, cues: list[Cue], phrase_options: Any, source: dict[str, Any], count: Captioned
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

        phrases = list(extract_phrases(cues, phrase_options or PhraseOptions(detail=True)))
        count.read += 1
        count.phrases += len(phrases)
        if (knows := getattr(encoder, "knows", None)) is not None:
            known = knows([phrase.text for phrase in phrases])
            missing = [phrase.text for phrase, there in zip(phrases, known, strict=True) if not there]
            count.without_vector += len(missing)
            count.example = count.example or next(iter(missing), "")
            phrases = [phrase for phrase, there in zip(phrases, known, strict=True) if there]
    return StoredVideo(
        name, encoded.vectors, encoder.rate_hz, len(encoded.vectors) / encoder.rate_hz,
        encoded.structure if getattr(encoder, "structure_dim", 0) else None, tuple(phrases),
        encoder.encode_text([phrase.text for phrase in phrases]) if phrases else None,
        {"source": source},
    )  # fmt: skip


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
