"""Phrases as names of steps: the forms, imperatives of at most eight words, in which a phrase may name one.

What speakers put around things is taken off ("a little bit of", "your lovely"), and what is more than eight words. A
phrase has several forms: with what a pronoun stands for or with the pronoun, with its place or without. Which of them
is right, if any, is not decided here but by what was said around it (:mod:`stepformer.app.naming`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from stepformer.narration import lexicon
from stepformer.narration.lexicon import word_set, words
from stepformer.narration.phrases import Phrase

MOST_WORDS = 8
_TALKING = words("talking")  # verbs that are chatter without a thing to act on
_OWNERS = word_set("your my our his her their this that these those")
_DETERMINERS = _OWNERS | word_set("the a an some any all both")
_AMOUNTS = re.compile(
    r"(?:(?:all of|some of|(?:just )?a (?:[a-z]+ )?bit of|a little bit more|a bit more|a lot of|lots of|plenty of|"
    r"the rest of|quite a bit of|a little|a bit|some|any) )+"
)
_OWN = word_set("mine yours ours hers")
_DEMONSTRATIVES = {"this": "it", "that": "it", "these": "them", "those": "them"}
# a name does not end in what needs more behind it
_OPEN = word_set("i the a an of and or with to from into onto for at by as my your this that its very so")
_PUTTING = word_set("put place set lay throw pop stick drop")
_PLACES = lexicon.CONTAINERS | lexicon.BODY
_ALONG = lexicon.REACHING_PREPS - set(lexicon.PHRASAL)  # "cut along the lines"
_PARTICIPLES = lexicon.pairs("participles")  # "the mince garlic" is minced
_SWALLOWING = word_set("spoonful handful pinch couple few bunch knob splash")
_LEADING = word_set("and or of , all both other first last next than")
_MEASURES = "|".join(sorted(lexicon.MEASURES - {"mixture"}))
_MEASURED = re.compile(
    rf"\b(?:(?:and an?|an?|the|of|{'|'.join(sorted(lexicon.AMOUNTS))}|{_MEASURES}) )*(?:{_MEASURES}) of (?!the |it\b)"
)
_TOO_FEW = re.compile(
    r"\b(two|three|four|five|six|couple of) (cup|tablespoon|teaspoon|clove|pound|ounce|slice|piece)(?= of|$)"
)
_ARTICLE = re.compile("^(?:the|an?) ")
_SIDE = re.compile(r" (?:skin|cut|flat|fat|right|wrong|seam) side$")  # "in the pan skin side down"
_RESULT = rf"({'|'.join(sorted(lexicon.RESULTS))})(?=[.,!?]|$| (?:and|then|with|before|until|in|on) )"
_BETWEEN = word_set("and or also then plus just like maybe ,")
_PRONOUNS = lexicon.OBJECT_PRONOUNS | word_set("everything something anything that this")


def name_forms(phrases: Sequence[Phrase]) -> list[tuple[str, ...]]:
    """The forms in which each of a video's phrases, in order, may name a step; none for talk, for what must not be
    done, and for one whose object stands in the forms of the one before: "add the onions" and "add garlic" are one if
    they were said with one verb."""
    forms: list[tuple[str, ...]] = []
    while (first := len(forms)) < len(phrases):
        end = first + 1
        while end < len(phrases) and _one_verb(phrases[end - 1], phrases[end]):
            end += 1
        one, own = phrases[first], ()  # type: Phrase, tuple[str, ...]
        if not (one.negated or (one.chatter and one.verb in _TALKING)):
            group = _without_alternatives(phrases[first:end])
            own = tuple(dict.fromkeys((*_joined(group), *_forms(group[0]))))
        forms += [own, *[()] * (end - first - 1)]
    return forms


def _forms(phrase: Phrase) -> list[str]:
    """One phrase as names: what it was said of before what that stands for, and with its place before without."""
    if not phrase.verb:  # a phrase from elsewhere, with its text alone
        return [" ".join(phrase.text.split()[:MOST_WORDS])]
    where = _SIDE.sub("", " ".join(_without_next(_where(phrase.preposition).split()))).rstrip(",")
    said = [phrase.object] if phrase.said_object is None else [phrase.said_object, phrase.object]
    things = list(dict.fromkeys(_thing(thing, phrase.verb) for thing in said))
    found = [_named(phrase, thing, place) for thing in things for place in dict.fromkeys((where, ""))]
    if phrase.verb in ("put", "throw") and things[-1] and not (where or phrase.particle):
        found.append(f"add {things[-1]}")
    if phrase.verb in _PUTTING and phrase.particle in ("in", "on") and things[-1].rpartition(" ")[2] in _PLACES:
        found.append(f"{phrase.verb} it {phrase.particle} {things[-1]}")  # "then you put in the oven"
    return [name for name in found if name]


def _thing(said: str, verb: str) -> str:
    """What is acted on, as a name has it: "" where nothing is left of it."""
    thing = _one_thing(" ".join(_without_next(_plain(said).split())))
    if thing.startswith(f"a {verb} "):  # "squeeze just a squeeze of lemon"
        thing = thing.removeprefix(f"a {verb} ").removeprefix("of ")
    return "" if thing in _OWN else _DEMONSTRATIVES.get(thing, thing)


def _named(phrase: Phrase, thing: str, where: str) -> str | None:
    """An imperative of at most eight words; None if nothing but a verb is left that lost its object."""
    verb, particle, sentence = phrase.verb, phrase.particle, phrase.sentence.lower()
    amount = particle in ("about", "around") and f"{particle} {thing}" in sentence  # "add about a teaspoon"
    if amount or (particle == "away" and "right away" in sentence):
        particle = ""
    behind = thing in _PRONOUNS or verb not in lexicon.PHRASAL.get(particle, ())
    if phrase.text.startswith("let ") and verb != "let":
        parts = ["let", thing or "it", verb]
    elif particle and thing and behind and not (particle in _ALONG and _directly_behind(phrase)):
        parts = [verb, thing, particle, _state(phrase)]
    else:
        parts = [verb, particle, thing, _state(phrase)]
    head = " ".join(part for part in parts if part)
    full = f"{head} {where}".strip()
    # "mix the yeast with a tablespoon of water": with water
    brief = " ".join(_MEASURED.sub("", where).split(" of ")[0].split(" and ")[0].split())
    shorter = (
        full,
        full.replace(" the ", " ", 1),
        full.replace(" to a boil", " to boil"),
        _MEASURED.sub("", full),
        f"{_MEASURED.sub('', head)} {brief}",
        head,
    )
    fitting = [text.split() for text in shorter if len(text.split()) <= MOST_WORDS]
    # of a long noun phrase the last words, its amount taken off
    kept = fitting[0] if fitting else [verb, *particle.split(), *thing.split(" of ", 1)[-1].split()[-5:]]
    return _closed(kept) or _closed(head.split())


def _joined(phrases: Sequence[Phrase]) -> list[str]:
    """Forms of phrases of one verb that have as many of their things as fit; none of a single one."""
    things: list[str] = []
    for phrase in phrases:
        thing = _plain(phrase.object)
        bare = _ARTICLE.sub("", thing) if things else thing
        if bare and bare not in _PRONOUNS and bare not in things:
            things.append(bare)
    for count in range(len(things), 1, -1):
        listed = ", ".join(things[: count - 1]) + " and " + things[count - 1]
        if fitting := [name for name in _forms(replace(phrases[0], object=listed, text="")) if listed in name]:
            return fitting
    return []


def _without_alternatives(phrases: Sequence[Phrase]) -> list[Phrase]:
    """Phrases of one verb without what is said behind "or" ("a drop or two of vanilla" is a drop of vanilla), and
    without everything after what is not in the list."""
    kept = list(phrases[:1])
    for before, phrase in itertools.pairwise(phrases):
        if not _listed(before, phrase):
            break
        if f" or {phrase.object} " not in f"{phrase.sentence.lower()} ":
            kept.append(phrase)
        elif phrase.object.startswith("two of "):
            kept[0] = replace(kept[0], object=f"{kept[0].object} {phrase.object.removeprefix('two ')}")
    return kept


def _one_verb(before: Phrase, phrase: Phrase) -> bool:
    """Whether two neighbours are one verb on two things: "add the onions and the garlic"."""
    same = (before.verb, before.particle, before.start_s) == (phrase.verb, phrase.particle, phrase.start_s)
    plain = [one.object and one.said_object is None and not one.chatter for one in (before, phrase)]
    return same and all(plain) and before.negated == phrase.negated


def _listed(before: Phrase, phrase: Phrase) -> bool:
    """Whether the object of a phrase is said as the next of a list: behind "and", or with an amount or article of its
    own."""
    said = re.sub(r"([.,!?])", r" \1", f" {phrase.sentence.lower()} ")
    _, found, rest = said.partition(f" {before.object} ")
    between, there, behind = rest.partition(f"{phrase.object} ")
    if not (found and there):
        return True
    if phrase.object.startswith("one of ") or behind.startswith("each"):
        return False  # "make dumplings one of my favorite dishes", "attach the handles, just two screws each"
    first = phrase.object.partition(" ")[0]
    own = first in _DETERMINERS | lexicon.AMOUNTS or first.isdigit()
    return set(between.split()) <= _BETWEEN and (own or bool(between.strip()))


def _one_thing(thing: str) -> str:
    """A thing without another that is said behind it without "and": "the garlic one teaspoon of cumin"; and with the
    article that speech swallows: "few minutes"."""
    words = [_PARTICIPLES.get(word, word) for word in thing.split(" or ", maxsplit=1)[0].split()]
    for at in range(1, len(words)):
        one = words[at] in ("half", "more") or words[at:] == ["one"]  # "the new one"
        starts = words[at] in _DETERMINERS or (words[at] in lexicon.AMOUNTS and not one)
        if starts and words[at - 1] not in _DETERMINERS | lexicon.AMOUNTS | lexicon.WHERE_WORDS | _LEADING:
            words = words[:at]
            break
    if len(words) > 1 and words[0] in _SWALLOWING:
        words = ["a", *words]
    if words[:1] == ["a"] and words[2:] == ["water"]:
        words = words[1:]  # "in a boiling water"
    text = _TOO_FEW.sub(r"\1 \2s", " ".join(words))
    return text.removeprefix("the ") if words[:2] == ["the", "half"] else text


def _directly_behind(phrase: Phrase) -> bool:
    """Whether the particle was said next to the verb ("put on the lid"), not behind its object ("put the lid on")."""
    words = phrase.sentence.lower().split()
    if not words:
        return phrase.text.startswith(f"{phrase.verb} {phrase.particle} ")
    return any(word == phrase.particle and before[:2] == phrase.verb[:2] for before, word in itertools.pairwise(words))


def _closed(words: Sequence[str]) -> str | None:
    """The words as a name, without an end that lost what follows it and without saying a thing twice; None if nothing
    but a verb is left that lost its object."""
    kept: list[str] = []
    for word in words:
        if len(word) > 3 and any(word.rstrip("s") == other.rstrip("s") for other in kept[1:]):
            break
        kept.append(word)
    cut = len(kept) < len(words)
    kept = kept if kept[:1] == ["let"] else _without_next(kept)
    while len(kept) > 1 and (kept[-1] in _OPEN or (cut and kept[-1] in lexicon.PARTICLES)):
        kept, cut = kept[:-1], True
    return None if cut and len(kept) < 2 else " ".join(kept)


def _without_next(words: list[str]) -> list[str]:
    """Words without the verb of what is said next, "put the dough in the bowl cover", and what follows it."""
    if words[:1] == ["to"] and "boil" in words:
        return ["to", "a", "boil"]  # "to the boil broccoli", "to a rolling boil"
    while len(words) > 1 and words[-2] not in _DETERMINERS | _OPEN | lexicon.WHERE_WORDS:
        before, word = words[-2:]
        end = word == "cover" and before in lexicon.CONTAINERS if word in lexicon.COMPOUND_ENDS else (
            word in lexicon.VERBS_ONLY and word not in lexicon.CONCRETE_NOUNS | {"open", "close", "lower"}
        )  # fmt: skip
        if not end:
            break
        words = words[:-1]
    return words


def _plain(thing: str) -> str:
    """A noun phrase without amounts that are none, owners and praise: "some of that lovely cheese" -> "cheese"."""
    amount = _AMOUNTS.match(thing)
    words = thing[amount.end() if amount else 0 :].split()
    if words and words[0] in _OWNERS and len(words) > 1:
        words = words[1:] if amount else ["the", *words[1:]]
    last = len(words) - 1
    kept = [w for at, w in enumerate(words) if at == last or not (w in lexicon.PRAISE or (at and w in _OWNERS))]
    if kept[:1] == ["a"] and len(kept) < len(words) and kept[1][:1] in "aeio":
        kept[0] = "an"  # "a nice even layer"
    return " ".join(kept)


def _where(preposition: str) -> str:
    """A prepositional phrase, its noun made plain."""
    words = preposition.split()
    for at in range(1, len(words)):
        if words[at] in _DETERMINERS or words[at] in lexicon.PRAISE:
            return " ".join([*words[:at], *_plain(" ".join(words[at:])).split()])
    return preposition


def _state(phrase: Phrase) -> str:
    """ "straight" of "keep your back straight", between object and preposition; "tight" of "pull it tight"."""
    said = (phrase.object if phrase.said_object is None else phrase.said_object).rpartition(" ")[2]
    verb = rf"\b{re.escape(phrase.verb)}\w*" if said in _PRONOUNS else ""  # "fold it in half and pinch it shut"
    if said and (found := re.search(rf"{verb} {re.escape(said)} {_RESULT}", phrase.sentence.lower())):
        return "" if found[1] == phrase.particle else found[1]
    if not phrase.object or phrase.object not in phrase.text:
        return ""
    rest = phrase.text.split(phrase.object, 1)[1]
    if phrase.preposition:
        rest = rest.replace(phrase.preposition, "", 1)
    return " ".join(word for word in rest.split() if word != phrase.particle)
