"""One guarded way to read files from elsewhere: JSON, XML, TOML, CSV, arrays, archives, pickles' size, processes.

Every reader goes through these functions, so each limit and each kind of damage is handled once. Whatever is wrong with
a file becomes an :class:`InputError` that names it; nothing here allocates more memory than the limits below, and
nothing runs forever. The limits are generous (the largest real file of each kind is well below them) and are listed in
docs/SECURITY.md.
"""

from __future__ import annotations

import csv
import functools
import gzip
import io
import math
import os
import select
import stat
import struct
import tarfile
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from xml.etree import ElementTree

import numpy as np

from stepformer.base.files import no_such
from stepformer.errors import InputError, StepFormerError
from stepformer.timeline import json_values

P = ParamSpec("P")
T = TypeVar("T")

TEXT_BYTES = 512 << 20
"""A text file (JSON, CSV, XML, TOML, subtitles) is read whole up to this size; HowTo100M's captions are streamed."""
XML_BYTES = 64 << 20
XML_DEPTH = 200
EXPANSION = 200
"""A compressed file may be this many times larger inside (JSON text reaches 30), above the first few megabytes."""
FREE_BYTES = 16 << 20
"""Up to this size anything may be inside a compressed file: small things need no ratio."""
ARRAY_BYTES = 8 << 30
PIPE_S = 60.0
PIPE_BYTES = 64 << 20
"""Of a pipe or a device it is not known how much there will be."""
_PACKED = (
    (b"\x1f\x8b", tarfile.TarFile.gzopen), (b"BZh", tarfile.TarFile.bz2open), (b"\xfd7zXZ\0", tarfile.TarFile.xzopen),
)  # fmt: skip

DAMAGE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, MemoryError, EOFError, OSError, AssertionError,
    SyntaxError, RuntimeError, zlib.error, zipfile.BadZipFile, csv.Error, tarfile.TarError, struct.error,
    tokenize.TokenError, SystemError,  # NumPy raises the last for text that is none
)  # fmt: skip

_UNCOUNTED = ("JSON", "TOML", "XML", "CSV", "UTF-8 text")  # "not readable JSON", but "not a readable video"


@contextmanager
def reading(source: str | os.PathLike[str], what: str) -> Iterator[None]:
    """Turns whatever damaged content raises inside the block into a sentence: "SOURCE is not a readable WHAT: ..."."""
    try:
        yield
    except StepFormerError:
        raise
    except FileNotFoundError:
        raise no_such(source) from None
    except Exception as error:
        # the last is of no built-in kind, and not imported here for its name
        if not isinstance(error, DAMAGE) and type(error).__name__ != "SafetensorError":
            raise
        a = "" if what in _UNCOUNTED else "a "
        raise InputError(f"{os.fspath(source)} is not {a}readable {what}: {reason(error)}") from None


def reader(what: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function whose first argument is a path: damage of any kind in it becomes one sentence."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
            with reading(str(args[0]) if args else "the input", what):
                return function(*args, **kwargs)

        return guarded

    return decorate


def reason(error: BaseException) -> str:
    """What an exception says, in one line of at most 200 characters, without Python's own words where they mislead."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, KeyError):
        return f"it lacks {error.args[0]!r}" if error.args else "something is missing"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:197] + "..."


def read_bytes(path: str | os.PathLike[str], limit: int = TEXT_BYTES) -> bytes:
    """A whole file, or an InputError if it is not there, no plain file, or larger than ``limit`` bytes."""
    path = Path(path)
    with reading(path, "file"):
        kind, data = path.stat(), None
        # a file of the system's (/proc) says that it is empty and may keep its reader waiting endlessly
        if not (stat.S_ISDIR(kind.st_mode) or (stat.S_ISREG(kind.st_mode) and kind.st_size)):
            limit = min(limit, PIPE_BYTES)
            data = _from_pipe(path, limit + 1)
        elif kind.st_size <= limit:
            with path.open("rb") as stream:
                data = stream.read(kind.st_size)  # not of the limit: room for all that is asked for is made first
        if data is None or len(data) > limit:
            raise InputError(f"{path} is larger than {limit >> 20} MiB, the most that is read of such a file")
        return data


def plain_file(path: str | os.PathLike[str]) -> Path:
    """The path of a plain file with something in it. Opening anything else (a pipe, /proc) may wait endlessly.

    Raises OSError where nothing is there, InputError for anything else.
    """
    kind = Path(path).stat()
    if not stat.S_ISREG(kind.st_mode):
        what = "a folder" if stat.S_ISDIR(kind.st_mode) else "a device or a pipe"
        raise InputError(f"{os.fspath(path)} is {what}, not a file that can be read")
    if not kind.st_size:
        raise InputError(f"{os.fspath(path)} is empty")
    return Path(path)


def _from_pipe(path: Path, limit: int) -> bytes:
    """What a pipe or a device gives, up to ``limit`` bytes; one that gives nothing for a minute is not waited for."""
    stream = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    data = bytearray()
    try:
        while len(data) < limit:
            if not select.select([stream], [], [], PIPE_S)[0]:
                raise InputError(f"{path} is a pipe or a device that gives nothing")
            part = os.read(stream, min(1 << 20, limit - len(data)))
            if not part:
                break
            data += part
    finally:
        os.close(stream)
    return bytes(data)


def gunzip(data: bytes, source: str | os.PathLike[str]) -> bytes:
    """The content of gzipped bytes; plain bytes as they are. A bomb is refused before it is unpacked."""
    if data[:2] != b"\x1f\x8b":
        return data
    most = min(max(FREE_BYTES, EXPANSION * len(data)), TEXT_BYTES)
    # Python's reader skips padding byte by byte; what is packed may end with some zeros of its own
    data = data[: len(data.rstrip(b"\0")) + (1 << 20)]
    with reading(source, "gzip file"):
        unpacked = gzip.GzipFile(fileobj=io.BytesIO(data)).read(most + 1)
        if len(unpacked) > most:
            raise InputError(f"{os.fspath(source)} unpacks to more than {most >> 20} MiB")
        return unpacked


def read_text(path: str | os.PathLike[str], errors: str = "strict") -> str:
    """A UTF-8 text file, plain or gzipped, with or without a byte order mark and with any line ends."""
    data = gunzip(read_bytes(path), path)
    with reading(path, "UTF-8 text"):
        return data.decode("utf-8-sig", errors).replace("\r\n", "\n").replace("\r", "\n")


def json_of(text: str | bytes, source: str | os.PathLike[str]) -> Any:
    """JSON text as Python values; numbers that do not fit into a float and deep nesting are refused."""
    with reading(source, "JSON"):
        return json_values(text)


def read_json(path: str | os.PathLike[str]) -> Any:
    """A JSON file, plain or gzipped."""
    return json_of(read_text(path), path)


def toml_of(text: str, source: str | os.PathLike[str]) -> dict[str, Any]:
    """TOML text as Python values. Keys of hundreds of parts, which take Python's reader quadratic time, are refused."""
    with reading(source, "TOML"):
        for line in text.splitlines():
            keys = line.split("=")[: None if line.lstrip().startswith("[") else -1]
            if max((key.count(".") for key in keys), default=0) > XML_DEPTH:
                raise RecursionError
        return tomllib.loads(text)


def xml_of(text: str | bytes, source: str | os.PathLike[str]) -> ElementTree.Element:
    """The root of an XML document. Documents that declare entities are refused, as are deep and huge ones."""
    data = text.encode("utf-8", "replace") if isinstance(text, str) else text
    if len(data) > XML_BYTES:
        raise InputError(f"{os.fspath(source)} is not readable XML: it is larger than {XML_BYTES >> 20} MiB")
    with reading(source, "XML"):
        if b"<!ENTITY" in data or b"<!\x00E\x00N\x00T" in data:
            raise ValueError("it declares entities, which are never expanded")
        depth = 0
        root: ElementTree.Element | None = None
        for event, element in ElementTree.iterparse(io.BytesIO(data), ("start", "end")):
            depth += 1 if event == "start" else -1
            root = element if root is None else root
            if depth > XML_DEPTH:
                raise ValueError(f"it is nested more than {XML_DEPTH} deep")
        if root is None:
            raise ValueError("it is empty")
        return root


def csv_rows(text: str, source: str | os.PathLike[str], delimiter: str = ",") -> Iterator[list[str]]:
    """The rows of CSV text, one by one."""
    with reading(source, "CSV"):
        yield from csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=delimiter)


def tar_files(path: str | os.PathLike[str], limit: int = TEXT_BYTES) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """(name, what reads it) of the plain files in a tar, plain or compressed; nothing is unpacked to disk.

    A file of more than ``limit`` bytes is an InputError where it is read; a tar that breaks off is one where it does;
    one that unpacks to far more than it is large is one before it does: what is skipped is unpacked too.
    """
    with reading(path, "tar archive"):
        with plain_file(path).open("rb") as stream:
            begin, packed, unpacked = stream.read(6), os.fstat(stream.fileno()).st_size, 0
        # by what it begins with: tried one after the other, each would look for its own in gigabytes of zeros
        unpack = next((unpack for magic, unpack in _PACKED if begin.startswith(magic)), None)
        with (unpack or tarfile.TarFile.taropen)(os.fspath(path)) as archive:
            for member in archive:
                unpacked += member.size
                if unpack and unpacked > max(FREE_BYTES, EXPANSION * packed):
                    raise InputError(_far_more(path, unpacked, packed))
                if member.isfile():
                    yield member.name, functools.partial(_tar_file, archive, member, path, limit)


def _tar_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str | os.PathLike[str], limit: int) -> bytes:
    if member.size > limit:
        most = f"at most {limit >> 20} MiB are read"
        raise InputError(f"{os.fspath(path)}: {member.name} has {member.size >> 20} MiB; {most}")
    with reading(f"{os.fspath(path)}: {member.name}", "file of a tar archive"):
        stream = archive.extractfile(member)
        return stream.read() if stream is not None else b""


def load_array(path: str | os.PathLike[str], mapped: bool = False) -> np.ndarray[Any, Any]:
    """A .npy file; pickled objects are never read. ``mapped``: memory-mapped, for large features."""
    with reading(path, "NumPy array"):
        with plain_file(path).open("rb") as stream:
            shape, dtype = _header_of_numbers(stream)
            size = math.prod(shape) * dtype.itemsize
            there = os.fstat(stream.fileno()).st_size - stream.tell()
            if size > there:
                raise ValueError(f"its header promises {size} bytes, but {there} follow")
        if size > ARRAY_BYTES and not mapped:
            raise ValueError(f"it has {size >> 20} MiB; at most {ARRAY_BYTES >> 20} are read")
        array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r" if mapped and size else None, allow_pickle=False)
        return array


def load_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz file by name; what its members say of their size is checked before they are unpacked."""
    with reading(path, "NumPy archive"):
        with zipfile.ZipFile(plain_file(path)) as archive:
            entries = archive.infolist()
            packed, unpacked = sum(e.compress_size for e in entries), sum(e.file_size for e in entries)
            if unpacked > max(FREE_BYTES, EXPANSION * packed) or unpacked > ARRAY_BYTES:
                raise InputError(_far_more(path, unpacked, packed))
            for entry in entries:
                with archive.open(entry) as stream:
                    shape, dtype = _header_of_numbers(stream)
                if math.prod(shape) * dtype.itemsize > entry.file_size:
                    raise ValueError(f"{entry.filename} promises more than it holds")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


def npy_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array file; leaves the stream where the data begins."""
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    return tuple(shape), dtype


def _header_of_numbers(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    shape, dtype = npy_header(stream)
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which are never read")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, dtype


def _far_more(source: str | os.PathLike[str], unpacked: int, packed: int) -> str:
    return f"{os.fspath(source)} unpacks to {unpacked >> 20} MiB from {packed >> 10} KiB; it is not read"


def in_process(
    function: Callable[..., T], *args: Any, what: str, time_s: float | None = 60.0, memory_bytes: int = 4 << 30
) -> T:
    """``function(*args)`` in a process of its own, for native readers that a damaged file can crash or run away with.

    ``function`` must be importable and its result picklable by us (it never carries a stranger's pickle). A crash, more
    than ``time_s`` seconds (None: no limit) or more than ``memory_bytes`` of memory is an InputError that says so about
    ``what``.
    """
    from stepformer.base.many import DIED, given_up, run_many

    work = functools.partial(_answer, function, what)
    limits: dict[str, Any] = {"time_limit_s": time_s, "memory_bytes": memory_bytes, "preload": ()}
    outcome = next(run_many(work, [args], apart=True, **limits))
    if outcome.error == DIED:
        raise InputError(f"{what} is damaged: the library that reads it crashed")
    if time_s is not None and outcome.error == str(given_up(time_s)):
        raise InputError(f"{what} could not be read within {time_s:g} s")
    result = outcome.result()
    if isinstance(result, StepFormerError):
        raise result
    return result


def _answer(function: Callable[..., T], what: str, args: tuple[Any, ...]) -> T | StepFormerError:
    """What a function gives, or its error, which keeps its kind on the way between processes as a value."""
    try:
        return function(*args)
    except StepFormerError as error:
        return error
    except DAMAGE as error:
        return InputError(f"{what} cannot be read: {reason(error)}")
