"""Rolling captions to one stream: each line of speech once, where the file shows it two or three times.

YouTube's automatic captions scroll: a cue shows the line before and the line being spoken, then a cue of 10 ms
shows the finished line alone. Other tools reveal a line word by word. In both, a cue begins with words that
the cue before it already showed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stepformer.narration.cues import Cue, Word

_TOUCHING_S = 0.15  # a repeated line stays on the screen; a repeated sentence comes after a pause
_ROLLING_SHARE = 0.3  # of neighbouring cues that repeat, from which on a file counts as rolling


def overlap(before: Sequence[str], after: Sequence[str]) -> int:
    """How many words at the start of the lines ``after`` are the end of what the lines ``before`` showed.

    Whole lines count; within a line, the whole of the cue before (a line revealed word by word) or three words
    (lines joined by a converter).
    """
    lines_before = [line.split() for line in before if line.strip()]
    lines_after = [line.split() for line in after if line.strip()]
    for count in range(min(len(lines_before), len(lines_after)), 0, -1):
        if lines_before[-count:] == lines_after[:count]:
            return sum(len(line) for line in lines_after[:count])
    shown = [word for line in lines_before for word in line]
    new = [word for line in lines_after for word in line]
    if shown and new[: len(shown)] == shown:
        return len(shown)
    for size in range(min(len(shown), len(new)), 2, -1):
        if shown[-size:] == new[:size]:
            return size
    return 0


def unroll(cues: Sequence[Cue]) -> list[Cue]:
    """Ordered cues whose text may have several lines -> cues that say each word once, empty ones left out."""
    cues = [cue for cue in cues if cue.text.strip()]
    lines = [cue.text.split("\n") for cue in cues]
    repeats = [0] * len(cues)
    touching = 0
    for i in range(1, len(cues)):
        if cues[i].start_s <= cues[i - 1].end_s + _TOUCHING_S:
            touching += 1
            repeats[i] = overlap(lines[i - 1], lines[i])
    if sum(repeat > 0 for repeat in repeats) < max(1.0, _ROLLING_SHARE * touching):
        return [_one_line(cue, cue.text.split(), cue.words) for cue in cues]

    stream: list[Cue] = []
    for cue, repeat in zip(cues, repeats, strict=True):
        texts = cue.text.split()[repeat:]
        if texts:
            stream.append(_one_line(cue, texts, _last_words(cue, len(texts))))
        elif stream and not stream[-1].words:
            # the finished line goes on being shown; the words were said by then
            stream[-1] = replace(stream[-1], end_s=max(stream[-1].end_s, min(cue.end_s, cue.start_s + 0.01)))
    return stream


def _one_line(cue: Cue, texts: Sequence[str], words: tuple[Word, ...]) -> Cue:
    start_s = words[0].start_s if words else cue.start_s
    return replace(cue, start_s=start_s, end_s=max(start_s, cue.end_s), text=" ".join(texts), words=words)


def _last_words(cue: Cue, count: int) -> tuple[Word, ...]:
    return cue.words[-count:] if len(cue.words) >= count else ()
