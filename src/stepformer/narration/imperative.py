"""Phrases as names of steps: an imperative of at most eight words, "brush the top with butter".

A phrase is near to one already; what is taken off is what speakers put around things ("a little bit of", "your
lovely"), what is more than eight words, and references that are not sure: after "sprinkle in salt", "cook it" is not
about the salt.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepformer.narration.lexicon import CONTAINERS, OBJECT_PRONOUNS, word_set
from stepformer.narration.phrases import Phrase

MOST_WORDS = 8
_LEAST_GROUNDED = 0.5  # what a camera would hardly see names no step
_REACH_S = 25.0  # a reference is sure only to what was spoken of so lately
_OWNERS = word_set("your my our his her their this that these those")
_DETERMINERS = _OWNERS | word_set("the a an some any all both")
_PRAISE = word_set(
    "nice lovely beautiful good great amazing delicious really very little favorite perfect awesome wonderful gorgeous "
    "delightful pretty super nicely just actual own whole entire"
)
_AMOUNTS = (
    "all of", "some of", "a little bit of", "a little bit more", "a bit of", "a bit more", "just a bit of", "a lot of",
    "lots of", "plenty of", "the rest of", "quite a bit of", "a little", "a bit", "some", "any",
)  # fmt: skip
_OWN = word_set("mine yours ours hers")
# what is added becomes part of something else: "it" is then the whole
_ADDING = word_set(
    "add sprinkle pour toss throw drop stir drizzle squeeze season dump crumble salt pepper scatter spoon"
)
_NOT_TAKEN_UP = CONTAINERS | word_set("lid heat cover foil temperature flame fire knife spoon fork whisk spatula brush")
_BEHIND = word_set("together apart aside back")  # particles that stand better behind their object
_PRONOUNS = OBJECT_PRONOUNS | word_set("everything something anything that this")


def spoken_names(phrases: Sequence[Phrase]) -> list[str | None]:
    """A name for each of a video's phrases in order, or None for one that names no step (chatter, "do not")."""
    return [imperative(phrase, sure=_sure(phrases, i)) for i, phrase in enumerate(phrases)]


def imperative(phrase: Phrase, sure: bool = True) -> str | None:
    """A phrase as an imperative of at most eight words; None where it names no step.

    sure: what a pronoun or an object that was left out stands for is certain; otherwise it is not put in its place.
    """
    if phrase.chatter or phrase.negated or phrase.groundability < _LEAST_GROUNDED:
        return None
    if not phrase.verb:  # a phrase of somebody else's making, with its text alone
        return " ".join(phrase.text.split()[:MOST_WORDS]) or None
    thing = phrase.object
    if phrase.said_object is not None and not sure:
        thing = phrase.said_object
    thing = _plain(thing)
    if thing in _OWN:
        thing = ""
    where = _where(phrase.preposition)
    let = phrase.text.startswith("let ") and phrase.verb != "let"
    state = "" if let else _state(phrase)
    if let:
        parts = ["let", thing or "it", phrase.verb]
    elif phrase.particle and thing and (thing in _PRONOUNS or phrase.particle in _BEHIND):
        parts = [phrase.verb, thing, phrase.particle]
    else:
        parts = [phrase.verb, phrase.particle, thing]
    head = " ".join(part for part in (*parts, state) if part)
    full = f"{head} {where}"
    shorter = (full, full.replace(" the ", " ", 1), f"{head} {where.split(' of ')[0]}", head)
    fitting = [text.split() for text in shorter if len(text.split()) <= MOST_WORDS]
    words = fitting[0] if fitting else [phrase.verb, *phrase.particle.split(), *_shortest(thing).split()]
    return " ".join(words)


def rank(phrase: Phrase, name: str | None) -> float:
    """How well a phrase would name a step, from 0 to 1: what says more, and says it of a thing, comes first."""
    if name is None:
        return 0.0
    words = name.split()
    bare = 0.4 if len(words) == 1 else 0.2 if words[-1] in _PRONOUNS or phrase.object in _PRONOUNS else 0.0
    return max(0.0, phrase.groundability - bare)


def _sure(phrases: Sequence[Phrase], at: int) -> bool:
    """Whether what the reference of phrase ``at`` stands for was acted on lately, and not mixed into something."""
    phrase = phrases[at]
    if phrase.said_object is None:
        return True
    noun = phrase.object.split()[-1] if phrase.object else ""
    if noun in _NOT_TAKEN_UP:
        return False
    for before in reversed(phrases[:at]):
        if phrase.start_s - before.end_s > _REACH_S:
            return False
        if noun and noun in before.object.split():
            return before.verb not in _ADDING or phrase.particle == "in"
    return True  # named in the same sentence without being acted on


def _plain(thing: str) -> str:
    """A noun phrase without amounts that are none, owners and praise: "some of that lovely cheese" -> "cheese"."""
    text = thing
    changed = True
    while changed:
        changed = False
        for amount in _AMOUNTS:
            if text.startswith(amount + " "):
                text, changed = text[len(amount) + 1 :], True
                break
    words = text.split()
    taken = text != thing
    if words and words[0] in _OWNERS and len(words) > 1:
        words = words[1:] if taken else ["the", *words[1:]]
    kept = [word for at, word in enumerate(words) if word not in _PRAISE or at == len(words) - 1]
    return " ".join(kept)


def _where(preposition: str) -> str:
    """A prepositional phrase, its noun made plain."""
    words = preposition.split()
    for at in range(1, len(words)):
        if words[at] in _DETERMINERS or words[at] in _PRAISE:
            return " ".join([*words[:at], *_plain(" ".join(words[at:])).split()])
    return preposition


def _state(phrase: Phrase) -> str:
    """ "straight" of "keep your back straight": the words between object and preposition."""
    if not phrase.object or phrase.object not in phrase.text:
        return ""
    rest = phrase.text.split(phrase.object, 1)[1]
    if phrase.preposition:
        rest = rest.replace(phrase.preposition, "", 1)
    return " ".join(word for word in rest.split() if word != phrase.particle)


def _shortest(thing: str) -> str:
    """The last words of a long noun phrase, its amount taken off."""
    return " ".join(thing.split(" of ", 1)[-1].split()[-5:])
