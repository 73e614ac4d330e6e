"""Commands killed at random moments and started again: what was finished stays, nothing is done twice or half-written.

    python tests/fuzz/kills.py --kills 200

``discover`` over a folder, ``prepare features`` and ``train`` run in forked processes (so that a start takes no import)
and get SIGKILL at a moment drawn from the length of an undisturbed run. When one comes to its end in spite of that, its
results are compared with those of the undisturbed run and it starts from nothing again. Exits with 1 if anything was
lost, repeated or differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1"}  # threads do not survive a fork
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "app" / "discover"), str(HERE.parent / "core" / "training")]

import matplotlib.pyplot  # noqa: F401 - imported once here, not by each run anew; so are the next two
import numba  # noqa: F401
import numpy as np
import torch._dynamo  # noqa: F401
from discover_parts import ColourEncoder, tiny_checkpoint, write_video
from training_runs import SMALL, make_store, rows, same_files

from stepformer import Timeline, encoders
from stepformer.app.training import make_trainer  # noqa: F401
from stepformer.cli import main as stepformer
from stepformer.data.store import INDEX_FILE, FeatureStore
from stepformer.data.store_writer import spool_path

VIDEOS = 6


class Noted(ColourEncoder):
    """Notes which video it encodes: each has a colour of its own."""

    name = fingerprint = "noted"
    notes = ""

    def encode_video(self, frames):
        with open(self.notes, "a") as file:  # noqa: PTH123
            file.write(f"v{round(float(frames[0, 0, 0, 0]) / 40)}\n")
        return super().encode_video(frames)


@dataclass
class Scene:
    """One command: its arguments, what of its work is finished, and how its results differ from the undisturbed."""

    name: str
    inputs: Path

    def arguments(self, place: Path) -> list[str]:
        raise NotImplementedError

    def finished(self, place: Path) -> set[str]:
        return set()

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        raise NotImplementedError


class Discover(Scene):
    def arguments(self, place: Path) -> list[str]:
        return ["discover", str(self.inputs / "videos"), "--out", str(place / "out"), "--skip-existing", "--no-labels"]

    def finished(self, place: Path) -> set[str]:
        return {path.name.partition(".")[0] for path in (place / "out").glob("*.steps.json")}

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        found = []
        for path in (place / "out").glob("*.steps.json"):
            if Timeline.from_json(path.read_text()) != Timeline.from_json(
                (undisturbed / "out" / path.name).read_text()
            ):
                found.append(f"{path.name} differs")
        missing = self.finished(undisturbed) - self.finished(place) if ended else set()
        return found + [f"{name} is missing" for name in missing]


class Prepare(Scene):
    def arguments(self, place: Path) -> list[str]:
        store = str(place / "store")
        return [
            "prepare",
            "features",
            str(self.inputs / "videos"),
            store,
            "--encoder",
            "noted",
            "--jobs",
            "1",
            "--no-text",
        ]

    def finished(self, place: Path) -> set[str]:
        index = place / "store" / INDEX_FILE
        lines = index.read_text().splitlines(keepends=True) if index.exists() else []
        packed = {json.loads(line)["id"] for line in lines if line.endswith("\n")}
        names = (f"v{i}" for i in range(1, VIDEOS + 1))
        return packed | {name for name in names if spool_path(place / "store", name).exists()}

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        if not ended:
            return []
        found = []
        store, good = FeatureStore(place / "store"), FeatureStore(undisturbed / "store")
        if sorted(store.ids) != sorted(good.ids):
            found.append(f"videos {sorted(store.ids)}")
        if len((place / "store" / INDEX_FILE).read_text().splitlines()) != len(good.ids):
            found.append("a video is there twice")
        found += [
            f"{name} differs" for name in store.ids if not np.array_equal(store[name].features, good[name].features)
        ]
        left = [path for path in (place / "store").rglob("*") if "partial" in path.name or path.parent.name == "spool"]
        return found + [f"{path.name} is left behind" for path in left]


class Train(Scene):
    def arguments(self, place: Path) -> list[str]:
        going_on = ["--resume"] if (place / "run" / "state.safetensors").exists() else []
        return [
            "train",
            "--config",
            str(self.inputs / "run.toml"),
            "--out",
            str(place / "run"),
            "--device",
            "cpu",
            *going_on,
        ]

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        if not ended:
            return []
        found = [] if same_files(place / "run", undisturbed / "run", "last.safetensors") else ["the weights differ"]
        steps = [row["step"] for row in rows(place / "run") if "loss" in row]
        good = [row["step"] for row in rows(undisturbed / "run") if "loss" in row]
        return found + ([] if steps == good else [f"steps logged: {steps}"])


@dataclass
class Tally:
    """What a loop found."""

    kills: int = 0
    ends: int = 0
    lost: int = 0
    repeated: int = 0
    faults: list[str] = field(default_factory=list)


def make_inputs(folder: Path) -> None:
    """Six videos of a colour each, a tiny model, a small training run."""
    (folder / "videos").mkdir(parents=True)
    for i in range(1, VIDEOS + 1):
        write_video(folder / "videos" / f"v{i}.mp4", [(40 * i, 20, 20), (40 * i, 200, 90)], seconds_each=2)
    tiny_checkpoint(folder / "models" / "tiny.safetensors")
    make_store(folder / "stored")
    sections = {key: dict(value) for key, value in SMALL.items() if isinstance(value, dict)}
    sections["data"] = {"store": str(folder / "stored"), "held_out": 0.3, "max_frames": 25}
    lines = [
        f"{key} = {json.dumps(value)}" for key, value in (SMALL | {"save_every": 1}).items() if key not in sections
    ]
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    (folder / "run.toml").write_text("\n".join(lines) + "\n")


def started(scene: Scene, place: Path) -> int:
    """The id of a process that runs the command."""
    place.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return child
    os.setsid()
    os.environ["STEPFORMER_CACHE"] = str(place / "cache")
    Noted.notes = str(place / "notes")
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 99
    try:
        code = stepformer([*scene.arguments(place), "--quiet"])
    finally:
        os._exit(code)


def noted(place: Path) -> list[str]:
    """The videos encoded so far, in order."""
    return (place / "notes").read_text().split() if (place / "notes").exists() else []


def loop(kills: int, folder: Path, seed: int = 0) -> Tally:
    """Kills the three commands in turn until there were so many kills."""
    chance = random.Random(seed)
    make_inputs(folder / "inputs")
    os.environ |= {"STEPFORMER_MODELS": str(folder / "inputs" / "models"), "STEPFORMER_MODEL": "tiny"}
    os.environ |= {"STEPFORMER_NO_SPEECH": "1", "STEPFORMER_ENCODER": "noted"}
    encoders.ENCODERS["noted"] = Noted
    tally = Tally()
    scenes = [kind(kind.__name__.lower(), folder / "inputs") for kind in (Discover, Prepare, Train)]
    lengths = {}
    with contextlib.redirect_stdout(io.StringIO()):  # here too: what it imports, all forks have
        os.environ["STEPFORMER_CACHE"], Noted.notes = str(folder / "cache"), str(folder / "notes")
        for scene in scenes[:2]:  # training leaves threads behind, so of that only what it imports
            stepformer([*scene.arguments(folder / "first"), "--quiet"])
    for scene in scenes:
        began = time.monotonic()
        _, status = os.waitpid(started(scene, folder / scene.name / "undisturbed"), 0)
        lengths[scene.name] = time.monotonic() - began
        if status:
            raise RuntimeError((folder / scene.name / "undisturbed" / "said").read_text())
    attempt = {scene.name: 0 for scene in scenes}
    for scene in itertools.cycle(scenes):
        if tally.kills >= kills:
            return tally
        place = folder / scene.name / str(attempt[scene.name])
        before, encoded = scene.finished(place), len(noted(place))
        child = started(scene, place)
        time.sleep(chance.uniform(0.0, 0.9) * lengths[scene.name])
        done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            tally.kills += 1
        elif status:
            tally.faults.append(
                f"{scene.name}: exit {os.waitstatus_to_exitcode(status)}: {(place / 'said').read_text()}"
            )
        tally.lost += len(before - scene.finished(place))
        tally.repeated += sum(video in before for video in noted(place)[encoded:])
        wrong = scene.faults(place, folder / scene.name / "undisturbed", bool(done))
        tally.faults += [f"{scene.name}: {text}" for text in wrong]
        if done:
            tally.ends += 1
            attempt[scene.name] += 1
            shutil.rmtree(place)
    return tally


def main() -> int:
    """Runs the loop and prints what it found as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        tally = loop(args.kills, Path(place), args.seed)
    print(json.dumps(tally.__dict__))
    return 1 if tally.lost or tally.repeated or tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
