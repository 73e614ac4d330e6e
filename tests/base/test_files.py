"""Atomic files: the old one or the new one, never a half."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepformer.base.files import check_place, no_such, replacing, sha256_of, write_bytes, write_json, write_text
from stepformer.errors import WriteError


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


def test_what_is_there_but_no_file_is_called_what_it_is(tmp_path):
    (tmp_path / "a.mp4").symlink_to("nowhere.mp4")
    assert str(no_such(tmp_path)) == f"{tmp_path} is not a file"
    said = f"{tmp_path / 'a.mp4'} is a link to a file that does not exist"
    assert str(no_such(tmp_path / "a.mp4")) == said
    assert str(no_such("a\0b")) == "there is no file a\0b"


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


@pytest.mark.parametrize("name", ["", ".", "\0", "a\0b.txt", "x" * 300, "folder"])
def test_a_name_that_no_file_can_have_is_a_sentence(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    with pytest.raises(WriteError, match="cannot be written"):
        write_text(name, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_where_no_file_can_be_is_said_in_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").touch()
    Path("link").symlink_to("nowhere")
    for name, why in (
        ("folder", "it is a folder"),
        ("file/a.txt", "file is not a folder"),
        ("link/b/a", "link is not a folder"),
    ):
        with pytest.raises(WriteError, match=f"^{name} cannot be written: {why}$"), replacing(name):
            raise AssertionError("the work is done")
    with pytest.raises(WriteError, match=r"^file cannot be written: file is not a folder$"):
        check_place("file", folder=True)
    check_place("folder", folder=True)
    for name in ("new", "file", "link", "folder/a/b", "\0", "x" * 300):
        check_place(name)


def test_a_long_name_still_has_a_temporary_one(tmp_path):
    path = tmp_path / ("n" * 240 + ".txt")
    write_text(path, "x")
    assert path.read_text() == "x"


def test_the_hash_of_a_file(tmp_path):
    data = os.urandom(3_000_000)
    write_bytes(tmp_path / "a", data)
    want = hashlib.sha256(data).hexdigest()
    assert sha256_of(tmp_path / "a") == want


WRITE_AND_WAIT = """
import sys, time
from stepformer.base.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary.name, flush=True)
    time.sleep(60)
"""


def test_what_a_killed_writer_left_is_taken_over_by_the_next(tmp_path):
    target = tmp_path / "a.json"
    write_text(target, "old")
    words = [sys.executable, "-c", WRITE_AND_WAIT, str(target)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        name = first.stdout.readline().strip()
        assert target.read_text() == "old"
        write_text(target, "of a second writer at the same time")
        assert (tmp_path / name).read_text() == "half"  # the first is at work: its file is its own
        first.kill()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([name, "a.json"])
    write_text(target, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"] and target.read_text() == "new"


def test_a_trap_in_a_shared_folder_is_not_stepped_into(tmp_path):
    private = tmp_path / "private.txt"
    private.write_text("mine")
    for trap in (Path.symlink_to, Path.hardlink_to):
        folder = tmp_path / trap.__name__
        folder.mkdir()
        trap(folder / ".a.partial.txt", private)
        write_text(folder / "a.txt", "new")
        assert (folder / "a.txt").read_text() == "new" and private.read_text() == "mine"
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / ".a.partial.txt")
    write_text(pipe / "a.txt", "new")
    assert (pipe / "a.txt").read_text() == "new"
