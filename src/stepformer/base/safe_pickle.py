"""Reading other people's pickles without running their code.

A pickle is a program: it names functions and calls them. This reader admits the few names that rebuild NumPy arrays
and torch tensors, each replaced by a checked version of its own, and refuses every other name by name. Built for
checkpoints and feature files that exist only as pickles; what this product writes is safetensors.
"""

from __future__ import annotations

import collections
import io
import pickle
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base.guard import ARRAY_BYTES, npy_header, read_bytes, reason
from stepformer.errors import InputError

_ZIP_MAGIC = b"PK\x03\x04"
_TORCH_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # the number that opens a legacy torch.save file, pickled
_NDARRAY, _TENSOR = "numpy.ndarray", "torch.Tensor"  # types that pickles name; standing for them here, never called
_TORCH_LEGACY_START = pickle.dumps(_TORCH_LEGACY_MAGIC, protocol=2)
_OLD_PICKLES = 5  # of a legacy file: magic number, protocol, machine, the objects, the keys of their numbers
_LONG = 20_000
_PICKLE_BYTES = 64 << 20  # looked through; the pickles of real checkpoints have a few


class RefusedError(InputError):
    """The pickle wants something that is neither an array nor a tensor."""


class _Dtype:
    """A dtype while it is read. NumPy's own one ignores the byte order that the pickle sets on it afterwards."""

    def __init__(self, *args: Any) -> None:
        if not args or not isinstance(args[0], str):
            raise RefusedError(f"the pickle names a dtype by {args!r}")
        self.made: np.dtype[Any] = np.dtype(args[0])

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        # (version, byte order, subarray, names, fields, size, alignment, flags); flags from a file are never taken over
        if any(part is not None for part in state[2:5]):
            raise RefusedError("the pickle holds an array of records")
        if state[1] in ("<", ">"):
            self.made = self.made.newbyteorder(state[1])


class _Array(np.ndarray[Any, np.dtype[Any]]):
    """An array while it is read: NumPy starts every one as an empty shell and fills it by its state."""

    def __setstate__(self, state: Any) -> None:
        version, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Dtype):
            raise RefusedError(f"the pickle gives an array the dtype {dtype!r}")
        super().__setstate__((version, shape, dtype.made, fortran, data))


def _array_shell(subtype: Any, shape: Any, _type: Any) -> np.ndarray[Any, Any]:
    if subtype is not _NDARRAY or tuple(shape) != (0,):
        raise RefusedError(f"the pickle rebuilds an array as {subtype!r} of shape {shape!r}")
    return _Array((0,), np.int8)


def _array_from_buffer(buffer: Any, dtype: Any, shape: Any, order: Any = "C") -> np.ndarray[Any, Any]:
    flat = np.frombuffer(buffer, dtype=_plain(dtype))
    return flat.reshape(tuple(shape), order="F" if order == "F" else "C")


def _scalar(dtype: Any, data: bytes = b"") -> Any:
    return np.frombuffer(data, dtype=_plain(dtype), count=1)[0]


def _plain(dtype: Any) -> np.dtype[Any]:
    if not isinstance(dtype, _Dtype) or dtype.made.hasobject:
        raise RefusedError("the pickle makes an array of Python objects from bytes")
    return dtype.made


def _encode(text: str, encoding: str = "utf-8") -> bytes:
    if encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii"):
        raise RefusedError(f"the pickle asks for the codec {encoding!r}")
    return text.encode(encoding)


def _torch_storage(data: bytes) -> Any:
    """A tensor storage that a plain pickle carries as the bytes of a torch file."""
    import torch

    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _torch_tensor(storage: Any, offset: int, size: Any, stride: Any, *_rest: Any) -> Any:
    import torch

    if not isinstance(storage, torch.storage.TypedStorage):
        raise RefusedError(f"the pickle builds a tensor on {type(storage).__name__}, not on a typed tensor storage")
    return torch.empty(0, dtype=storage.dtype).set_(storage, offset, tuple(size), tuple(stride))


def _torch_subclass(build: Any, _type: Any, args: Any, _state: Any) -> Any:
    """A tensor that had attributes or a class of its own: the plain tensor, without them."""
    if build is not _torch_tensor:
        raise RefusedError(f"the pickle rebuilds a tensor by {build!r}")
    return build(*args)


_ALLOWED: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _Dtype,
    ("torch", "Tensor"): _TENSOR,
    ("torch._utils", "_rebuild_tensor"): _torch_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _torch_tensor,
    ("torch._tensor", "_rebuild_from_type_v2"): _torch_subclass,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_rest: tensor,
    ("torch.storage", "_load_from_bytes"): _torch_storage,
}
for _home in ("builtins", "__builtin__"):  # old protocols name these types
    _ALLOWED[(_home, "set")] = set
    _ALLOWED[(_home, "frozenset")] = frozenset
for _home in ("numpy.core", "numpy._core"):  # NumPy 2 renamed it; both occur in files
    _ALLOWED[(f"{_home}.multiarray", "_reconstruct")] = _array_shell
    _ALLOWED[(f"{_home}.multiarray", "scalar")] = _scalar
    _ALLOWED[(f"{_home}.numeric", "_frombuffer")] = _array_from_buffer


class _Restricted(pickle.Unpickler):
    def __init__(self, stream: Any, where: str) -> None:
        super().__init__(stream)
        self._where = where

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """The admitted version of a name, or an error that names it."""
        try:
            found: Callable[..., Any] = _ALLOWED[(module, name)]
        except KeyError:
            raise RefusedError(
                f"{self._where} is a pickle that names {module}.{name}; only NumPy arrays and torch tensors are "
                "read, because a pickle can run any code. If you trust the file, convert it to safetensors or npz "
                "where it was made"
            ) from None
        return found

    def persistent_load(self, pid: Any) -> Any:
        """Plain pickles have no outside objects."""
        raise RefusedError(f"{self._where} refers to an object outside itself ({pid!r})")


def load_restricted_npy(data: bytes, where: str) -> Any:
    """The one object that a NumPy file of a zero-dimensional object array holds, read as :func:`load_restricted` does.

    A NumPy file of numbers gives its array. ``where`` names the data in messages.
    """
    stream = io.BytesIO(data)
    try:
        shape, dtype = npy_header(stream)
        if not dtype.hasobject:
            stream.seek(0)
            return np.lib.format.read_array(stream, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{where} is not a readable NumPy file: {error}") from None
    held = load_restricted(data[stream.tell() :])
    if not isinstance(held, np.ndarray) or held.size != 1:
        raise InputError(f"{where} is a NumPy file of {shape} Python objects; only a single object can be read")
    return held.reshape(()).item()


def _check_sizes(data: bytes, where: str) -> None:
    """Refuses a pickle that numbers its memory beyond its own length: nine bytes would otherwise take gigabytes."""
    import pickletools

    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in ("LONG_BINPUT", "PUT", "LONG_BINGET", "GET") and int(argument or 0) > len(data):
                raise RefusedError(f"{where} is a pickle that asks for {argument} places in memory")
    except RefusedError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"{where} is not a readable pickle: {reason(error)}") from None


def _holds_long_words(data: bytes) -> bool:
    """Whether the pickles of a torch file hold over ``_LONG`` bytes without a space: torch looks through the message
    that would name them by a pattern that takes the square of their length."""
    import pickletools
    import zipfile

    pickles = [data]
    with suppress(Exception):  # damage is torch's to find
        if data.startswith(_ZIP_MAGIC):
            archive = zipfile.ZipFile(io.BytesIO(data))
            held = [name for name in archive.namelist() if name.endswith(".pkl")]
            pickles = [archive.open(name).read(_PICKLE_BYTES) for name in held]
        else:
            stream = io.BytesIO(data)
            for _ in range(_OLD_PICKLES):  # behind them lie numbers
                collections.deque(pickletools.genops(stream), maxlen=0)
            pickles = [data[: stream.tell()]]
    return any(re.search(rb"\S{%d}" % _LONG, pickled) for pickled in pickles)


def load_restricted(source: str | Path | bytes) -> Any:
    """The value of a pickle made of containers, numbers, text, NumPy arrays and torch tensors.

    Takes a path or bytes; torch files (zip or legacy ``.pth``) are recognised by their first bytes and read with
    torch's own weights-only reader. Raises RefusedError (an InputError) for any other name in the pickle.
    """
    where = "the data" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else read_bytes(source, ARRAY_BYTES)
    if data.startswith((_ZIP_MAGIC, _TORCH_LEGACY_START)):
        import torch

        if _holds_long_words(data):
            raise RefusedError(f"{where} is not a torch file of tensors alone: a name in it has over {_LONG} letters")
        try:
            return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged pickle can raise anything
            # torch's own message goes on to advise reading the file without the check; only its reason is of use
            named = re.search(r"GLOBAL (\S+)", str(error))
            first = (str(error).splitlines() or [type(error).__name__])[0]
            why = f"it names {named.group(1).rstrip('.')}" if named else first
            raise RefusedError(f"{where} is not a torch file of tensors alone: {why}") from error
    _check_sizes(data, where)
    try:
        return _Restricted(io.BytesIO(data), where).load()
    except InputError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"{where} is not a readable pickle: {type(error).__name__}: {reason(error)}") from error
