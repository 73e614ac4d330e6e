"""A full disk: one sentence, the right exit code, nothing half-written; where only the cache is full, work goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

from discover_parts import tiny_checkpoint, tiny_decoder, write_video

from stepformer import encoders
from stepformer.cli import main
from stepformer.core.checkpoint import save_checkpoint
from stepformer.errors import WriteError


@pytest.fixture
def full(tmp_path):
    """A folder on a file system of its own that has no byte left; needs to be root."""
    place = tmp_path / "full"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        with pytest.raises(OSError, match="No space"):
            (place / "filler").write_bytes(bytes(1 << 19))
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.fixture(autouse=True)
def product(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))
    tiny_checkpoint(tmp_path / "models" / "tiny.safetensors")
    monkeypatch.setenv("STEPFORMER_MODELS", str(tmp_path / "models"))
    monkeypatch.setenv("STEPFORMER_MODEL", "tiny")
    monkeypatch.setenv("STEPFORMER_NO_SPEECH", "1")
    monkeypatch.setitem(encoders.ENCODERS, "colours", "discover_parts:ColourEncoder")
    (tmp_path / "videos").mkdir()
    monkeypatch.chdir(tmp_path / "videos")
    for name in ("a.mp4", "b.mp4"):
        write_video(Path(name), [(220, 20, 20), (20, 30, 220)])


def test_results_that_cannot_be_written(full, capsys):
    assert main(["discover", ".", "--out", str(full / "out"), "--json", "--keep-going"]) == 5
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2  # found and printed, though not written
    assert "a.steps.json cannot be written: No space left on device" in err
    assert "0 done, 0 left as they were, 2 failed" in err and "Traceback" not in err
    assert not list((full / "out").iterdir())


def test_a_full_cache_costs_a_warning(full, monkeypatch, capsys):
    monkeypatch.setenv("STEPFORMER_CACHE", str(full / "cache"))
    assert main(["discover", ".", "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 2
    assert err.count("No space left on device") == 1 and "not kept" in err
    assert len(err.splitlines()) == 1


def test_a_store_on_a_full_disk_is_filled_once_there_is_room(full, capsys):
    store = str(full / "store")
    command = ["prepare", "features", ".", store, "--encoder", "colours", "--jobs", "1", "--no-text", "--json", "-q"]
    assert main(command) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    (full / "filler").unlink()
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["videos"] == 2


def test_weights_on_a_full_disk(full):
    """safetensors has an error of its own for what the system says."""
    with pytest.raises(WriteError, match=r"run.safetensors cannot be written: No space left on device"):
        save_checkpoint(full / "run.safetensors", tiny_decoder(), "colours")
    assert [path.name for path in full.iterdir()] == ["filler"]


def test_what_safetensors_says_of_the_system_is_a_write_error(tmp_path):
    from safetensors import SafetensorError

    from stepformer.base.files import replacing

    with (
        pytest.raises(WriteError, match=r"a.safetensors cannot be written: File too large"),
        replacing(tmp_path / "a.safetensors"),
    ):
        raise SafetensorError("Error while serializing: I/O error: File too large (os error 27)")
    with pytest.raises(SafetensorError), replacing(tmp_path / "a.safetensors"):
        raise SafetensorError("invalid shape")
    assert not list(tmp_path.glob("*.safetensors")) and not list(tmp_path.glob(".*"))
