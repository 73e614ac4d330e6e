"""Downloads that resume, say how far they are, and leave nothing behind that is not what it should be.

Not pooch, which starts a broken download over, nor huggingface_hub, which knows the hub alone.
"""

from __future__ import annotations

import base64
import errno
import functools
import os
import shutil
import ssl
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from stepformer.base.files import sha256_of
from stepformer.base.progress import Progress
from stepformer.errors import StepFormerError

_CHUNK_BYTES = 1 << 18
_TIMEOUT_S = 60.0
_TRIES = 3
_RANGE_NOT_SATISFIABLE = 416


class DiskFullError(StepFormerError):
    """There is no room for the weights; another source would not help."""


@functools.cache
def _tls() -> ssl.SSLContext:
    # companies with their own certificate authority have told pip or requests about it
    for variable in ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"):
        bundle = os.environ.get(variable)
        if bundle and Path(bundle).is_file():
            return ssl.create_default_context(cafile=bundle)
    return ssl.create_default_context()


class _KeepSecrets(urllib.request.HTTPRedirectHandler):
    """Follows a redirect without the password where it leads to another host."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The request to follow with."""
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if followed is not None and (old.scheme, old.netloc) != (new.scheme, new.netloc):
            followed.remove_header("Authorization")
        return followed


def shown(url: str) -> str:
    """An address as it may be printed: without name and password, query and fragment, which can carry secrets."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def open_url(url: str, headers: dict[str, str] | None = None, timeout_s: float = _TIMEOUT_S) -> Any:
    """Opens an address; a name and password written in it are sent as basic authentication."""
    parts = urllib.parse.urlsplit(url)
    sent = {"User-Agent": "stepformer", **(headers or {})}
    if parts.username is not None:
        login = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        sent["Authorization"] = "Basic " + base64.b64encode(login.encode()).decode()
        host = parts.netloc.rpartition("@")[2]
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
    request = urllib.request.Request(url, headers=sent)
    opener = urllib.request.build_opener(_KeepSecrets, urllib.request.HTTPSHandler(context=_tls()))
    return opener.open(request, timeout=timeout_s)


def need_space(folder: Path, size: int) -> None:
    """Raises if ``folder`` has not the room for ``size`` bytes."""
    free = shutil.disk_usage(folder).free
    if free < size:
        raise DiskFullError(
            f"{folder} has {free / 1e6:.0f} MB free and {size / 1e6:.0f} MB are needed; free some space, or set "
            "STEPFORMER_CACHE to a folder on another disk"
        )


def disk_full(error: OSError, folder: Path) -> StepFormerError | None:
    """The error to raise when ``error`` says that the disk is full, else None."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(
            f"the disk of {folder} is full; free some space, or set STEPFORMER_CACHE to a folder on another disk"
        )
    return None


def download(url: str, target: Path, sha256: str, size: int | None = None, *, quiet: bool = False) -> Path:
    """Fetches ``url`` to ``target``; a ``.partial`` file beside it is continued. Checked against ``sha256``.

    A break is tried again from where it stopped. When it stays broken the partial file is kept for the next
    time; when the hash is wrong or the disk is full it is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    have = partial.stat().st_size if partial.exists() else 0
    if size is not None:
        need_space(target.parent, size - have)
    label = f"downloading {urllib.parse.unquote(Path(urllib.parse.urlsplit(url).path).name)}"
    with Progress(label, None if size is None else round(size / 1e6, 1), "MB", quiet=quiet) as progress:
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
            f"{shown(url)} has SHA-256 {found}, not {sha256} as registered; it was thrown away. Either the download "
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
        progress.done = have / 1e6
        got = 0
        with partial.open("ab" if resumed else "wb") as out:
            while chunk := answer.read(_CHUNK_BYTES):
                out.write(chunk)
                got += len(chunk)
                progress.advance(len(chunk) / 1e6)
        if expected is not None and got < int(expected):
            raise ConnectionError(f"the connection closed after {got} of {expected} bytes")
