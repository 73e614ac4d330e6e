"""What people name on a command line: videos, folders, patterns, features, feature stores, or a list on stdin."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Literal, TypeVar

from stepformer.base.files import no_such
from stepformer.base.guard import in_process, read_text, reader
from stepformer.base.many import most_memory, note
from stepformer.errors import InputError, UsageError
from stepformer.timeline import Timeline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Input:
    """One video to work on: a file, a file of its features, or ``key`` in a feature store."""

    path: Path
    kind: Literal["video", "features", "store"] = "video"
    key: str = ""

    def __str__(self) -> str:
        return self.key or str(self.path)

    @property
    def name(self) -> str:
        """What its output files are called, without an ending; features of ``talk.mp4.npy`` are of the video talk."""
        if self.kind == "features":
            from stepformer.data.records import video_id

            return video_id(self.path.stem)
        return self.key.replace("/", "_") or (self.path.stem if self.path.suffix else self.path.name)

    def read(self, model: Any, rate_hz: float, cache: bool = True, text: bool = True) -> Any:
        """Its Features; ``rate_hz`` is that of a file of features, which does not say.

        text: they will be compared with texts, so a store must be of the model's encoder.
        """
        from stepformer.encoders.reading import Features

        if self.kind == "video":
            return model.read(self.path, partial(_note, "read"), cache)
        if self.kind == "features":
            from stepformer.data.precomputed import read_features

            found = read_features(self.path)
            return Features(found.vectors, rate_hz, found.structure, video=self.name)
        from stepformer.data.store import FeatureStore

        store = FeatureStore(self.path)
        if text:
            store.require_encoder(model.encoder.fingerprint, f"encoder {model.encoder.name}")
        stored = store[self.key]
        return Features(stored.features, stored.rate_hz, stored.structure, stored.duration_s, stored.video)

    def heard(self, listening: Any) -> Any:
        """The Narration of a video file: its subtitles or its speech; None of features."""
        from stepformer.narration import narration_of

        return narration_of(self.path, listening, partial(_note, "heard")) if self.kind == "video" else None

    def may_be_named(self, args: argparse.Namespace) -> bool:
        """Whether steps get names: plain features do not say whose they are, and names need the text side of the
        encoder that made them."""
        return not args.no_labels and (self.kind != "features" or args.encoder is not None)

    def find(self, model: Any, args: argparse.Namespace, options: Any, listening: Any, bank: Any = None) -> Any:
        """The Finding of its steps."""
        named = self.may_be_named(args)
        features = self.read(model, args.rate, not args.no_cache, named)
        labels = "auto" if named else "none"
        return model.find(features, options, narration=self.heard(listening), labels=labels, bank=bank)


def _note(what: Literal["read", "heard"], done_s: float, total_s: float) -> None:
    """Reports progress: how many seconds of a video, of how many, have been read or turned into text."""
    note((what, done_s, total_s))


worker: dict[str, Any] = {}
"""What a process that works on videos one by one keeps: the model, and the command's options."""


def start_worker(args: argparse.Namespace) -> Any:
    """The model of a command, loaded once per process."""
    import stepformer

    if worker.get("args") is not args:
        worker.update(model=stepformer.load_model(args.model, encoder=args.encoder, device=args.device), args=args)
    return worker["model"]


def video_of(timeline: Timeline, file: str, given: str | None = None) -> tuple[Timeline, str | None]:
    """A timeline read from ``file`` with its video: ``given``, or a video file that lies where a stranger may point.

    A timeline from elsewhere may name any file of this machine as its video, which would then be served or put into a
    page. So only a video file inside the folder of ``file`` or inside the working folder is taken (by its
    path, or by its name: folders get moved together); otherwise the timeline is given its video's bare name.
    """
    from stepformer.media import SUFFIXES

    if given is not None:
        return timeline, given
    folder = Path.cwd() if file == "-" else Path(file).parent
    named = PurePath(timeline.video)
    try:
        for place in (Path(named), folder / named, folder / named.name):
            real = place.resolve()
            inside = any(real.is_relative_to(root.resolve()) for root in (folder, Path.cwd()))
            if inside and real.suffix.lower() in SUFFIXES and real.is_file():
                return timeline, str(place)
    except (OSError, ValueError, RuntimeError):  # a name can be anything, even what no path may hold
        pass
    return replace(timeline, video=named.name), None


def with_video(function: Callable[..., T], *args: Any, video: str | None, apart: bool) -> T:
    """``function(*args)``, which decodes ``video`` if there is one: then, if ``apart``, in a process of its own."""
    if video is None or not apart:
        return function(*args)
    return in_process(function, *args, what=video, time_s=None, memory_bytes=most_memory())


def lines_of(path: str, what: str) -> list[str]:
    """The lines of a text file that are neither empty nor a comment."""
    if not Path(path).exists():
        raise no_such(path, what)
    return [line.strip() for line in read_text(path).splitlines() if line.strip() and not line.lstrip().startswith("#")]


def _listed() -> list[str]:
    """The names on stdin, one per line, whatever bytes they are; # starts a comment."""
    lines = map(os.fsdecode, sys.stdin.buffer) if hasattr(sys.stdin, "buffer") else sys.stdin
    return [name for line in lines if (name := line.strip()) and not name.startswith("#")]


def find_inputs(names: Sequence[str], ids: bool = False) -> list[Input]:
    """The videos that ``names`` stand for, each once, in order.

    Beside what :func:`stepformer.media.find_videos` finds: a feature store gives all its videos, and a folder without
    videos the feature files in it and below. ``ids`` lets a name that is no file pass, for encoders that look features
    up by name.

    Raises:
        UsageError: no name was given.
        InputError: a name leads to nothing; says which.
    """
    if not names:
        raise UsageError("name at least one video: a file, a folder, a pattern, or - for a list on stdin")
    given = [one for name in names for one in (_listed() if name == "-" else [name])]
    if not given:
        raise InputError("the list of videos on stdin is empty")
    if "" in given:
        raise UsageError("the name of a video is empty")
    return list(dict.fromkeys(one for name in given for one in _found(name, ids)))


@reader("video or folder of videos")
def _found(name: str, ids: bool) -> list[Input]:
    from stepformer import media
    from stepformer.data.precomputed import SUFFIXES
    from stepformer.data.store import INFO_FILE, FeatureStore

    path = Path(name).expanduser()
    if (path / INFO_FILE).is_file():
        if not (stored := FeatureStore(path).ids):
            raise InputError(f"the feature store {name} holds no video")
        return [Input(path, "store", key) for key in stored]
    if path.suffix in SUFFIXES and path.is_file():
        return [Input(path, "features")]
    try:
        return [Input(video) for video in media.find_videos([name], ids=ids)]
    except InputError:
        arrays = (p for p in sorted(path.rglob("*")) if p.suffix in SUFFIXES and p.is_file())
        if found := [Input(p, "features") for p in arrays if not p.name.endswith(".vectors.npy")]:
            return found
        raise
