"""Damaged, huge and hostile files become one sentence."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import threading
import time
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepformer.base import guard
from stepformer.errors import InputError, StepFormerError, UsageError, WriteError
from stepformer.timeline import seconds


@pytest.mark.parametrize(
    "text",
    ["{", "NaN", "[Infinity]", "[" * 100_000, "[" * 300 + "]" * 300, '"\\ud800', "\xff"],
)
def test_json_that_is_none_is_one_sentence(text):
    with pytest.raises(InputError, match="x is not readable JSON"):
        guard.json_of(text.encode("latin-1"), "x")


def test_long_numbers_become_floats():
    assert guard.json_of("1" * 30, "x") == pytest.approx(1.1111e29, rel=1e-3)
    with pytest.raises(InputError, match="too large a number"):
        guard.json_of("9" * 5000, "x")
    with pytest.raises(InputError, match="too large a number"):
        guard.json_of("1e999", "x")


def test_json_keeps_what_is_fine(tmp_path):
    file = tmp_path / "a.json"
    file.write_bytes(gzip.compress(b'\xef\xbb\xbf{"a": [1, 2.5, "\xc3\xa4"]}'))
    assert guard.read_json(file) == {"a": [1, 2.5, "ä"]}


def test_a_gzip_bomb_is_refused_in_little_memory(tmp_path):
    file = tmp_path / "a.json.gz"
    file.write_bytes(gzip.compress(b" " * (600 << 20), 9))
    with pytest.raises(InputError, match="unpacks to more than"):
        guard.read_json(file)


@pytest.mark.parametrize("content", [b"{}", b"[" + b" " * 70_000 + b"]"])
def test_zeros_behind_a_gzip_file_cost_no_time(tmp_path, content):
    file = tmp_path / "a.json.gz"
    file.write_bytes(gzip.compress(content))
    os.truncate(file, 400 << 20)
    began = time.process_time()
    assert guard.read_json(file) in ({}, [])
    assert time.process_time() - began < 5
    for own in (b"", bytes(1000)):  # packed, both end with zeros
        assert guard.gunzip(gzip.compress(own, 0), "a") == own


@pytest.mark.parametrize("endless", [False, True])
def test_a_file_that_is_too_large_is_refused_in_little_memory(tmp_path, endless):
    file = tmp_path / "a.json"
    if endless:
        file.symlink_to("/dev/zero")
    else:
        file.touch()
        os.truncate(file, 50 << 30)
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"a\.json is larger than {64 if endless else 512} MiB"):
        guard.read_json(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (160 << 20 if endless else 1 << 20)


def test_a_small_file_takes_little_memory_however_large_it_might_be(tmp_path):
    file = tmp_path / "p.pkl"
    file.write_bytes(b"\x80\x04K\x01.")
    tracemalloc.start()
    assert guard.read_bytes(file, guard.ARRAY_BYTES) == file.read_bytes()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("text", ["[{}]", "{} = 1", "x = {{ {} = 1 }}", "x = {}"])
def test_toml_that_is_nested_too_deeply_is_one_sentence(text):
    began = time.process_time()
    with pytest.raises(InputError, match=r"a\.toml is not readable TOML"):
        guard.toml_of(text.format("a." * 20_000 + "b"), "a.toml")
    assert guard.toml_of('[tool.x]\ny.z = "1.2.3"', "a.toml") == {"tool": {"x": {"y": {"z": "1.2.3"}}}}
    assert time.process_time() - began < 5


@pytest.mark.parametrize("head", [b"<!DOCTYPE a [<!ENTITY b 'c'>]>", b""])
def test_xml_with_entities_or_depth_is_refused(head):
    deep = b"<a>" * 5000 + b"</a>" * 5000
    with pytest.raises(InputError, match="x is not readable XML"):
        guard.xml_of(head + (b"<a>&b;</a>" if head else deep), "x")
    assert guard.xml_of("<a><b/></a>", "x").tag == "a"


def test_arrays_are_believed_as_far_as_the_file_goes(tmp_path):
    file = tmp_path / "a.npy"
    np.save(file, np.arange(6.0).reshape(2, 3))
    assert guard.load_array(file).shape == (2, 3)
    data = file.read_bytes().replace(b"(2, 3)", b"(9, 9)")
    file.write_bytes(data)
    for mapped in (True, False):
        with pytest.raises(InputError, match="promises 648 bytes, but 48 follow"):
            guard.load_array(file, mapped)
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(InputError, match="never read"):
        guard.load_array(file)


def test_an_npz_bomb_is_refused(tmp_path):
    file = tmp_path / "a.npz"
    content = io.BytesIO()
    np.save(content, np.zeros(64 << 20, np.uint8))
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", content.getvalue())
    with pytest.raises(InputError, match="unpacks to"):
        guard.load_arrays(file)
    np.savez(file, a=np.arange(3), b=np.zeros((2, 2)))
    assert sorted(guard.load_arrays(file)) == ["a", "b"]


@given(st.binary(max_size=200))
def test_any_bytes_as_json_xml_and_arrays(data):
    for read in (guard.json_of, guard.xml_of):
        try:
            read(data, "x")
        except InputError as error:
            assert str(error).startswith("x is not")


@pytest.mark.parametrize("value", [-1, 1e15, float("nan"), "abc", None, 10**400])
def test_seconds_are_bounded(value):
    with pytest.raises(InputError, match="duration"):
        seconds(value, "duration")
    assert seconds("12.5", "duration") == 12.5


def crash(_path):
    os.kill(os.getpid(), 11)


def hang(_path):
    time.sleep(60)


def grow(_path):
    return len(bytearray(8 << 30))


def refuse(path):
    raise UsageError(f"{path} again")


def works(path):
    return {"a": path}


def test_a_reader_in_a_process_of_its_own_cannot_take_us_with_it():
    assert guard.in_process(works, "f.mat", what="f.mat") == {"a": "f.mat"}
    with pytest.raises(InputError, match=r"f\.mat is damaged"):
        guard.in_process(crash, "f.mat", what="f.mat")
    with pytest.raises(InputError, match=r"within 0\.5 s"):
        guard.in_process(hang, "f.mat", what="f.mat", time_s=0.5)
    with pytest.raises(InputError, match="more memory"):
        guard.in_process(grow, "f.mat", what="f.mat")
    with pytest.raises(StepFormerError, match=r"f\.mat again"):
        guard.in_process(refuse, "f.mat", what="f.mat")


def test_a_pipe_is_read_and_one_that_gives_nothing_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(guard, "PIPE_S", 0.2)
    os.mkfifo(tmp_path / "a.json")
    with pytest.raises(InputError, match="gives nothing"):
        guard.read_json(tmp_path / "a.json")
    monkeypatch.setattr(guard, "PIPE_S", 30.0)
    writer = threading.Thread(target=(tmp_path / "a.json").write_text, args=('{"a": 1}',))
    writer.start()
    assert guard.read_json(tmp_path / "a.json") == {"a": 1}
    writer.join()
    assert "processor" in guard.read_text("/proc/cpuinfo")  # says that it is empty
    with pytest.raises(InputError, match="larger than 1 MiB"):
        guard.read_bytes("/dev/zero", 1 << 20)


@pytest.mark.parametrize(
    "name", ["a.npy", "a.npz", "a.tar", "a.safetensors", "a.json", "c.safetensors", "shard", "spooled", "p.csv"]
)
def test_nobody_waits_for_a_pipe_or_an_empty_file_of_the_system(tmp_path, name):
    """Opening a pipe waits for a writer, /proc/kmsg for the next message: neither is a file of arrays."""
    from stepformer.cli.evaluate import read_any
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.data.precomputed import read_features
    from stepformer.data.store import _Shard, _spooled
    from stepformer.narration.readers.structured import iter_captions

    path = tmp_path / name
    read = {
        "a.tar": lambda p: list(guard.tar_files(p)),
        "a.json": lambda p: list(iter_captions(p)),
        "c.safetensors": load_checkpoint,
        "shard": _Shard,
        "spooled": _spooled,
        "p.csv": lambda p: read_any(p, 1.0),
    }.get(name, read_features)
    os.mkfifo(path)
    with pytest.raises(InputError, match="is a device or a pipe"):
        read(path)
    path.unlink()
    path.touch()  # as long as /proc/kmsg says that it is
    with pytest.raises(InputError, match="is empty"):
        read(path)


def test_a_store_whose_index_is_a_pipe_is_not_waited_for(tmp_path):
    from stepformer.data.store import index_lines

    os.mkfifo(tmp_path / "index.jsonl")
    assert list(index_lines(tmp_path / "index.jsonl")) == []


def test_a_store_whose_index_never_ends_a_line_is_refused_in_little_memory(tmp_path):
    from stepformer.data.store import index_lines

    index = tmp_path / "index.jsonl"
    index.write_bytes(b'{"id": "a"}\n')
    os.truncate(index, 50 << 30)
    tracemalloc.start()
    with pytest.raises(InputError, match="a line of more than 64 MiB"):
        list(index_lines(index))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200 << 20


@pytest.mark.parametrize("kind", [InputError, WriteError])
def test_an_error_that_quotes_much_of_a_file_is_still_a_sentence(kind):
    said = str(kind(f"a.csv: line 1: {'x' * 100_000}; give another file"))
    assert len(said) < 1500 and said.startswith("a.csv: line 1: x") and said.endswith("; give another file")
    assert str(kind("a.csv has the columns a\nb, c\r\n")) == "a.csv has the columns a b, c"
    assert str(pickle.loads(pickle.dumps(kind("short")))) == "short"  # as it goes from process to process


def test_a_video_that_vanishes_while_it_is_read_is_one_sentence(tmp_path):
    from stepformer.media.container import bearable_s

    with pytest.raises(InputError, match=r"there is no file .*gone\.mp4"):
        bearable_s(tmp_path / "gone.mp4")
