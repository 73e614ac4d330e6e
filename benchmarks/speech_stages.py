"""What is left of a narration after each stage of the pipeline, for measuring what each one is worth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchmarks.speech_score import Piece
from benchmarks.spoken import Spoken
from stepformer.narration.phrases import Phrase, PhraseOptions
from stepformer.narration.pipeline import phrases_of, trees_of
from stepformer.narration.syntax import Tree

CUES = "cues as they are"
SENTENCES = "sentences, default punctuation"
RUN_ON = "sentences, no punctuation (parser's own)"
PATTERN = "phrases, chatter left out"
DETAIL = "phrases, the same with detail"  # what training reads
GROUNDED = "phrases with detail, groundability 0.75"
STAGES = (
    CUES,
    RUN_ON,
    SENTENCES,
    "phrases, no punctuation, no co-reference",
    "phrases, + punctuation",
    "phrases, + co-reference",
    PATTERN,
    "phrases, the same without punctuation",
    "phrases, the same without co-reference",
    DETAIL,
    GROUNDED,
    "phrases with detail, groundability 0.9",
)


def stages_of(video: Spoken, options: PhraseOptions) -> dict[str, list[Piece]]:
    """The pieces of a video's narration by the names in ``STAGES``. Two parses serve all of them."""
    trees = list(trees_of(video.cues, options))
    unmarked = list(trees_of(video.cues, replace(options, punctuation="none")))
    alone = replace(options, coreference="none")
    full = list(phrases_of(trees, options))
    unresolved = list(phrases_of(trees, alone))
    detailed = list(phrases_of(trees, replace(options, detail=True)))
    pieces = (
        [(cue.start_s, cue.end_s, cue.text) for cue in video.cues],
        sentences_of(unmarked),
        sentences_of(trees),
        _pieces(list(phrases_of(unmarked, alone))),
        _pieces(unresolved),
        _pieces(full),
        _pieces(full, 0.0),
        _pieces(list(phrases_of(unmarked, options)), 0.0),
        _pieces(unresolved, 0.0),
        _pieces(detailed, 0.0),
        _pieces(detailed, 0.75),
        _pieces(detailed, 0.9),
    )
    return dict(zip(STAGES, pieces, strict=True))


def sentences_of(trees: Iterable[Tree]) -> list[Piece]:
    """(start_s, end_s, text) of the sentences of ``trees_of``, fillers taken out."""
    return [
        (tree.start_s[first], tree.end_s[last - 1], tree.words(range(first, last)))
        for tree in trees
        for first, last in tree.sentences()
    ]


def _pieces(phrases: Sequence[Phrase], keep: float | None = None) -> list[Piece]:
    """All phrases, or with ``keep`` those that are no chatter and have at least this groundability."""
    return [
        (phrase.start_s, phrase.end_s, phrase.text)
        for phrase in phrases
        if keep is None or (not phrase.chatter and phrase.groundability >= keep)
    ]
