"""Subtitles to plain running words: bytes to text; markup, sounds, repeated lines, fillers and stammers away."""

from __future__ import annotations

import codecs
import html
import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, Word
from stepformer.narration.lexicon import COMMON_ENGLISH, FILLERS, MISHEARD, PHYSICAL_VERBS, word_set

# the 32-bit marks first: the 16-bit little-endian mark is their beginning
_BYTE_MARKS = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-8-sig": (codecs.BOM_UTF8,),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_CONTROL = {chr(c) for c in range(32)} - set("\t\n\r\f\v\x1b")


def decode(data: bytes | str, name: str) -> str:
    """Text of a file with ``\\n`` line ends; an :class:`InputError` that names the file if the bytes are no text."""
    text = data if isinstance(data, str) else _decode(data)
    head = text[:4096]
    if sum(c in _CONTROL for c in head) > len(head) // 50:
        raise InputError(f"{name}: line 1: this is a binary file, not text; expected subtitles (VTT, SRT, TTML, JSON)")
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _decode(data: bytes) -> str:
    for encoding, marks in _BYTE_MARKS.items():
        if data.startswith(marks):
            return data.decode(encoding, errors="replace")
    head = data[:4096]
    even, odd = head[0::2].count(0), head[1::2].count(0)
    # Latin text in UTF-16 has a zero in every second byte
    if len(head) >= 4 and max(even, odd) > len(head) * 0.3 and min(even, odd) < len(head) * 0.05:
        return data.decode("utf-16-le" if odd > even else "utf-16-be", errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # a file that is UTF-8 but for a few damaged bytes keeps its other letters
        if len(data) > 200 and error.start > 0:
            patched = data.decode("utf-8", errors="replace")
            good = sum(ord(c) > 127 and c != "\ufffd" for c in patched)
            if good > 4 * patched.count("\ufffd"):
                return patched
    return data.decode("cp1252", errors="replace")


# Each pattern takes time in proportion to the text: a run that may fail ends at what could begin the next try.
_TAG = re.compile(r"</?[A-Za-z!?][^<>]{0,200}>|<\d[\d:.]*>")
_SOUND = (
    "music|applause|laugh|chuckl|giggl|sigh|cough|cheer|clap|silence|inaudible|indistinct|noise|sound|beep|bark|"
    "click|sizzl|whir|hum|buzz|gasp|sniff|snort|scream|ring|knock|upbeat|instrumental|crosstalk|foreign|speaking|"
    "soft|playing|crunch|clank|clatter|bubbl|pop"
)
_ODD_SPACE = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\t\f\v\x1b\x00-\x08\x0e-\x1f\x7f-\x9f]")
_QUOTES = {"’": "'", "‘": "'", "“": '"', "”": '"', "´": "'", "`": "'", "…": "..."}
# what is no word, and what it becomes, in this order
_AWAY: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"\{\\[^{}]*\}"), ""),  # styles of Advanced SubStation, then its spaces and line ends
    (re.compile(r"\\[Nnh]"), " "),
    # tags that were escaped as text; "<salt>" that was escaped is a word
    (re.compile(r"(?i)</?(?:font|b|i|u|c|v|span|br|em|strong|ruby|rt|lang)\b[^<>]{0,200}>|<\d[\d:.]*>"), ""),
    (_ODD_SPACE, " "),
    (re.compile("[’‘“”´`…]"), lambda found: _QUOTES[found[0]]),
    (re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd]"), ""),  # of no width
    (re.compile(r"[♪♫♬♩🎵🎶#]{0,9}[♪♫♬♩🎵🎶][^♪♫♬♩🎵🎶\n]*(?:[♪♫♬♩🎵🎶]+|$)"), " "),  # songs
    (re.compile(r"\[[^\[\]\n]{0,80}\]|【[^【】\n]{0,80}】|\*{1,2}[a-z ]{3,30}\*{1,2}"), " "),
    # "(laughs)", "(UPBEAT MUSIC)"
    (re.compile(rf"\((?:[^()\n]{{0,40}}\b(?:{_SOUND})[^()\n]{{0,40}}|[A-Z][A-Z .,'-]{{1,40}})\)"), " "),
    # ">> JOHN:", "SPEAKER 2:", "- ", ">>>"; a speaker's name is in capitals, so that "Note: stir" stays
    (re.compile(
        r"(?:>>+|&gt;&gt;+|»)\s*(?:[A-Z][A-Za-z.'-]{0,20}(?: [A-Z][A-Za-z.'-]{0,20}){0,2}:(?=\s|$))?"
        r"|(?:^|(?<=\n)|(?<=[.!?] ))"
        r"(?:[A-Z][A-Z.'-]{1,20}(?: [A-Z0-9][A-Z0-9.'-]{0,20}){0,2}|(?:Speaker|SPEAKER)[ _]?\d+):(?=\s)"
        r"|(?:^|(?<=\n))[^\S\n]*[-–—‐]\s+"
    ), " "),
)  # fmt: skip
# "Step 2: mix", "3) bake", at the start of a line
_NUMBERING = re.compile(r"(?m)^[^\S\n]*(?:[Ss](?:tep|TEP)\s+\d{1,2}\s*[:.)–—-]\s+|\d{1,2}\)\s+|\d{1,2}\.\s+(?=[A-Z]))")
_MARKS = re.compile(r"[\\\[\](){}<>&♪♫♬♩🎵🎶»:*\-–—‐\u00a0-\uffff]")


def clean_text(text: str) -> str:
    """Plain words of one cue's text, in its lines, which tell rolling captions."""
    if _MARKS.search(text):
        text = _TAG.sub("", text)
        text = html.unescape(html.unescape(text))  # more than twice escaped is text about entities
        for pattern, instead in _AWAY:
            text = pattern.sub(instead, text)
    else:
        text = _ODD_SPACE.sub(" ", text)
    text = _NUMBERING.sub("", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def clean_cue(cue: Cue) -> Cue:
    """The cue with plain text in its lines; its timed words follow the text."""
    text = clean_text(cue.text)
    return replace(cue, text=text, words=_follow_words(cue.words, text.split()))


def _follow_words(words: tuple[Word, ...], wanted: list[str]) -> tuple[Word, ...]:
    """The timed words that ``wanted`` keeps, in order; () where the two cannot be brought together."""
    left = iter(words)
    kept: list[Word] = []
    for text in wanted:
        found = next((word for word in left if word.text == text or clean_text(word.text) == text), None)
        if found is None:
            return ()
        kept.append(replace(found, text=text))
    return tuple(kept)


_TOUCHING_S = 0.15  # a repeated line stays on the screen; a repeated sentence comes after a pause
_ROLLING_SHARE = 0.3  # of neighbouring cues that repeat, from which on a file counts as rolling
_ON_SCREEN = 200  # lines, and words, that rolling captions show at most at one time


def overlap(before: Sequence[str], after: Sequence[str]) -> int:
    """How many words at the start of the lines ``after`` are the end of what the lines ``before`` showed.

    Whole lines count; within a line, the whole of the cue before (a line revealed word by word) or three words
    (lines joined by a converter).
    """
    lines_before = [line.split() for line in before if line.strip()]
    lines_after = [line.split() for line in after if line.strip()]
    for count in range(min(len(lines_before), len(lines_after), _ON_SCREEN), 0, -1):
        if lines_before[-count:] == lines_after[:count]:
            return sum(len(line) for line in lines_after[:count])
    shown = [word for line in lines_before for word in line]
    new = [word for line in lines_after for word in line]
    if shown and new[: len(shown)] == shown:
        return len(shown)
    for size in range(min(len(shown), len(new), _ON_SCREEN), 2, -1):
        if shown[-size:] == new[:size]:
            return size
    return 0


def unroll(cues: Sequence[Cue]) -> list[Cue]:
    """Cues whose text may have several lines -> cues by start time that say each word once, empty ones left out."""
    cues = sorted((cue for cue in cues if cue.text.strip()), key=lambda cue: cue.start_s)
    lines = [cue.text.split("\n") for cue in cues]
    repeats = [0] * len(cues)
    touching = 0
    for i in range(1, len(cues)):
        if cues[i].start_s <= cues[i - 1].end_s + _TOUCHING_S:
            touching += 1
            repeats[i] = overlap(lines[i - 1], lines[i])
    if sum(repeat > 0 for repeat in repeats) < max(1.0, _ROLLING_SHARE * touching):
        return [_one_line(cue, cue.text.split(), cue.words) for cue in cues]

    for i, (before, after) in enumerate(itertools.pairwise(lines), start=1):
        if not repeats[i] and len(after) > 1 and before[-1] == after[0] and after[1].strip():
            repeats[i] = len(after[0].split())  # the line above the new one stays over a pause too
    stream: list[Cue] = []
    for cue, repeat in zip(cues, repeats, strict=True):
        texts = cue.text.split()[repeat:]
        if texts:
            words = cue.words[-len(texts) :] if len(cue.words) >= len(texts) else ()
            stream.append(_one_line(cue, texts, words))
        elif stream and not stream[-1].words:
            # the finished line goes on being shown; the words were said by then
            stream[-1] = replace(stream[-1], end_s=max(stream[-1].end_s, min(cue.end_s, cue.start_s + 0.01)))
    return stream


def _one_line(cue: Cue, texts: Sequence[str], words: tuple[Word, ...]) -> Cue:
    start_s = words[0].start_s if words else cue.start_s
    return replace(cue, start_s=start_s, end_s=max(start_s, cue.end_s), text=" ".join(texts), words=words)


_MAX_LETTERS = 60  # no spoken word is longer; an address or noise is
_REAL_KIND = word_set("this that what some any a the same another every these those which each of")
_KNOWN = word_set("how what that if the where why about when it")  # "you know how to …" is a clause
_ASKING = word_set("do if as did let what before")  # "do you know"
_REPEATABLE = word_set("very really no so had that hot far much more bye many again there yeah knock")
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
        if skip := _filler(words, low, i, kept, bare):
            marks = [w.text[-1] for w in words[i : i + skip] if w.text.endswith(_ENDS)]
            if marks and kept and not kept[-1].text.endswith(_ENDS):
                kept[-1] = replace(kept[-1], text=kept[-1].text.rstrip(",;:") + marks[-1])
            i += skip
            continue
        if (heard := MISHEARD.get(f"{bare[-1]}_{name}" if bare else "")) is not None:
            kept[-1], bare[-1] = replace(kept[-1], end_s=word.end_s, text=heard), heard
            i += 1
            continue
        if said := "because" if word.text.lower() == "'cause" else _said(bare, low, i):
            word, name = replace(word, text=said), said
        # "the the", "i usually i usually": a run of one to four words said twice at once
        if name in bare[-4:] and name.replace("'", "").isalpha() and (back := _stammer(bare, words, low, i)):
            del kept[-back:], bare[-back:]
        kept.append(word if len(word.text) <= _MAX_LETTERS else replace(word, text=word.text[:_MAX_LETTERS]))
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


def _said(bare: Sequence[str], low: Sequence[str], i: int) -> str:
    """What was said where captions have "him" for "'em" and "an" for "and" ("cut him up an mix"); "" elsewhere."""
    if low[i] == "em":
        return "them"
    if low[i] == "him":
        return "them" if bare and bare[-1] in PHYSICAL_VERBS else ""
    after = low[i + 1] if low[i] == "an" and i + 1 < len(low) else ""
    return "and" if len(after) > 2 and after.isalpha() and after[0] not in "aeiouh" else ""


def _stammer(bare: Sequence[str], words: Sequence[Word], low: Sequence[str], i: int) -> int:
    """How many words at the end of ``bare`` the words from ``i`` on say again; 0 if they do not."""
    if bare[-1] == low[i]:
        marked = i > 0 and words[i - 1].text.endswith((*_ENDS, ","))
        return 0 if low[i] in _REPEATABLE or marked else 1
    for size in (4, 3, 2):
        if len(bare) >= size and low[i : i + size] == bare[-size:]:
            return 0 if any(word.text.endswith(_ENDS) for word in words[max(0, i - size) : i]) else size
    return 0


_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)?")
_FEWEST_WORDS = 20  # less says nothing
_SHARE = 0.08


def is_english(cues: Iterable[Cue]) -> bool | None:
    """Whether the words are English as far as the commonest of them tell; None where there are too few words.

    Text without spaces between words (Chinese, Japanese) counts by its letters.
    """
    words = [word.lower() for cue in cues for word in _WORD.findall(cue.text)]
    foreign = sum(not word.isascii() for word in words)
    if len(words) < _FEWEST_WORDS:
        letters = sum(len(word) for word in words if not word.isascii())
        return False if foreign * 2 > len(words) and letters >= _FEWEST_WORDS else None
    return sum(word in COMMON_ENGLISH for word in words) >= _SHARE * len(words)
