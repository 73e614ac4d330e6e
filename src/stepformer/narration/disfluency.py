"""What speakers say on the way to what they mean: fillers, stammers, "kind of"."""

from __future__ import annotations

from collections.abc import Sequence

from stepformer.narration.cues import Word
from stepformer.narration.lexicon import FILLERS, word_set

_MAX_LETTERS = 60  # no spoken word is longer; an address or noise is
_REAL_KIND = word_set("this that what some any a the same another every these those which each of")
_KNOWN = word_set("how what that if the where why about when it")  # "you know how to …" is a clause
_ASKING = word_set("do if as did let what before")  # "do you know"
_REPEATABLE = word_set("very really no so had that hot far much more bye many again there yeah knock")
_OPENING = FILLERS | word_set("kind sort you i")
_STRIP = ".,;:!?\"'"
_ENDS = (".", "?", "!")


def smooth(words: Sequence[Word]) -> list[Word]:
    """Words without fillers and stammers. Sentence marks of a word that goes move to the one before it."""
    low = [word.text.lower().strip(_STRIP) for word in words]
    kept: list[Word] = []
    bare: list[str] = []  # of kept: lower case, without marks
    i = 0
    while i < len(words):
        word, name = words[i], low[i]
        if name in _OPENING and (skip := _filler(words, low, i, kept, bare)):
            marks = [w.text[-1] for w in words[i : i + skip] if w.text.endswith(_ENDS)]
            if marks and kept and not kept[-1].text.endswith(_ENDS):
                kept[-1] = Word(kept[-1].start_s, kept[-1].end_s, kept[-1].text.rstrip(",;:") + marks[-1])
            i += skip
            continue
        # "the the", "i usually i usually": a run of one to four words said twice at once
        if name in bare[-4:] and name.replace("'", "").isalpha() and (back := _stammer(bare, words, low, i)):
            del kept[-back:], bare[-back:]
        kept.append(
            word if len(word.text) <= _MAX_LETTERS else Word(word.start_s, word.end_s, word.text[:_MAX_LETTERS])
        )
        bare.append(name)
        i += 1
    return kept


def _filler(words: Sequence[Word], low: Sequence[str], i: int, kept: Sequence[Word], bare: Sequence[str]) -> int:
    """How many words from ``i`` on are filler; 0 if none."""
    name = low[i]
    if name in FILLERS:
        return 1
    after = low[i + 1] if i + 1 < len(low) else ""
    third = low[i + 2] if i + 2 < len(low) else ""
    if name in ("kind", "sort"):
        return 2 if after == "of" and i + 2 < len(words) and (not bare or bare[-1] not in _REAL_KIND) else 0
    if name == "you" and after == "know" and third not in _KNOWN:
        # between two words of one clause
        return 2 if bare and not kept[-1].text.endswith(_ENDS) and bare[-1] not in _ASKING else 0
    return 2 if name == "i" and after == "mean" and third not in ("it", "that", "by") else 0


def _stammer(bare: Sequence[str], words: Sequence[Word], low: Sequence[str], i: int) -> int:
    """How many words at the end of ``bare`` the words from ``i`` on say again; 0 if they do not."""
    if bare[-1] == low[i]:
        marked = i > 0 and words[i - 1].text.endswith((*_ENDS, ","))
        return 0 if low[i] in _REPEATABLE or marked else 1
    for size in (4, 3, 2):
        if len(bare) >= size and low[i : i + size] == bare[-size:]:
            return 0 if any(word.text.endswith(_ENDS) for word in words[max(0, i - size) : i]) else size
    return 0
