"""Verb phrases out of a parse: ``verb + (particle) + object + (preposition + its object)``."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from stepformer.narration import lexicon, syntax
from stepformer.narration.groundability import groundability, is_chatter
from stepformer.narration.parse import Parser
from stepformer.narration.phrases import Phrase, PhraseOptions
from stepformer.narration.syntax import Place, Tree

_HAVE = frozenset(("have", "'ve", "has", "ve"))
_TELLING = frozenset(("NN", "NNS", "NNP", "NNPS", "JJ", "JJR", "RB", "CD", "VBN", "VBG", "FW"))
_INTO = lexicon.word_set("in into on onto over under between inside")
_TANGIBLE = 0.75
_STATES = frozenset(("keep", "leave", "hold", "make", "get", "set", "turn"))


class Extractor:
    """Phrases of one parsed stretch. ``resolved`` says what pronouns stand for."""

    def __init__(self, tree: Tree, resolved: Mapping[int, str], parser: Parser, options: PhraseOptions) -> None:
        self.tree, self.resolved, self.options, self.tangible = tree, resolved, options, parser.tangible
        verbs = [i for i in range(len(tree)) if syntax.is_verb(tree, i) and not syntax.is_kind(tree, i)]
        self.lemma = {i: "have" if _has(tree, i) else parser.lemma_of(tree.low[i], tree.tag[i]) for i in verbs}

    def phrases(self) -> list[Phrase]:
        """Phrases in the order of their verbs."""
        tree = self.tree
        sentences = {tree.sentence[first]: tree.words(range(first, last)) for first, last in tree.sentences()}
        found: list[Phrase] = []
        for i in self.lemma:
            for phrase in self._of_verb(i, sentences[tree.sentence[i]]):
                if not found or phrase.text != found[-1].text or phrase.start_s > found[-1].end_s:
                    found.append(phrase)
        return found

    def _of_verb(self, i: int, sentence: str) -> list[Phrase]:
        tree, verb = self.tree, self.lemma[i]
        no = syntax.negation(tree, i, self.lemma)
        if no is None:
            return []
        make = functools.partial(self._make, i, no=no, sentence=sentence)
        let = self._let(i)
        if let:
            return [make(verb, things=let, prep=self._prep(i, [i]), let=True)]
        if verb == "go" and (moved := self._moved(i)) is not None:
            thing, place = moved
            return [make("put" if place else "add", things=[thing], prep=place, moved=True)]
        own = syntax.objects(tree, i)
        things = own or syntax.shared_objects(tree, i, self.lemma)
        particles = [c for c in tree.children[i] if syntax.is_particle(tree, c) and not self._behind_place(i, c)][:1]
        if not things:
            if i in self.resolved and not particles and not self.options.released and syntax.by_person(tree, i):
                return [make(verb, prep=self._prep(i, [i]), elided=self.resolved[i])]
            place = self._place_alone(i, verb)
            return [] if place is None else [make(verb, particles, prep=place)]
        if verb in lexicon.LIGHT_VERBS and tree.having(i, "xcomp", "ccomp") and verb not in ("keep", "get", "make"):
            return []
        if verb in lexicon.GIVE_VERBS and tree.low[things[0]] in lexicon.ACTION_NOUNS:
            # "give it a stir" is "stir it"; "take a look" has nothing to act on
            given = [t for t in tree.having(i, "dative", "dobj", "iobj") if t < things[0]]
            if given and tree.low[given[0]] not in lexicon.NON_OBJECTS:
                verb = lexicon.ACTION_NOUNS[tree.low[things[0]]]
                return [make(verb, things=given[:1], prep=self._prep(i, things[:1]))]
        # of a verb that shares its object, the prepositional phrase belongs to the verb that has it
        prep = self._prep(i, things) if own else None
        together = verb in lexicon.TOGETHER or any(tree.low[p] == "together" for p in particles)
        groups = [things] if together else [[thing] for thing in things]
        return [make(verb, particles, group, prep) for group in groups]

    def _behind_place(self, i: int, particle: int) -> bool:
        """ "preheat the oven to 200 with the pot inside": not the oven is inside."""
        tree = self.tree
        return any(i < prep < particle and tree.having(prep, "pobj") for prep in tree.having(i, "prep"))

    def _let(self, i: int) -> list[int]:
        """ "let the dough rise": the dough, for the verb "rise"; [] where it is no such thing."""
        tree, head = self.tree, self.tree.head[i]
        if tree.dep[i] not in ("ccomp", "xcomp") or self.lemma.get(head, tree.low[head]) != "let":
            return []
        return [s for s in tree.having(i, "nsubj") if tree.low[s] not in ("me", "us", "'s", "s", "you", "i")]

    def _moved(self, i: int) -> tuple[int, Place | None] | None:
        """What is put somewhere, though it is said to go: "the dowels go into the holes", "in goes the salt"."""
        tree = self.tree
        said = [s for s in tree.having(i, "nsubj", "dobj") if tree.low[s] not in lexicon.PERSONS | lexicon.PERSON_NOUNS]
        if not said or tree.dep[i] in ("relcl", "acl") or self.options.released:
            return None
        if tree.low[i - 1 : i] == ["in"] and said[0] > i:
            return said[0], None
        if (
            said[0] < i
            and tree.low[i] in ("go", "goes")
            and tree.low[i + 1 : i + 2] == ["in"]
            and not tree.having(i + 1, "pobj")
        ):
            return said[0], None  # "the rice goes in"
        place = self._prep(i, [i]) if said[0] < i else None
        if place is None or place[0].split()[0] not in _INTO or self.tangible(tree.low[place[1]]) < _TANGIBLE:
            return None
        return said[0], place

    def _place_alone(self, i: int, verb: str) -> Place | None:
        """What a verb without an object reaches: "tap on the icon", "saw along the line"."""
        tree = self.tree
        if self.options.released or tree.dep[i] in ("relcl", "acl"):
            return None
        if syntax.is_passive(tree, i) or not syntax.by_person(tree, i):
            return None
        if (verb in lexicon.LIGHT_VERBS and verb != "get") or verb in lexicon.MOTION:
            return None
        if tree.tag[i] == "VBN" and not (verb in lexicon.PHYSICAL_VERBS and tree.low[i] == verb):
            return None  # but "put on the cap" comes as a participle from parsers that expect a subject
        reaching = lexicon.REACHING_PREPS | ({"with"} if verb in lexicon.PHYSICAL_VERBS else frozenset())
        # what is said about channels and videos is kept, to be marked
        places = (
            syntax.prep_phrase(tree, prep, self.resolved, any_object=verb in lexicon.STOP_VERBS)
            for prep in tree.having(i, "prep")
            if tree.low[prep] in reaching
        )
        return next((place for place in places if place is not None), None)

    def _prep(self, i: int, things: list[int]) -> Place | None:
        """The first prepositional phrase that says where, into or with what, of the verb or of its objects."""
        tree = self.tree
        candidates = [c for c in tree.having(i, "prep", "dative") if c > i]
        if things[-1] > i:
            candidates += [c for thing in things for c in tree.having(thing, "prep") if tree.low[c] != "of"]
        # the parser hangs "in the pan" on a particle or a small clause at times
        for child in tree.having(i, "prt", "advmod", "ccomp", "oprd", "acomp"):
            if tree.low[child] in lexicon.PARTICLES or tree.tag[child] in ("JJ", "IN"):
                candidates += tree.having(child, "prep")
        places = (syntax.prep_phrase(tree, prep, self.resolved) for prep in sorted(set(candidates)))
        return next((place for place in places if place is not None and place[1] not in things), None)

    def _make(
        self,
        i: int,
        verb: str,
        particles: Sequence[int] = (),
        things: Sequence[int] = (),
        prep: Place | None = None,
        *,
        no: bool,
        sentence: str,
        let: bool = False,
        elided: str = "",
        moved: bool = False,
    ) -> Phrase:
        tree = self.tree
        spans = [syntax.noun_tokens(tree, thing) for thing in things]
        names = [self.resolved.get(thing) or tree.words(span) for thing, span in zip(things, spans, strict=True)]
        named = elided or " and ".join(names if len(names) < 3 else [" ".join(names[:-1]), names[-1]])
        particle = tree.low[particles[0]] if particles else ""
        if particles and tree.low[particles[0] - 1] == "upside":
            particle = f"upside {particle}"
        elif particle == "inside" and tree.low[particles[0] + 1 : particles[0] + 2] == ["out"]:
            particle = "inside out"
        elif particle == "back":  # "turn the water back on"
            further = [c for c in (particles[0] + 1,) if c < len(tree) and syntax.is_particle(tree, c)]
            particle = tree.words([*particles, *further])
        elif particles and tree.low[particles[0] - 1] == "back" and particles[0] - 1 != i:
            particle = f"back {particle}"
        where = prep[0] if prep else ""
        noun = tree.low[syntax.measured(tree, things[0])] if things else (tree.low[prep[1]] if prep else "")
        if noun in ("everything", "rest") and prep:
            noun = tree.low[prep[1]]  # "scrape everything into the pan"
        taken_up = elided or self.resolved.get(things[0] if things else -1, "")
        if taken_up:
            noun = taken_up.partition(" of ")[0].rpartition(" and ")[2].rpartition(" ")[2]  # "the cloves of garlic"
        elif not things and noun in lexicon.TIME_NOUNS:
            noun = ""  # "bake for thirty minutes" is not done to the minutes
        if let:
            parts = ["let", named, verb]
        elif particle and not taken_up and things and tree.tag[things[0]] in ("PRP", "DT"):
            parts = [verb, named, particle]  # "turn it off"
        else:
            parts = [verb, particle, named]
        parts = ["do not" if no else "", *parts, self._state(i, verb, things), where]
        text = " ".join(part for part in parts if part)
        if self.options.detail:
            text = f"{text} {self._rest(i, text)}".rstrip()
        tokens = [i, *particles, *(t for span in spans for t in span), *(prep[2] if prep else [])]
        person = moved or syntax.is_passive(tree, i) or syntax.by_person(tree, i)
        around = " ".join([where, *(tree.low[t] for thing in things for t in tree.subtree(thing))])
        chatter = not let and is_chatter(verb, particle, noun, person, around, bool(where), self.tangible(noun))
        second = tree.low[prep[1]] if prep and things else ""
        said = tree.words(spans[0]) if things and things[0] in self.resolved else None
        return Phrase(
            text=text,
            start_s=min(tree.start_s[t] for t in tokens),
            end_s=max(tree.end_s[t] for t in tokens),
            chatter=chatter,
            groundability=groundability(verb, noun, chatter=chatter, negated=no, second=second, tangible=self.tangible),
            verb=verb,
            particle=particle,
            object=named,
            preposition=where,
            negated=no,
            sentence=sentence,
            said_object="" if elided else said,
        )

    def _rest(self, i: int, text: str) -> str:
        """The words that carry meaning behind verb ``i``, before the next verb, and are not in ``text``."""
        tree = self.tree
        said = set(text.split())
        rest: list[int] = []
        for t in range(i + 1, len(tree)):
            if tree.sentence[t] != tree.sentence[i] or t in self.lemma:
                break
            if tree.tag[t] in _TELLING and tree.low[t] not in said and tree.low[t] not in lexicon.EMPTY_WORDS:
                rest.append(t)
        return tree.words(rest)

    def _state(self, i: int, verb: str, things: Sequence[int]) -> str:
        """ "straight" of "keep your back straight"."""
        tree = self.tree
        if verb not in _STATES or not things:
            return ""
        for clause in tree.having(i, "ccomp", "oprd", "xcomp", "acomp"):
            if clause > things[-1] and tree.tag[clause] == "JJ":
                return tree.low[clause]
        return ""


def _has(tree: Tree, i: int) -> bool:
    """ "we've got our garlic"."""
    return tree.low[i] == "got" and (tree.tag[i] == "VBP" or any(tree.low[c] in _HAVE for c in tree.having(i, "aux")))
