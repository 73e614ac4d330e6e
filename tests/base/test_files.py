"""Atomic files: the old one or the new one, never a half."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from stepformer.base.files import replacing, sha256_of, write_bytes, write_json, write_text


def test_the_old_file_stays_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "folder" / "a.json"
    with replacing(path) as temporary:
        assert temporary.parent == path.parent and temporary.suffix == ".json"  # same disk, same format
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    with replacing(path) as temporary:
        temporary.write_text("newer")
        assert path.read_text() == "new"
    assert path.read_text() == "newer"
    assert [p.name for p in path.parent.iterdir()] == ["a.json"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_on_the_way_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    script = (
        "import sys, time\nfrom stepformer.base.files import replacing\n"
        "with replacing(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half')\n    print('half way', flush=True)\n    time.sleep(60)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "half way\n"
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    finally:
        process.kill()
        process.stdout.close()
    assert path.read_text() == "old"
    left = [p for p in tmp_path.iterdir() if p != path]
    assert len(left) == 1 and left[0].name.startswith(".a.") and ".partial" in left[0].name


def test_the_file_has_the_permissions_of_any_new_file(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("x")
    write_text(tmp_path / "ours", "x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)


def test_a_reader_never_sees_a_half(tmp_path):
    path = tmp_path / "a.bin"
    sizes = (10, 500_000)
    write_bytes(path, b"x" * sizes[0])
    script = (
        "import sys\nfrom stepformer.base.files import write_bytes\n"
        "for i in range(60): write_bytes(sys.argv[1], b'x' * (500_000 if i % 2 else 10))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(path)])
    try:
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            assert len(path.read_bytes()) in sizes
    finally:
        process.kill()
        process.wait()


def test_text_is_utf8_with_plain_line_ends_and_json_is_readable(tmp_path):
    write_text(tmp_path / "a", "é\nb\n")
    assert (tmp_path / "a").read_bytes() == "é\nb\n".encode()
    write_json(tmp_path / "b.json", {"name": "crème"})
    assert (tmp_path / "b.json").read_text("utf-8") == '{\n  "name": "crème"\n}\n'


def test_a_long_name_still_has_a_temporary_one(tmp_path):
    path = tmp_path / ("n" * 240 + ".txt")
    write_text(path, "x")
    assert path.read_text() == "x"


def test_the_hash_of_a_file_or_a_stream(tmp_path):
    data = os.urandom(3_000_000)
    write_bytes(tmp_path / "a", data)
    want = hashlib.sha256(data).hexdigest()
    assert sha256_of(tmp_path / "a") == sha256_of(io.BytesIO(data)) == want
