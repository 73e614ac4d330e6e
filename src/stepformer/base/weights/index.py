"""Finding one named file of a package registry, through whatever index the user's pip, npm or apt is set up to use.

No host is named here: pip, npm and apt are asked. pip itself is not used to download, because ``pip download`` runs
the build script of a source package to learn its metadata, and nothing of a container may run.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import urllib.parse
from html.parser import HTMLParser

from stepformer.base.guard import reading
from stepformer.base.weights.http import open_url, shown
from stepformer.errors import MissingError, StepFormerError
from stepformer.timeline import json_values

_PAGE_BYTES = 64 << 20  # the largest projects have a few megabytes
_JSON_PAGE = "application/vnd.pypi.simple.v1+json"


class _Links(HTMLParser):
    """The (file name, address) pairs of a simple index page."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self._href = ""
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Opens a link."""
        if tag == "a":
            self._href, self._text = dict(attrs).get("href") or "", ""

    def handle_data(self, data: str) -> None:
        """Collects the text of a link."""
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        """Closes a link."""
        if tag == "a" and self._href:
            self.links.append((self._text.strip(), self._href))
            self._href = ""


def _ask_pip(*words: str) -> str:
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pip", *words], capture_output=True, text=True, timeout=60, check=True,
            env={**os.environ, "COLUMNS": "4000", "NO_COLOR": "1"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(
            "pip cannot be asked which package index to use; set PIP_INDEX_URL to the index, or install pip"
        ) from error
    return done.stdout


@functools.cache
def _pip_settings() -> dict[str, str]:
    """pip's configuration, later sources over earlier ones as pip orders them: files, then the environment."""
    settings: dict[str, str] = {}
    for line in _ask_pip("config", "list").splitlines():
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
        found = re.search(r"--index-url\b.*?\(default\s+(\S+?)\)", _ask_pip("download", "--help"), re.DOTALL)
        if not found:
            raise MissingError("pip does not say which package index it uses; set PIP_INDEX_URL")
        main = found.group(1)
    return [main, *extra.split()]


def _page_links(page_url: str) -> list[tuple[str, str]]:
    accept = f"{_JSON_PAGE}, text/html;q=0.5"
    with open_url(page_url, headers={"Accept": accept}) as answer:
        body, kind, final_url = answer.read(_PAGE_BYTES), answer.headers.get_content_type(), answer.geturl()
    with reading(shown(page_url), "page of a package index"):
        if kind == _JSON_PAGE:
            links = [(str(entry["filename"]), str(entry["url"])) for entry in json_values(body)["files"]]
        else:
            parser = _Links()
            parser.feed(body.decode("utf-8", "replace"))
            links = parser.links
        return [(name, urllib.parse.urljoin(final_url, href)) for name, href in links]
    raise AssertionError


def _ask(*words: str) -> str:
    """The first line that a package manager prints."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise MissingError(f"{words[0]} cannot be asked where its packages are: {error}") from error
    if not done.stdout.strip():
        raise MissingError(f"{words[0]} does not say where its packages are")
    return done.stdout.split()[0].rstrip("/")


def find_file(project: str, filename: str) -> str:
    """The address of ``filename`` among the files of ``project``, from the first index that has it.

    "npm:NAME" is a package of npm's registry, "debian:NAME" a source package of apt's archive, any other a project of
    pip's indexes.
    """
    kind, _, name = project.partition(":")
    if kind == "npm":
        return f"{_ask('npm', 'config', 'get', 'registry')}/{name}/-/{filename}"
    if kind == "debian":
        archive = _ask("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
        return f"{archive}/pool/main/{name[:4] if name.startswith('lib') else name[0]}/{name}/{filename}"
    troubles = []
    for base in index_urls():
        page = f"{base.rstrip('/')}/{re.sub(r'[-_.]+', '-', project).lower()}/"
        try:
            for name, url in _page_links(page):
                if name == filename:
                    return url.partition("#")[0]
            troubles.append(f"{shown(page)} does not list it")
        except (OSError, ValueError, StepFormerError) as error:
            troubles.append(f"{shown(page)}: {error}")
    raise StepFormerError(f"{filename} was found in no package index: " + "; ".join(troubles))
