"""Small word lists (``words.toml``): what speech is made of beside the words that matter.

A list is an attribute by its name in capitals: ``lexicon.FILLERS`` are the words of ``fillers``.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

_LISTS = tomllib.loads((files(__package__) / "words.toml").read_text("utf-8"))


def word_set(text: str) -> frozenset[str]:
    """The words of a text as a set."""
    return frozenset(text.split())


def words(name: str) -> frozenset[str]:
    """The words of a list."""
    found = _LISTS[name]
    return word_set(found if isinstance(found, str) else " ".join(found))


def __getattr__(name: str) -> frozenset[str]:
    if name.lower() not in _LISTS:
        raise AttributeError(f"there is no word list {name.lower()!r} in words.toml")
    globals()[name] = found = words(name.lower())
    return found


def pairs(name: str) -> dict[str, str]:
    """The pairs ``from:to`` of a list; a word alone stands for itself."""
    return {word.partition(":")[0]: word.rpartition(":")[2] for word in _LISTS[name].split()}


CONCRETE_NOUNS = words("things") | words("foods")
ACTION_NOUNS = pairs("action_nouns")
MISHEARD = pairs("misheard")
PHRASAL = {particle: word_set(verbs) for particle, verbs in _LISTS["phrasal"].items()}
