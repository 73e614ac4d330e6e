"""Bytes of a subtitle file to text: byte order marks, UTF-16 without one, and the old Windows code page."""

from __future__ import annotations

import codecs

from stepformer.errors import InputError

# the 32-bit marks first: the 16-bit little-endian mark is their beginning
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL = {chr(c) for c in range(32)} - set("\t\n\r\f\v\x1b")


def decode(data: bytes, name: str) -> str:
    """Text of a file with ``\\n`` line ends; an :class:`InputError` that names the file if the bytes are no text."""
    text = _decode(data)
    head = text[:4096]
    if sum(c in _CONTROL for c in head) > len(head) // 50:
        raise InputError(f"{name}: line 1: this is a binary file, not text; expected subtitles (VTT, SRT, TTML, JSON)")
    return text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _decode(data: bytes) -> str:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, errors="replace")
    head = data[:4096]
    # Latin text in UTF-16 has a zero in every second byte
    if len(head) >= 4:
        even, odd = head[0::2].count(0), head[1::2].count(0)
        if odd > len(head) * 0.3 and even < len(head) * 0.05:
            return data.decode("utf-16-le", errors="replace")
        if even > len(head) * 0.3 and odd < len(head) * 0.05:
            return data.decode("utf-16-be", errors="replace")
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
