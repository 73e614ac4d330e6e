"""``stepformer bench phrases``: how good the phrases are, on the gold set and on real narration with human steps."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.errors import InputError, UsageError
from stepformer.narration.cues import Cue
from stepformer.narration.phrases import PhraseOptions

if TYPE_CHECKING:
    from benchmarks.spoken import Spoken

HELP = """Without --youcook2 and --procel: precision, recall and F1 on the gold set in the package, with each stage
switched off in turn. "Exact" requires the same verb and the same content words; "loose" the same verb and half of
the words. "One by one" gives the pipeline one utterance at a time; "as one stream" all of them as one narration
without a pause, as automatic captions are, and assigns each phrase to the utterance it was said in.
With --youcook2 or --procel: for what is said during a human step, how often it is closer to that step's text than to
the other steps of the video (AUC; top-1), by the sentence encoder and by plain word overlap: as a mean over pieces,
over steps (each the mean of its pieces), and over steps with all their pieces at once (a step's text is as close as
the closest piece). Stages cover different steps, so phrases are compared with the others on the same steps too."""
EXAMPLES = [
    "stepformer bench phrases",
    "stepformer bench phrases --gold-split dev --errors",
    "stepformer bench phrases --youcook2 youcook2_asr_steps.json.gz --procel procel_assemble_clarinet.json",
]

_ENCODED = 1024  # texts a step of the progress bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--gold-split", choices=("dev", "test"), default="test", help="gold split, or half of the videos"
    )
    parser.add_argument("--errors", action="store_true", help="show the gold utterances that went wrong")
    parser.add_argument("--youcook2", type=Path, metavar="FILE", help="YouCook2 narration with human steps (JSON)")
    parser.add_argument("--procel", type=Path, metavar="FILE", help="one ProceL task (JSON)")
    parser.add_argument("--both-halves", action="store_true", help="real narration: all videos, not one half")
    add(parser, "limit", "parser")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    if args.limit is not None and args.limit < 1:
        raise UsageError("--videos is at least 1")
    return _real(args) if args.youcook2 or args.procel else _gold(args)


def gold_rows(parser: str | None) -> dict[str, tuple[PhraseOptions, bool]]:
    """Name -> (options, whether the gold sentence ends are given as full stops)."""
    whole = PhraseOptions(parser=parser)
    return {
        "everything": (whole, False),
        "no punctuation": (replace(whole, punctuation="none"), False),
        "no co-reference": (replace(whole, coreference="none"), False),
        "no help for imperatives": (replace(whole, steer=False), False),
        "no disfluency removal": (replace(whole, disfluencies=False), False),
        "none of these": (
            replace(whole, punctuation="none", coreference="none", steer=False, disfluencies=False), False,
        ),
        "gold punctuation": (whole, True),
    }  # fmt: skip


def _gold(args: argparse.Namespace) -> int:
    from benchmarks.gold import load_gold

    gold = load_gold(args.gold_split)
    rows: list[dict[str, Any]] = []
    for name, (options, marks) in gold_rows(args.parser).items():
        for how, found in (
            ("one by one", one_by_one(gold, options, marks)),
            ("as one stream", as_stream(gold, options, marks)),
        ):
            rows.append({"stages": name, "how": how, **_scores(gold, found)})
            if args.errors and name == "everything" and how == "one by one":
                _show_errors(gold, found)
    if args.json:
        print(json.dumps({"split": args.gold_split, "utterances": len(gold), "rows": rows}))
        return 0
    wanted = sum(len(u.phrases) for u in gold)
    print(f"gold set, {args.gold_split} split: {len(gold)} utterances, {wanted} phrases\n")
    for how in ("one by one", "as one stream"):
        print(f"{how:<26} {'exact: P':>9} {'R':>6} {'F1':>6}   {'loose: P':>9} {'R':>6} {'F1':>6}")
        for row in rows:
            if row["how"] == how:
                numbers = [
                    f"{row[kind][key]:.3f}" for kind in ("exact", "loose") for key in ("precision", "recall", "f1")
                ]
                print(
                    f"{row['stages']:<26} {numbers[0]:>9} {numbers[1]:>6} {numbers[2]:>6}   "
                    f"{numbers[3]:>9} {numbers[4]:>6} {numbers[5]:>6}"
                )
        print()
    return 0


def one_by_one(gold: Sequence[Any], options: PhraseOptions, marks: bool) -> list[list[str]]:
    """Steps found in each utterance, chatter left out."""
    from stepformer.narration.pipeline import extract_phrases

    found = []
    for utterance in gold:
        text = _text(utterance, marks)
        phrases = extract_phrases([Cue(0.0, 0.4 * len(text.split()), text)], options)
        found.append([phrase.text for phrase in phrases if not phrase.chatter])
    return found


def as_stream(gold: Sequence[Any], options: PhraseOptions, marks: bool) -> list[list[str]]:
    """As :func:`one_by_one`, from one narration without pauses; a phrase belongs where its middle was said."""
    from stepformer.narration.pipeline import extract_phrases

    cues: list[Cue] = []
    bounds: list[float] = []
    now = 0.0
    for utterance in gold:
        text = _text(utterance, marks)
        until = now + 0.4 * len(text.split())
        cues.append(Cue(now, until, text))
        bounds.append(until)
        now = until
    found: list[list[str]] = [[] for _ in gold]
    for phrase in extract_phrases(cues, options):
        if not phrase.chatter:
            middle = phrase.middle_s
            found[next((i for i, until in enumerate(bounds) if middle < until), len(gold) - 1)].append(phrase.text)
    return found


def _text(utterance: Any, marks: bool) -> str:
    return ". ".join(utterance.sentences) + "." if marks else " ".join(utterance.sentences)


def _scores(gold: Sequence[Any], found: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    from benchmarks.gold import Score, match

    out = {}
    for kind in ("exact", "loose"):
        matched = sum(match(f, u.phrases, loose=kind == "loose") for f, u in zip(found, gold, strict=True))
        score = Score(matched, sum(len(f) for f in found), sum(len(u.phrases) for u in gold))
        out[kind] = {"precision": score.precision, "recall": score.recall, "f1": score.f1}
    return out


def _show_errors(gold: Sequence[Any], found: Sequence[Sequence[str]]) -> None:
    from benchmarks.gold import match

    for utterance, phrases in zip(gold, found, strict=True):
        if match(phrases, utterance.phrases) < max(len(phrases), len(utterance.phrases)):
            print(
                f"{' | '.join(utterance.sentences)}\n  found:  {'; '.join(phrases)}\n"
                f"  wanted: {'; '.join(utterance.phrases)}"
            )


def _real(args: argparse.Namespace) -> int:
    from benchmarks.spoken import load_procel, load_youcook2

    datasets = {}
    if args.youcook2:
        datasets["YouCook2, marks taken away"] = load_youcook2(args.youcook2)
    if args.procel:
        datasets["ProceL"] = load_procel(args.procel)
    out: list[dict[str, Any]] = []
    for name, videos in datasets.items():
        chosen = [video for video in videos if args.both_halves or video.half == args.gold_split][: args.limit]
        if not chosen:
            raise InputError(f"{name}: no video with narration and steps in the half that was asked for")
        result = _measured(name, chosen, args)
        out.append(result)
        if not args.json:
            _show_real(result)
    if args.json:
        print(json.dumps({"half": "all" if args.both_halves else args.gold_split, "data": out}))
    return 0


def _measured(name: str, videos: Sequence[Spoken], args: argparse.Namespace) -> dict[str, Any]:
    """Rows of one dataset: every stage by itself, and the phrases less the others on the same steps."""
    from benchmarks import speech_score, speech_stages
    from benchmarks.speech_score import within_steps
    from stepformer.encoders.sentence import default_sentence_encoder

    options = PhraseOptions(parser=args.parser)
    stages: list[dict[str, list[speech_score.Piece]]] = []
    with Progress("phrases", len(videos), "videos", quiet=args.json) as progress:
        for video in videos:
            stages.append(speech_stages.stages_of(video, options))
            progress.advance(1)
    texts = {step[2] for video in videos for step in video.steps}
    for video, found in zip(videos, stages, strict=True):
        texts.update(text for pieces in found.values() for inside in within_steps(video, pieces) for text in inside)
    encoder = default_sentence_encoder()
    embed = _remembering(encoder, sorted(texts), quiet=args.json)
    rows, judged = [], {}
    for stage in speech_stages.STAGES:
        pieces = [found[stage] for found in stages]
        judged[stage] = speech_score.judge(videos, pieces, embed)
        match = speech_score.summary(videos, judged[stage])
        plain = speech_score.summary(videos, speech_score.judge(videos, pieces, speech_score.word_overlap))
        rows.append({"stage": stage, **asdict(match), "overlap_auc": plain.auc})
    compared = []
    for stage in (speech_stages.PATTERN, speech_stages.DETAIL, speech_stages.GROUNDED):
        for other in (speech_stages.CUES, speech_stages.SENTENCES, speech_stages.RUN_ON):
            less = speech_score.difference(judged[stage], judged[other])
            if less is not None:
                compared.append({"stage": stage, "less": other, **asdict(less)})
    return {
        "data": name,
        "half": "all videos" if args.both_halves else f"{args.gold_split} half",
        "videos": len(videos),
        "steps": sum(len(video.steps) for video in videos),
        "encoder": encoder.name,
        "rows": rows,
        "differences": compared,
    }


def _remembering(encoder: Any, texts: Sequence[str], quiet: bool) -> Callable[[Sequence[str]], Any]:
    """Vectors of ``texts``, made once; in the order of their length, so that batches have little padding."""
    import numpy as np

    vectors: dict[str, Any] = {}
    ordered = sorted(texts, key=len)
    with Progress("vectors", len(ordered), "texts", quiet=quiet) as progress:
        for first in range(0, len(ordered), _ENCODED):
            some = ordered[first : first + _ENCODED]
            vectors.update(zip(some, encoder.encode_text(some), strict=True))
            progress.advance(len(some))
    return lambda wanted: np.stack([vectors[text] for text in wanted])


def _show_real(result: dict[str, Any]) -> None:
    print(
        f"{result['data']}, {result['half']}: {result['videos']} videos, {result['steps']} human steps, "
        f"encoder {result['encoder']}\n"
    )
    print(f"{'':<44} {'a piece':>13}   {'a step: mean':>13}   {'all at once':>13}")
    print(
        f"{'':<44} {'AUC':>6} {'top-1':>6}   {'AUC':>6} {'top-1':>6}   {'AUC':>6} {'top-1':>6} "
        f"{'pieces':>7} {'covered':>8} {'overlap AUC':>12}"
    )
    for row in result["rows"]:
        print(
            f"{row['stage']:<44} {row['auc']:>6.3f} {row['top1']:>6.3f}   {row['step_auc']:>6.3f} "
            f"{row['step_top1']:>6.3f}   {row['pooled_auc']:>6.3f} {row['pooled_top1']:>6.3f} "
            f"{row['pieces']:>7} {row['covered']:>8.3f} {row['overlap_auc']:>12.3f}"
        )
    print("\non the same steps, difference and 95 % of a bootstrap over videos:")
    for row in result["differences"]:
        print(f"{row['stage']}  less  {row['less']}  ({row['steps']} steps)")
        for title, auc, top1 in (("mean", "auc", "top1"), ("all at once", "pooled_auc", "pooled_top1")):
            print(f"    a step: {title:<12} AUC {_signed(row[auc])}   top-1 {_signed(row[top1])}")
    print()


def _signed(interval: dict[str, float]) -> str:
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]"
