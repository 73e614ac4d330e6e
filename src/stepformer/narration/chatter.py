"""Talk around the steps: greetings, asking for subscribers, opinions, states."""

from __future__ import annotations

from stepformer.narration.groundability import CONCRETE_NOUNS, PHYSICAL_VERBS, VAGUE_VERBS, noun_score
from stepformer.narration.lexicon import (
    CHATTER_OBJECTS,
    CHATTER_VERBS,
    OBJECT_PRONOUNS,
    STEP_WHEN_CONCRETE,
    STOP_VERBS,
    word_set,
)

# talk with most verbs, things with a verb of hand work: "cut off the tips", "turn the page"
_TWO_FACED = word_set(
    "page code sign word words email tip tips rest point story kind thumb thumbs lot sort mark like job rest"
)
_CHANNEL = word_set("video channel description comments youtube instagram facebook twitter subscribe notification")
_BUTTONS = word_set("hit smash ring click tap press turn push")
_TALK_PARTICLES = word_set(
    "go come look talk figure find end stay hang have be see want need do know like love"
)  # "find out the price" is talk
_MAKING = word_set("get make create obtain give keep")  # "get a nice texture" is no act of its own
_THING = 0.75  # tangible enough to be a thing
_ON_PRONOUNS = word_set("bring keep hit stop start")


def is_chatter(
    verb: str,
    particle: str,
    noun: str,
    person: bool,
    around: str = "",
    where: bool = False,
    tangible: float | None = None,
) -> bool:
    """Whether a phrase is no step.

    ``noun`` is the head of the object, or of the preposition's object where there is none; ``person`` is whether
    a person does it (or nobody is named, as in an imperative); ``around`` has all the words of the object and of the
    prepositional phrase; ``where`` is whether there is one; ``tangible`` is the noun's score.
    """
    words = set(around.split())
    if verb in CHATTER_VERBS or not person or words & _CHANNEL:
        return True
    if verb in _BUTTONS and noun in ("button", "bell", "icon") and ("like" in words or noun == "bell"):
        return True
    if noun in CHATTER_OBJECTS and not (noun in _TWO_FACED and verb in PHYSICAL_VERBS):
        return True
    if tangible is None:
        tangible = noun_score(noun)
    if verb in _MAKING and tangible <= 0.2:
        return True
    if verb == "make" and tangible < _THING and not where:
        return True  # "make this recipe": what all of it comes to, no step of it
    if (verb not in PHYSICAL_VERBS or verb in VAGUE_VERBS) and tangible < _THING and not where and not particle:
        return True  # no hand work that says what is done, on nothing that says to what: "use red", "get all"
    if verb not in STOP_VERBS or (particle and verb not in _TALK_PARTICLES):
        return False  # "keep down the heat", "bring up the edges"
    if verb in STEP_WHEN_CONCRETE:
        return not (noun in CONCRETE_NOUNS or (noun in OBJECT_PRONOUNS and verb in _ON_PRONOUNS))
    return True
