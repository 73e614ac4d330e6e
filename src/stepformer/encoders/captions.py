"""Any captioner's text as the video side: captions per segment, embedded by the text tower of ``clip``.

What a vision-language model said of a video, as JSON, becomes vectors at one per second. Read are:

- a list of segments ``[{"start": 0, "end": 4, "text": "a hand turns on a tap"}, ...]``
- ``{"segments": [...]}`` (or "captions", "events", "nodes", "chunks"), with an optional ``"duration"``
- a table of videos, ``{"VIDEO": one of the above, ...}``
- Dense-caption style: ``{"VIDEO": {"duration": 61.0, "timestamps": [[0, 4], ...], "sentences": ["...", ...]}}``

A segment's times and text go by the names that transcripts have (:mod:`stepformer.narration.readers.structured`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.arrays import unit
from stepformer.base.files import no_such
from stepformer.base.guard import read_json, reader
from stepformer.encoders.base import Encoded
from stepformer.encoders.clip import ClipText
from stepformer.errors import InputError
from stepformer.narration import Cue
from stepformer.narration.readers.structured import has_segments, segments_of
from stepformer.timeline import seconds

_SUFFIXES = (".captions.json", ".json")
_SILENT_S = 3600.0  # after the last caption
_LONGEST_S = 86_400.0
FILL_S = 5.0
"""A second without a caption takes the nearest one that is at most this far away; beyond, its vector is zero."""


def parse_captions(value: Any, where: str = "captions") -> tuple[list[Cue], float]:
    """The captions of one video, in order, and its duration in seconds (the last end, if it is not given)."""
    duration = None
    if isinstance(value, Mapping):
        duration = value.get("duration", value.get("duration_s"))
        if "timestamps" in value:
            times, texts = value["timestamps"], value.get("sentences", [])
            if len(times) != len(texts):
                raise InputError(f"{where}: {len(times)} timestamps and {len(texts)} sentences do not match")
            value = [{"timestamp": pair, "text": text} for pair, text in zip(times, texts, strict=True)]
        elif "events" in value:
            value = value["events"]
    captions = sorted((cue for cue in segments_of(value, where) if cue.text.strip()), key=lambda cue: cue.start_s)
    if not captions:
        raise InputError(f"{where}: there are no captions")
    last = max(caption.end_s for caption in captions)
    length_s = last if duration is None else seconds(duration, f"{where}: the duration")
    if length_s > min(last + _SILENT_S, _LONGEST_S):  # every second gets a vector
        raise InputError(f"{where}: captions end at {last:g} s, which does not fit a duration of {length_s:g} s")
    return captions, length_s


@reader("file of captions")
def read_captions(path: str | Path, video: str = "") -> tuple[list[Cue], float]:
    """The captions of ``video`` (its name without folder or ending) in a JSON file, and the duration in seconds."""
    path = Path(path)
    value = read_json(path)
    one = has_segments(value) or (isinstance(value, Mapping) and ("timestamps" in value or "events" in value))
    if not one and isinstance(value, Mapping):
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
        texts = ClipText()
        self.encode_text, self.dim = texts.encode_text, texts.dim
        self.fingerprint = f"captions-2:{texts.fingerprint}"

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
        if (found := next(filter(Path.is_file, tried), None)) is not None:
            return found
        raise InputError(f"no captions of {video.name}: looked for {' and '.join(str(path) for path in tried)}")

    def encode_captions(self, captions: Sequence[Cue], duration_s: float) -> Encoded:
        """Captions to one vector per second: the mean of those on screen, weighted by how long they are, and by the
        inverse of their length, so that a caption of a moment counts more than one of the whole video."""
        count = max(1, math.ceil(duration_s * self.rate_hz - 1e-6))
        begin = np.arange(count)[:, None] / self.rate_hz  # (N, 1)
        start, end = np.array([(caption.start_s, caption.end_s) for caption in captions]).T  # (L,), (L,)
        shared = np.minimum(begin + 1 / self.rate_hz, end) - np.maximum(begin, start)  # (N, L); below 0: the gap
        weight = np.maximum(shared, 0.0) / np.maximum(end - start, 1 / self.rate_hz)
        silent = np.flatnonzero(~weight.any(1) & (shared.max(1) >= -FILL_S))
        weight[silent, shared[silent].argmax(1)] = 1.0
        texts = list(dict.fromkeys(caption.text for caption in captions))
        rows = {text: row for row, text in enumerate(texts)}
        embedded = self.encode_text(texts)[[rows[caption.text] for caption in captions]]  # (L, D)
        return Encoded(np.asarray(unit(weight @ embedded), np.float32))
