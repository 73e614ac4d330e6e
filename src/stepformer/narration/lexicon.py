"""Small word lists (``words.toml``): what speech is made of beside the words that matter."""

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


def pairs(name: str) -> dict[str, str]:
    """The pairs ``from:to`` of a list; a word alone stands for itself."""
    return {word.partition(":")[0]: word.rpartition(":")[2] for word in _LISTS[name].split()}


FILLERS = words("fillers")
SOFTENERS = words("softeners")
LIGHT_VERBS = words("light_verbs")
NOT_NEEDED = words("not_needed")
NOT_OMITTED = words("not_omitted")
STOPPING = words("stopping")
STOP_VERBS = words("stop_verbs")
STEP_WHEN_CONCRETE = words("step_when_concrete")
CHATTER_OBJECTS = words("chatter_objects")
CHATTER_VERBS = words("chatter_verbs")
GIVE_VERBS = words("give_verbs")
ACTION_NOUNS = pairs("action_nouns")
PARTICLES = words("particles")
TRANSITIVE = words("transitive")
ELIDING = words("eliding")
TOGETHER = words("together")
PERSONS = words("persons")
PERSON_NOUNS = words("person_nouns")
NON_OBJECTS = words("non_objects")
OBJECT_PRONOUNS = words("object_pronouns")
EMPTY_WORDS = words("empty_words")
MEASURES = words("measures")
EMPTY_PREPS = words("empty_preps")
EMPTY_PREP_OBJECTS = words("empty_prep_objects")
REACHING_PREPS = words("reaching_preps")
MOTION = words("motion")
TIME_NOUNS = words("time_nouns")
CONTAINERS = words("containers")
SWITCHED = words("switched")
FOOD_VERBS = words("food_verbs")
NOT_FOOD = words("not_food")
COMPOUNDS = words("compounds")
KITCHEN_HOMOPHONES = pairs("kitchen_homophones")
PHRASAL = {particle: word_set(verbs) for particle, verbs in _LISTS["phrasal"].items()}
