"""``stepformer bench loader``: batches per second from a feature store, beside a raw read of the same files."""

from __future__ import annotations

import argparse
import io
import tarfile
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from stepformer.cli.measured import report
from stepformer.cli.options import above_zero, add, positive

HELP = """Reads a feature store as training does (memory-mapped float16 shards, shuffled, padded into batches by
threads) and the same shards raw: one thread, front to back, into 4 MiB that stay in the processor's cache. Both come
from the page cache, in turns. The best of the repeats counts, because other work on the machine can only add to a
time; processor time per GB is that of all threads together. Bytes are those of the vectors; padding does not count.
Without FOLDER a store of random vectors is made first.

With --layouts, one thread instead copies each video's frames out of the store's safetensors shards, out of an Arrow
file (a record batch per video, memory-mapped) and out of a tar (a member per video, as WebDataset reads it). Videos
come in a shuffled order, from the tar in its own: it has no index.

For comparison, the rate that training on HowTo100M needs: 1.2 million videos of 403 s, 768 numbers per second."""

EXAMPLES = [
    "stepformer bench loader",
    "stepformer bench loader store/ --batch 128 --readers 8 --json",
    "stepformer bench loader --layouts --made-videos 600 --json",
]

VIDEOS, HOURS, DIM, EPOCHS = 1_200_000, 134_472, 768, 60
"""HowTo100M and the paper's training."""
_CHUNK = 4 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "folder", nargs="?", type=Path, metavar="FOLDER", help="feature store to read (default: one made for this)"
    )
    parser.add_argument("--made-videos", type=positive, default=1000, metavar="N", help="videos of the made store")
    parser.add_argument("--readers", type=positive, metavar="N", help="threads that read (default: as training has)")
    parser.add_argument("--step-ms", type=above_zero, default=4.0, metavar="MS", help="training step to keep up with")
    parser.add_argument("--layouts", action="store_true", help="compare ways of storing shards instead")
    add(parser, "batch", "repeats", batch=72)


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from stepformer.data.batches import StoreBatches

    with nullcontext(str(args.folder)) if args.folder else tempfile.TemporaryDirectory() as folder:
        if args.folder is None:
            make_store(Path(folder), args.made_videos)
        if args.layouts:
            made = {"store": str(args.folder or f"made, {args.made_videos} videos"), "repeats": args.repeats}
            report(args, made, compare_formats(Path(folder), args.repeats))
            return 0
        source = StoreBatches([folder], 1000, 0.0, seed=0, threads=args.readers or 0)
        (raw, raw_cpu_s), (loader, loader_cpu_s) = measure(source, Path(folder), args.batch, args.repeats)
        threads = source.threads
        opened = opening(Path(folder))
    need = needed(args.batch, args.step_ms)
    facts = {
        "store": str(args.folder or f"made, {args.made_videos} videos"),
        "batch": args.batch,
        "readers": threads,
        "raw_gb_per_s": round(raw, 3),
        "loader_gb_per_s": round(loader, 3),
        "ratio": round(loader / raw, 3),
        "raw_cpu_s_per_gb": round(raw_cpu_s, 4),
        "loader_cpu_s_per_gb": round(loader_cpu_s, 4),
        "step_ms": args.step_ms,
        "needed_gb_per_s": round(need, 3),
        "keeps_up_with_step_ms": round(args.step_ms * need / loader, 2),
        **opened,
        "epochs": EPOCHS,
        "epochs_h": round(EPOCHS * VIDEOS / args.batch * args.step_ms / 3.6e6, 2),
    }
    report(args, facts)
    return 0


def needed(batch: int, step_ms: float) -> float:
    """GB/s of float16 features that steps of ``batch`` mean HowTo100M videos take."""
    return batch * (HOURS * 3600 / VIDEOS) * DIM * 2 / (step_ms / 1000) / 1e9


def make_store(path: Path, videos: int) -> None:
    """A store of random vectors: 200 to 600 s, 20 to 90 phrases per video."""
    import numpy as np

    from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter

    draw = np.random.default_rng(0)
    vectors = draw.standard_normal((1000, DIM)).astype(np.float32)
    with StoreWriter(path, StoreInfo("random", "random-1", DIM)) as writer:
        for i in range(videos):
            n, said, first = (int(draw.integers(*bounds)) for bounds in ((200, 601), (20, 91), (0, 400)))
            phrases = tuple(StoredPhrase("stir it", j * n / said, (j + 1) * n / said) for j in range(said))
            features = vectors[first : first + n]
            writer.append(StoredVideo(f"v{i}", features, 1.0, float(n), None, phrases, vectors[:said]))


def opening(store: Path) -> dict[str, float]:
    """What it costs to open a store, per video: microseconds of processor time, and bytes of memory."""
    import tracemalloc

    from stepformer.data.store import FeatureStore

    started = time.process_time()
    videos = len(FeatureStore(store))
    taken_s = time.process_time() - started
    tracemalloc.start()
    held = FeatureStore(store)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del held
    return {"store_open_us_per_video": round(taken_s / videos * 1e6, 2), "store_ram_bytes_per_video": size // videos}


def compare_formats(store: Path, repeats: int) -> list[dict[str, Any]]:
    """GB/s and processor seconds per GB of each format, and of a raw read of the store: the best of ``repeats``."""
    import numpy as np

    from stepformer.data.store import FeatureStore

    opened = FeatureStore(store)
    order = [opened.ids[i] for i in np.random.default_rng(0).permutation(len(opened))]
    most, dim = max(opened.entry(video).n for video in order), opened.info.dim
    total = sum(opened.entry(video).n for video in order) * dim * 2
    held = np.empty((most, dim), np.float16)

    def copied(frames: Any) -> None:
        held[: len(frames)] = frames

    def raw() -> None:
        for shard in sorted((store / "shards").iterdir()):
            _read_raw(shard)

    def safetensors() -> None:
        reader = FeatureStore(store)
        for video in order:
            copied(reader.arrays(video).features)

    with tempfile.TemporaryDirectory() as folder:
        arrow, tar = (Path(folder) / f"all.{kind}" for kind in ("arrow", "tar"))
        numbers = _write_arrow(opened, arrow)
        _write_tar(opened, tar)
        works = {
            "raw read": raw,
            "safetensors": safetensors,
            "Arrow IPC": lambda: _from_arrow(arrow, [numbers[video] for video in order], dim, copied),
            "tar": lambda: _from_tar(tar, dim, copied),
        }
        sizes = {"raw read": sum(shard.stat().st_size for shard in (store / "shards").iterdir())}
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
        for _ in range(repeats + 1):
            for name, work in works.items():
                taken[name].append(_timed(work, sizes.get(name, total)))
    best = {name: [min(column) for column in zip(*times[1:], strict=True)] for name, times in taken.items()}
    return [
        {"format": name, "gb_per_s": 1 / wall, "cpu_s_per_gb": cpu, "ratio": best["raw read"][0] / wall}
        for name, (wall, cpu) in best.items()
    ]


def _timed(work: Callable[[], Any], size: int) -> tuple[float, float]:
    """Seconds and processor seconds per GB."""
    started, worked = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - started) / size * 1e9, (time.process_time() - worked) / size * 1e9


def _write_arrow(store: Any, path: Path) -> dict[str, int]:
    """A record batch per video; the number of each."""
    import pyarrow as pa

    kind = pa.list_(pa.float16(), store.info.dim)
    with pa.ipc.new_file(str(path), pa.schema([("frames", kind)])) as file:
        for video in store.ids:
            flat = pa.array(store.arrays(video).features.ravel())
            file.write_batch(pa.record_batch([pa.FixedSizeListArray.from_arrays(flat, store.info.dim)], ["frames"]))
    return {video: number for number, video in enumerate(store.ids)}


def _from_arrow(path: Path, numbers: list[int], dim: int, copied: Callable[[Any], None]) -> None:
    import pyarrow as pa

    with pa.memory_map(str(path)) as memory:
        file = pa.ipc.open_file(memory)
        for number in numbers:
            copied(file.get_batch(number).column(0).flatten().to_numpy().reshape(-1, dim))


def _write_tar(store: Any, path: Path) -> None:
    with tarfile.open(path, "w") as file:
        for video in store.ids:
            data = store.arrays(video).features.tobytes()
            member = tarfile.TarInfo(video)
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))


def _from_tar(path: Path, dim: int, copied: Callable[[Any], None]) -> None:
    import numpy as np

    with tarfile.open(path, "r|") as file:
        for member in file:
            data = file.extractfile(member)
            assert data is not None
            copied(np.frombuffer(data.read(), np.float16).reshape(-1, dim))


def _read_raw(path: Path) -> int:
    """The bytes of a file, read front to back into memory that stays in the processor's cache."""
    held, total = bytearray(_CHUNK), 0
    with path.open("rb", buffering=0) as file:
        while got := file.readinto(held):
            total += got
    return total


def measure(source: Any, store: Path, batch: int, repeats: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """A raw read and batches, each as (GB/s, processor seconds per GB): the best of ``repeats`` epochs, after one."""
    shards = sorted((store / "shards").iterdir())
    batch = min(batch, len(source.items))
    steps = len(source.items) // batch
    epochs = iter(range(repeats + 1))

    def raw() -> int:
        return sum(map(_read_raw, shards))

    def batches() -> int:
        first, rows = next(epochs) * steps, 0
        for step in range(first, first + steps):
            got = source.batch(step, batch)
            rows += int(got.video_mask.numpy().sum()) + int(got.phrase_mask.numpy().sum())
        return rows * int(source.dim) * 2

    taken: dict[Callable[[], int], list[tuple[float, float]]] = {raw: [], batches: []}
    for _ in range(repeats + 1):
        for work, times in taken.items():
            started, worked = time.perf_counter(), time.process_time()
            gb = work() / 1e9
            times.append(((time.perf_counter() - started) / gb, (time.process_time() - worked) / gb))
    wall_cpu = [tuple(min(column) for column in zip(*times[1:], strict=True)) for times in taken.values()]
    (raw_s, raw_cpu_s), (loader_s, loader_cpu_s) = wall_cpu
    return (1 / raw_s, raw_cpu_s), (1 / loader_s, loader_cpu_s)
