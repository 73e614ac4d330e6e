"""``stepformer bench phrases``: how good the phrases are, on the gold set and on real narration with human steps."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepformer.errors import UsageError
from stepformer.narration.cues import Cue
from stepformer.narration.phrases import PhraseOptions

HELP = """Without --youcook2 and --procel: precision, recall and F1 on the gold set in the package, with each stage
switched off in turn. "Exact" asks for the same verb and the same content words; "loose" for the same verb and half of
the words. "One by one" gives the pipeline one utterance at a time; "as one stream" all of them as one narration
without a pause, as automatic captions are, and takes each phrase to the utterance it was said in.
With --youcook2 or --procel: for what is said during a human step, how often it is closer to that step's text than to
the other steps of the video (AUC; top-1), by the sentence encoder and by plain word overlap."""
EXAMPLES = [
    "stepformer bench phrases",
    "stepformer bench phrases --split dev --errors",
    "stepformer bench phrases --youcook2 youcook2_asr_steps.json.gz --procel procel_assemble_clarinet.json",
]

Piece = tuple[float, float, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--split", choices=("dev", "test"), default="test", help="gold split, or half of the videos (default: test)"
    )
    parser.add_argument("--errors", action="store_true", help="show the gold utterances that went wrong")
    parser.add_argument("--youcook2", type=Path, help="YouCook2 narration with human steps (JSON)")
    parser.add_argument("--procel", type=Path, help="one ProceL task (JSON)")
    parser.add_argument("--all", action="store_true", help="real narration: all videos, not one half")
    parser.add_argument("--videos", type=int, help="real narration: only so many videos a dataset")
    parser.add_argument("--parser", help="folder or package of a spaCy pipeline")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    if args.videos is not None and args.videos < 1:
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
    from stepformer.narration.gold import load_gold

    gold = load_gold(args.split)
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
        print(json.dumps({"split": args.split, "utterances": len(gold), "rows": rows}))
        return 0
    wanted = sum(len(u.phrases) for u in gold)
    print(f"gold set, {args.split} split: {len(gold)} utterances, {wanted} phrases\n")
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
            middle = (phrase.start_s + phrase.end_s) / 2
            found[next((i for i, until in enumerate(bounds) if middle < until), len(gold) - 1)].append(phrase.text)
    return found


def _text(utterance: Any, marks: bool) -> str:
    return ". ".join(utterance.sentences) + "." if marks else " ".join(utterance.sentences)


def _scores(gold: Sequence[Any], found: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    from stepformer.narration.gold import Score, match

    out = {}
    for kind in ("exact", "loose"):
        matched = sum(match(f, u.phrases, loose=kind == "loose") for f, u in zip(found, gold, strict=True))
        score = Score(matched, sum(len(f) for f in found), sum(len(u.phrases) for u in gold))
        out[kind] = {"precision": score.precision, "recall": score.recall, "f1": score.f1}
    return out


def _show_errors(gold: Sequence[Any], found: Sequence[Sequence[str]]) -> None:
    from stepformer.narration.gold import match

    for utterance, phrases in zip(gold, found, strict=True):
        if match(phrases, utterance.phrases) < max(len(phrases), len(utterance.phrases)):
            print(
                f"{' | '.join(utterance.sentences)}\n  found:  {'; '.join(phrases)}\n"
                f"  wanted: {'; '.join(utterance.phrases)}"
            )


def _real(args: argparse.Namespace) -> int:
    from stepformer.narration.speech_score import load_procel, load_youcook2

    datasets = {}
    if args.youcook2:
        datasets["YouCook2, marks taken away"] = load_youcook2(args.youcook2)
    if args.procel:
        datasets["ProceL"] = load_procel(args.procel)
    rows: list[dict[str, Any]] = []
    for name, videos in datasets.items():
        chosen = [video for video in videos if args.all or video.half == args.split][: args.videos]
        rows += _score_rows(name, chosen, args)
    if args.json:
        print(json.dumps({"half": "all" if args.all else args.split, "rows": rows}))
    return 0


def _score_rows(name: str, videos: Sequence[Any], args: argparse.Namespace) -> list[dict[str, Any]]:
    from stepformer.encoders.sentence import default_sentence_encoder
    from stepformer.narration.speech_score import score, word_overlap

    encoder = default_sentence_encoder()
    remembered: dict[str, Any] = {}

    def embed(texts: Sequence[str]) -> Any:
        import numpy as np

        new = [text for text in texts if text not in remembered]
        if new:
            remembered.update(zip(new, encoder.encode_text(new), strict=True))
        return np.stack([remembered[text] for text in texts])

    half = "all videos" if args.all else f"{args.split} half"
    if not args.json:
        print(
            f"{name}, {half}: {len(videos)} videos, {sum(len(v.steps) for v in videos)} human steps, "
            f"encoder {encoder.name}"
        )
        print(f"{'':<44} {'AUC':>6} {'top-1':>6} {'pieces':>7} {'covered':>8} {'overlap AUC':>12}")
    rows = []
    for stage, pieces in real_stages(PhraseOptions(parser=args.parser)).items():
        found = [pieces(video) for video in videos]
        match, plain = score(videos, found, embed), score(videos, found, word_overlap)
        rows.append({"data": name, "half": half, "stage": stage, "auc": match.auc, "top1": match.top1,
                     "pieces": match.pieces, "covered": match.covered, "overlap_auc": plain.auc})  # fmt: skip
        if not args.json:
            print(
                f"{stage:<44} {match.auc:>6.3f} {match.top1:>6.3f} {match.pieces:>7} {match.covered:>8.3f} "
                f"{plain.auc:>12.3f}",
                flush=True,
            )
    if not args.json:
        print()
    return rows


def real_stages(options: PhraseOptions) -> dict[str, Callable[[Any], list[Piece]]]:
    """Name of a stage -> the pieces of a video's narration after it."""
    from stepformer.narration.pipeline import extract_phrases, sentences_of

    def sentences(**changes: Any) -> Callable[[Any], list[Piece]]:
        return lambda video: sentences_of(video.cues, replace(options, **changes))

    found: dict[tuple[str, PhraseOptions], list[Any]] = {}  # several rows look at the same phrases

    def phrases(keep: float | None, **changes: Any) -> Callable[[Any], list[Piece]]:
        chosen = replace(options, **changes)

        def of(video: Any) -> list[Piece]:
            if (video.video, chosen) not in found:
                found[video.video, chosen] = extract_phrases(video.cues, chosen)
            return [
                (p.start_s, p.end_s, p.text)
                for p in found[video.video, chosen]
                if keep is None or (not p.chatter and p.groundability >= keep)
            ]

        return of

    return {
        "cues as they are": lambda video: [(cue.start_s, cue.end_s, cue.text) for cue in video.cues],
        "sentences, no punctuation (parser's own)": sentences(punctuation="none"),
        "sentences, default punctuation": sentences(),
        "phrases, no punctuation, no co-reference": phrases(None, punctuation="none", coreference="none"),
        "phrases, + punctuation": phrases(None, coreference="none"),
        "phrases, + co-reference": phrases(None),
        "phrases, chatter left out": phrases(0.0),
        "phrases, the same without punctuation": phrases(0.0, punctuation="none"),
        "phrases, the same without co-reference": phrases(0.0, coreference="none"),
        "phrases, groundability of at least 0.6": phrases(0.6),
        "phrases, groundability of at least 0.9": phrases(0.9),
    }
