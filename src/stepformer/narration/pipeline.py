"""Cues to phrases: words, stretches, sentence starts, parse, references, verb phrases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from stepformer.base.plugins import Registry
from stepformer.errors import MissingError
from stepformer.narration.cleaning import smooth
from stepformer.narration.coref import Resolver, RuleResolver
from stepformer.narration.cues import Cue, Word, in_order, spread_words
from stepformer.narration.extract import Extractor
from stepformer.narration.parse import load_parser
from stepformer.narration.phrases import Phrase, PhraseOptions, wanted, without_repeats
from stepformer.narration.sentences import RuleSegmenter, Segmenter, sentence_starts, steer, stretches
from stepformer.narration.syntax import Tree

_PLAIN = str.maketrans({"\0": " ", "’": "'", "‘": "'", "“": '"', "”": '"'})
SEGMENTERS: Registry[Callable[..., Segmenter]] = Registry("punctuation stage", "segmenters", {"rules": RuleSegmenter})
"""What finds sentence ends, by name; a plugin adds its own."""
RESOLVERS: Registry[Callable[..., Resolver]] = Registry("co-reference stage", "resolvers", {"rules": RuleResolver})
"""What resolves pronouns, by name; a plugin adds its own."""
Stage = TypeVar("Stage")


def extract_phrases(cues: Iterable[Cue], options: PhraseOptions | None = None) -> list[Phrase]:
    """Verb phrases of one video's narration, ordered by the time they start.

    Args:
        cues: What is said, and when.
        options: Stages to switch off or to replace.

    Raises:
        MissingError: the parser's pipeline is not here, or a package that a stage needs is not installed.
        UsageError: an option makes no sense.

    Examples:
        >>> [phrase.text for phrase in extract_phrases([Cue(0.0, 4.0, "crack the eggs and whisk them")])]
        ['crack the eggs', 'whisk the eggs']
    """
    options = options or PhraseOptions()
    phrases = list(phrases_of(trees_of(cues, options), options))
    return without_repeats(phrases) if options.released else phrases


def make_stage(stages: Registry[Callable[..., Stage]], name: str) -> Stage | None:
    """A stage by NAME, or by NAME:VALUE with a value for its maker; None for "none"."""
    if name == "none":
        return None
    kind, _, value = name.partition(":")
    maker = stages[kind]
    try:
        return maker(value) if value else maker()
    except ImportError as error:
        raise MissingError(f"the {stages.kind} {name!r} needs a package that is not installed: {error}") from error


def _spoken(cues: Iterable[Cue], options: PhraseOptions) -> list[Word]:
    """All words in order, times never running backwards."""
    words: list[Word] = []
    now = 0.0
    for cue in in_order(cues):
        for word in spread_words(cue):
            # half of a surrogate pair is not text for a parser
            text = word.text.encode("utf-8", "replace").decode("utf-8").translate(_PLAIN)
            now = max(now, word.start_s)
            words.extend(Word(now, max(now, word.end_s), part, word.certainty) for part in text.split())
    if _shouted(words):
        words = [replace(word, text=word.text.lower()) for word in words]
    return smooth(words) if options.disfluencies else words


def _shouted(words: Sequence[Word]) -> bool:
    """Whether narration is all in capitals, as broadcast captions are: a parser takes such words for names."""
    letters = "".join(word.text for word in words[:400])
    capitals = sum(c.isupper() for c in letters)
    return capitals > 3 * sum(c.islower() for c in letters)


def trees_of(cues: Iterable[Cue], options: PhraseOptions) -> Iterator[Tree]:
    """The parsed stretches of one video's narration."""
    parser = load_parser(options.parser)
    segmenter = make_stage(SEGMENTERS, options.punctuation)
    for words in stretches(_spoken(cues, options)):
        shown, imperatives = steer([word.text for word in words]) if options.steer else ({}, set())
        starts = None if segmenter is None else functools.partial(sentence_starts, words, segmenter, imperatives)
        yield parser.tree(words, starts, shown)


def phrases_of(trees: Iterable[Tree], options: PhraseOptions) -> Iterator[Phrase]:
    """The phrases of :func:`trees_of`, a stretch at a time."""
    parser = load_parser(options.parser)
    resolver = make_stage(RESOLVERS, options.coreference)  # new for each video
    for tree in trees:
        resolved = resolver.resolve(tree) if resolver is not None else {}
        phrases = Extractor(tree, resolved, parser, options).phrases()
        yield from wanted(sorted(phrases, key=lambda phrase: phrase.start_s), options)
