"""TTML (and DFXP), and YouTube's XML: srv1 (``<text start dur>``), srv2 (``<text t d>``), srv3 (``<p t d><s t>``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

from stepformer.errors import InputError
from stepformer.narration.cues import Cue, cue_at
from stepformer.narration.readers.timed import number, words_at

_CLOCK = re.compile(r"^(\d+):(\d\d):(\d\d)(?:\.(\d+)|:(\d+)(?:\.\d+)?)?$", re.ASCII)
_OFFSET = re.compile(r"^(\d+(?:\.\d+)?)(h|ms|m|s|f|t)$", re.ASCII)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_EXPECTED = "TTML with <p begin=… end=…>, or YouTube's <text start=… dur=…> or <p t=… d=…>"


def parse_ttml(text: str, name: str) -> list[Cue]:
    """Cues of a TTML or YouTube XML file."""
    if "<!ENTITY" in text:
        # entities in subtitles are an attack, not a need
        raise InputError(
            f"{name}: line {text[: text.index('<!ENTITY')].count(chr(10)) + 1}: defines entities; expected {_EXPECTED}"
        )
    try:
        # the declared encoding is no longer true of decoded text
        root = ElementTree.fromstring(re.sub(r"^\s*<\?xml[^>]*\?>", "", text))
    except ElementTree.ParseError as error:
        line = error.position[0] if error.position else 1
        raise InputError(f"{name}: line {line}: not well-formed XML ({error}); expected {_EXPECTED}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: line 1: XML that cannot be read ({error}); expected {_EXPECTED}") from error
    reader = _Reader(root, name)
    cues = list(reader.cues())
    if not cues and _tag(root) not in ("tt", "transcript", "timedtext"):
        raise InputError(f"{name}: line 1: found <{_tag(root)[:40]}>; expected {_EXPECTED}")
    said = [] if cues else [part.strip() for body in root.iter() if _tag(body) == "body" for part in body.itertext()]
    if any(said):
        raise InputError(f"{name}: line 1: text without times ({max(said, key=len)[:40]!r}); expected {_EXPECTED}")
    return cues


def _tag(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _attribute(element: ElementTree.Element, key: str) -> str | None:
    for name, value in element.attrib.items():
        if name.rpartition("}")[2] == key:
            return value
    return None


class _Reader:
    def __init__(self, root: ElementTree.Element, name: str) -> None:
        self.root, self.name = root, name
        self.offset_s = 0.0  # of the <body> and <div> around the paragraphs, where these are counted from it
        self.frame_hz = self._rate("frameRate", 30.0)
        multiplier = (_attribute(root, "frameRateMultiplier") or "1 1").replace(":", " ").split()
        if len(multiplier) == 2 and all(part.isdigit() and int(part) for part in multiplier):
            self.frame_hz *= int(multiplier[0]) / int(multiplier[1])
        self.tick_hz = self._rate("tickRate", 1.0 if _attribute(root, "frameRate") is None else self.frame_hz)

    def _rate(self, key: str, default: float) -> float:
        found = number(_attribute(self.root, key))
        return found if found is not None and found > 0 else default

    def cues(self) -> Iterator[Cue]:
        yield from self._inside(self.root)

    def _inside(self, element: ElementTree.Element) -> Iterator[Cue]:
        for child in element:
            outer_s = self.offset_s
            self.offset_s += self._counted_from(child)
            yield from self._cues_of(child)
            yield from self._inside(child)
            self.offset_s = outer_s

    def _counted_from(self, element: ElementTree.Element) -> float:
        """The begin of a container, if what is in it is counted from there: the standard says so, many writers do not.

        A paragraph that would begin before its container tells the two apart.
        """
        begin = _attribute(element, "begin")
        if _tag(element) not in ("body", "div") or begin is None:
            return 0.0
        begin_s = self.seconds(begin)
        starts = [_attribute(p, "begin") for p in element.iter() if _tag(p) == "p"]
        return begin_s if any(start is not None and self.seconds(start) < begin_s for start in starts) else 0.0

    def _cues_of(self, element: ElementTree.Element) -> Iterator[Cue]:
        tag = _tag(element)
        if tag in ("p", "text") and _attribute(element, "t") is not None:
            yield from self._srv3(element)
        elif tag == "p":
            yield from self._ttml(element)
        elif tag == "text" and _attribute(element, "start") is not None:
            yield self._srv1(element)

    def _ttml(self, element: ElementTree.Element) -> Iterator[Cue]:
        begin, end, length = (_attribute(element, key) for key in ("begin", "end", "dur"))
        spans = [span for span in element.iter() if span is not element and _attribute(span, "begin") is not None]
        if begin is None and not spans:
            if any(part.strip() for part in element.itertext()):
                raise InputError(f"{self.name}: line 1: a <p> without begin; expected {_EXPECTED}")
            return
        start_s = self.seconds(begin) if begin is not None else self.seconds(_attribute(spans[0], "begin") or "")
        if end is not None:
            end_s = self.seconds(end)
        elif length is not None:
            end_s = start_s + self.seconds(length)
        elif spans and (last := _attribute(spans[-1], "end")) is not None:
            end_s = self.seconds(last)
        else:
            end_s = start_s
        start_s, end_s = start_s + self.offset_s, end_s + self.offset_s
        pieces = list(self._pieces(element))
        text = "".join(piece for _, piece in pieces)
        words = words_at(pieces, start_s, end_s) if spans else ()
        yield cue_at(start_s, end_s, text, words if len(words) == len(text.split()) else ())

    def _pieces(self, element: ElementTree.Element) -> Iterator[tuple[float | None, str]]:
        yield None, element.text or ""
        for child in element:
            if _tag(child) == "br":
                yield None, "\n"
            elif _tag(child) != "metadata":
                begin = _attribute(child, "begin")
                inner = list(self._pieces(child))
                if begin is not None and inner:
                    inner[0] = (self.seconds(begin) + self.offset_s, inner[0][1])
                yield from inner
            yield None, child.tail or ""

    def _srv1(self, element: ElementTree.Element) -> Cue:
        start_s, length_s = number(_attribute(element, "start")), number(_attribute(element, "dur")) or 0.0
        if start_s is None:
            raise InputError(f"{self.name}: line 1: <text start={_attribute(element, 'start')!r}>; expected seconds")
        if abs(start_s - round(start_s)) == 0 and _tag(self.root) == "timedtext":  # srv2 counts milliseconds
            start_s, length_s = start_s / 1000, length_s / 1000
        return cue_at(start_s, start_s + length_s, "".join(element.itertext()))

    def _srv3(self, element: ElementTree.Element) -> Iterator[Cue]:
        start_ms = number(_attribute(element, "t"))
        if start_ms is None:
            raise InputError(f"{self.name}: line 1: <p t={_attribute(element, 't')!r}>; expected milliseconds")
        start_s = start_ms / 1000
        end_s = start_s + (number(_attribute(element, "d")) or 0.0) / 1000
        pieces: list[tuple[float | None, str]] = [(start_s, element.text or "")]
        for child in element:
            offset = number(_attribute(child, "t")) or 0.0
            pieces.append((start_s + offset / 1000, ("\n" if _tag(child) == "br" else "") + "".join(child.itertext())))
            pieces.append((None, child.tail or ""))
        text = "".join(piece for _, piece in pieces)
        if text.strip():
            words = words_at(pieces, start_s, end_s) if any(_tag(child) == "s" for child in element) else ()
            yield cue_at(start_s, end_s, text, words if len(words) == len(text.split()) else ())

    def seconds(self, text: str) -> float:
        """Seconds of a TTML time expression."""
        text = text.strip()
        if found := _CLOCK.match(text):
            hours, minutes, secs, fraction, frames = found.groups()
            value = int(hours) * 3600.0 + int(minutes) * 60 + int(secs)
            return (
                value + (float(f"0.{fraction}") if fraction else 0.0) + (int(frames) / self.frame_hz if frames else 0.0)
            )
        if found := _OFFSET.match(text):
            amount, unit = float(found[1]), found[2]
            if unit == "f":
                return amount / self.frame_hz
            return amount / self.tick_hz if unit == "t" else amount * _UNITS[unit]
        raise InputError(
            f"{self.name}: line 1: the time {text[:40]!r}; expected '00:00:01.500', '1.5s', '1500ms' or ticks"
        )
