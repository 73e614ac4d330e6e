"""Subtitle markup and marks taken away: tags, entities, sounds, speakers."""

from __future__ import annotations

import html
import re
from dataclasses import replace

from stepformer.narration.cues import Cue, Word

_ASS = re.compile(r"\{\\[^}]*\}")
_TAG = re.compile(r"</?[A-Za-z!?][^<>]{0,200}>|<\d[\d:.]*>")
# tags that were escaped as text; "<salt>" that was escaped is a word
_ESCAPED_TAG = re.compile(
    r"</?(?:font|b|i|u|c|v|span|br|em|strong|ruby|rt|lang)\b[^<>]{0,200}>|<\d[\d:.]*>", re.IGNORECASE
)
_NOTES = re.compile(r"[♪♫♬♩🎵🎶#]*[♪♫♬♩🎵🎶][^♪♫♬♩🎵🎶\n]*(?:[♪♫♬♩🎵🎶]+|$)")
_BRACKETS = re.compile(r"\[[^\[\]\n]{0,80}\]|【[^【】\n]{0,80}】|\*{1,2}[a-z ]{3,30}\*{1,2}")
_SOUND = (
    "music|applause|laugh|chuckl|giggl|sigh|cough|cheer|clap|silence|inaudible|indistinct|noise|sound|beep|bark|"
    "click|sizzl|whir|hum|buzz|gasp|sniff|snort|scream|ring|knock|upbeat|instrumental|crosstalk|foreign|speaking|"
    "soft|playing|crunch|clank|clatter|bubbl|pop"
)
_ROUND = re.compile(rf"\((?:[^()\n]{{0,40}}\b(?:{_SOUND})[^()\n]{{0,40}}|[A-Z][A-Z .,'-]{{1,40}})\)")
# ">> JOHN:", "SPEAKER 2:", "- ", ">>>"; a speaker's name is in capitals, so that "Note: stir" stays
_SPEAKER = re.compile(
    r"(?:>>+|&gt;&gt;+|»)\s*(?:[A-Z][A-Za-z.'-]{0,20}(?: [A-Z][A-Za-z.'-]{0,20}){0,2}:(?=\s|$))?"
    r"|(?:^|(?<=\n)|(?<=[.!?] ))"
    r"(?:[A-Z][A-Z.'-]{1,20}(?: [A-Z0-9][A-Z0-9.'-]{0,20}){0,2}|(?:Speaker|SPEAKER)[ _]?\d+):(?=\s)"
    r"|(?:^|(?<=\n))\s*[-–—‐]\s+"
)
_ODD_SPACE = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\t\f\v\x1b\x00-\x08\x0e-\x1f\x7f-\x9f]")
_ZERO_WIDTH = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\ufffd]")
_MARKS = re.compile(r"[\[\](){}<>&♪♫♬♩🎵🎶»:*\-–—‐\u00a0-\uffff]")
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "´": "'", "`": "'", "…": "..."})


def clean_text(text: str, keep_lines: bool = False) -> str:
    """Plain words of one cue's text. Lines are joined by a space, or kept for finding rolling captions."""
    if _MARKS.search(text):
        text = _TAG.sub("", text)
        # entities come escaped once or twice; more than that is text about entities
        for _ in range(2):
            if "&" not in text:
                break
            text = html.unescape(text)
        text = _ASS.sub("", text)
        text = _ESCAPED_TAG.sub("", text)
        text = _ODD_SPACE.sub(" ", text).translate(_QUOTES)
        text = _ZERO_WIDTH.sub("", text)
        text = _NOTES.sub(" ", text)
        text = _BRACKETS.sub(" ", text)
        text = _ROUND.sub(" ", text)
        text = _SPEAKER.sub(" ", text)
    else:
        text = _ODD_SPACE.sub(" ", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(lines) if keep_lines else " ".join(line for line in lines if line)


def clean_cue(cue: Cue, keep_lines: bool = False) -> Cue:
    """The cue with plain text; its timed words follow the text."""
    text = clean_text(cue.text, keep_lines)
    if not cue.words:
        return replace(cue, text=text)
    wanted = text.split()
    if [word.text for word in cue.words] == wanted:
        return replace(cue, text=text)
    return replace(cue, text=text, words=follow_words(cue.words, wanted))


def follow_words(words: tuple[Word, ...], wanted: list[str]) -> tuple[Word, ...]:
    """The timed words that ``wanted`` keeps, in order; () where the two cannot be brought together."""
    kept: list[Word] = []
    at = 0
    for text in wanted:
        for look in range(at, len(words)):
            if words[look].text == text or clean_text(words[look].text) == text:
                kept.append(replace(words[look], text=text))
                at = look + 1
                break
        else:
            return ()
    return tuple(kept)
