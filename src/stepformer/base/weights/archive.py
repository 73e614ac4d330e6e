"""Taking named files out of a wheel, zip or tar without running, importing or installing anything of it."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from stepformer.base.guard import reading
from stepformer.base.weights.records import File
from stepformer.errors import StepFormerError

_CHUNK_BYTES = 1 << 20


class Archive:
    """One reader for zip (wheels) and tar files: ``names()`` and ``open(name)``."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with reading(path.name, "zip or tar archive"):
            self._zip = zipfile.ZipFile(path) if zipfile.is_zipfile(path) else None
            self._tar = None if self._zip else tarfile.open(path)  # noqa: SIM115 - closed by close()

    def names(self) -> list[str]:
        """The names of the plain files in it."""
        with reading(self._path.name, "zip or tar archive"):
            if self._zip is not None:
                return [info.filename for info in self._zip.infolist() if not info.is_dir()]
            return [info.name for info in self._tar_file().getmembers() if info.isfile()]
        raise AssertionError

    def open(self, name: str) -> IO[bytes]:
        """A stream of one member."""
        with reading(self._path.name, "zip or tar archive"):
            try:
                if self._zip is not None:
                    return self._zip.open(name)
                stream = self._tar_file().extractfile(name)
            except KeyError:
                stream = None
        if stream is None:
            raise StepFormerError(f"{self._path.name} has no file {name}")
        return stream

    def close(self) -> None:
        """Closes the archive."""
        if self._zip is not None:
            self._zip.close()
        else:
            self._tar_file().close()

    def _tar_file(self) -> tarfile.TarFile:
        return cast(tarfile.TarFile, self._tar)


@contextmanager
def _opened(paths: list[Path]) -> Iterator[list[Archive]]:
    archives: list[Archive] = []
    try:
        for path in paths:
            archives.append(Archive(path))
        yield archives
    finally:
        for archive in archives:
            archive.close()


def _read(stream: IO[bytes], name: str) -> bytes:
    with reading(name, "file of an archive"):
        return stream.read(_CHUNK_BYTES)
    raise AssertionError


def _copy(streams: list[tuple[Archive, str]], target: Path) -> str:
    """Joins members into ``target`` and gives its SHA-256."""
    digest = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as out:
        for archive, name in streams:
            with archive.open(name) as stream:
                while chunk := _read(stream, name):
                    digest.update(chunk)
                    out.write(chunk)
    return digest.hexdigest()


def unpack(files: tuple[File, ...], containers: list[Path], folder: Path) -> dict[str, str]:
    """Writes the files into ``folder`` and gives path -> SHA-256; a file that hashes wrong raises."""
    digests: dict[str, str] = {}
    with _opened(containers) as archives:
        for file in files:
            if file.is_folder:
                piece = file.pieces[0]
                source = archives[piece.container]
                members = [name for name in source.names() if name.startswith(piece.member)]
                if not members:
                    raise StepFormerError(f"the container has no folder {piece.member}")
                for name in members:
                    inside = PurePosixPath(file.path) / name.removeprefix(piece.member)
                    if inside.is_absolute() or ".." in inside.parts:
                        raise StepFormerError(f"the container names a file outside its folder: {name}")
                    digests[str(inside)] = _copy([(source, name)], folder / inside)
                continue
            found = _copy([(archives[p.container], p.member) for p in file.pieces], folder / file.path)
            if found != file.sha256:
                raise StepFormerError(f"{file.path} has SHA-256 {found}, not {file.sha256} as registered")
            digests[file.path] = found
    return digests
