"""``stepformer bench search``: how fast a library of 10,000 videos is searched, and how much the graph misses.

The library is synthetic but not white noise. Each video is a task of the package's grammar, with its steps in order
(some left out), and its vectors are mixed as the simulator mixes frames: the step, the task's mean, another phrase for
a few seconds, the video's own look, noise; between steps there is background. Questions are other wordings of steps.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stepformer.cli.measured import report
from stepformer.cli.options import add, positive
from stepformer.errors import StepFormerError

HELP = """Builds the search index of a synthetic library and searches it for steps in other words than its own. Prints
the time per answer (text encoder, search, both; median and 95th percentile) as wall-clock and processor time, the
recall of the graph against comparing with every vector, and how often the first place, or one of the first ten, shows
the right step. On a busy machine wall-clock time includes other work; exit code 1 if both 95th percentiles are over
100 ms."""

EXAMPLES = [
    "stepformer bench search",
    "stepformer bench search --limit 1000 --queries 50",
    "stepformer bench search --json",
]

Encode = Callable[[Sequence[str]], npt.NDArray[np.float32]]
RECALL_AT = 10
LIMIT_MS = 100.0  # what an answer may take


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "limit", "threads", "seed", limit=10_000, threads=2)
    parser.add_argument("--queries", type=positive, default=200, metavar="N", help="number of queries")


def run(args: argparse.Namespace) -> None:
    import torch

    from stepformer.encoders.sentence import default_sentence_encoder

    torch.set_num_threads(1)  # one sentence is too little work to share
    encoder = default_sentence_encoder()
    with tempfile.TemporaryDirectory(prefix="stepformer-bench-") as folder:
        result = measure(Path(folder), encoder.encode_text, args.limit, args.queries, args.threads, args.seed)
    report(args, {**result, "threads": args.threads})
    took = min(result["answer_ms"]["p95"], result["cpu_ms"]["p95"])
    if took > LIMIT_MS:
        raise StepFormerError(f"an answer took {took:.0f} ms at the 95th percentile, over {LIMIT_MS:g} ms")


class SyntheticLibrary:
    """Videos of grammar tasks in an encoder's text space, the same for the same seed."""

    def __init__(self, encode: Encode, seed: int = 0) -> None:
        from stepformer.data.grammar import load_grammar

        procedures = [task.generic() for task in load_grammar().tasks]
        texts = sorted({step.label for p in procedures for step in p.steps})
        self.texts = texts
        self.vectors = np.asarray(encode(texts), np.float32)  # (T, D)
        number = {text: i for i, text in enumerate(texts)}
        self.tasks = [np.array([number[step.label] for step in p.steps]) for p in procedures]
        self.other_words = {number[step.label]: step.paraphrases[0] for p in procedures for step in p.steps}
        self.seed = seed
        self.truth: list[npt.NDArray[np.int64]] = []  # per video the text of each step

    def videos(self, count: int) -> Iterator[Any]:
        """``count`` videos as the index takes them, one vector per second."""
        from stepformer.app.search.index import IndexedVideo, unit

        dim = self.vectors.shape[1]
        for video in range(count):
            rng = np.random.default_rng((self.seed, video))
            task = self.tasks[video % len(self.tasks)]
            steps = task[rng.random(len(task)) > 0.2] if len(task) > 2 else task
            steps = steps if len(steps) else task
            lengths = rng.lognormal(2.4, 0.6, len(steps)).clip(3, 90)
            pauses = rng.lognormal(1.2, 0.7, len(steps) + 1).clip(0, 40)
            starts = np.cumsum(pauses[:-1]) + np.concatenate(([0], np.cumsum(lengths)[:-1]))
            spans = np.stack((starts, starts + lengths), 1)
            total = float(spans[-1, 1] + pauses[-1])
            n = int(total) + 1
            middle = np.arange(n) + 0.5
            owner = np.full(n, -1)
            for i, (a, b) in enumerate(spans):
                owner[(middle >= a) & (middle < b)] = i
            content = np.where((owner >= 0)[:, None], 0.9 * self.vectors[steps[np.maximum(owner, 0)]], 0)
            content = content + 0.6 * self.vectors[task].mean(0)
            content = content + self.vectors[rng.integers(len(self.vectors), size=n // 6 + 1)][np.arange(n) // 6]
            content = content + self.vectors[rng.integers(len(self.vectors), size=n)]
            look = rng.standard_normal(dim) * 0.3 / np.sqrt(dim)
            noise = rng.standard_normal((n, dim)) * 0.3 / np.sqrt(dim)
            frames = unit(content + look + noise)
            whole = [frames[owner == i].mean(0) if (owner == i).any() else frames[min(int(a), n - 1)]
                     for i, (a, _) in enumerate(spans)]  # fmt: skip
            self.truth.append(steps)
            yield IndexedVideo(
                f"video{video:05d}", total, spans, tuple(self.texts[i] for i in steps), np.asarray(whole, np.float32),
                frames, 1.0, str(video),
            )  # fmt: skip


def build(folder: Path, library: SyntheticLibrary, count: int, threads: int) -> float:
    """Makes the index of a synthetic library; seconds that the index itself took."""
    from stepformer.app.search.index import IndexInfo, IndexWriter
    from stepformer.app.search.library import means_of
    from stepformer.base.progress import Progress

    writer: IndexWriter | None = None
    videos = library.videos(count)
    spent = 0.0
    with Progress("videos", count, "videos") as progress:
        while some := list(itertools.islice(videos, 200)):
            began = time.perf_counter()
            if writer is None:
                info = IndexInfo("sentence", "bench", library.vectors.shape[1], "bench", "bench")
                writer = IndexWriter(folder, info, means_of(some, library.vectors))
            writer.add(some, threads)
            spent += time.perf_counter() - began
            progress.advance(len(some))
    assert writer is not None
    began = time.perf_counter()
    writer.commit()
    return spent + time.perf_counter() - began


def measure(folder: Path, encode: Encode, videos: int, queries: int, threads: int, seed: int = 0) -> dict[str, Any]:
    from stepformer.app.search.index import FOLDER, open_index, unit

    library = SyntheticLibrary(encode, seed)
    build_s = build(folder, library, videos, threads)
    began = time.perf_counter()
    index = open_index(folder)
    open_s = time.perf_counter() - began
    size = sum(p.stat().st_size for p in (folder / FOLDER).rglob("*") if p.is_file())
    rng = np.random.default_rng((seed, 77))
    there = np.unique(np.concatenate(library.truth))
    asked = rng.choice(there, min(queries, len(there)), replace=False)
    texts = [library.other_words[int(i)] for i in asked]
    index.search_vector(encode(texts[:1])[0])  # the first touch of a mapped file reads it
    text_s, search_s, cpu_s, first, any_of, chance = [], [], [], [], [], []
    recalls: dict[str, list[float]] = {kind: [] for kind in ("steps", "moments")}
    for text, want in zip(texts, asked, strict=True):
        began, worked = time.perf_counter(), time.process_time()
        vector = encode([text])[0]
        encoded = time.perf_counter()
        hits = index.search_vector(vector, top=10)
        search_s.append(time.perf_counter() - encoded)
        cpu_s.append(time.process_time() - worked)
        text_s.append(encoded - began)
        right = [hit.label == library.texts[want] for hit in hits]
        first.append(right[0])
        any_of.append(any(right))
        chance.append(np.mean([np.isin(want, steps) / len(steps) for steps in library.truth[:1000]]))
        query = unit(unit(vector) - index.means[2])
        for kind, shares in recalls.items():
            exact, _ = index.nearest(kind, query, RECALL_AT, exact=True)
            found, _ = index.nearest(kind, query, RECALL_AT)
            shares.append(len(np.intersect1d(exact, found)) / max(1, len(exact)))
    began = time.perf_counter()
    index.search_vector(vector, exact=True)
    exact_s = time.perf_counter() - began

    def spread(seconds: Sequence[float]) -> dict[str, float]:
        ms = 1000 * np.asarray(seconds)
        return {"median": round(float(np.median(ms)), 2), "p95": round(float(np.quantile(ms, 0.95)), 2)}

    return {
        "videos": videos, "hours": round(sum(v["duration_s"] for v in index.videos if v) / 3600, 1),
        "steps": index.info.steps, "moments": index.info.moments, "queries": len(texts),
        "size_mb": round(size / 1e6, 1), "build_s": round(build_s, 1), "open_ms": round(1000 * open_s, 1),
        "text_ms": spread(text_s), "search_ms": spread(search_s),
        "answer_ms": spread(np.add(text_s, search_s).tolist()), "cpu_ms": spread(cpu_s),
        "exact_ms": round(1000 * exact_s, 1),
        "recall_at_10": {kind: round(float(np.mean(recalls[kind])), 4) for kind in recalls},
        "first_right": round(float(np.mean(first)), 4), "any_of_10_right": round(float(np.mean(any_of)), 4),
        "first_by_chance": round(float(np.mean(chance)), 4),
    }  # fmt: skip
