"""The dependency parser: which spaCy pipeline is used, and words to trees."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from stepformer.base import weights
from stepformer.errors import InputError, MissingError
from stepformer.narration.cues import Word
from stepformer.narration.groundability import noun_scores
from stepformer.narration.sentences import MARKS
from stepformer.narration.syntax import Tree, verb_lemmas

INSTALLED = ("en_core_web_md", "en_core_web_lg", "en_core_web_trf", "en_core_web_sm")
PINNED = "spacy-en-md"
_NEEDED = ("tagger", "parser")
_ZONE_WORDS = 100_000
_UNUSED = ("ner", "attribute_ruler", "entity_linker", "senter", "textcat")

Starts = Callable[[Sequence[str]], Sequence[bool]]
"""The tags of a stretch's words -> for each word whether a sentence starts with it."""


def find_pipeline(choice: str | None = None) -> str:
    """Path or package name of the English pipeline: the one asked for, an installed one, the pinned one.

    Raises:
        MissingError: there is none here and none can be downloaded.
    """
    if choice is not None:
        with suppress(ValueError, OSError):  # no name that a folder, or a module, can have
            if Path(choice).is_dir() or (choice.isidentifier() and importlib.util.find_spec(choice) is not None):
                return choice
        raise MissingError(
            f"no spaCy pipeline {choice!r}; give a pipeline's folder, or: python -m spacy download en_core_web_md"
        )
    for name in INSTALLED:
        if importlib.util.find_spec(name) is not None:
            return name
    return str(weights.find(PINNED) or weights.pull(PINNED))


@functools.lru_cache(maxsize=2)
def load_parser(choice: str | None = None) -> Parser:
    """The parser, loaded once per process."""
    return Parser(find_pipeline(choice))


class Parser:
    """A spaCy pipeline that gives trees, with sentence starts set between its tagger and its parser."""

    def __init__(self, source: str) -> None:
        import spacy
        from spacy.tokens import Doc

        self.source = source
        try:
            self.nlp = spacy.load(source, exclude=list(_UNUSED))
        except Exception as error:
            raise InputError(f"{source}: spaCy cannot load this pipeline ({type(error).__name__}: {error})") from error
        missing = [name for name in _NEEDED if name not in self.nlp.pipe_names]
        if missing:
            raise InputError(
                f"{source}: the pipeline has no {' and no '.join(missing)}; expected one such as en_core_web_md"
            )
        self.lemma_of = verb_lemmas(self.nlp)
        self.tangible = noun_scores(self.nlp)
        if "lemmatizer" in self.nlp.pipe_names:
            self.nlp.disable_pipe("lemmatizer")
        at = self.nlp.pipe_names.index("parser")
        pipeline = list(self.nlp.pipeline)
        self._pipes = pipeline[: at + 1] + [pipe for pipe in pipeline[at + 1 :] if pipe[0] == "tagger"]
        self._doc = Doc
        self._split = functools.lru_cache(maxsize=50_000)(self._tokens)  # within a zone spaCy remembers nothing
        self._name = functools.cache(lambda key: str(self.nlp.vocab.strings[key]) if key else "")
        self._zone, self._zone_words = ExitStack(), _ZONE_WORDS + 1

    def tree(self, words: Sequence[Word], starts: Starts | None, shown: Mapping[int, str]) -> Tree:
        """The tree of a stretch of words. ``shown`` has what the parser sees in place of some of them."""
        self._renew_zone(len(words))
        parts = [self._split(shown.get(at, word.text)) for at, word in enumerate(words)]
        tokens = list(itertools.chain.from_iterable(parts))
        owner = [at for at, part in enumerate(parts) for _ in part]  # of each token, the number of its word
        glued = [k > 0 for part in parts for k in range(len(part))]
        doc: Any = self._doc(self.nlp.vocab, words=tokens, spaces=[*(not inside for inside in glued[1:]), True])
        for name, component in self._pipes:
            if name == "parser" and starts is not None:
                keys = doc.to_array("TAG").tolist()
                # of a word's tokens the first one counts; within a word no sentence starts
                tags = [self._name(key) for key, inside in zip(keys, glued, strict=True) if not inside]
                begins = starts(tags)
                signs = [1 if begins[at] and not inside else -1 for at, inside in zip(owner, glued, strict=True)]
                doc.from_array(["SENT_START"], np.array(signs, np.int64)[:, None].astype(np.uint64))
            doc = component(doc)
        table = doc.to_array(["TAG", "DEP", "HEAD", "SENT_START"])  # (T, 4); heads are relative
        tag, dep = ([self._name(key) for key in table[:, k].tolist()] for k in range(2))
        heads = table[:, 2].astype(np.int64).tolist()
        for i, at in enumerate(owner):
            if at in shown and not glued[i] and heads[i] == 0 and tag[i] == "NN":
                tag[i] = "VB"  # a verb was shown and heads its sentence, though the tagger took it for a noun
        text = [
            words[at].text.strip(MARKS) if at in shown and not inside else token
            for token, at, inside in zip(tokens, owner, glued, strict=True)
        ]
        return Tree(
            text=text,
            low=[token.lower() for token in text],
            tag=tag,
            dep=dep,
            head=[i + head for i, head in enumerate(heads)],
            sentence=np.maximum(np.cumsum(table[:, 3] == 1) - 1, 0).tolist(),
            start_s=[words[at].start_s for at in owner],
            end_s=[words[at].end_s for at in owner],
            glued=glued,
        )

    def _renew_zone(self, count: int) -> None:
        """Frees what spaCy allocated for words it did not know, once every ``_ZONE_WORDS``, so that memory stays flat.

        A zone for every stretch would learn the common words anew each time.
        """
        if self._zone_words > _ZONE_WORDS:
            self._zone.close()
            self._zone.enter_context(self.nlp.memory_zone())
            self._zone_words = 0
        self._zone_words += count

    def _tokens(self, text: str) -> list[str]:
        """A word as the parser's tokens: "don't" is two."""
        parts = [token.text for token in self.nlp.tokenizer(text)]
        return parts if "".join(parts) == text else [text]
