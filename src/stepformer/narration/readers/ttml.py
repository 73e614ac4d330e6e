"""TTML (and DFXP), and YouTube's XML: srv1 (``<text start dur>``), srv2 (``<text t d>``), srv3 (``<p t d><s t>``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element

from stepformer.base.guard import xml_of
from stepformer.errors import InputError
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.timed import cue_of_pieces, number

_CLOCK = re.compile(r"(\d+):(\d\d):(\d\d)(?:(\.\d+)|:(\d+)(?:\.\d+)?)?", re.ASCII)
_OFFSET = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|f|t)", re.ASCII)
_MULTIPLIER = re.compile(r"\s*(0*[1-9]\d{0,8})[\s:]+(0*[1-9]\d{0,8})\s*", re.ASCII)
_EXPECTED = "TTML with <p begin=… end=…>, or YouTube's <text start=… dur=…> or <p t=… d=…>"


def parse_ttml(text: str, name: str) -> list[Cue]:
    """Cues of a TTML or YouTube XML file."""
    # the declared encoding is no longer true of decoded text
    root = xml_of(re.sub(r"^\s*<\?xml[^>]*\?>", "", text), name)
    cues = list(_Reader(root, name).cues(root))
    if not cues and _tag(root) not in ("tt", "transcript", "timedtext"):
        raise InputError(f"{name}: line 1: found <{_tag(root)[:40]}>; expected {_EXPECTED}")
    said = [] if cues else [part.strip() for body in root.iter() if _tag(body) == "body" for part in body.itertext()]
    if any(said):
        raise InputError(f"{name}: line 1: text without times ({max(said, key=len)[:40]!r}); expected {_EXPECTED}")
    return cues


def _tag(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attribute(element: Element, key: str) -> str | None:
    return next((value for name, value in element.attrib.items() if name.rpartition("}")[2] == key), None)


class _Reader:
    def __init__(self, root: Element, name: str) -> None:
        self.root, self.name = root, name
        frame_hz, tick_hz = (number(_attribute(root, f"{kind}Rate")) or 0.0 for kind in ("frame", "tick"))
        share = _MULTIPLIER.fullmatch(_attribute(root, "frameRateMultiplier") or "")  # "1000 1001"
        frame_s = (int(share[2]) / int(share[1]) if share else 1.0) / (frame_hz if frame_hz > 0 else 30.0)
        tick_s = 1.0 / tick_hz if tick_hz > 0 else frame_s if _attribute(root, "frameRate") else 1.0
        self.units_s = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "f": frame_s, "t": tick_s}

    def cues(self, element: Element, offset_s: float = 0.0) -> Iterator[Cue]:
        """The cues below an element whose times are counted from ``offset_s``."""
        for child in element:
            inner_s = offset_s + self._counted_from(child)
            tag, at = _tag(child), _attribute(child, "t")
            if tag in ("p", "text") and at is not None:
                yield from self._srv3(child, at)
            elif tag == "p":
                yield from self._ttml(child, inner_s)
            elif tag == "text" and (start := _attribute(child, "start")) is not None:
                yield self._srv1(child, start)
            yield from self.cues(child, inner_s)

    def _counted_from(self, element: Element) -> float:
        """The begin of a container, if what is in it is counted from there: the standard says so, many writers do not.

        A paragraph that would begin before its container tells the two apart.
        """
        begin = _attribute(element, "begin")
        if _tag(element) not in ("body", "div") or begin is None:
            return 0.0
        begin_s = self._seconds(begin)
        starts = [_attribute(p, "begin") for p in element.iter() if _tag(p) == "p"]
        return begin_s if any(start is not None and self._seconds(start) < begin_s for start in starts) else 0.0

    def _ttml(self, element: Element, offset_s: float) -> Iterator[Cue]:
        begin, end, length = (_attribute(element, key) for key in ("begin", "end", "dur"))
        spans = [span for span in element.iter() if span is not element and _attribute(span, "begin") is not None]
        if begin is None and not spans:
            if any(part.strip() for part in element.itertext()):
                raise InputError(f"{self.name}: line 1: a <p> without begin; expected {_EXPECTED}")
            return
        start_s = self._seconds(begin if begin is not None else _attribute(spans[0], "begin") or "")
        end = end if end is not None or length is not None or not spans else _attribute(spans[-1], "end")
        end_s = start_s + self._seconds(length or "0s") if end is None else self._seconds(end)
        pieces = list(self._pieces(element, offset_s))
        yield cue_of_pieces(pieces, start_s + offset_s, end_s + offset_s, timed=bool(spans))

    def _pieces(self, element: Element, offset_s: float) -> Iterator[tuple[float | None, str]]:
        """Text, each piece with the begin of the element it starts, where that has one."""
        begin = _attribute(element, "begin") if _tag(element) != "p" else None
        yield None if begin is None else self._seconds(begin) + offset_s, element.text or ""
        for child in element:
            if _tag(child) == "br":
                yield None, "\n"
            elif _tag(child) != "metadata":
                yield from self._pieces(child, offset_s)
            yield None, child.tail or ""

    def _srv1(self, element: Element, start: str) -> Cue:
        start_s, length_s = number(start), number(_attribute(element, "dur")) or 0.0
        if start_s is None:
            raise InputError(f"{self.name}: line 1: <text start={start!r}>; expected seconds")
        if start_s == round(start_s) and _tag(self.root) == "timedtext":  # srv2 counts milliseconds
            start_s, length_s = start_s / 1000, length_s / 1000
        return cue_at(start_s, start_s + length_s, "".join(element.itertext()))

    def _srv3(self, element: Element, start: str) -> Iterator[Cue]:
        start_ms = number(start)
        if start_ms is None:
            raise InputError(f"{self.name}: line 1: <p t={start!r}>; expected milliseconds")
        start_s = start_ms / 1000
        end_s = start_s + (number(_attribute(element, "d")) or 0.0) / 1000
        pieces: list[tuple[float | None, str]] = [(start_s, element.text or "")]
        for child in element:
            offset = number(_attribute(child, "t")) or 0.0
            pieces.append((start_s + offset / 1000, ("\n" if _tag(child) == "br" else "") + "".join(child.itertext())))
            pieces.append((None, child.tail or ""))
        if any(said.strip() for _, said in pieces):
            yield cue_of_pieces(pieces, start_s, end_s, timed=any(_tag(child) == "s" for child in element))

    def _seconds(self, text: str) -> float:
        """Seconds of a TTML time expression."""
        text = text.strip()
        if found := _CLOCK.fullmatch(text):
            hours, minutes, secs, fraction, frames = found.groups()
            whole = int(hours) * 3600.0 + int(minutes) * 60 + int(secs)
            return whole + float(fraction or 0) + int(frames or 0) * self.units_s["f"]
        if found := _OFFSET.fullmatch(text):
            return float(found[1]) * self.units_s[found[2]]
        raise InputError(
            f"{self.name}: line 1: the time {text[:40]!r}; expected '00:00:01.500', '1.5s', '1500ms' or ticks"
        )
