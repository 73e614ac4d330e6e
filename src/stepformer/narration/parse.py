"""The dependency parser: which spaCy pipeline is used, and words to trees."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stepformer.errors import InputError, MissingError, StepFormerError
from stepformer.narration.cues import Word
from stepformer.narration.lemmas import VerbLemmas
from stepformer.narration.tree import Tree

INSTALLED = ("en_core_web_md", "en_core_web_lg", "en_core_web_trf", "en_core_web_sm")
PINNED = "spacy-en-md"
_NEEDED = ("tagger", "parser")
_UNUSED = ("ner", "attribute_ruler", "entity_linker", "senter", "textcat")

# for each token of a stretch: True where a sentence starts, None where the parser may decide
Starts = Callable[[Sequence[str]], "Sequence[bool | None]"]


def find_pipeline(choice: str | None = None) -> str:
    """Path or package name of the English pipeline: the one asked for, an installed one, the pinned one.

    Raises:
        MissingError: there is none here and none can be downloaded.
    """
    if choice is not None:
        if Path(choice).is_dir() or importlib.util.find_spec(choice.split("/")[0].split("\\")[0] or "_") is not None:
            return choice
        raise MissingError(
            f"no spaCy pipeline {choice!r}; give a pipeline's folder, or: python -m spacy download en_core_web_md"
        )
    for name in INSTALLED:
        if importlib.util.find_spec(name) is not None:
            return name
    from stepformer import weights

    return str(weights.find(PINNED) or weights.pull(PINNED))


@functools.lru_cache(maxsize=2)
def load_parser(choice: str | None = None) -> Parser:
    """The parser, loaded once a process."""
    return Parser(find_pipeline(choice))


class Parser:
    """A spaCy pipeline that gives trees, with sentence starts set between its tagger and its parser."""

    def __init__(self, source: str) -> None:
        import spacy

        self.source = source
        try:
            self.nlp = spacy.load(source, exclude=list(_UNUSED))
        except StepFormerError:
            raise
        except Exception as error:
            raise InputError(f"{source}: spaCy cannot load this pipeline ({type(error).__name__}: {error})") from error
        missing = [name for name in _NEEDED if name not in self.nlp.pipe_names]
        if missing:
            raise InputError(
                f"{source}: the pipeline has no {' and no '.join(missing)}; expected an English one such as en_core_web_md"
            )
        # its tables are read below; as a component it costs as much as the parser
        self.lemma_of = VerbLemmas(self.nlp)
        if "lemmatizer" in self.nlp.pipe_names:
            self.nlp.disable_pipe("lemmatizer")
        names = self.nlp.pipe_names
        at = names.index("parser")
        self._before = [component for _, component in self.nlp.pipeline[:at]]
        self._parser = self.nlp.get_pipe("parser")
        self._tagger_later = "tagger" in names[at:]

    def tree(self, words: Sequence[Word], starts: Starts | None, shown: Mapping[int, str] | None = None) -> Tree:
        """The tree of a stretch of words.

        ``starts`` gets a tag for each word and says where sentences start; ``shown`` has what the parser sees in
        place of some words.

        What spaCy allocates for new words is freed when the stretch is done, so that memory stays flat.
        """
        with self.nlp.memory_zone():
            return self._tree(words, starts, shown or {})

    def _tree(self, words: Sequence[Word], starts: Starts | None, shown: Mapping[int, str]) -> Tree:
        texts = [shown.get(i, word.text) for i, word in enumerate(words)]
        doc = self.nlp.make_doc(" ".join(texts))
        owner = _owners(doc, texts)
        for component in self._before:
            doc = component(doc)
        if starts is not None:
            self._set_starts(doc, owner, len(words), starts)
        doc = self._parser(doc)
        if self._tagger_later:
            doc = self.nlp.get_pipe("tagger")(doc)
        return _as_tree(doc, owner, words, shown)

    def _set_starts(self, doc: Any, owner: Sequence[int], count: int, starts: Starts) -> None:
        tags = [""] * count
        for token, at in zip(doc, owner, strict=True):
            if not tags[at]:
                tags[at] = token.tag_
        begins = starts(tags)
        seen = -1
        for token, at in zip(doc, owner, strict=True):
            if at != seen:
                if begins[at]:
                    token.is_sent_start = True
                elif begins[at] is False:
                    token.is_sent_start = False
                seen = at
            else:
                token.is_sent_start = False


def _owners(doc: Any, texts: Sequence[str]) -> list[int]:
    """For each token, the number of the word it is (a part of)."""
    owner: list[int] = []
    at = 0
    end = len(texts[0]) if texts else 0
    for token in doc:
        while token.idx > end and at + 1 < len(texts):
            at += 1
            end += 1 + len(texts[at])
        owner.append(at)
    return owner


def _as_tree(doc: Any, owner: Sequence[int], words: Sequence[Word], shown: Mapping[int, str]) -> Tree:
    tokens = list(doc)
    sentence: list[int] = []
    number = -1
    for token in tokens:
        number += bool(token.is_sent_start)
        sentence.append(max(0, number))
    text = [token.text if at not in shown else words[at].text for token, at in zip(tokens, owner, strict=True)]
    return Tree(
        text=text,
        low=[word.lower() for word in text],
        tag=[token.tag_ for token in tokens],
        dep=[token.dep_ for token in tokens],
        head=[token.head.i for token in tokens],
        sentence=sentence,
        start_s=[words[at].start_s for at in owner],
        end_s=[words[at].end_s for at in owner],
        glued=[i > 0 and not tokens[i - 1].whitespace_ for i in range(len(tokens))],
    )
