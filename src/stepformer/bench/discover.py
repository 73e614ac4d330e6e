"""``stepformer bench discover``: where the time goes when steps are discovered."""

from __future__ import annotations

import argparse
import math
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
from stepformer.media.container import copy_packets, opened, probe, video_stream

HELP = """Times discovery part by part, for a minute of video: decode, encode, model (slots), align (cutting into
steps), label (naming). A video shorter than --seconds is repeated up to that length, because short videos are sampled
more densely. Times are medians; a first run to warm up is not counted, and nothing comes from the cache. Processor time
is printed beside wall-clock time, because other work on the machine hardly changes it; "start" is the processor time of
a new process until it can begin. Everything after encoding must take less than a hundredth of the total."""

EXAMPLES = [
    "stepformer bench discover",
    "stepformer bench discover --seconds 180 --repeats 1",
    "stepformer bench discover talk.mp4 --repeats 5 --json",
]

PARTS = ("decode", "encode", "model", "align", "label")
LIMIT = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("video", nargs="?", type=Path, help="video to time (default: the longer demo video)")
    add(parser, "model", "repeats", "seconds", seconds=60.0)


def measure(model: Any, video: Path, repeats: int) -> dict[str, float]:
    """Median seconds per minute of video: of each part, and "processor", of all of them on all cores."""
    from stepformer.encoders.reading import encode_file

    runs: list[dict[str, float]] = []
    for _ in range(repeats + 1):
        worked = time.process_time()
        spent = model.find(encode_file(video, model.encoder)).seconds
        runs.append({part: spent[part] for part in PARTS} | {"processor": time.process_time() - worked})
    minutes = probe(video).duration_s / 60.0
    return {part: statistics.median(run[part] for run in runs[1:]) / minutes for part in runs[0]}


def long_enough(video: Path, seconds: float, folder: Path) -> Path:
    """The video, or a file in ``folder`` in which its pictures are shown again and again for ``seconds``."""
    import av

    duration_s = probe(video).duration_s
    if duration_s >= seconds:
        return video
    target = folder / f"{video.stem}-{seconds:g}s.mkv"
    with av.open(str(target), "w") as outside:
        track = None
        for turn in range(math.ceil(seconds / duration_s)):
            with opened(video) as inside:
                source = video_stream(inside, video)
                track = track or outside.add_stream_from_template(source)
                copy_packets(inside.demux(source), outside, {source.index: track}, turn * duration_s)
    return target


def start_s(model: str) -> float:
    """Processor seconds of a new process that loads the model and its encoder, with one thread as pictures are encoded:
    several that wait for each other on a busy machine would count their waiting."""
    code = (
        "import sys, time, numpy, torch; from stepformer import load_model; torch.set_num_threads(1); "
        "encoder = load_model(sys.argv[1]).encoder; "
        "spec = encoder.wants; shape = (1, *([] if spec.frames == 1 else [spec.frames]), *spec.size, 3); "
        "encoder.encode_video(numpy.zeros(shape, numpy.uint8)); print(time.process_time())"
    )
    return float(subprocess.run([sys.executable, "-c", code, model], check=True, capture_output=True, text=True).stdout)


def run(args: argparse.Namespace) -> int:
    from stepformer.app.discover.loading import load_model
    from stepformer.base import weights

    video = args.video or weights.pull("demo-video")
    model = load_model(args.model)
    with tempfile.TemporaryDirectory(prefix="stepformer-bench-") as folder:
        whole = long_enough(video, args.seconds, Path(folder))
        info = probe(whole)
        parts = measure(model, whole, args.repeats)
    processor, start = parts.pop("processor"), start_s(args.model)
    total = sum(parts.values())
    rest = sum(parts[part] for part in ("model", "align", "label")) / total
    cores = os.cpu_count() or 1
    facts = {
        "video": f"{video.name}, {info.height}p, {info.duration_s:.1f} s read",
        "encoder": model.encoder.name,
        "model": model.checkpoint.hash,
        "seconds_per_minute": {**parts, "all": total},
        "times_real_time": 60 / total,
        "processor_s_per_minute": processor,
        "times_real_time_on_idle_cores": 60 * cores / processor,
        "start_processor_s": start,
        "cores": cores,
        "rest": rest,
    }
    verdict = "under" if rest < LIMIT else "NOT under"
    report(args, facts, verdict=f"model, align and label: {100 * rest:.2f}%, {verdict} the limit of {100 * LIMIT:g}%")
    return 0 if rest < LIMIT else 1
