"""Real narration with human steps: YouCook2 and ProceL as they are published with speech, in two halves."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, cue_at


@dataclass(frozen=True, slots=True)
class Spoken:
    """A real video's narration and its human steps: (start_s, end_s, text)."""

    video: str
    cues: tuple[Cue, ...]
    steps: tuple[tuple[float, float, str], ...]
    recipe: str = ""

    @property
    def half(self) -> str:
        """ "dev" or "test", by the hash of the name: rules were looked at on "dev" only."""
        return "test" if hashlib.sha256(self.video.encode()).digest()[0] % 2 else "dev"


def load_youcook2(path: str | os.PathLike[str], marks: bool = False, untimed: bool = False) -> list[Spoken]:
    """The videos with narration and timed steps, or, ``untimed``, also those without. Sentence marks and capitals are
    taken away unless ``marks``."""
    videos = _load(path)
    found: list[Spoken] = []
    for name, video in videos.items():
        steps = tuple((float(a), float(b), str(text)) for a, b, text in video.get("segments") or ())
        said = video.get("asr") or ()
        if not (steps or untimed) or not said:
            continue
        cues: list[Cue] = []
        for i, line in enumerate(said):
            start_s = float(line["start"])
            end_s = float(said[i + 1]["start"]) if i + 1 < len(said) else start_s + 5.0
            # the file writes "i 'm" and "today ," with spaces
            text = re.sub(r"\s+(?=n't\b|'|[,.!?])", "", str(line["text"]))
            if not marks:
                text = re.sub(r"[.,!?;:\"]+(?=\s|$)", "", text).lower()
            cues.append(cue_at(start_s, end_s, " ".join(text.split())))
        found.append(Spoken(str(name), tuple(cues), steps, str(video.get("recipe", ""))))
    return found


def load_procel(path: str | os.PathLike[str]) -> list[Spoken]:
    """The videos of one ProceL task as JSON, captions as they are."""
    task = _load(path)
    found: list[Spoken] = []
    for video in task.get("videos", ()):
        cues = tuple(cue_at(a, b, str(text)) for a, b, text in video["captions"])
        steps = tuple((float(a), float(b), str(text).lower()) for _, a, b, text in video["key_steps"])
        if cues and steps:
            found.append(Spoken(f"{task['task']}/{video['index']}", cues, steps))
    return found


def _load(path: str | os.PathLike[str]) -> Any:
    path = Path(path)
    try:
        data = path.read_bytes()
        return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as JSON: {error}") from error
