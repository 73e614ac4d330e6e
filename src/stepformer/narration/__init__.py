"""Subtitles in, ordered verb phrases out: read, punctuate, resolve references, parse, extract.

Examples:
    >>> cues = sf.narration.read_subtitles("talk.vtt")
    >>> [(phrase.start_s, phrase.text) for phrase in sf.narration.extract_phrases(cues) if not phrase.chatter]
    [(1.0, 'crack the eggs'), (12.0, 'whisk the batter')]
"""

from __future__ import annotations

from stepformer.narration.coref import Resolver
from stepformer.narration.cues import Cue, Word
from stepformer.narration.listening import Listening, Narration, narration_of
from stepformer.narration.phrases import Phrase, PhraseOptions
from stepformer.narration.pipeline import RESOLVERS, SEGMENTERS, extract_phrases
from stepformer.narration.readers import parse_subtitles, read_subtitles
from stepformer.narration.sentences import Segmenter

__all__ = [
    "RESOLVERS", "SEGMENTERS", "Cue", "Listening", "Narration", "Phrase", "PhraseOptions", "Resolver", "Segmenter",
    "Word", "extract_phrases", "narration_of", "parse_subtitles", "read_subtitles",
]  # fmt: skip
