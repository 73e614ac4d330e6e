"""Any captioner's text as the video side: captions per segment, embedded by the text tower of ``clip``.

People with a vision-language model run it over their video in whatever way they like and write what it said as JSON;
this turns it into vectors at one per second. Read are:

- a list of segments ``[{"start": 0, "end": 4, "text": "a hand turns on a tap"}, ...]``
- ``{"segments": [...]}`` (or "captions", "events", "nodes", "chunks"), with an optional ``"duration"``
- a table of videos, ``{"VIDEO": one of the above, ...}``
- Dense-caption style: ``{"VIDEO": {"duration": 61.0, "timestamps": [[0, 4], ...], "sentences": ["...", ...]}}``

A segment's times are ``start``/``end`` in seconds (also ``start_s``, ``start_time``, ``begin``; ``timestamp: [s, e]``
as speech and dense-caption tools write it), its text ``text`` or ``caption`` (also ``description``, ``sentence``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.files import no_such
from stepformer.base.guard import read_json, reader, seconds
from stepformer.encoders.base import Encoded, Vectors
from stepformer.encoders.clip import ClipText
from stepformer.errors import InputError

_STARTS = ("start", "start_s", "start_time", "begin")
_ENDS = ("end", "end_s", "end_time", "stop")
_TEXTS = ("text", "caption", "description", "sentence")
_LISTS = ("segments", "captions", "events", "nodes", "chunks")
_SUFFIXES = (".captions.json", ".json")
FILL_S = 5.0
"""A second without a caption takes the nearest one that is at most this far away; beyond, its vector is zero."""


@dataclass(frozen=True, slots=True)
class Caption:
    """What a captioner said of ``[start_s, end_s)``."""

    start_s: float
    end_s: float
    text: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.start_s) and math.isfinite(self.end_s) and 0 <= self.start_s <= self.end_s):
            raise InputError(f"a caption needs 0 <= start <= end in seconds, got {self.start_s} and {self.end_s}")
        if not self.text.strip():
            raise InputError(f"the caption at {self.start_s} s has no text")


def _first(segment: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((segment[key] for key in keys if segment.get(key) is not None), None)


def _caption(segment: Any, where: str) -> Caption:
    if not isinstance(segment, Mapping):
        raise InputError(f"{where}: a segment must be an object with start, end and text, got {segment!r}")
    start, end = _first(segment, _STARTS), _first(segment, _ENDS)
    pair = segment.get("timestamp")
    if isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2:
        start, end = pair
    text = _first(segment, _TEXTS)
    try:
        return Caption(float(start), float(end), str(text if text is not None else ""))
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: a segment needs start, end (seconds) and text: {error}") from error
    except InputError as error:
        raise InputError(f"{where}: {error}") from error


def _is_one_video(value: Any) -> bool:
    return isinstance(value, list) or (
        isinstance(value, Mapping) and (any(key in value for key in _LISTS) or "timestamps" in value)
    )

_SILENT_S = 3600.0  # after the last caption
_LONGEST_S = 86_400.0


def parse_captions(value: Any, where: str = "captions") -> tuple[list[Caption], float]:
    """The captions of one video, in order, and its duration in seconds (the last end, if it is not given)."""
    duration = None
    segments: Any = value
    if isinstance(value, Mapping):
        duration = value.get("duration", value.get("duration_s"))
        if "timestamps" in value:
            times, texts = value["timestamps"], value.get("sentences", [])
            if len(times) != len(texts):
                raise InputError(f"{where}: {len(times)} timestamps and {len(texts)} sentences do not go together")
            segments = [{"timestamp": pair, "text": text} for pair, text in zip(times, texts, strict=True)]
        else:
            segments = _first(value, _LISTS)
    if not isinstance(segments, list):
        raise InputError(f"{where}: no list of captions was found")
    captions = sorted(
        (_caption(segment, f"{where}, segment {i}") for i, segment in enumerate(segments)),
        key=lambda caption: (caption.start_s, caption.end_s),
    )
    if not captions:
        raise InputError(f"{where}: there are no captions")
    last = max(caption.end_s for caption in captions)
    length_s = last if duration is None else seconds(duration, "the duration", where)
    if length_s > min(last + _SILENT_S, _LONGEST_S):  # every second gets a vector
        raise InputError(f"{where}: captions up to {last:g} s do not bear out a duration of {length_s:g} s")
    return captions, length_s


@reader("file of captions")
def read_captions(path: str | Path, video: str = "") -> tuple[list[Caption], float]:
    """The captions of ``video`` (its name without folder or ending) in a JSON file, and the duration in seconds."""
    path = Path(path)
    value = read_json(path)
    if not _is_one_video(value) and isinstance(value, Mapping):
        stems = {Path(name).stem if Path(name).suffix else name: name for name in value}
        key = video if video in value else stems.get(video)
        if key is None:
            known = ", ".join(list(value)[:3])
            raise InputError(f"{path} has no captions of {video!r}; it has: {known}{' ...' if len(value) > 3 else ''}")
        value = value[key]
    return parse_captions(value, str(path))


class CaptionsEncoder:
    """Captions of a video to (N, 512) vectors, one per second, in the space of encoder ``clip``, so that its models
    read them.

    ``source`` is a JSON file of one or many videos, or a folder with ``VIDEO.captions.json`` or ``VIDEO.json`` for
    each; without it they are looked for beside the video.
    """

    name = "captions"
    license = "CC BY-NC-SA 4.0, after the sources of the text tower; the captions are yours"
    rate_hz = 1.0
    wants = None
    structure_dim = 0

    def __init__(self, source: str | Path | None = None) -> None:
        self._source = None if source is None else Path(source)
        if self._source is not None and not self._source.exists():
            raise no_such(self._source, "caption file or folder")
        self._texts = ClipText()
        self.dim = self._texts.dim
        self.fingerprint = f"captions-2:{self._texts.fingerprint}"

    def encode_text(self, texts: Sequence[str]) -> Vectors:
        """Texts to (L, 512) unit vectors."""
        return self._texts.encode_text(texts)

    def features(self, video: str | Path) -> Encoded:
        """The vectors of one video, found by its name."""
        video = Path(video)
        captions, duration_s = read_captions(self._file_of(video), video.stem if video.suffix else video.name)
        return self.encode_captions(captions, duration_s)

    def _file_of(self, video: Path) -> Path:
        if self._source is not None and self._source.is_file():
            return self._source
        folder = self._source if self._source is not None else video.parent
        tried = [folder / (video.stem + suffix) for suffix in _SUFFIXES]
        for path in tried:
            if path.is_file():
                return path
        raise InputError(f"no captions of {video.name}: looked for {' and '.join(str(path) for path in tried)}")

    def encode_captions(self, captions: Sequence[Caption], duration_s: float) -> Encoded:
        """Captions to one vector per second: the mean of those on screen, weighted by how long they are, and by the
        inverse of their length, so that a caption of a moment counts more than one of the whole video."""
        count = max(1, math.ceil(duration_s * self.rate_hz - 1e-6))
        texts = list(dict.fromkeys(caption.text for caption in captions))
        row_of = {text: row for row, text in enumerate(texts)}
        embedded = self._texts.encode_text(texts)  # (L, D)
        out = np.zeros((count, self.dim), np.float32)
        for i in range(count):
            start, end = i / self.rate_hz, (i + 1) / self.rate_hz
            weight = np.zeros(len(texts))
            for caption in captions:
                shared = min(end, caption.end_s) - max(start, caption.start_s)
                if shared > 0:
                    weight[row_of[caption.text]] += shared / max(caption.end_s - caption.start_s, 1 / self.rate_hz)
            if not weight.any():
                gap, nearest = min((_distance_s(caption, start, end), j) for j, caption in enumerate(captions))
                if gap > FILL_S:
                    continue
                weight[row_of[captions[nearest].text]] = 1.0
            mixed = weight @ embedded
            out[i] = mixed / max(float(np.linalg.norm(mixed)), 1e-12)
        return Encoded(out)


def _distance_s(caption: Caption, start_s: float, end_s: float) -> float:
    return max(caption.start_s - end_s, start_s - caption.end_s, 0.0)
