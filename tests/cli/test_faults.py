"""Full and read-only disks, two writers, clocks that go back: one sentence, the right exit code, nothing half-written.

Where only the cache cannot be written, work goes on.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "training"))
sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))

import discover_parts
from discover_parts import tiny_checkpoint, tiny_decoder, write_video
from training_runs import make_store

from stepformer import Step, Timeline, encoders
from stepformer.cli import main
from stepformer.core.checkpoint import save_checkpoint
from stepformer.errors import InputError, WriteError
from stepformer.show.export import write


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


@pytest.fixture
def read_only(tmp_path):
    """A folder that even root may not write to: a file system mounted read-only, with a copy of the videos."""
    place = tmp_path / "read_only"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(place)], check=False, capture_output=True).returncode:
        pytest.skip("no file system may be mounted here")
    try:
        shutil.copytree(tmp_path / "videos", place / "videos")
        subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
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
    assert "0 done, 0 skipped, 2 failed" in err and "Traceback" not in err
    assert not list((full / "out").iterdir())


def test_a_full_cache_costs_a_warning(full, monkeypatch, capsys):
    monkeypatch.setenv("STEPFORMER_CACHE", str(full / "cache"))
    assert main(["discover", ".", "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    assert len([json.loads(line) for line in out.splitlines()]) == 2
    assert err.count("No space left on device") == 1 and "not cached" in err
    assert len(err.splitlines()) == 1


def test_a_store_on_a_full_disk_is_filled_once_there_is_room(full, capsys):
    store = str(full / "store")
    command = ["prepare", "features", ".", store, "--encoder", "colours", "--jobs", "1", "--no-text", "--json", "-q"]
    assert main(command) == 1
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    (full / "filler").unlink()
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["videos"] == 2


def test_an_index_on_a_full_disk_is_made_once_there_is_room(full, capsys):
    (full / "filler").unlink()
    shutil.copy("a.mp4", full)
    with pytest.raises(OSError, match="No space"):
        (full / "filler").write_bytes(bytes(1 << 19))
    assert main(["search", str(full), "--update", "-q"]) == 1
    assert "000001/steps.usearch cannot be written" in capsys.readouterr().err
    (full / "filler").unlink()
    assert main(["search", str(full), "--update", "-q"]) == 0
    assert [path.name for path in (full / ".stepformer-search").glob("0*")] == ["000002"]


def test_weights_on_a_full_disk(full):
    """safetensors has an error of its own for what the system says."""
    with pytest.raises(WriteError, match=r"run.safetensors cannot be written: No space left on device"):
        save_checkpoint(full / "run.safetensors", tiny_decoder(), "colours")
    assert [path.name for path in full.iterdir()] == ["filler"]


def test_a_copy_with_chapters_that_is_too_large_is_called_by_its_name():
    write(Timeline("a.mp4", 8.0, (Step(0, 1, "a"),)), "t.json")
    command = f"ulimit -f 2; exec {sys.executable} -m stepformer export t.json with.mp4 --video a.mp4"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "stepformer: with.mp4 cannot be written: File too large\n")
    assert not [path for path in Path().iterdir() if "with" in path.name]


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


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["discover", "a.mp4", "--out", "{}/out"], 1),
        (["discover", ".", "--out", "{}", "--keep-going"], 5),
        (["prepare", "features", ".", "{}/store", "--encoder", "colours", "--jobs", "1", "--no-text"], 1),
        (["search", "{}/videos", "--update"], 1),
        (["export", "t.json", "{}/t.vtt", "{}/t.mkv", "--video", "a.mp4"], 1),
        (["train", "--config", "run.toml", "--out", "{}/run", "--device", "cpu"], 1),
        (["models", "pull", "minilm"], 1),
    ],
)
def test_a_folder_that_may_not_be_written_is_one_sentence(read_only, tmp_path, monkeypatch, capsys, command, code):
    if command[0] == "models":
        monkeypatch.setenv("STEPFORMER_CACHE", str(read_only / "cache"))
    if command[0] == "train":
        make_store(tmp_path / "stored")
        small = "[model]\nlayers = 1\nheads = 1\ndim = 8\nfeedforward = 8\nslots = 3\n"
        Path("run.toml").write_text(f'steps = 1\nbatch = 2\n{small}[data]\nstore = "{tmp_path / "stored"}"\n')
    write(Timeline("a.mp4", 2.0, (Step(0, 1, "a"),)), "t.json")
    assert main([part.format(read_only) for part in command]) == code
    out, err = capsys.readouterr()
    assert "Read-only file system" in err and "Traceback" not in out + err


def test_a_read_only_cache_costs_a_warning_and_read_only_videos_nothing(read_only, monkeypatch, capsys):
    monkeypatch.setenv("STEPFORMER_CACHE", str(read_only / "cache"))
    assert main(["discover", str(read_only / "videos"), "--json", "-q"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert err.count("Read-only file system") == 1 and len(err.splitlines()) == 1


def at_once(*commands):
    """The exit codes and messages of commands that run at the same time, each in a process of its own."""
    place = str(Path(discover_parts.__file__).parent)  # wherever other test files have put it in sys.path
    parts = f"import sys; sys.path.insert(0, {place!r}); from discover_parts import ColourEncoder\n"
    Path("colours.py").write_text(
        parts + "from stepformer import encoders; encoders.ENCODERS['colours'] = ColourEncoder\n"
    )
    words = [[sys.executable, "-m", "stepformer", *command, "--plugin", "colours.py"] for command in commands]
    clean = {name: value for name, value in os.environ.items() if name != "STEPFORMER_PLUGINS"}
    running = [
        subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean) for one in words
    ]
    said = [process.communicate(timeout=300) for process in running]
    return [process.returncode for process in running], said


def test_two_writers_of_the_same_results(tmp_path):
    """Both find and write the same; the last one wins, and nothing is half-written or left behind."""
    both = ["discover", ".", "--out", "out", "--no-labels", "--encoder", "colours", "--overwrite"]
    codes, said = at_once(both, both)
    assert codes == [0, 0], said
    for name in ("a", "b"):
        assert len(Timeline.from_json(Path("out", f"{name}.steps.json").read_text())) > 0
    left = [path for place in (Path("out"), tmp_path / "cache") for path in place.rglob("*partial*")]
    assert not left


def test_two_writers_of_one_store_or_index_take_turns_or_are_told():
    prepare = ["prepare", "features", ".", "store", "--encoder", "colours", "--no-text", "--jobs", "1", "--json"]
    codes, said = at_once(prepare, prepare)
    assert sorted(codes) in ([0, 0], [0, 3]), said  # the second came when the first was done, or was told to wait
    assert all("another process is writing to store" in err for code, (_, err) in zip(codes, said, strict=True) if code)
    update = ["search", ".", "--update", "--encoder", "colours", "--json"]
    codes, said = at_once(update, update)
    assert codes == [0, 0], said
    assert sorted(json.loads(out)["update"]["added"] for out, _ in said) == [0, 4]  # files and the store


def test_two_trainings_into_one_folder_are_not_mixed(tmp_path):
    from stepformer.app.training import make_trainer
    from stepformer.base.files import lock_folder
    from stepformer.core.config import make_config

    make_store(tmp_path / "stored")
    small = {"layers": 1, "heads": 1, "dim": 8, "feedforward": 8, "slots": 3}
    config = make_config({"steps": 1, "batch": 2, "model": small, "data": {"store": str(tmp_path / "stored")}})
    trainer = make_trainer(config, tmp_path / "run", device="cpu", quiet=True)
    (tmp_path / "run").mkdir(exist_ok=True)
    with lock_folder(tmp_path / "run"), pytest.raises(InputError, match="another process is writing"):
        trainer.run()
    trainer.run()


def test_a_clock_that_goes_back_gives_no_old_result(capsys):
    """Another video of the same name, size and time of change, as a clock that was set back can make it."""
    write_video(Path("c.mp4"), [(20, 200, 30), (250, 250, 30), (20, 30, 220)])
    size = max(Path(name).stat().st_size for name in ("a.mp4", "c.mp4"))
    for name in ("a.mp4", "c.mp4"):
        os.truncate(name, size)
    assert main(["discover", "a.mp4", "--json", "-q"]) == 0
    first, before = json.loads(capsys.readouterr().out), Path("a.mp4").stat()
    Path("a.mp4").write_bytes(Path("c.mp4").read_bytes())
    os.utime("a.mp4", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert main(["discover", "a.mp4", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] != first["steps"]


def test_a_clock_that_is_behind_does_not_stop_what_goes_on(monkeypatch, capsys):
    """Limits, locks and progress count by a clock that cannot be set; files from the future are files."""
    for path in Path().iterdir():
        os.utime(path, (4e9, 4e9))
    monkeypatch.setattr(time, "time", lambda: 1e9)
    assert main(["search", ".", "--update", "--json", "-q"]) == 0
    assert main(["search", ".", "--update", "--json", "-q"]) == 0
    found = capsys.readouterr().out
    assert json.loads(found[found.rindex('{\n  "folder"') :])["update"]["kept"] == 2
