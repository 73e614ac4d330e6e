"""Named weights: where they come from, pinned by SHA-256. They are data, never code.

>>> folder = pull("minilm")              # doctest: +SKIP
>>> entry("minilm").license
'Apache-2.0'

``pull`` downloads once, and returns the file or the folder of the weights. Everything lies under
``cache_folder("weights")``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from stepformer.base.cache import cache_folder
from stepformer.base.files import sha256_of, write_json
from stepformer.base.weights.records import Container, File, Piece, Weights
from stepformer.errors import MissingError, StepFormerError, UsageError, near

_MANIFEST = "manifest.json"
_checked: set[tuple[str, str]] = set()  # (folder, fingerprint) of weights whose files were hashed in this process

__all__ = [
    "Container", "File", "Piece", "Weights",
    "entry", "find", "folder_of", "names", "pull", "verify",
]  # fmt: skip


def names() -> list[str]:
    """The registered names."""
    from stepformer.base.weights.registry import REGISTRY

    return [weights.name for weights in REGISTRY]


def entry(name: str) -> Weights:
    """What is registered under ``name``."""
    from stepformer.base.weights.registry import REGISTRY

    for weights in REGISTRY:
        if weights.name == name:
            return weights
    raise UsageError(f"no weights are named {near(name, names())}")


def folder_of(weights: str | Weights) -> Path:
    """The folder these weights lie in once pulled."""
    return cache_folder("weights") / (weights if isinstance(weights, str) else weights.name)


def _manifest(weights: Weights) -> dict[str, Any] | None:
    """What was written when the weights were pulled, or None if they are not here as registered now."""
    try:
        manifest = json.loads((folder_of(weights) / _MANIFEST).read_text(encoding="utf-8"))
        return manifest if manifest["fingerprint"] == weights.fingerprint and manifest["files"] else None
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_whole(weights: Weights) -> bool:
    """Whether the weights are here and their files are what was pulled: hashed once per process, 0.1 s per 100 MB."""
    key = (str(folder_of(weights)), weights.fingerprint)
    if _manifest(weights) is None:
        return False
    if key not in _checked and not _troubles(weights):
        _checked.add(key)
    return key in _checked


def find(name: str) -> Path | None:
    """The pulled file or folder of ``name``, or None if it is not here. Never touches the network."""
    weights = entry(name)
    return folder_of(weights) / weights.main if _is_whole(weights) else None


def pull(name: str | Weights, *, quiet: bool = False) -> Path:
    """The file or folder of the weights, downloaded if they are not here, or damaged.

    Safe to call from many processes at once: one downloads, the others wait. Raises MissingError when the
    weights are not here and cannot be had, with what was tried.
    """
    weights = entry(name) if isinstance(name, str) else name
    if not _is_whole(weights):
        from filelock import FileLock

        from stepformer.base.weights.install import install

        folder = cache_folder("weights")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with FileLock(folder / f".{weights.name}.lock"):
                if not _is_whole(weights):
                    _remove_left_behind(folder, weights)
                    _install_whole(weights, install, quiet)
        except PermissionError as error:
            raise StepFormerError(
                f"{folder} cannot be written: {error}; set STEPFORMER_CACHE to a folder that can"
            ) from error
    return folder_of(weights) / weights.main


def _remove_left_behind(folder: Path, weights: Weights) -> None:
    """Folders of pulls that were killed; the caller holds the lock, so nobody works in them."""
    for left in folder.glob(f".{weights.name}.*.partial"):
        shutil.rmtree(left, ignore_errors=True)


def _install_whole(weights: Weights, install: Any, quiet: bool) -> None:
    """Makes the folder beside its place and renames it in: it is there whole, or not at all."""
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
    if _manifest(weights) is None:
        raise MissingError(f"{name} is not here; get it with: stepformer models pull {name}")
    return _troubles(weights)


def _troubles(weights: Weights) -> list[str]:
    """What is wrong with the pulled files, by their hashes."""
    manifest = _manifest(weights) or {"files": {}}
    troubles = []
    for path, facts in manifest["files"].items():
        file = folder_of(weights) / path
        if not file.is_file():
            troubles.append(f"{path} is gone")
        elif (found := sha256_of(file)) != facts["sha256"]:
            troubles.append(f"{path} has SHA-256 {found}, not {facts['sha256']}")
    return troubles
