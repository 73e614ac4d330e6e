"""``stepformer bench narrated``: what narration adds to discovery when it is right, and takes away when it is wrong.

Simulated narrated videos (held-out tasks, pictures and words), and the five narrated videos of Action100M (real speech;
two captioners' words as the video). ``--fit`` chooses the constants of :mod:`stepformer.narration.evidence`: when steps
come after they are spoken of on YouCook2's real narration (dev half), what that is worth on simulated dev videos.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.quality import auc, boundary_f1
from benchmarks.real import _cuts, _equal, _kmeans, _seen
from benchmarks.real_data import RealVideo, action100m
from stepformer.app.discover.heard import Heard, as_batch
from stepformer.cli.options import add
from stepformer.core.inference import find_steps
from stepformer.core.model import Slots
from stepformer.evaluation.hungarian import assign
from stepformer.evaluation.statistics import interval, mean_draws
from stepformer.narration import Cue, extract_phrases
from stepformer.narration.evidence import OPTIONS, EvidenceOptions, frame_evidence
from stepformer.narration.listening import Narration
from stepformer.timeline import Step

HELP = """Scores discovery with narration that is right, absent, shuffled in time or of another video, as the product
does it, and by the phrases' evidence without the actions that are worth a step of their own, against equal cuts,
K-means and the phrases' own times as cuts: F1 of cuts (within 3 s), F1 of steps (IoU of at least 0.5), the number of
steps, and how many have a name, and a sure one, with 95% intervals of the difference from no narration (paired
bootstrap over videos). --fit prints the chosen constants instead; it needs YouCook2 with speech in --data."""
EXAMPLES = [
    "stepformer bench narrated --world world.safetensors --data DATASETS",
    "stepformer bench narrated --world world.safetensors --data DATASETS --fit",
]
KINDS = ("right", "shuffled", "foreign")
TOLERANCE_S, LEAST_IOU = 3.0, 0.5
AS_GOOD = 0.006  # AUC
_SAID_S = 2.5  # how long a phrase takes to say

Spans = list[tuple[float, float]]


@dataclass(frozen=True, slots=True, eq=False)
class Narrated:
    """A video with what is said in it, and what the model makes of its pictures."""

    video: RealVideo
    cues: tuple[Cue, ...]
    output: Slots
    model: Any


def simulated(world_file: Path, split: str, limit: int, model: Any, seed: int = 0) -> list[Narrated]:
    """Narrated videos of a simulated split, every phrase a sentence of its own."""
    from benchmarks.real import simulated as videos_of
    from stepformer.data.simulator import Simulator
    from stepformer.data.world import load_world
    from stepformer.evaluation.validation import make_trial

    world = load_world(world_file)
    trial = make_trial(Simulator(world), split, limit, seed)
    spoken = []
    for batch in trial.batches:
        for i in range(len(batch.video)):
            if not bool((batch.labels[i] >= 0).any()):
                continue  # as benchmarks.real.simulated leaves it out
            cues = []
            for j in torch.nonzero(batch.phrase_mask[i]).squeeze(1).tolist():
                # real narration is early by later_s; the simulator's is not
                start_s = max(0.0, float(batch.phrase_times[i, j]) - OPTIONS.later_s - _SAID_S / 2)
                cues.append(Cue(start_s, start_s + _SAID_S, f"{world.texts[int(batch.phrase_ids[i, j])]}."))
            spoken.append(tuple(cues))
    videos = videos_of(world_file, limit, seed, split)
    return [Narrated(v, cues, model.run(v.features.vectors), model) for v, cues in zip(videos, spoken, strict=True)]


def real(folder: Path, model: Any) -> list[Narrated]:
    """Action100M: automatic captions of the speech, as they are."""
    with gzip.open(folder / "videos.json.gz", "rt", encoding="utf-8") as stream:
        said = {video["video_uid"]: video["transcript"] for video in json.load(stream)}
    out = []
    for video in action100m(folder, model.encoder):
        lines = [(float(start), str(text)) for start, text in said[video.name]]
        ends = [start for start, _ in lines[1:]] + [video.features.duration_s]
        cues = tuple(Cue(start, max(end, start + 0.1), text) for (start, text), end in zip(lines, ends, strict=True))
        out.append(Narrated(video, cues, model.run(_seen(video).vectors), model))
    return out


def narration_of(videos: list[Narrated], i: int, kind: str) -> Heard:
    """The narration of video ``i``: its own, its own at shuffled times, or one of another video, stretched to fit."""
    own, cues = videos[i], videos[i].cues
    if kind == "shuffled":
        order = np.random.default_rng(i).permutation(len(cues))
        cues = tuple(replace(cue, text=cues[j].text, words=()) for cue, j in zip(cues, order, strict=True))
    elif kind == "foreign":
        other = videos[(i + len(videos) // 2) % len(videos)]  # tasks stand together: this is another one
        scale = own.video.features.duration_s / other.video.features.duration_s
        cues = tuple(replace(c, start_s=c.start_s * scale, end_s=c.end_s * scale, words=()) for c in other.cues)
    phrases = extract_phrases(cues)
    return Heard(cues, phrases, own.model.encoder.encode_text([phrase.text for phrase in phrases]))


def discovered(own: Narrated, narration: Heard | None, options: EvidenceOptions = OPTIONS) -> Spans:
    """Steps of one video by the evidence of what is said in it, whatever may name a step."""
    seen = _seen(own.video)
    told = narration if narration and narration.phrases else None
    result = find_steps(
        own.output, torch.ones(1, len(seen), dtype=torch.bool), own.model.inference, rate_hz=seen.rate_hz,
        structure=told.structure(seen, options) if told else as_batch(seen.cutting),
        evidence=told.evidence(seen, options) if told else None,
    )  # fmt: skip
    return [(piece.first / seen.rate_hz, piece.last / seen.rate_hz) for piece in result.segments[0]]


def product(own: Narrated, narration: Heard) -> list[Step]:
    """Steps of one video as the product finds and names them."""
    return list(own.model.find(own.video.features, narration=Narration(narration.cues, "file")).timeline)


def at_phrases(own: Narrated, narration: Heard) -> Spans:
    """A step from each spoken action to the next."""
    end_s = own.video.features.duration_s
    starts = sorted({p.start_s for p in narration.phrases if not p.chatter and not p.negated and p.start_s < end_s})
    return [(a, b) for a, b in itertools.pairwise([*starts, end_s]) if b - a > 0.5] or [(0.0, end_s)]


def step_f1(found: Spans, marked: Spans) -> float:
    """F1 of steps matched one to one with an IoU of at least 0.5."""
    if not found or not marked:
        return 0.0
    a, b = np.asarray(found)[:, None], np.asarray(marked)[None]
    shared = np.maximum(np.minimum(a[..., 1], b[..., 1]) - np.maximum(a[..., 0], b[..., 0]), 0.0)
    iou = shared / np.maximum((a[..., 1] - a[..., 0]) + (b[..., 1] - b[..., 0]) - shared, 1e-9)
    rows, columns = assign((iou >= LEAST_IOU) + 1e-3 * iou)
    return 2.0 * float((iou[rows, columns] >= LEAST_IOU).sum()) / (len(found) + len(marked))


def scores(own: Narrated, steps: Any) -> tuple[float, ...]:
    """F1 of cuts, F1 of steps, and how many steps there are, with names, and with sure ones; of spans or steps."""
    end_s = own.video.features.duration_s
    marked = [(start, min(end, end_s)) for start, end, _ in own.video.steps]
    named = [step for step in steps if isinstance(step, Step) and step.label]
    found = [(step.start_s, step.end_s) if isinstance(step, Step) else step for step in steps]
    cuts = boundary_f1(_cuts(found, end_s), _cuts(marked, end_s), TOLERANCE_S)
    return cuts, step_f1(found, marked), len(found), len(named), sum(not step.meta["guess"] for step in named)


def methods(videos: list[Narrated]) -> dict[str, Callable[[int], Any]]:
    """Name -> the steps of video i."""
    alone = [discovered(video, None) for video in videos]
    spoken = {kind: [narration_of(videos, i, kind) for i in range(len(videos))] for kind in KINDS}
    out: dict[str, Callable[[int], Any]] = {"no narration": lambda i: alone[i]}
    for kind, own in spoken.items():
        out[f"narration {kind}, as evidence"] = lambda i, own=own: discovered(videos[i], own[i])  # type: ignore[misc]
        out[f"narration {kind}"] = lambda i, own=own: product(videos[i], own[i])  # type: ignore[misc]

    def end_s(i: int) -> float:
        return videos[i].video.features.duration_s

    out["equal, as many as without narration"] = lambda i: _equal(max(1, len(alone[i])), end_s(i))
    out["equal, given the number"] = lambda i: _equal(len(videos[i].video.steps), end_s(i))
    out["K-means of frames, given the number"] = lambda i: _kmeans(videos[i].video, None)
    out["the phrases' own times"] = lambda i: at_phrases(videos[i], spoken["right"][i])
    return out


# -- choosing the constants -------------------------------------------------------------------------------------------


def timing(path: Path, limit: int = 80) -> tuple[EvidenceOptions, float]:
    """When steps come after they are spoken of: the values that tell frames of human steps best from the rest on real
    narration, and how well (AUC)."""
    from benchmarks.spoken import load_youcook2

    told_of = []
    for video in [v for v in load_youcook2(path) if v.half == "dev"][:limit]:
        frames = int(max(end for _, end, _ in video.steps) + 20)
        labels = np.zeros(frames, bool)
        for start, end, _ in video.steps:
            labels[int(start) : int(end)] = True
        told_of.append((extract_phrases(video.cues), frames, labels))
    reached: dict[EvidenceOptions, float] = {}
    for later_s, spread_s in itertools.product((0.0, 2.0, 4.0, 6.0, 8.0), (4.0, 8.0, 12.0, 16.0)):
        options = replace(OPTIONS, later_s=later_s, spread_s=spread_s)
        found = [(frame_evidence(p, n, 1.0, options=options), y) for p, n, y in told_of if p]
        reached[options] = float(np.mean([auc(values[y], values[~y]) for values, y in found]))
    # the narrowest of those that are about as good: wide evidence says less of where
    good = [options for options, value in reached.items() if value >= max(reached.values()) - AS_GOOD]
    best = min(good, key=lambda options: (options.spread_s, -reached[options]))
    return best, reached[best]


def worth(videos: list[Narrated], start: EvidenceOptions) -> tuple[EvidenceOptions, float]:
    """What narration is worth: the values with the largest F1 of steps, right and foreign narration weighing the same;
    one value after the other."""
    ranges: dict[str, Iterable[float]] = {
        "spread_s": (3.0, start.spread_s), "step": (0.5, 1.0, 2.0, 3.0),
        "unsaid": (0.0, 0.5, 1.0, 2.0), "fit": (0.0, 0.5, 1.0), "chatter": (0.0, 0.5, 1.0),
        "doubt": (0.0, 0.2, 0.4), "full_at": (1.0, 2.0, 4.0),
    }  # fmt: skip

    spoken = [(own, narration_of(videos, i, kind)) for i, own in enumerate(videos) for kind in ("right", "foreign")]

    def value(options: EvidenceOptions) -> float:
        return float(np.mean([scores(own, discovered(own, one, options))[1] for own, one in spoken]))

    best, top = start, value(start)
    for name, values in ranges.items():
        for one in values:
            options = replace(best, **{name: one})
            if options != best and (reached := value(options)) > top:
                best, top = options, reached
    return best, top


# -- the command -----------------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    add(parser, "world", "data", "limit", "split", world={"required": True}, limit=60)
    parser.add_argument("--fit", action="store_true", help="print the constants that it chooses")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    from stepformer.app.discover.loading import load_model

    model = load_model("default")
    if args.fit:
        start, reached = OPTIONS, None
        if args.data:
            start, reached = timing(Path(args.data) / "youcook2" / "youcook2_asr_steps.json.gz")
        best, f1 = worth(simulated(Path(args.world), "dev", args.limit, model), start)
        print(json.dumps({"options": asdict(best), "timing_auc": reached, "step_f1": f1}))
        return 0
    sets = {f"simulated {args.split}": simulated(Path(args.world), args.split, args.limit, model)}
    if args.data:
        sets["Action100M"] = real(Path(args.data) / "action100m", model)
    rows = []
    for data, videos in sets.items():
        table = {
            name: np.array([scores(own, find(i)) for i, own in enumerate(videos)])
            for name, find in methods(videos).items()
        }
        values = np.stack(list(table.values()))  # (R, V, 5)
        marked = float(np.mean([len(own.video.steps) for own in videos]))
        draws = [mean_draws(values[..., column], np.arange(len(videos)), "videos") for column in (0, 1)]
        for r, name in enumerate(table):
            cuts, steps, number, named, sure = values[r].mean(0).tolist()
            gain = [interval(draw[:, r] - draw[:, 0]) for draw in draws]
            rows.append({
                "data": data, "videos": len(videos), "method": name, "cut_f1": cuts, "step_f1": steps, "steps": number,
                "named": named, "sure": sure, "marked": marked, "cut_gain": gain[0], "step_gain": gain[1],
            })  # fmt: skip
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    columns = ("data", "method", "steps (marked)", "named, sure", "F1 of cuts", "beyond no narration, 95%")
    print(f"| {' | '.join(columns)} | F1 of steps | beyond, 95% |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        (a, b), (c, d) = row["cut_gain"], row["step_gain"]
        print(
            f"| {row['data']} ({row['videos']}) | {row['method']} | {row['steps']:.1f} ({row['marked']:.1f}) | "
            f"{row['named']:.1f}, {row['sure']:.1f} | "
            f"{row['cut_f1']:.3f} | {a:+.3f} to {b:+.3f} | {row['step_f1']:.3f} | {c:+.3f} to {d:+.3f} |"
        )
    return 0
