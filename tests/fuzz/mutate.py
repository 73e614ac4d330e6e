"""Mutations of a file: of its bytes, and of what it is made of (JSON, archives, arrays, XML, rows)."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import tarfile
import zipfile
from typing import Any

_NUMBERS = (b"-1", b"0", b"1e999", b"NaN", b"1e15", b"9" * 400, b"2147483648", b"-0.0", b"null", b'"x"', b"[]", b"{}")
_TOKENS = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"<!ENTITY a 'b'>", b"<a>" * 400, b"[" * 400, b'{"a":' * 400, b"-->",
    b"00:00:99,999 --> 00:00:00,000", b"\r", b"\x80\x04\x95", b"PK\x03\x04", b"\x1f\x8b\x08", b"99999:59:59.999",
    b",,,,", b"\xed\xa0\x80", b"&#x110000;", b"(999999999, 999999999)", b"\x1a\x45\xdf\xa3", b"moov",
    b"\x7f\xff\xff\xff",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1e308, -1e308, 1e-320, 10**18, 10**30, 10**5000, float("nan"), float("inf"), "", "x",
    "\0", "\ud800", "1e999", "9" * 5000, "../../etc/passwd", "a" * 70000, [], {}, [[]], [None], {"": None}, [0] * 999,
)  # fmt: skip
RUNS = (
    b"<", b"</", b"<!--", b"<i>", b"<00:", b"[", b"(", b"{", b"{\\", b"&", b"&#9", b"\\", b'"', b"'", b",", b" ",
    b"\t", b"\n", b"1\n", b"\n\n", b"-", b"- ", b"--", b"0", b"0:", b"0:00 ", b"1 ", b"a ", b"#", b"*", b"=", b";",
    b"\xc2\xa0", b"\xe2\x99\xaa", b"\xe2\x80\x94",
)  # fmt: skip
"""What a pattern that goes back and forth takes quadratic time for, when there is much of it."""
_BOXES = rb"moov|trak|edts|mdat|mvhd|tkhd|mdhd|elst|stsd|stts|ctts|stss|stsc|stsz|stco|avc1"
_WORDS = (0, 1, 2, 7, 1000, 90_000, 0xFFFF, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_ENCODINGS = ("utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252", "utf-7", "cp037", "utf-8-sig")


def variant(data: bytes, name: str, case: int) -> bytes:
    """The case of that number: a small file cut at each byte first, then random changes."""
    if case < len(data) <= 2000:
        return data[:case]
    chance = random.Random(f"{name} {case}")
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        data = (structured(data, chance) if chance.random() < 0.5 else mutated(data, chance))[: 1 << 20]
    return data


def mutated(data: bytes, chance: random.Random) -> bytes:
    """One to four changes of bytes."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 4))):
        # headers and indexes lie at the ends of large files
        near = chance.random() < 0.5 and len(out) > 4000
        at = (
            chance.choice((chance.randrange(1500), len(out) - chance.randrange(1500)))
            if near
            else chance.randrange(len(out) + 1)
        )
        kind = chance.randrange(11)
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
            digits = [i for i, byte in enumerate(out[: 1 << 16]) if 48 <= byte < 58]
            if digits:
                start = chance.choice(digits)
                end = start
                while end < len(out) and 48 <= out[end] < 58:
                    end += 1
                out[start:end] = chance.choice(_NUMBERS)
        elif kind == 8:
            word = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
            out[at : at + 4] = bytes([word]) * min(4, max(0, len(out) - at))
        elif kind == 9:
            run = chance.choice(RUNS)
            out[at:at] = run * (chance.choice((100, 1000, 1000, 100_000)) // len(run))
        else:
            other = chance.randrange(len(out) + 1)
            a, b = sorted((at, other))
            out[a:b] = reversed(out[a:b]) if chance.random() < 0.5 else b""
    return bytes(out)


def structured(data: bytes, chance: random.Random) -> bytes:
    """One change of what the file is made of; of its lines where it is made of nothing else."""
    try:
        if data[:2] == b"\x1f\x8b":
            return gzip.compress(structured(gzip.decompress(data), chance), 1, mtime=0)
        if data[:4] == b"PK\x03\x04":
            return _zip(data, chance)
        if data[257:262] == b"ustar":
            return _tar(data, chance)
        if data[:6] == b"\x93NUMPY":
            return _npy(data, chance)
        if data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data):
            return _safetensors(data, chance)
        if data[4:8] == b"ftyp":
            return _boxes(data, chance)
        if data[:1] in b"{[" and len(data) < 1 << 18:
            return _json(data, chance)
        if data[:1] == b"<":
            return _xml(data, chance)
        if b"\0" not in data[:1000]:
            return _lines(data, chance)
    except Exception:  # not what it looked like, any more
        return mutated(data, chance)
    return mutated(data, chance)


def _json(data: bytes, chance: random.Random) -> bytes:
    root: Any = {"root": json.loads(data)}
    places: list[tuple[Any, Any]] = []
    level: list[Any] = [root]
    while level:
        inner = level.pop()
        keys = list(inner) if isinstance(inner, dict) else range(len(inner))
        for key in keys:
            places.append((inner, key))
            if isinstance(inner[key], dict | list):
                level.append(inner[key])
    parent, key = chance.choice(places)
    kind = chance.randrange(8)
    if kind == 0 and parent is not root:
        del parent[key]
    elif kind == 1 and isinstance(parent, dict) and parent is not root:
        parent[chance.choice(("", "x", "\0", str(key) + " ", str(key).upper()))] = parent.pop(key)
    elif kind == 2:
        deep: Any = parent[key]
        for _ in range(chance.choice((50, 300, 900))):
            deep = [deep] if chance.random() < 0.5 else {"a": deep}
        parent[key] = deep
    elif kind == 3 and isinstance(parent, list):
        parent[key:key] = [parent[key]] * chance.choice((1, 3, 200))
    elif kind == 4:
        parent[key] = chance.choice(chance.choice(places))  # another part of the file, or its name
    else:
        parent[key] = chance.choice(_VALUES)
    text = json.dumps(root["root"], ensure_ascii=chance.random() < 0.5)
    if kind == 5 and isinstance(parent, dict) and ": " in text:  # a member twice
        text = re.sub(r'("[^"\\]*": [^,{}\[\]]+)', r"\1, \1", text, count=1)
    return text.encode("utf-8", "surrogatepass")


def _safetensors(data: bytes, chance: random.Random) -> bytes:
    length = int.from_bytes(data[:8], "little")
    header = _json(data[8 : 8 + length], chance)
    said = len(header) if chance.random() < 0.8 else chance.choice((0, 1, len(header) + 1, 1 << 40, (1 << 64) - 1))
    return said.to_bytes(8, "little") + header + data[8 + length :]


def _boxes(data: bytes, chance: random.Random) -> bytes:
    """Of a box of an mp4: its length, some of its numbers (times, counts, places), twice, or gone."""
    out = bytearray(data)
    at = chance.choice([found.start() - 4 for found in re.finditer(_BOXES, data)])
    size = min(int.from_bytes(data[at : at + 4], "big"), len(data) - at)
    kind = chance.randrange(6)
    if kind == 0:
        out[at : at + 4] = chance.choice(_WORDS).to_bytes(4, "big")
    elif kind == 1:
        out[at:at] = out[at : at + size]
    elif kind == 2:
        del out[at : at + size]
    else:
        for _ in range(chance.choice((1, 2, 6))):
            place = at + 8 + 4 * chance.randrange(max(1, (size - 8) // 4))
            out[place : place + 4] = chance.choice(_WORDS).to_bytes(4, "big")
    return bytes(out)


def _npy(data: bytes, chance: random.Random) -> bytes:
    start = 10 if data[6] == 1 else 12
    length = min(int.from_bytes(data[8:start], "little"), len(data))
    header = data[start : start + length].decode("latin-1")
    shapes = ("(0,)", "()", "(-1,)", "(2, 2, 2)", "(999999999, 9)", "(2**70,)", "(None,)", "(1.5,)", "x", "(4, 3")
    kinds = ("|O", "<f8", "<U9", "|V0", "<M8[s]", "<c16", ">f2", "|S1", "zz", "<f4, <f4", "<U99999999")
    header = chance.choice(
        (
            re.sub(r"\([^)]*\)", lambda _: chance.choice(shapes), header),
            re.sub(r"'descr': '[^']*'", lambda _: f"'descr': {chance.choice(kinds)!r}", header),
            header.replace("False", chance.choice(("True", "1", "None", "'x'"))),
            header.replace("shape", "shap"),
            header.replace("{", "{" * chance.choice((2, 300))),
        )
    )
    out = header.strip().encode("latin-1").ljust(max(0, length - 1)) + b"\n"
    return data[:8] + (len(out) & 0xFFFF).to_bytes(start - 8, "little") + out + data[start + length :]


def _zip(data: bytes, chance: random.Random) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    members = _members(members, chance)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", chance.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content)  # of no date: the same case, the same bytes
    return out.getvalue()


def _tar(data: bytes, chance: random.Random) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [(info.name, archive.extractfile(info).read()) for info in archive.getmembers() if info.isfile()]
    members = _members(members, chance)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=chance.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), chance.choice((0, -1, 1 << 40))
            if chance.random() < 0.1:
                info.type, info.linkname, info.size = (
                    chance.choice((tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE)),
                    name,
                    0,
                )
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def _members(members: list[tuple[str, bytes]], chance: random.Random) -> list[tuple[str, bytes]]:
    at = chance.randrange(len(members))
    name, content = members[at]
    kind = chance.randrange(6)
    if kind == 0:
        members.insert(at, (name, b""))  # twice, the first empty
    elif kind == 1:
        del members[at]
    elif kind == 2:
        members[at] = (
            chance.choice(("", "../x", "/etc/x", name + "\0", name.upper(), "é" * 300, name + ".npy")),
            content,
        )
    elif kind == 3:
        members[at] = (name, bytes(1 << 20))
    else:
        members[at] = (name, structured(content, chance))
    return members


def _xml(data: bytes, chance: random.Random) -> bytes:
    tags = list(re.finditer(rb"<[^>]*>", data))
    tag = chance.choice(tags)
    piece = data[tag.start() : tag.end()]
    deep = chance.choice((2, 150, 400))
    changed = chance.choice(
        (
            b"", piece * 2, b"<a>" * deep + piece + b"</a>" * deep, b"<!-- " + piece, b"<![CDATA[" + piece + b"]]>",
            re.sub(rb'"[^"]*"', lambda _: b'"' + chance.choice((b"", b"-1", b"1e400", b"9" * 50)) + b'"', piece),
            re.sub(rb" [a-zA-Z:]+=", b" x:y=", piece), piece.replace(b">", b" a='1' a='2'>"), b"<?x y?>" + piece,
        )
    )  # fmt: skip
    out = data[: tag.start()] + changed + data[tag.end() :]
    if chance.random() < 0.15:
        out = (
            b'<?xml version="1.0" encoding="'
            + chance.choice((b"utf-16", b"x-none", b"ebcdic", b"utf-7"))
            + b'"?>'
            + out
        )
    return out


def _lines(data: bytes, chance: random.Random) -> bytes:
    kind = chance.randrange(7)
    if kind == 0:
        return data.decode("utf-8", "replace").encode(chance.choice(_ENCODINGS), "replace")
    lines = data.splitlines(keepends=True) or [b""]
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    many = min(2000, 1 + (1 << 20) // (1 + len(lines[at]) + len(lines[other])))
    if kind == 1:
        del lines[at]
    elif kind == 2:
        lines[at:at] = [lines[other]] * chance.choice((1, 2, many))
    elif kind == 3:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 4:
        cells = lines[at].split(b",")
        cells[chance.randrange(len(cells))] = chance.choice(
            (*_NUMBERS, b'"', b'"a\nb"', b"\0", b"", b"inf", b"1,5", b"\xff")
        )
        lines[at] = b",".join(cells)
    elif kind == 5:
        return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\n", b"\x85", b"\xe2\x80\xa8", b"")))
    else:
        lines[at] = lines[at] * chance.choice((2, many))
    return b"".join(lines)
