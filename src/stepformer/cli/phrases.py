"""``stepformer phrases FILE``: subtitles on the left, the phrases found in them on the right."""

from __future__ import annotations

import argparse
import bisect
import sys
from pathlib import Path

from stepformer.base.files import no_such
from stepformer.base.progress import clock
from stepformer.cli.inputs import with_video
from stepformer.cli.log import answer, log
from stepformer.cli.options import LISTENING, PHRASES, add, listening_of, phrase_options
from stepformer.errors import InputError
from stepformer.narration.cues import Cue
from stepformer.narration.listening import Listening, Narration
from stepformer.narration.phrases import Phrase

HELP = """Reads subtitles (VTT, SRT, YouTube json3 and srv, TTML, HowTo100M, Whisper JSON, timed text), or takes those
of a video, or its speech, and shows the verb phrases in them, with their times. Chatter ("subscribe to my channel") is
shown in brackets."""
EXAMPLES = [
    "stepformer phrases talk.vtt",
    "stepformer phrases talk.vtt --json > phrases.json",
    "stepformer phrases caption.json --video-id dQw4w9WgXcQ",
    "stepformer phrases talk.vtt --no-chatter --min-groundability 0.6",
    "stepformer phrases video.mp4                   # its subtitles, or else its speech",
]

_SOUND = (".mp3", ".wav", ".m4a", ".flac", ".ogg", ".opus", ".aac")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="subtitle file, video or sound")
    add(parser, "from")
    parser.add_argument("--video-id", metavar="ID", help="the video in a HowTo100M file (default: the only one)")
    add(parser, *LISTENING)
    add(parser.add_argument_group("phrases"), *PHRASES)


def run(args: argparse.Namespace) -> None:
    from stepformer.media import SUFFIXES
    from stepformer.narration import extract_phrases, read_subtitles
    from stepformer.narration.cleaning import is_english

    options = phrase_options(args)
    if args.file.suffix.lower() in (*SUFFIXES, *_SOUND):
        if not args.file.is_file():
            raise no_such(args.file)
        quiet = args.json or args.quiet
        narration = with_video(_listen, args.file, listening_of(args), quiet, video=str(args.file), apart=args.apart)
        notes, cues = narration.notes, list(narration.cues)
        if not cues and not notes:
            raise InputError(f"{args.file}: no subtitles and no speech were found")
    else:
        cues = read_subtitles(args.file, format=args.from_, video=args.video_id)
        foreign = "this does not look like English, the only language phrases are found in"
        notes = (foreign,) if is_english(cues) is False else ()
    for note in notes:
        log.warning(note)
    phrases = extract_phrases(cues, options)
    if not args.json:
        _print_side_by_side(cues, phrases)
    cue_rows = [{"start_s": cue.start_s, "end_s": cue.end_s, "text": cue.text} for cue in cues]
    result = {"file": str(args.file), "cues": cue_rows, "phrases": [phrase.to_dict() for phrase in phrases]}
    steps = sum(not phrase.chatter for phrase in phrases)
    chatter = f"{len(phrases) - steps} in brackets are chatter"
    answer(args, result, f"\n{len(cues)} cues, {len(phrases)} phrases: {steps} that may be steps, {chatter}")


def _listen(file: Path, listening: Listening, quiet: bool) -> Narration:
    """What is said in a video, with a bar."""
    from stepformer.base.progress import Progress
    from stepformer.media import probe
    from stepformer.narration import narration_of

    with Progress("listening", None, "s of sound", quiet=quiet) as progress:

        def heard(done_s: float, total_s: float) -> None:
            progress.total = total_s
            progress.advance(done_s - progress.done)

        found = narration_of(file, listening, heard)
    if not found.cues and file.suffix.lower() not in _SOUND:
        probe(file)  # says so where it is no video at all
    return found


def _print_side_by_side(cues: list[Cue], phrases: list[Phrase]) -> None:
    """Cues on the left and the phrases that start while each is said on the right, with their times."""
    from rich.box import MINIMAL
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("subtitles", "phrases", box=MINIMAL, show_edge=False)
    starts = [cue.start_s for cue in cues]
    rows: list[list[str]] = [[] for _ in cues]
    for phrase in phrases:
        shown = f"({phrase.text})" if phrase.chatter else phrase.text
        rows[max(0, bisect.bisect_right(starts, phrase.start_s) - 1)].append(f"{clock(phrase.start_s)}  {shown}")
    for cue, found in zip(cues, rows, strict=True):
        table.add_row(Text(f"{clock(cue.start_s)}  {cue.text}"), Text("\n".join(found)))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
