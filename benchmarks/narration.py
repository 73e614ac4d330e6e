"""``stepformer bench narration``: words a second of the narration pipeline, as a share of the bare parser's."""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from stepformer.cli.log import log
from stepformer.cli.measured import report
from stepformer.cli.options import add, positive
from stepformer.errors import UsageError
from stepformer.narration.cues import Cue
from stepformer.narration.phrases import PhraseOptions

HELP = """Times the narration pipeline (cleaning, sentence ends, references, parse, phrases; all but neural
co-reference) against the bare spaCy parser on the same text in the same run: tok2vec and parser alone, no tagger,
in batches. Both take turns, times are processor time; the share is the median over the rounds. With --memory WORDS it
extracts that many words instead, and prints the memory in use on the way."""
EXAMPLES = [
    "stepformer bench narration",
    "stepformer bench narration --text talk.txt --words 50000",
    "stepformer bench narration --memory 1000000",
]

_WORDS_A_SECOND = 2.5  # of speech


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--text", type=Path, metavar="FILE", help="plain text to time on (default: the gold utterances, shuffled)"
    )
    parser.add_argument("--words", type=positive, default=6_000, metavar="N", help="words of a round")
    parser.add_argument("--rounds", type=positive, default=9, metavar="N", help="rounds")
    parser.add_argument("--memory", type=positive, metavar="WORDS", help="show memory over this many words instead")
    add(parser, "parser")


def run(args: argparse.Namespace) -> int:
    """Measures and prints."""
    if args.words < 100 or args.rounds < 1:
        raise UsageError("--words is at least 100, --rounds at least 1")
    return _memory(args) if args.memory else _speed(args)


def _videos(args: argparse.Namespace, words: int, seed: int = 0) -> list[list[str]]:
    """Words of narration in videos of about 1,500 words, without punctuation."""
    if args.text is not None:
        said = args.text.read_text(encoding="utf-8", errors="replace").split()
    else:
        from benchmarks.gold import load_gold

        utterances = [" ".join(u.sentences) for split in ("dev", "test") for u in load_gold(split)]
        shuffle = random.Random(seed)
        said = []
        while len(said) < words:
            shuffle.shuffle(utterances)
            said += " ".join(utterances).split()
    if not said:
        raise UsageError(f"{args.text}: has no words")
    while len(said) < words:
        said += said
    said = said[:words]
    return [said[i : i + 1500] for i in range(0, len(said), 1500)]


def _cues(words: list[str], start_s: float = 0.0) -> list[Cue]:
    """Lines of eight words at the pace of speech, as captions have them."""
    return [
        Cue(start_s + i / _WORDS_A_SECOND, start_s + (i + 8) / _WORDS_A_SECOND, " ".join(words[i : i + 8]))
        for i in range(0, len(words), 8)
    ]


def _speed(args: argparse.Namespace) -> int:
    from stepformer.narration.parse import load_parser
    from stepformer.narration.pipeline import extract_phrases
    from stepformer.narration.sentences import STRETCH

    parser = load_parser(args.parser)
    nlp: Any = parser.nlp
    videos = _videos(args, args.words)
    count = sum(len(words) for words in videos)
    narrations = [_cues(words) for words in videos]
    texts = [" ".join(words[i : i + STRETCH]) for words in videos for i in range(0, len(words), STRETCH)]
    options = PhraseOptions(parser=args.parser, detail=True)  # as phrases are prepared for training
    bare_names = [name for name in nlp.pipe_names if name in ("tok2vec", "transformer", "parser")]
    stages = {"everything": options, "without co-reference": replace(options, coreference="none"),
              "without punctuation": replace(options, punctuation="none")}  # fmt: skip
    times: dict[str, list[float]] = {}
    phrases = 0

    def timed(name: str, seconds: float) -> None:
        times.setdefault(name, []).append(seconds)

    extract_phrases(narrations[0], options)  # warm up
    for _ in range(args.rounds):
        with nlp.select_pipes(enable=bare_names):
            began = time.process_time()
            for _doc in nlp.pipe(texts, batch_size=16):
                pass
            timed("bare parser", time.process_time() - began)
        for name, stage in stages.items():
            began = time.process_time()
            found = sum(len(extract_phrases(cues, stage)) for cues in narrations)
            timed(name, time.process_time() - began)
            phrases = found if name == "everything" else phrases
    rates = {name: count / statistics.median(seconds) for name, seconds in times.items()}
    # of each round, so that what else the machine does at the time weighs on both sides
    shares = {
        name: sorted(bare / own for bare, own in zip(times["bare parser"], seconds, strict=True))
        for name, seconds in times.items()
    }
    share = statistics.median(shares["everything"])
    facts = {
        "words": count,
        "phrases": phrases,
        "rounds": args.rounds,
        "words_per_s": rates,
        "of_the_bare_parser": {name: statistics.median(values) for name, values in shares.items()},
        "share": share,
        "pipeline": Path(parser.source).name,
    }
    low, high = shares["everything"][0], shares["everything"][-1]
    verdict = f"share with everything on: {share:.2f} ({low:.2f} to {high:.2f}; at least 0.60 is wanted)"
    report(args, facts, verdict=verdict)
    return 0


def _memory(args: argparse.Namespace) -> int:
    from stepformer.narration.pipeline import extract_phrases

    options = PhraseOptions(parser=args.parser)
    shuffle = random.Random(1)
    rows: list[dict[str, float]] = []
    done = 0
    next_row = 0
    for words in _endless(args, shuffle):
        extract_phrases(_cues(words), options)
        done += len(words)
        if done >= next_row or done >= args.memory:
            rows.append({"words": done, "megabytes": _resident_mb()})
            log.info("%d words: %.0f MB", done, rows[-1]["megabytes"])
            next_row += max(1, args.memory // 10)
        if done >= args.memory:
            break
    half = [row["megabytes"] for row in rows if row["words"] >= args.memory / 2]
    growth = max(half) - min(half) if half else 0.0
    report(args, {"growth_second_half_mb": growth}, rows)
    return 0


def _endless(args: argparse.Namespace, shuffle: random.Random) -> Iterator[list[str]]:
    """Videos for ever; every twentieth word is one never seen before, which is what makes vocabularies grow."""
    seed = 0
    while True:
        seed += 1
        for words in _videos(args, 15_000, seed):
            yield [
                "".join(shuffle.choices("abcdefghijklmnopqrstuvwxyz", k=9)) if shuffle.random() < 0.05 else word
                for word in words
            ]


def _resident_mb() -> float:
    """Memory in use now, in megabytes; the peak where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (1e6 if sys.platform == "darwin" else 1e3)
