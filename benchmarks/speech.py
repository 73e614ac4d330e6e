"""``stepformer bench speech``: word error and speed of speech to text, on text spoken by a synthesiser."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from stepformer.cli.options import add
from stepformer.errors import MissingError

HELP = """Lets espeak-ng (a Debian package) speak the utterances of the gold set, turns the sound back into text, and
counts word errors (substituted, missing and added words, by words spoken) and seconds per minute of sound. It measures
one synthetic voice and says nothing of how well people are understood."""
EXAMPLES = ["stepformer bench speech", "stepformer bench speech --utterances 60 --speech-model small"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--utterances", type=int, default=20, metavar="N", help="of the gold set")
    add(parser, "speech_model")


def run(args: argparse.Namespace) -> int:
    """Speaks, listens, counts."""
    from benchmarks.gold import load_gold
    from stepformer.media import read_audio
    from stepformer.narration.speech import transcribe

    if shutil.which("espeak-ng") is None:
        raise MissingError("this needs a voice: apt install espeak-ng")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        said = ". ".join(" ".join(u.sentences) for u in load_gold("test")[: args.utterances])
        subprocess.run(["espeak-ng", "-v", "en-us", "-s", "150", "-w", str(path), said], check=True)
        sound_s = len(read_audio(path)) / 16_000
        began = time.perf_counter()
        heard = " ".join(cue.text for cue in transcribe(path, args.speech_model, cache=False))
        spent_s = time.perf_counter() - began
    wanted, got = plain(said), plain(heard)
    errors, words = distance(wanted, got), len(wanted)
    result = {
        "model": args.speech_model, "words": words, "word_error": round(errors / words, 4),
        "sound_s": round(sound_s, 1), "seconds_per_minute": round(60 * spent_s / sound_s, 2),
    }  # fmt: skip
    print(json.dumps(result) if args.json else ", ".join(f"{name} {value}" for name, value in result.items()))
    return 0


def plain(text: str) -> list[str]:
    """Words without case and marks."""
    return "".join(c if c.isalnum() or c == "'" else " " for c in text.lower()).split()


def distance(wanted: list[str], got: list[str]) -> int:
    """Edits between two lists of words."""
    row = list(range(len(got) + 1))
    for i, word in enumerate(wanted, 1):
        before, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (word != other))
    return row[-1]
