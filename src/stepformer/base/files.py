"""Files written beside and renamed into place: a killed run leaves the old file or the new one."""

from __future__ import annotations

import difflib
import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any

from stepformer.errors import InputError, WriteError

_NO_PLACE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the same folder, of the same suffix, renamed over ``path`` if the block ends well, removed if
    not. What the system refuses is a WriteError that names ``path``. What a killed writer of the file left goes away.
    """
    target = Path(path)
    check_place(target)
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = _beside(target)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; a result file has the permissions any new file would have
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(target)
    except BaseException as error:
        with suppress(FileNotFoundError):
            temporary.unlink()
        if (why := _refusal(error, name)) is not None:
            raise WriteError(f"{target} cannot be written: {why}") from error
        raise
    finally:
        if handle is not None:
            os.close(handle)


def check_place(path: str | os.PathLike[str], folder: bool = False) -> None:
    """Raises WriteError where no file (or ``folder``) can ever be: where a folder (or file) is, or below a file."""
    target = Path(path)
    # os.path answers for any name, also one that no file can have or that may not be looked at
    there = next((place for place in (target, *target.parents) if os.path.lexists(place)), None)
    if there is not None and os.path.isdir(there) != (wanted := folder or there != target):  # noqa: PTH112
        raise WriteError(f"{target} cannot be written: {f'{there} is not a folder' if wanted else 'it is a folder'}")


def make_folder(path: str | os.PathLike[str]) -> Path:
    """A folder, made where it is not there yet; a WriteError names it where it cannot be."""
    check_place(path, folder=True)
    with writing(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


@contextmanager
def writing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns what the system refuses inside the block into a WriteError that names ``path``."""
    try:
        yield
    except (OSError, ValueError) as error:  # the latter for a zero byte in the name
        raise WriteError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _beside(target: Path) -> tuple[int | None, str]:
    """The name of a new file beside ``target``, and what holds its lock.

    The name is the same each time, so that the next writer takes over what a killed one left. A writer at work holds a
    lock, which ends with its process; a writer that cannot lock it takes a name of its own.
    """
    start, end = f".{target.stem[:40]}.", f"partial{target.suffix}"
    with suppress(ImportError, OSError):
        import fcntl

        name = str(target.parent / (start + end))
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held, there = os.fstat(handle), os.lstat(name)
            # another may have renamed it since; in a folder that others may write, it may be a trap
            if S_ISREG(held.st_mode) and held.st_nlink == 1 and os.path.samestat(held, there):
                os.ftruncate(handle, 0)
                return handle, name
        except OSError:
            pass
        os.close(handle)
    handle, name = tempfile.mkstemp(prefix=start, suffix=f".{end}", dir=target.parent)
    os.close(handle)
    return None, name


def _refusal(error: BaseException, name: str) -> str | None:
    """Why the system refused to write the file ``name``, whichever library it was; None for any other error."""
    if isinstance(error, WriteError):
        return None
    if type(error).__name__ == "SafetensorError":  # no OSError: its text alone says what the system said
        said = str(error).partition("I/O error: ")[2].partition(" (os error")[0]
        return said or None
    # users do not know the temporary file; an error of another file is reported as it is
    if isinstance(error, OSError) and error.filename in (None, name):
        return error.strerror or str(error)
    if getattr(error, "errno", None) in _NO_PLACE:  # FFmpeg's errors
        return str(getattr(error, "strerror", "") or error)
    return None


def lock_folder(path: Path) -> IO[bytes]:
    """Holds a folder for one writer until it is closed; the system lets go of it when the process ends, in any way.

    Raises InputError where another process holds it, WriteError where nothing can be written.
    """
    with writing(path):
        handle = (path / ".writer.lock").open("ab")
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with suppress(OSError):
            handle.close()
        raise InputError(f"another process is writing to {path}; wait for it or give another folder") from None
    return handle


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Writes UTF-8 text with \\n line ends, atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes bytes, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(data)


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    """Writes JSON, atomically."""
    write_text(path, json_text(value, indent=2) + "\n")


def json_text(value: Any, **how: Any) -> str:
    """JSON that UTF-8 can hold: a file name that is no UTF-8 on the disk is escaped, and read back as it was."""
    return utf8(json.dumps(value, ensure_ascii=False, **how))


def utf8(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates, of a file name that is no UTF-8, become ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode()


def no_such(path: str | os.PathLike[str], what: str = "file", expected: str = "") -> InputError:
    """The error for a file or folder that is not there: the name beside it that was likely meant, else what to give.

    What is there is something else: a folder, a pipe, a link to nothing.
    """
    given = Path(path)
    meant: list[str] = []
    with suppress(OSError, ValueError):  # a name can be anything
        if given.exists():
            return InputError(f"{path} is not a {what}")
        if given.is_symlink():
            return InputError(f"{path} is a link to a {what} that does not exist")
        beside = {entry.name: entry for entry in given.parent.iterdir() if not entry.name.startswith(".")}
        meant = difflib.get_close_matches(given.name, beside, n=1, cutoff=0.75)
    hint = f"did you mean {given.with_name(meant[0])}?" if meant else expected
    return InputError(f"there is no {what} {path}" + (f"; {hint}" if hint else ""))


def sha256_of(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, as hex."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
