"""``stepformer bench discover``: where the time goes when steps are discovered."""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from stepformer.cli.options import add

HELP = """Times discovery, part by part, and scales it to a minute of video: decode, encode, model (slots), align
(cutting into steps), label (naming). The first run warms up and is not counted; nothing is taken from what was kept
before. Everything after encoding must take less than a hundredth of the whole."""

EXAMPLES = ["stepformer bench discover", "stepformer bench discover talk.mp4 --repeats 5 --json"]

PARTS = ("decode", "encode", "model", "align", "label")
LIMIT = 0.01


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("video", nargs="?", type=Path, help="video to time (default: the longer demo video)")
    add(parser, "model", "repeats", "seconds", seconds=60.0)


def measure(model: Any, video: Path, repeats: int, seconds: float) -> tuple[dict[str, float], float]:
    """Median seconds of each part for a minute of video, and how many seconds of video were read.

    A video shorter than ``seconds`` is read whole; then its features are repeated to a minute, so that model,
    alignment and naming are timed at the length they are told for.
    """
    import numpy as np

    from stepformer.encoders.reading import Features, encode_file

    runs: list[dict[str, float]] = []
    read_s = 0.0
    for number in range(repeats + 1):
        if number <= 1 or repeats <= 3:
            features = encode_file(video, model.encoder, rate_hz=model.encoder.rate_hz)
        read_s = features.duration_s
        length = max(1, round(seconds * features.rate_hz))
        index = np.arange(length) % len(features)
        structure = None if features.structure is None else features.structure[index]
        whole = Features(features.vectors[index], features.rate_hz, structure, video=str(video))
        spent = model.find(whole).seconds
        scale = seconds / read_s
        parts = {part: features.seconds[part] * scale for part in ("decode", "encode")}
        parts |= {part: spent[part] for part in ("model", "align", "label")}
        if number:
            runs.append({part: value * 60.0 / seconds for part, value in parts.items()})
    return {part: statistics.median(run[part] for run in runs) for part in PARTS}, read_s


def run(args: argparse.Namespace) -> int:
    """Times and prints."""
    from stepformer.app.discover import load_model
    from stepformer.base import weights
    from stepformer.errors import UsageError

    if args.repeats < 1 or not args.seconds > 0:
        raise UsageError("--repeats must be at least 1 and --seconds positive")
    video = args.video or weights.pull("demo-video")
    model = load_model(args.model)
    parts, read_s = measure(model, video, args.repeats, args.seconds)
    total = sum(parts.values())
    rest = sum(parts[part] for part in ("model", "align", "label")) / total
    if args.json:
        facts = {"video": str(video), "read_s": read_s, "model": model.checkpoint.hash, "encoder": model.encoder.name}
        print(json.dumps({**facts, "seconds_a_minute": parts, "total": total, "rest": rest, "limit": LIMIT}, indent=2))
    else:
        print(f"{Path(video).name}, {read_s:.1f} s read, encoder {model.encoder.name}, for a minute of video:")
        for part, value in parts.items():
            print(f"  {part:<7} {value:8.3f} s  {100 * value / total:5.2f}%")
        print(f"  all     {total:8.3f} s  {60 / total:.2f} x real time")
        verdict = "under" if rest < LIMIT else "NOT under"
        print(f"model, align and label: {100 * rest:.2f}%, {verdict} the limit of {100 * LIMIT:g}%")
    return 0 if rest < LIMIT else 1
