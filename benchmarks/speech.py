"""``stepformer bench speech``: speech to text on synthetic voices: word error, speed, and misheard names of steps."""

from __future__ import annotations

import argparse
import difflib
import functools
import json
import shutil
import subprocess
import tempfile
import time
import wave
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality import auc
from stepformer.app.spoken import HEARD, SHOWN_SAID, SURE_SAID, candidates, heard, tells
from stepformer.base.progress import Progress
from stepformer.cli.options import add
from stepformer.encoders.name_classifier import default_name_classifier
from stepformer.errors import MissingError
from stepformer.evaluation.statistics import interval, ratio, weights
from stepformer.media import read_audio
from stepformer.narration import Cue, Phrase, extract_phrases
from stepformer.narration.cues import Word

HELP = """Lets espeak-ng (a Debian package) speak the utterances of the gold set, turns the sound back into text, and
counts word errors (substituted, missing and added words, by words spoken) and seconds per minute of sound. It measures
one synthetic voice and says nothing of how well people are understood.

--names measures how names of steps fare instead. Our own talks are spoken by voices of espeak-ng and flite (Debian
packages) in a room with echoes and noise, and what is heard is aligned with what was said, so that each word of a name
is known to be misheard or not. It prints how well the certainty of a word tells whether it was misheard (AUC), then for
several certainties from which on a word counts as heard (0: all do), the names that are shown, and those of them with a
misheard word; the same of those that are sure; and, as a control, what is left if as many names are taken away by their
score alone; with 95% intervals of the differences in share (bootstrap over talks). "dev" are the talks and voices by
which the certainty was chosen, "test" are others."""
EXAMPLES = [
    "stepformer bench speech",
    "stepformer bench speech --utterances 60 --speech-model small",
    "stepformer bench speech --names test",
]
_RATE_HZ = 16_000
_VOICES = {"slt": "flite", "en-us": "espeak-ng", "kal16": "flite", "rms": "flite", "awb": "flite"}
_TALKS = {"dev": ("d-", "e-"), "test": ("test-",)}  # what their names begin with
_SPOKEN_BY = {"dev": ("slt", "en-us", "kal16"), "test": ("rms", "awb")}
_LOUDER_DB = (20.0, 15.0, 10.0)  # of the voice than the noise, in turn
_LEAST = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9)
_ECHO_S, _ECHO_SHARE = 0.06, 0.5  # of the room: when an echo is down to 37%, and how loud all are beside the voice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--utterances", type=int, default=20, metavar="N", help="of the gold set")
    parser.add_argument("--names", choices=tuple(_SPOKEN_BY), help="names that talks of this split give when heard")
    parser.add_argument("--talks", type=int, default=36, metavar="N", help="how many are spoken, for --names")
    add(parser, "speech_model")


def run(args: argparse.Namespace) -> int:
    """Speaks, listens, counts."""
    if args.names:
        return names_heard(args)
    from benchmarks.gold import load_gold
    from stepformer.narration.speech import transcribe

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        said = ". ".join(" ".join(u.sentences) for u in load_gold("test")[: args.utterances])
        speak(said, "en-us", path)
        sound_s = len(read_audio(path)) / _RATE_HZ
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


def speak(text: str, voice: str, path: Path) -> None:
    """Writes a sound file of a text in one of the voices."""
    program = _VOICES[voice]
    if shutil.which(program) is None:
        raise MissingError(f"this needs a voice: apt install {program}")
    written = path.with_suffix(".txt")
    written.write_text(text, encoding="utf-8")
    options = ["-v", voice, "-s", "150", "-w"] if program == "espeak-ng" else ["-voice", voice, "-o"]
    subprocess.run([program, *options, str(path), "-f", str(written)], check=True)


def in_kitchen(sound: NDArray[np.float32], louder_db: float, seed: int) -> NDArray[np.int16]:
    """A voice (S,) in a room with echoes and hissing noise, which is ``louder_db`` quieter."""
    random, count = np.random.default_rng(seed), len(sound)
    times_s = np.arange(int(5 * _ECHO_S * _RATE_HZ)) / _RATE_HZ
    room = random.standard_normal(len(times_s)) * np.exp(-times_s / _ECHO_S)
    room *= _ECHO_SHARE / np.linalg.norm(room)
    room[0] = 1.0
    size = 1 << (count + len(room)).bit_length()
    voice = np.fft.irfft(np.fft.rfft(sound, size) * np.fft.rfft(room, size), size)[:count]
    hiss = np.fft.rfft(random.standard_normal(count)) / np.sqrt(
        np.fft.rfftfreq(count, 1 / _RATE_HZ).clip(50 / _RATE_HZ)
    )
    noise = np.fft.irfft(hiss, count)
    both = voice + noise * np.sqrt((voice**2).mean() / (noise**2).mean()) * 10 ** (-louder_db / 20)
    loud: NDArray[np.int16] = np.round(both * (30_000 / np.abs(both).max())).astype(np.int16)
    return loud


# -- names ------------------------------------------------------------------------------------------------------------


def heard_talks(split: str, count: int, model: str) -> Iterator[tuple[str, str, list[Cue]]]:
    """Our talks: name, what is said, and what is heard of it. The same sound is heard once."""
    from benchmarks.said import invented
    from stepformer.narration.speech import transcribe

    talks = [talk for talk in invented() if talk.name.startswith(_TALKS[split])]
    voices = _SPOKEN_BY[split]
    with tempfile.TemporaryDirectory() as folder, Progress("listening", count, "talks", quiet=False) as progress:
        path = Path(folder) / "said.wav"
        for at in range(count):
            talk = talks[at % len(talks)]
            said = " ".join(cue.text for cue in talk.cues)
            # from the second time on a talk has another voice
            speak(said, voices[(at + at // len(talks)) % len(voices)], path)
            sound = in_kitchen(read_audio(path), _LOUDER_DB[at // len(voices) % len(_LOUDER_DB)], at)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(_RATE_HZ)
                file.writeframes(sound.tobytes())
            yield talk.name, said, transcribe(path, model)
            progress.advance()


def heard_right(said: str, words: Sequence[Word]) -> dict[Word, bool]:
    """Whether each word that was heard was said there. One or several, "egg plant" or "eggplant", are the same."""
    own = [(part, word) for word in words for part in plain(word.text)]
    wanted, got = plain(said), [part for part, _ in own]
    ones = [[part.rstrip("s") for part in parts] for parts in (wanted, got)]  # "onion" for "onions" is no harm
    matcher = difflib.SequenceMatcher(None, ones[0], ones[1], autojunk=False)
    right = dict.fromkeys(words, True)
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal" and "".join(wanted[a:b]) != "".join(got[c:d]):
            right |= {word: False for _, word in own[c:d]}
    return right


@dataclass(frozen=True, slots=True)
class Shown:
    """A name that was heard: in which talk, its score, and whether one of its words was misheard."""

    talk: str
    score: float
    misheard: bool


def names_of(
    talk: str, cues: Sequence[Cue], phrases: Sequence[Phrase], right: Mapping[Word, bool], classify: Any, least: float
) -> list[Shown]:
    """The names of a talk as the product gives them, with another certainty from which on a word counts as heard."""
    words = [word for cue in cues for word in cue.words]
    starts = [word.start_s for word in words]
    # what was as certain as the one asked for is now as certain as the product's own
    moved = {
        word: replace(word, certainty=min(1.0, word.certainty * HEARD / least) if least else 1.0) for word in words
    }
    changed = [replace(cue, words=tuple(moved[word] for word in cue.words)) for cue in cues]
    found = candidates(phrases, changed, classify)
    if found is None:
        return []
    return [
        Shown(talk, float(score), not all(right[word] for word in heard(name, phrase, words, starts)))
        for name, phrase, score in zip(found.names, found.phrases, found.scores, strict=True)
    ]


def counted(names: Iterable[Shown]) -> dict[str, Any]:
    """How many names, and how many of them have a misheard word."""
    misheard = [name.misheard for name in names]
    return {"count": len(misheard), "misheard": sum(misheard), "share": round(sum(misheard) / max(1, len(misheard)), 3)}


def difference(names: Sequence[Shown], others: Sequence[Shown]) -> tuple[float, float]:
    """95% of a bootstrap over talks: the share of names with a misheard word, less that of others."""
    numbers = {talk: at for at, talk in enumerate(sorted({name.talk for name in (*names, *others)}))}
    talks = [np.array([numbers[name.talk] for name in own], np.int64) for own in (names, others)]
    misheard = [np.array([name.misheard for name in own], np.float64) for own in (names, others)]
    draws = [
        ratio(drawn[:, talks[0]] @ misheard[0], drawn[:, talks[0]].sum(1))
        - ratio(drawn[:, talks[1]] @ misheard[1], drawn[:, talks[1]].sum(1))
        for drawn in weights(len(numbers))
    ]
    low, high = interval(np.concatenate(draws))
    return round(low, 3), round(high, 3)


def names_heard(args: argparse.Namespace) -> int:
    """Speaks talks, listens, and compares the names with what was said."""
    known = functools.lru_cache(1)(default_name_classifier())  # the texts are the same each time
    errors = spoken = 0
    words: list[tuple[float, bool]] = []
    names: dict[float, list[Shown]] = {least: [] for least in _LEAST}
    for talk, said, cues in heard_talks(args.names, args.talks, args.speech_model):
        own = [word for cue in cues for word in cue.words]
        right = heard_right(said, own)
        errors += distance(plain(said), plain(" ".join(cue.text for cue in cues)))
        spoken += len(plain(said))
        words += [(word.certainty, right[word]) for word in own if tells(word.text)]
        phrases = extract_phrases(cues)
        for least in _LEAST:
            names[least] += names_of(talk, cues, phrases, right, lambda texts: known(tuple(texts)), least)
    certain, was_right = np.array(words).T
    print(json.dumps({
        "split": args.names, "talks": args.talks, "model": args.speech_model, "word_error": round(errors / spoken, 3),
        "words_that_count": len(words), "misheard": round(1 - was_right.mean(), 3),
        "auc_of_certainty": round(auc(certain[was_right > 0], certain[was_right == 0]), 3),
    }))  # fmt: skip
    before = sorted(names[0.0], key=lambda name: -name.score)
    for least, found in names.items():
        row: dict[str, Any] = {"heard_from": least}
        for kind, threshold in (("shown", SHOWN_SAID), ("sure", SURE_SAID)):
            kept, every = ([name for name in side if name.score >= threshold] for side in (found, before))
            alone = before[: len(kept)]
            row[kind] = {**counted(kept), "by_score_alone": counted(alone)}
            if kept and least:
                row[kind] |= {"less_before": difference(kept, every), "less_alone": difference(kept, alone)}
        print(json.dumps(row))
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
