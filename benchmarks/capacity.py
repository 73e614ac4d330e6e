"""``stepformer bench capacity``: what a corpus costs to prepare, train on and search, from measured rates.

The rates are a JSON file, ``benchmarks/data/rates.json`` unless another is given: each with its value, the command that
printed it, and the machine and the commit it ran on. Nothing is measured here, so that the table can be made for any
machine; what has no rate yet is printed as such.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.cli.measured import report
from stepformer.cli.options import positive
from stepformer.errors import InputError

HELP = """Computes, from measured rates, what a corpus like HowTo100M costs to decode, encode, store, train on and
search: on one machine, on 8 GPUs, on 100 nodes; and how much it grows for --corpus videos. Work on single videos is
assumed to scale with cores and GPUs, training with GPUs at a fixed batch per GPU."""

EXAMPLES = [
    "stepformer bench capacity",
    "stepformer bench capacity --corpus 1000000000",
    "stepformer bench capacity --rates mine.json --json",
]

RATES = Path(__file__).parent / "data" / "rates.json"
MEAN_S = 134_472 * 3600 / 1_200_000
"""Seconds of a HowTo100M video: 134,472 hours, 1.2 million videos."""
WORDS_PER_VIDEO = 450  # 136 million clips of four words
DIM, BATCH, EPOCHS, PHRASES = 768, 72, 60, 55  # the paper's training; 20 to 90 phrases per video
READERS = 8  # threads of a loader, as stepformer.data.batches has them where there are so many cores
SHARD_BYTES = 256 << 20

NAMES = (
    "decode_cpu_s_per_s", "encode_cpu_s_per_s", "encode_gpu_x_real_time", "words_per_cpu_s", "step_ms",
    "loader_cpu_s_per_gb", "index_videos_per_s", "search_bytes_per_video", "answer_ms", "store_open_us_per_video",
    "store_ram_bytes_per_video",
)  # fmt: skip
"""The rates that are used; a file may leave some at null."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Machines. A node has as many processor cores and GPUs as are common today."""

    name: str
    nodes: int
    cores: int  # per node
    gpus: int  # per node


SETUPS = (Setup("one machine", 1, 16, 1), Setup("8 GPUs", 1, 96, 8), Setup("100 nodes", 100, 16, 1))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--rates", type=Path, default=RATES, metavar="FILE", help="JSON of measured rates")
    parser.add_argument("--corpus", type=positive, default=1_200_000, metavar="N", help="videos, of HowTo100M's length")


def run(args: argparse.Namespace) -> int:
    """Computes and prints."""
    rates = read_rates(args.rates)
    table = hours(rates, args.corpus)
    sizes = volumes(rates, args.corpus)
    if args.json:
        report(args, {"videos": args.corpus, "rates": rates, "hours": table, "volumes": sizes})
        return 0
    print(f"{args.corpus:,} videos of {MEAN_S:.0f} s, {args.corpus * MEAN_S / 3600:,.0f} hours\n")
    names = (f"{s.name}: {s.cores * s.nodes} cores, {_gpus(s.gpus * s.nodes)}" for s in SETUPS)
    print(f"| work | {' | '.join(names)} |")
    print("|---|" + "---|" * len(SETUPS))
    for work, row in table.items():
        print(f"| {work} | " + " | ".join("not measured" if h is None else _time(h) for h in row.values()) + " |")
    print()
    for what, value in sizes.items():
        print(f"- {what}: {value if value is not None else 'not measured'}")
    return 0


def read_rates(path: Path) -> dict[str, float | None]:
    """The values of a file of rates; an error names what is wrong with it."""
    if not path.is_file():
        raise no_such(str(path), "file of rates")
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        rates = {name: found[name]["value"] for name in NAMES}
        return {name: None if value is None else float(value) for name, value in rates.items()}
    except (ValueError, TypeError, KeyError) as error:
        needs = "each rate is {value, command, machine, commit}"
        raise InputError(f"{path} is no file of rates: {error!r}; {needs}") from None


def hours(rates: dict[str, float | None], videos: int) -> dict[str, dict[str, float | None]]:
    """Hours of each kind of work on each setup; None where the rate is missing."""
    seconds = videos * MEAN_S

    def on_cores(cpu_s: float | None) -> dict[str, float | None]:
        return {s.name: None if cpu_s is None else cpu_s / (s.cores * s.nodes) / 3600 for s in SETUPS}

    def on_gpus(gpu_s: float | None) -> dict[str, float | None]:
        return {s.name: None if gpu_s is None else gpu_s / (s.gpus * s.nodes) / 3600 for s in SETUPS}

    def times(rate: float | None, amount: float) -> float | None:
        return None if rate is None else rate * amount

    def over(amount: float, rate: float | None) -> float | None:
        return None if not rate else amount / rate

    reading = times(rates["loader_cpu_s_per_gb"], EPOCHS * videos * video_bytes() / 1e9)
    steps = EPOCHS * videos / BATCH
    return {
        "decode (cores)": on_cores(times(rates["decode_cpu_s_per_s"], seconds)),
        "encode on cores": on_cores(times(rates["encode_cpu_s_per_s"], seconds)),
        "encode on GPUs": on_gpus(over(seconds, rates["encode_gpu_x_real_time"])),
        "subtitles to phrases (cores)": on_cores(over(videos * WORDS_PER_VIDEO, rates["words_per_cpu_s"])),
        f"train, {EPOCHS} epochs (GPUs)": on_gpus(times(rates["step_ms"], steps / 1000)),
        f"read {EPOCHS} epochs ({READERS} threads per GPU)": {
            s.name: None if reading is None else reading / (READERS * s.gpus * s.nodes) / 3600 for s in SETUPS
        },
        "index for search (one process per node)": {
            s.name: None if not rates["index_videos_per_s"] else videos / rates["index_videos_per_s"] / s.nodes / 3600
            for s in SETUPS
        },
    }


def video_bytes() -> float:
    """Bytes of a mean video in a store: frames and phrases, float16."""
    return (MEAN_S + PHRASES) * DIM * 2


def volumes(rates: dict[str, float | None], videos: int) -> dict[str, str | None]:
    """How large things become."""

    def scaled(rate: float | None, unit: float, name: str) -> str | None:
        return None if rate is None else f"{rate * videos / unit:,.1f} {name}"

    gpus = [s.gpus * s.nodes for s in SETUPS]
    step = rates["step_ms"]
    need = None if step is None else BATCH * video_bytes() / (step / 1000) / 1e9
    reads = None if need is None else ", ".join(f"{need * n:,.0f} GB/s for {_gpus(n)}" for n in gpus)
    per_s = [over_cores(rates["decode_cpu_s_per_s"]), rates["encode_gpu_x_real_time"]]  # seconds of video
    whole = None if None in per_s else min(rate for rate in per_s if rate is not None) / MEAN_S * 3600
    limit = "decoding" if whole is not None and (per_s[0] or 0) < (per_s[1] or 0) else "encoding"
    return {
        "video to vectors, 16 cores and one GPU": f"{whole:,.0f} videos/h, {limit} the limit" if whole else None,
        "store": f"{videos * video_bytes() / 1e12:,.2f} TB in {videos * video_bytes() / SHARD_BYTES:,.0f} shards",
        "memory of the store's index, in every process": scaled(rates["store_ram_bytes_per_video"], 1e9, "GB"),
        "opening the store": scaled(rates["store_open_us_per_video"], 6e7, "min"),
        "reading while training": reads,
        "search index": scaled(rates["search_bytes_per_video"], 1e9, "GB"),
        "one answer, at the size it was measured at": None if (ms := rates["answer_ms"]) is None else f"{ms:g} ms",
    }


def over_cores(cpu_s_per_s: float | None) -> float | None:
    """Seconds of video per second on the cores of one machine."""
    return None if not cpu_s_per_s else SETUPS[0].cores / cpu_s_per_s


def _gpus(number: int) -> str:
    return f"{number} GPU" if number == 1 else f"{number} GPUs"


def _time(h: float) -> str:
    for unit, length in (("years", 2 * 365 * 24), ("days", 48), ("h", 1)):
        if h >= length:
            value = h / {"years": 365 * 24, "days": 24, "h": 1}[unit]
            return f"{value:,.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{h * 60:.1f} min"
