"""Phrases as names of steps: an imperative of at most eight words, "brush the top with butter".

A phrase is near to one already; what is taken off is what speakers put around things ("a little bit of", "your
lovely"), what is more than eight words, words that lost what follows them ("on an"), and references that are not sure:
after "sprinkle in salt", "cook it" is not about the salt. What is done to several things is one name: "add the onions
and garlic".
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

from stepformer.narration import lexicon
from stepformer.narration.asides import PAST
from stepformer.narration.lexicon import word_set
from stepformer.narration.phrases import Phrase

MOST_WORDS = 8
_LEAST_GROUNDED = 0.5  # what a camera would hardly see names no step
_REACH_S = 15.0  # a reference is sure only to what was spoken of so lately
_OWNERS = word_set("your my our his her their this that these those")
_DETERMINERS = _OWNERS | word_set("the a an some any all both")
_AMOUNTS = re.compile(
    r"(?:(?:all of|some of|(?:just )?a (?:[a-z]+ )?bit of|a little bit more|a bit more|a lot of|lots of|plenty of|"
    r"the rest of|quite a bit of|a little|a bit|some|any) )+"
)
_OWN = word_set("mine yours ours hers")
_DEMONSTRATIVES = {"this": "it", "that": "it", "these": "them", "those": "them"}
_PLACES = lexicon.CONTAINERS | lexicon.BODY
_NOT_TAKEN_UP = _PLACES | lexicon.NOT_TAKEN_UP | lexicon.PARTS_AND_TOOLS
_TAKING_UP = word_set("have take get grab use want need")  # "take an egg and beat it"
# these need more behind them, so that a name does not end in one
_OPEN = word_set("i the a an of and or with to from into onto for at by as my your this that its very so")
_NEEDS_A_PLACE = word_set("put place set lay throw")
_LEAVING = word_set("pop stick dump drop")
_PLACING = lexicon.REACHING_PREPS | lexicon.PARTICLES
_ALONG = lexicon.REACHING_PREPS - set(lexicon.PHRASAL)  # "cut along the lines"
_NEEDS_A_THING = word_set("add pull remove place")
_NOT_AT = lexicon.words("foods") | word_set("oil sauce water salt onion onions garlic butter milk flour sugar")
_NO_PLACE = word_set(
    "one two way ways point points recipe recipes thing things kind sort season right first second texture"
)
_TAKING, _INTO = word_set("take get use grab"), word_set("in into onto over on through")
_DANGLING = word_set("in on off up")  # say nothing behind an object, unless they make one act with the verb
_PARTICIPLES = lexicon.pairs("participles")  # "the mince garlic" is minced
_SWALLOWING = word_set("spoonful handful pinch couple few bunch knob splash")
_LEADING = word_set("and or of , all both other first last next than")
_SEVERAL = word_set("couple few dozen hundred pair bunch third quarter half")
# what captions without marks run together: "two tablespoons and an in the cream", "use whatever sausage"
_BROKEN = re.compile(
    r"\b(a|an|the|and|or|of) (in|on|into|with|of|and|or|at|for|to|from)\b|"
    r"\btop the\b|\b(last|first|next|other) (the|an?)\b|"
    r"\b(two|three|four|five|six|seven|eight|nine) (two|three|four|five|six|seven|eight|nine|half)\b|"
    r"\b(whatever|whichever|so far|at once|kind of|sort of|type of|less|stuff|anyway|because|what|which|who)\b"
)
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
_NO_NOUNS = lexicon.VERBS_ONLY - lexicon.CONCRETE_NOUNS - lexicon.COMPOUND_ENDS
_PRONOUNS = lexicon.OBJECT_PRONOUNS | word_set("everything something anything that this")
_THINGS = (lexicon.CONCRETE_NOUNS | lexicon.TIME_NOUNS | {"it", "way"}) - {"can"}


def spoken_names(phrases: Sequence[Phrase]) -> list[str | None]:
    """A name for each of a video's phrases in order, or None for one that names no step (chatter, "do not") or whose
    object stands in the name of one before: "add the onions" and "add garlic" are one name if said with one verb."""
    if _told_as_past(phrases):
        phrases = [replace(phrase, aside="") if phrase.aside == PAST else phrase for phrase in phrases]
    names: list[str | None] = []
    while (first := len(names)) < len(phrases):
        end = first + 1
        while end < len(phrases) and _one_verb(phrases[end - 1], phrases[end]):
            end += 1
        group = _without_alternatives(phrases[first:end])
        joined = _joined([phrase for phrase in group if phrase is not None])
        if joined is None:
            own = [phrase and imperative(phrase, sure=_sure(phrases, first + k)) for k, phrase in enumerate(group)]
            names += [name or None for name in own]
        else:
            names += [joined, *[None] * (end - first - 1)]
    return names


def _told_as_past(phrases: Sequence[Phrase]) -> bool:
    """Whether a talk tells what was done, step by step, so that its past is no story beside the steps."""
    steps = [phrase for phrase in phrases if not (phrase.chatter or phrase.negated)]
    return 2 * sum(phrase.aside == PAST for phrase in steps) > len(steps)


def _without_alternatives(phrases: Sequence[Phrase]) -> list[Phrase | None]:
    """Phrases of one verb, with None for what is said behind "or": "a drop or two of vanilla" is a drop of vanilla; and
    for all behind what is no list."""
    kept: list[Phrase | None] = list(phrases[:1])
    for before, phrase in itertools.pairwise(phrases):
        if not _listed(before, phrase):
            return [*kept, *[None] * (len(phrases) - len(kept))]
        alternative = f" or {phrase.object} " in f"{phrase.sentence.lower()} "
        if alternative and kept[0] is not None and phrase.object.startswith("two of "):
            kept[0] = replace(kept[0], object=f"{kept[0].object} {phrase.object.removeprefix('two ')}")
        kept.append(None if alternative else phrase)
    return kept


def imperative(phrase: Phrase, sure: bool = True) -> str | None:
    """A phrase as an imperative of at most eight words; None where it names no step.

    sure: what a pronoun or an object that was left out stands for is certain; otherwise it is not put in its place.
    """
    if phrase.chatter or phrase.negated or phrase.aside or phrase.groundability < _LEAST_GROUNDED:
        return None
    if not phrase.verb:  # a phrase of somebody else's making, with its text alone
        return " ".join(phrase.text.split()[:MOST_WORDS]) or None
    if phrase.verb in ("dive", "jump") and phrase.preposition.startswith("in"):
        return None  # "let's jump right into it"
    verb, thing = phrase.verb, phrase.object
    if phrase.said_object is not None and not sure:
        thing = phrase.said_object
    thing = _one_thing(" ".join(_without_next(_plain(thing).split())))
    thing = "" if thing in _OWN else _DEMONSTRATIVES.get(thing, thing)
    if thing.startswith(f"a {verb} "):  # "squeeze just a squeeze of lemon"
        thing = thing.removeprefix(f"a {verb} ").removeprefix("of ")
    where = _SIDE.sub("", " ".join(_without_next(_where(phrase.preposition).split()))).rstrip(",")
    where = _misplaced(verb, thing, where)
    last, opening, place = thing.rpartition(" ")[2], where.partition(" ")[0], where.rpartition(" ")[2]
    if phrase.sentence and (place not in phrase.sentence.lower() or _said_elsewhere(phrase)):
        where = ""  # "in this": what is meant is not sure
    misheard = opening == "at" and place in _NOT_AT
    if (opening == "out" and verb in _NEEDS_A_PLACE) or (misheard and not thing):
        return None  # "put the walnuts out of the oven", "heat up at oil"
    if misheard or place in _NO_PLACE or (verb in _TAKING and opening in _INTO):
        where = ""  # "take the wine in the pan": two acts run together
    if (verb in _NEEDS_A_THING and not thing) or (verb == "bring" and not (where or phrase.particle)):
        return None  # "add in a blender", "bring all the ingredients"
    if phrase.particle in ("in", "on") and verb in _NEEDS_A_PLACE | _LEAVING and last in _PLACES:
        thing, where = "it", f"{phrase.particle} {thing}"  # "put in the oven", "put on my face"
        phrase = replace(phrase, particle="")
    if verb in _NEEDS_A_PLACE and not thing and where and opening in ("in", "into", "to", "at"):
        if place not in lexicon.CONTAINERS:
            return None  # "we just put in our mouths"
        thing = "it"
    if verb in _NEEDS_A_PLACE and thing and not (where or phrase.particle):
        # "put salt" adds it; "put the pan" says nothing
        if last in _NOT_TAKEN_UP | _PRONOUNS:
            return None
        verb = "add" if verb in ("put", "throw") else verb
    if last in ("one", "ones") and len(thing.split()) > 1 and not where:
        return None  # "roll the old one off"
    if "too much" in thing or "too many" in thing or not _makes_sense(verb, thing, where or phrase.particle):
        return None
    if _BROKEN.search(f"{thing} {where}") or last.isdigit() or thing in _NO_NOUNS:
        return None  # "line an 8 by 8 pan", "put some sprinkle on it"
    amount = phrase.particle in ("about", "around") and f"{phrase.particle} {thing}" in phrase.sentence.lower()
    particle = "" if amount else phrase.particle  # "add about a teaspoon"
    behind = thing in _PRONOUNS or verb not in lexicon.PHRASAL.get(particle, ())
    if particle in lexicon.PHRASAL and thing and thing not in _PRONOUNS and behind:
        if _directly_behind(phrase):
            return None
        particle = "" if particle in _DANGLING else particle
    if particle == "away" and behind:
        particle = ""  # "serve it right away"
    if particle in ("in", "on") and verb in lexicon.ADDING and last in _NOT_TAKEN_UP:
        return None  # "add in a blender": a place, and not a thing
    switching = particle in ("on", "off") and verb in ("turn", "switch")
    if switching and thing and thing not in _PRONOUNS and last not in lexicon.SWITCHED:
        return None  # "turn on a baking sheet"
    let = phrase.text.startswith("let ") and phrase.verb != "let"
    state = "" if let else _state(phrase)
    if let:
        parts = ["let", thing or "it", verb]
    elif particle and thing and behind and not (particle in _ALONG and _directly_behind(phrase)):
        parts = [verb, thing, particle]
    else:
        parts = [verb, particle, thing]
    head = " ".join(part for part in (*parts, state) if part)
    full = f"{head} {where}"
    bare = _MEASURED.sub("", full)  # "mix the yeast with a tablespoon of water": with water
    brief = " ".join(_MEASURED.sub("", where).split(" of ")[0].split(" and ")[0].split())
    if brief.startswith("with ") and brief.rpartition(" ")[2] in lexicon.MEASURES - lexicon.CONTAINERS:
        brief = ""  # "with two tablespoons"
    shorter = (
        full,
        f"{head.replace(' the ', ' ', 1)} {where}",
        full.replace(" to a boil", " to boil"),
        bare,
        f"{_MEASURED.sub('', head)} {brief}",
        head,
    )
    fitting = [text.split() for text in shorter if len(text.split()) <= MOST_WORDS]
    # of a long noun phrase the last words, its amount taken off
    words = fitting[0] if fitting else [verb, *particle.split(), *thing.split(" of ", 1)[-1].split()[-5:]]
    name = _closed(words) or _closed(head.split())
    if name and verb in ("put", "throw") and (where or particle) and _PLACING.isdisjoint(name.split()):
        return None  # "throw the lid down on lid"
    return name


def _said_elsewhere(phrase: Phrase) -> bool:
    """Whether the place was said behind another thing: "add water, a pinch of salt, mix it to a soft dough"."""
    before, found, _ = f" {phrase.sentence.lower()} ".partition(f" {phrase.preposition} ")
    last = before.split()[-1:] if found and phrase.object else []
    own = {phrase.verb, *phrase.object.split(), *(phrase.said_object or "").split()}
    return bool(last) and last[0] in _THINGS and last[0] not in own


def _makes_sense(verb: str, thing: str, where: str) -> bool:
    """Whether the verb can be done to the thing there: nobody boils a table or cooks meat in a guy."""
    whose = where.split()
    if whose and whose[-1] in lexicon.PERSON_NOUNS:
        return False
    if verb == "use" or (verb == "get" and not where):
        return False  # does not say what is done
    words = [word for word in thing.split() if word not in _DETERMINERS]
    if thing[:2] == "a " and words and words[-1].endswith("s") and not _is_one(words):
        return False  # "a balls"
    if words and thing.startswith(words[0]) and f"{verb}:{words[0]}" in lexicon.COMPOUNDS:
        return False
    if words and words[-1] in lexicon.PERSON_NOUNS and len(words) > 1:
        return False  # "add truffles chef"
    if verb in ("dry", "color") and words and thing.startswith(words[0]) and words[0] not in _PRONOUNS:
        return False  # "dry mustard", "color walnuts" are things
    if verb == "make" and (thing in _PRONOUNS or where.startswith("to ")):
        return False
    return not words or words[-1] not in lexicon.NOT_FOOD | lexicon.PERSON_NOUNS or verb not in lexicon.FOOD_VERBS


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


def _misplaced(verb: str, thing: str, where: str) -> str:
    """A place without what is none: "in the same" opens the next clause, "for the filling" says what it is for."""
    words = [word for word in where.removesuffix(" of course").split() if word != "so"]  # "two or so minutes"
    purpose = words[:1] == ["for"] and (thing or verb in lexicon.ELIDING) and lexicon.TIME_NOUNS.isdisjoint(words)
    lone = len(words) == 2 and words[1] in lexicon.VERBS_ONLY - lexicon.CONCRETE_NOUNS  # "in strain"
    if purpose or lone or words[:3] in (["in", "the", "same"], ["with", "the", "side"]):
        return ""  # "with the pretty side up"
    if len(words) > 1 and words[1] in _SWALLOWING:
        words.insert(1, "a")  # "for few minutes"
    return " ".join(words)


def _is_one(words: Sequence[str]) -> bool:
    """Whether words behind "a" may end in an s."""
    return words[-1].endswith(("ss", "us", "is", "ses")) or "of" in words or words[0] in _SEVERAL


def _directly_behind(phrase: Phrase) -> bool:
    """Whether the particle was said next to the verb ("put on the lid"), not behind its object ("put the lid on")."""
    words = phrase.sentence.lower().split()
    if not words:
        return phrase.text.startswith(f"{phrase.verb} {phrase.particle} ")
    return any(word == phrase.particle and before[:2] == phrase.verb[:2] for before, word in itertools.pairwise(words))


def _sure(phrases: Sequence[Phrase], at: int) -> bool:
    """Whether what the reference of phrase ``at`` stands for is plain: it was acted on, or taken, just before, and not
    mixed into something else."""
    phrase = phrases[at]
    if phrase.said_object is None:
        return True
    noun = phrase.object.split()[-1] if phrase.object else ""
    if not noun or noun in _NOT_TAKEN_UP or (phrase.verb == "serve" and not phrase.said_object):
        return False  # what is served is the dish
    before = phrases[at - 1] if at else None
    if before is None or before.negated or before.aside or phrase.start_s - before.end_s > _REACH_S:
        return False
    if noun in lexicon.SEASONINGS and before.verb not in _TAKING_UP:
        return False  # by now it is in or on something
    head, _, tail = f" {phrase.sentence} ".lower().partition(f" {phrase.verb} ")
    if tail.startswith("it all ") or (before.verb == "use" and head.endswith(f" {before.object} to")):
        return False  # "seal it all in", "use a chopstick to poke it down"
    subjects = [w for w, after in itertools.pairwise(head.split()) if after in lexicon.AUXILIARIES]
    if any(word in lexicon.CONCRETE_NOUNS and word != noun for word in subjects):
        return False  # "loosen the nut. The stem comes out, pull it"
    if noun not in before.object.split() or (before.verb in lexicon.ADDING and phrase.particle != "in"):
        return False
    if before.particle in ("off", "away"):
        return False  # "wipe off the soap and dab it dry"
    if before.verb not in _TAKING_UP and (before.chatter or before.verb not in lexicon.PHYSICAL_VERBS):
        return False
    return before.said_object is None or _sure(phrases, at - 1)


def _one_verb(before: Phrase, phrase: Phrase) -> bool:
    """Whether two neighbours are one verb on two things: "add the onions and the garlic"."""
    same = (before.verb, before.particle, before.start_s) == (phrase.verb, phrase.particle, phrase.start_s)
    plain = [one.object and one.said_object is None and not one.chatter for one in (before, phrase)]
    return same and all(plain) and before.negated == phrase.negated


def _joined(phrases: Sequence[Phrase]) -> str | None:
    """One name for phrases of one verb, with as many of their things, and where, as fit."""
    things: list[str] = []
    for phrase in phrases:
        thing = _plain(phrase.object)
        bare = _ARTICLE.sub("", thing) if things else thing
        measure = bare.split()[-1:] and bare.split()[-1] in lexicon.MEASURES  # "two teaspoons and chili powder"
        again = bare in (_ARTICLE.sub("", other) for other in things)
        if bare and not (measure or again) and bare not in _PRONOUNS | lexicon.QUALITIES:
            things.append(bare)
    for count in range(len(things), 1, -1):
        listed = ", ".join(things[: count - 1]) + " and " + things[count - 1]
        for where in (phrases[0].preposition, ""):
            one = replace(phrases[0], object=listed, preposition=where, text="")
            name = imperative(one)
            if name is not None and name.endswith(_where(where)) and listed in name:
                return name
    return None


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
