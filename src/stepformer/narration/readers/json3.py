"""YouTube's json3: events in milliseconds, with word offsets in their segments."""

from __future__ import annotations

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.fields import load, number, words_at


def parse(text: str, name: str) -> list[Cue]:
    """Cues of a json3 file. Events without text (window settings) and appended line ends are left out."""
    value = load(text, name)
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list):
        raise InputError(f"{name}: line 1: expected a json3 object with a list 'events'")
    cues: list[Cue] = []
    for at, event in enumerate(events):
        if not isinstance(event, dict):
            raise InputError(f"{name}: line 1: expected 'events[{at}]' to be an object, found {type(event).__name__}")
        segs = event.get("segs")
        if not isinstance(segs, list):
            continue
        start_ms = number(event.get("tStartMs"))
        if start_ms is None:
            raise InputError(f"{name}: line 1: expected a number 'tStartMs' in 'events[{at}]'")
        start_s = start_ms / 1000
        end_s = start_s + (number(event.get("dDurationMs")) or 0.0) / 1000
        pieces: list[tuple[float | None, str]] = []
        for seg in segs:
            said = seg.get("utf8") if isinstance(seg, dict) else None
            if not isinstance(said, str):
                continue
            offset_ms = number(seg.get("tOffsetMs"))
            pieces.append((start_s if offset_ms is None else start_s + offset_ms / 1000, said))
        whole = "".join(piece for _, piece in pieces)
        if not whole.strip():
            continue
        # offsets make word times; an event that is one segment has none
        words = words_at(pieces, start_s, end_s) if len(pieces) > 1 else ()
        if len(words) != len(whole.split()):
            words = ()
        cues.append(cue_at(start_s, end_s, whole, words))
    return cues
