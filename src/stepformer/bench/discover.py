"""``stepformer bench discover``: where the time goes when steps are discovered.

With ``--cold``: a new process per run, from its start to its result, nothing from the cache. The reference, in the same
run, decodes and encodes every frame one after the other; the floor decodes alone, no more than discovery looks at.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

from stepformer.cli.log import log
from stepformer.cli.measured import report
from stepformer.cli.options import Several, add, numbers
from stepformer.errors import UsageError
from stepformer.media.container import copy_packets, opened, probe, video_stream

HELP = """Times discovery part by part, for a minute of video: decode, encode, model (slots), align (cutting into
steps), label (naming). A video shorter than --seconds is repeated up to that length, because short videos are sampled
more densely. Times are medians; a first run to warm up is not counted, and nothing comes from the cache. Processor time
is printed beside wall-clock time, because other work on the machine hardly changes it; "start" is the processor time of
a new process until it can begin. Everything after encoding must take less than a hundredth of the total.

With --cold, each run is a new process, as `stepformer discover VIDEO --no-cache` starts it. In turns with it, in the
process that runs already: every frame decoded and encoded one after the other (5 s of it, counted for all of the
video), and decoding alone."""

EXAMPLES = [
    "stepformer bench discover",
    "stepformer bench discover --seconds 180 --repeats 1",
    "stepformer bench discover talk.mp4 --repeats 5 --json",
    "stepformer bench discover --cold --heights 144 360 540 1080 --seconds 240 --json > cold.json",
]

PARTS = ("decode", "encode", "model", "align", "label")
LIMIT = 0.01
_REFERENCE_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("video", nargs="?", type=Path, help="video to time (default: the longer demo video)")
    add(parser, "model", "repeats", "seconds", seconds=60.0)
    parser.add_argument("--cold", action="store_true", help="a new process per run, against every frame in turn")
    parser.add_argument(
        "--heights", action=Several, type=numbers, nargs="+", metavar="N",
        help="with --cold: make the video so many lines high first (default: as it is)",
    )  # fmt: skip


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


def resized(video: Path, height: int, folder: Path) -> Path:
    """The video, or a copy in ``folder`` that is so many lines high, without sound."""
    import av

    from stepformer.media import VideoReader

    info = probe(video)
    if height == info.height:
        return video
    width, rate_hz = 2 * round(info.width * height / info.height / 2), info.rate_hz or 25.0
    target = folder / f"{video.stem}-{height}p.mkv"
    with av.open(str(target), "w") as outside:
        # no picture that waits for a later one: copies are joined end to end
        track = outside.add_stream("libx264", rate=Fraction(rate_hz).limit_denominator(1001), options={"bf": "0"})
        track.width, track.height, track.pix_fmt = width, height, "yuv420p"
        for _, _, picture in VideoReader(video).seconds(rate_hz, (height, width), "fit"):
            outside.mux(track.encode(av.VideoFrame.from_ndarray(picture, "rgb24")))
        outside.mux(track.encode())
    return target


def measure_cold(model: Any, name: str, video: Path, repeats: int) -> dict[str, Any]:
    """Median seconds of a new process, beside the reference and the floor; "ratio": reference to process, "to_floor":
    process to floor."""
    from stepformer.core.evidence import looks_hz
    from stepformer.media import VideoReader

    info, encoder = probe(video), model.encoder
    command = [sys.executable, "-m", "stepformer", "discover", str(video), "--model", name]

    def process() -> None:
        subprocess.run([*command, "--no-cache", "--quiet", "--json"], check=True, stdout=subprocess.DEVNULL)

    def decode() -> None:
        for _ in VideoReader(video).clips(encoder.wants, looks_hz(info.duration_s, encoder.rate_hz)):
            pass

    rate_hz = info.rate_hz or 25.0
    frames = max(1, round(min(_REFERENCE_S, info.duration_s) * rate_hz))

    def every_frame() -> None:
        for clip in itertools.islice(VideoReader(video).clips(encoder.wants, rate_hz, batch=1), frames):
            encoder.encode_video(clip)

    taken: dict[Callable[[], None], list[tuple[float, float]]] = {process: [], decode: [], every_frame: []}
    for _ in range(repeats):
        for work, times in taken.items():  # in turns, so that other work on the machine weighs on all
            began, worked = time.perf_counter(), _children_s()
            work()
            times.append((time.perf_counter() - began, _children_s() - worked))
    cold_s, floor_s, some_s = (statistics.median(wall for wall, _ in times) for times in taken.values())
    reference_s = some_s * info.duration_s * rate_hz / frames
    return {
        "height": info.height,
        "video_s": info.duration_s,
        "cold_s": cold_s,
        "times_real_time": info.duration_s / cold_s,
        "processor_s": statistics.median(worked for _, worked in taken[process]),
        "reference_s": reference_s,
        "ratio": reference_s / cold_s,
        "floor_s": floor_s,
        "to_floor": cold_s / floor_s,
    }


def _children_s() -> float:
    """Processor seconds of the processes that this one started and that have ended."""
    spent = os.times()
    return spent.children_user + spent.children_system


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
    if args.heights and not args.cold:
        raise UsageError("--heights works only with --cold")
    if args.cold:
        return _cold(args, model, video)
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


def _cold(args: argparse.Namespace, model: Any, video: Path) -> int:
    rows = []
    with tempfile.TemporaryDirectory(prefix="stepformer-bench-") as folder:
        for height in args.heights or [probe(video).height]:
            whole = long_enough(resized(video, height, Path(folder)), args.seconds, Path(folder))
            rows.append(measure_cold(model, args.model, whole, args.repeats))
            log.info("%dp: %.1f s", height, rows[-1]["cold_s"])  # those that follow may take long
    facts = {
        "video": video.name,
        "encoder": model.encoder.name,
        "model": model.checkpoint.hash,
        "repeats": args.repeats,
        "cores": os.cpu_count() or 1,
        "load": os.getloadavg()[0],  # of other work too
    }
    report(args, facts, rows)
    return 0
