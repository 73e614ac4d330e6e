"""What speakers say on the way to what they mean: fillers, stammers, "kind of"."""

from __future__ import annotations

from collections.abc import Sequence

from stepformer.narration.cues import Word
from stepformer.narration.lexicon import FILLERS

_MAX_LETTERS = 60  # no spoken word is longer; an address or noise is
_KIND = {"kind", "sort"}
_REAL_KIND = {
    "this",
    "that",
    "what",
    "some",
    "any",
    "a",
    "the",
    "same",
    "another",
    "every",
    "these",
    "those",
    "which",
    "each",
    "of",
}
_REPEATABLE = {
    "very",
    "really",
    "no",
    "so",
    "had",
    "that",
    "hot",
    "far",
    "much",
    "more",
    "bye",
    "many",
    "again",
    "there",
    "yeah",
    "knock",
}
_STRIP = ".,;:!?\"'"
_ENDS = ".?!"


def smooth(words: Sequence[Word]) -> list[Word]:
    """Words without fillers and stammers. Sentence marks of a word that goes move to the one before it."""
    kept: list[Word] = []
    bare: list[str] = []  # of kept: lower case, without marks
    i = 0
    while i < len(words):
        text = words[i].text
        low = text.lower().strip(_STRIP)
        skip = 0
        if low in FILLERS:
            skip = 1
        elif (
            low in _KIND
            and _bare(words, i + 1) == "of"
            and (not bare or bare[-1] not in _REAL_KIND)
            and i + 2 < len(words)
        ):
            skip = 2
        elif (
            low == "you"
            and _bare(words, i + 1) == "know"
            and _bare(words, i + 2) not in ("how", "what", "that", "if", "the", "where", "why", "about", "when", "it")
        ):
            # "you know" between two words of one clause; "you know how to …" is a clause
            skip = (
                2
                if bare
                and not kept[-1].text.endswith(tuple(_ENDS))
                and bare[-1] not in ("do", "if", "as", "did", "let", "what", "before")
                else 0
            )
        elif low == "i" and _bare(words, i + 1) == "mean" and _bare(words, i + 2) not in ("it", "that", "by"):
            skip = 2
        if skip:
            marks = [w.text[-1] for w in words[i : i + skip] if w.text[-1:] in tuple(_ENDS)]
            if marks and kept and not kept[-1].text.endswith(tuple(_ENDS)):
                kept[-1] = Word(kept[-1].start_s, kept[-1].end_s, kept[-1].text.rstrip(",;:") + marks[-1])
            i += skip
            continue
        if low and bare and low.replace("'", "").isalpha():
            # "the the", "i usually i usually": a run of one to three words said twice at once
            back = _stammer(bare, low, words, i)
            if back:
                del kept[-back:], bare[-back:]
        kept.append(
            words[i] if len(text) <= _MAX_LETTERS else Word(words[i].start_s, words[i].end_s, text[:_MAX_LETTERS])
        )
        bare.append(low)
        i += 1
    return kept


def _bare(words: Sequence[Word], i: int) -> str:
    return words[i].text.lower().strip(_STRIP) if i < len(words) else ""


def _stammer(bare: Sequence[str], low: str, words: Sequence[Word], i: int) -> int:
    """How many words at the end of ``bare`` the words from ``i`` on say again; 0 if they do not."""
    if bare[-1] == low:
        marked = i > 0 and words[i - 1].text[-1:] in (".", "?", "!", ",")
        return 0 if low in _REPEATABLE or marked else 1
    for size in (4, 3, 2):
        if len(bare) >= size and bare[-size] == low and all(_bare(words, i + k) == bare[k - size] for k in range(size)):
            if any(words[i - k].text[-1:] in (".", "?", "!") for k in range(1, size + 1) if i >= k):
                return 0
            return size
    return 0
