"""Talk around the steps: greetings, asking for subscribers, opinions, states."""

from __future__ import annotations

from stepformer.narration.groundability import CONCRETE_NOUNS, PHYSICAL_VERBS
from stepformer.narration.lexicon import CHATTER_OBJECTS, CHATTER_VERBS, OBJECT_PRONOUNS, STEP_WHEN_CONCRETE, STOP_VERBS


def is_chatter(verb: str, particle: str, noun: str, person: bool, around: str = "") -> bool:
    """Whether a phrase is no step.

    ``noun`` is the head of the object, or of the preposition's object where there is none; ``person`` is whether
    a person does it (or nobody is named, as in an imperative); ``around`` is the text of the prepositional phrase.
    """
    if verb in CHATTER_VERBS or not person:
        return True
    if noun in CHATTER_OBJECTS and not (
        noun in ("page", "code", "link", "sign", "word", "words", "email")
        and verb in PHYSICAL_VERBS
        and verb != "click"
    ):
        return True
    if any(
        word in CHATTER_OBJECTS and word in ("video", "channel", "description", "comments", "youtube", "instagram")
        for word in around.split()
    ):
        return True
    if verb not in STOP_VERBS:
        return False
    if particle and verb not in ("go", "come", "look", "talk", "figure", "find", "end", "hang", "stay"):
        # "keep down the heat", "bring up the edges"; "find out the price" is talk
        return False
    if verb in STEP_WHEN_CONCRETE:
        return not (
            noun in CONCRETE_NOUNS or (noun in OBJECT_PRONOUNS and verb in ("bring", "keep", "hit", "stop", "start"))
        )
    return True
