"""Mutations of a file: bits, bytes, cuts, repeats, numbers, nesting, tokens of other formats."""

from __future__ import annotations

import random

_NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"1e15", b"9" * 400, b"2147483648", b"-0.0", b"null", b'"x"', b"[]", b"{}")
_TOKENS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"<!ENTITY a 'b'>", b"<a>" * 400, b"[" * 400, b'{"a":' * 400, b"-->",
    b"00:00:99,999 --> 00:00:00,000", b"\r", b"\x80\x04\x95", b"PK\x03\x04", b"\x1f\x8b\x08", b"99999:59:59.999",
    b",,,,",    b"\xed\xa0\x80", b"&#x110000;", b"(999999999, 999999999)",
)  # fmt: skip


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One to four random changes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        at = chance.randrange(len(out) + 1)
        kind = chance.randrange(9)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = chance.randrange(256)
        elif kind == 2:
            del out[at:]
        elif kind == 3:
            del out[at : at + chance.randrange(1, 20)]
        elif kind == 4:
            end = min(len(out), at + chance.randrange(1, 60))
            out[at:at] = out[at:end] * chance.choice((1, 2, 50))
        elif kind == 5:
            out[at:at] = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 9)))
        elif kind == 6:
            out[at : at + chance.randrange(4)] = chance.choice(_TOKENS)
        elif kind == 7:
            digits = [i for i, byte in enumerate(out) if 48 <= byte < 58]
            if digits:
                start = chance.choice(digits)
                end = start
                while end < len(out) and 48 <= out[end] < 58:
                    end += 1
                out[start:end] = chance.choice(_NUMBERS)
        else:
            other = chance.randrange(len(out) + 1)
            a, b = sorted((at, other))
            out[a:b] = reversed(out[a:b]) if chance.random() < 0.5 else b""
    return bytes(out[: 1 << 20])
