"""``stepformer bench jobs``: whether several jobs discover the steps of small videos faster than one."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from stepformer.cli.measured import report
from stepformer.cli.options import add
from stepformer.media.container import probe

HELP = """Times `stepformer discover` over 24 pieces of a video, of 3 to 9 s, with one job and with --jobs in turn,
--repeats times: the medians, and whether the jobs are faster and find the same. Exit code 1 if they are not."""

EXAMPLES = ["stepformer bench jobs --jobs 4", "stepformer bench jobs talk.mp4 --jobs 2 --repeats 5"]

PIECES, PIECES_S = 24, (3.0, 5.0, 7.0, 9.0)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("video", nargs="?", type=Path, help="video to time (default: the longer demo video)")
    add(parser, "model", "repeats", "jobs", jobs=4)


def run(args: argparse.Namespace) -> int:
    """Times and prints."""
    from stepformer.base import weights

    with tempfile.TemporaryDirectory(prefix="stepformer-bench-") as folder:
        write_pieces(args.video or weights.pull("demo-video"), Path(folder))
        facts = compare_jobs(Path(folder), args.model, args.jobs, args.repeats)
    report(args, {"videos": f"{PIECES} of 3 to 9 s", **facts})
    return 0 if facts["same"] and facts["faster"] > 1.0 else 1


def write_pieces(video: Path, folder: Path, count: int = PIECES) -> None:
    """Small videos cut from a larger one, from its start on, and round again where it ends."""
    from stepformer.show.export.video import encode_clip

    start_s, whole_s = 0.0, probe(video).duration_s
    for number in range(count):
        length_s = min(PIECES_S[number % len(PIECES_S)], whole_s)
        if start_s + length_s > whole_s:
            start_s = 0.0
        encode_clip(video, folder / f"{number}.mp4", start_s, start_s + length_s)
        start_s += length_s


def compare_jobs(folder: Path, model: str, jobs: int, repeats: int) -> dict[str, Any]:
    """Seconds of ``stepformer discover`` over the videos of a folder with one job and with ``jobs``, each once in turn,
    so that other work on the machine changes both alike; whether they find the same; "faster", how many times."""
    took: dict[int, list[float]] = {1: [], jobs: []}
    found: dict[int, set[str]] = {}
    own = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}  # one job has all cores
    for _ in range(repeats):
        for count, times in took.items():
            command = [sys.executable, "-m", "stepformer", "discover", str(folder), "--model", model, "--no-cache"]
            command += ["--no-speech", "--json", "--quiet", "--jobs", str(count)]
            began = time.perf_counter()
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=own)
            times.append(time.perf_counter() - began)
            found[count] = set(done.stdout.splitlines())
    medians = {count: statistics.median(times) for count, times in took.items()}
    return {
        "seconds_with_one_job": medians[1], f"seconds_with_{jobs}_jobs": medians[jobs],
        "faster": medians[1] / medians[jobs], "same": found[1] == found[jobs],
    }  # fmt: skip
