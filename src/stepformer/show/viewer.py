"""A timeline's page with its video, served to a browser on this machine alone.

A browser that opens a page from a folder plays the video beside it; one that is far from the files (a container, a
remote machine behind a tunnel) cannot. This server gives exactly two things, the page and the video, on the loopback
address, and answers range requests, without which a browser cannot seek.
"""

from __future__ import annotations

import io
import mimetypes
import re
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from stepformer.errors import StepFormerError
from stepformer.timeline import Timeline

HOST = "127.0.0.1"
_CHUNK_BYTES = 1 << 18
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True, slots=True)
class Page:
    """What is served: the page's HTML, and the video file it plays (None where it is not here)."""

    html: bytes
    video: Path | None
    notes: tuple[str, ...] = ()


def make_page(timeline: Timeline, video: str | None = None, title: str | None = None) -> Page:
    """The page of a timeline; ``video`` is the file where it is not where the timeline says."""
    from stepformer.show.export import Options, media_file, render

    found = media_file(timeline, Options(video=video))
    # as if the page lay beside the video: then it names the video by its file name alone
    target = found.resolve().parent / "page.html" if found else None
    rendered = render(timeline, "html", Options(video=video, target=target, title=title))
    return Page(rendered.text.encode("utf-8", "backslashreplace"), found, rendered.notes)


def serve(page: Page, port: int = 0) -> ThreadingHTTPServer:
    """A server for one page on ``127.0.0.1``; port 0 takes a free one. Call ``serve_forever`` on it.

    Raises:
        StepFormerError: the port is not available.
    """

    class Handler(_Handler):
        shown = page

    try:
        return _Server((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error).rstrip(".")
        raise StepFormerError(f"cannot listen on {HOST}:{port}: {why}; choose another --port, or 0 for any") from None


class _Server(ThreadingHTTPServer):
    """Many clients at once; one that goes away, or is too slow, is dropped without a word."""

    daemon_threads = True
    request_queue_size = 1024  # a browser opens many connections at once, and so do many browsers

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is the client's affair."""


def address(server: ThreadingHTTPServer) -> str:
    """The address to open."""
    return f"http://{HOST}:{server.server_address[1]}/"


def byte_range(header: str | None, size: int) -> tuple[int, int] | None:
    """``Range: bytes=a-b`` as (first, one past the last) of a file of ``size`` bytes; None for the whole file.

    A header of another unit or of several ranges is left unheeded, as the standard allows.

    Raises:
        ValueError: the range lies outside the file.
    """
    match = _RANGE.match((header or "").strip())
    first, last = match.groups() if match else ("", "")
    if not (first or last) or (first and last and int(last) < int(first)):
        return None
    start = int(first) if first else max(0, size - int(last))  # without a first: the last bytes
    if start >= size:
        raise ValueError(header)
    return start, min(size, int(last) + 1) if first and last else size


class _Asked(io.RawIOBase):
    """What a client sends, of which each request must be here ``until`` then, however slowly its bytes trickle in."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self.until = connection, 0.0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self.until - time.monotonic(), 1e-3))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and its video; anything else is not found."""

    shown: Page
    protocol_version = "HTTP/1.1"  # browsers keep the connection and ask for the next range on it
    server_version = "stepformer"
    timeout = 30  # seconds a client may take for a request, and for each part of the answer

    def setup(self) -> None:
        super().setup()
        self._asked = _Asked(self.connection)
        self.rfile = io.BufferedReader(self._asked)

    def handle_one_request(self) -> None:
        self._asked.until = time.monotonic() + self.timeout
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: requests are not the user's concern."""

    def do_GET(self) -> None:
        self.connection.settimeout(self.timeout)
        # a page elsewhere that resolves its own name to this machine must not read the video
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0].strip("[]")
        if host not in (HOST, "localhost", "::1", ""):
            return self._refuse(HTTPStatus.FORBIDDEN, "this server answers on its loopback address only")
        path = unquote(urlsplit(self.path).path, errors="surrogateescape")
        if path == "/":
            return self._send(HTTPStatus.OK, "text/html", self.shown.html, {"Cache-Control": "no-store"})
        if self.shown.video is not None and path == "/" + self.shown.video.resolve().name:
            return self._video(self.shown.video)
        return self._refuse(HTTPStatus.NOT_FOUND, "there is only the page and its video here")

    do_HEAD = do_GET  # noqa: N815 (the base class calls it by this name)

    def _video(self, video: Path) -> None:
        try:
            stream = video.open("rb")
        except OSError:
            return self._refuse(HTTPStatus.NOT_FOUND, "the video has gone")
        with stream:
            size = video.stat().st_size
            kind = mimetypes.guess_type(video.name)[0] or "application/octet-stream"
            try:
                part = byte_range(self.headers.get("Range"), size)
            except ValueError:
                outside = {"Content-Range": f"bytes */{size}"}
                return self._head(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, kind, 0, outside)
            first, stop = part or (0, size)
            more = {"Accept-Ranges": "bytes"} | ({"Content-Range": f"bytes {first}-{stop - 1}/{size}"} if part else {})
            self._head(HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK, kind, stop - first, more)
            if self.command != "HEAD":
                self._copy(stream, first, stop - first)
        return None

    def _copy(self, stream: Any, first: int, count: int) -> None:
        stream.seek(first)
        try:
            while count and (chunk := stream.read(min(_CHUNK_BYTES, count))):
                self.wfile.write(chunk)
                count -= len(chunk)
            # a file that was cut short meanwhile: the client must not wait for what will not come
            self.close_connection = self.close_connection or count > 0
        except OSError:  # a browser that seeks leaves the old range half read; a slow one is dropped
            self.close_connection = True

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain", f"{text}\n".encode(), {})

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: Mapping[str, str]) -> None:
        self._head(status, f"{kind}; charset=utf-8", len(body), more)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: HTTPStatus, kind: str, length: int, more: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": kind, "Content-Length": str(length)} | dict(more)).items():
            self.send_header(name, value)
        self.end_headers()
