"""Base forms of verbs: the pipeline's own tables where it has them, a few rules where it has none."""

from __future__ import annotations

from typing import Any

from stepformer.narration.lexicon import pairs

_IRREGULAR = pairs("irregular_verbs")
_PAST = ("VBD", "VBN")


class VerbLemmas:
    """Base form of a verb from its word and tag, remembered."""

    def __init__(self, nlp: Any) -> None:
        self._seen: dict[tuple[str, str], str] = {}
        self._exceptions: Any = {}
        self._index: Any = frozenset()
        self._rules: Any = ()
        if "lemmatizer" in nlp.component_names:
            lookups = nlp.get_pipe("lemmatizer").lookups
            if all(lookups.has_table(name) for name in ("lemma_exc", "lemma_index", "lemma_rules")):
                self._exceptions = lookups.get_table("lemma_exc").get("verb", {})
                self._index = frozenset(lookups.get_table("lemma_index").get("verb", ()))
                self._rules = lookups.get_table("lemma_rules").get("verb", ())

    def __call__(self, word: str, tag: str) -> str:
        """The base form of ``word``, which has this tag."""
        key = (word, tag)
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) > 50_000:  # broken text has no end of new words
                self._seen.clear()
            found = self._seen[key] = self._find(word, tag)
        return found

    def _find(self, word: str, tag: str) -> str:
        if word in ("gon", "gonna"):
            return "go"
        if word in ("'s", "'re", "'m"):
            return "be"
        if tag not in (*_PAST, "VBZ", "VBG"):
            return word
        known = self._exceptions.get(word)
        if known:
            return str(known[0])
        if word in _IRREGULAR:
            return _IRREGULAR[word]
        if tag in _PAST and word in self._index and not word.endswith("ed"):
            return word  # put, cut, set
        for old, new in self._rules:
            if word.endswith(old):
                base = word[: len(word) - len(old)] + new
                if base in self._index:
                    return str(base)
        return word if word in self._index else _strip(word, tag)


def _strip(word: str, tag: str) -> str:
    if tag == "VBZ" and word.endswith("s"):
        return (
            word[:-3] + "y"
            if word.endswith("ies")
            else word[:-2]
            if word.endswith(("shes", "ches", "sses", "xes", "zes"))
            else word[:-1]
        )
    ending = "ing" if tag == "VBG" else "ed"
    if not word.endswith(ending) or len(word) < len(ending) + 3:
        return word
    base = word[: -len(ending)]
    if tag != "VBG" and base.endswith("i"):
        return base[:-1] + "y"
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    # a short stem of consonant, vowel, consonant has lost its e: "slic", "bak"
    if base[-1] in "cgvszuk" or (
        len(base) >= 3 and base[-1] in "kmnplt" and base[-2] in "aiou" and base[-3] not in "aeiou"
    ):
        return base + "e"
    return base
