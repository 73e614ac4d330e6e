"""Verb phrases out of a parse: ``verb + (particle) + object + (preposition + its object)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepformer.narration.clauses import by_person, is_passive, is_verb, negation, objects, shared_objects
from stepformer.narration.groundability import PHYSICAL_VERBS, groundability, is_chatter, noun_score
from stepformer.narration.lexicon import (
    ACTION_NOUNS,
    EMPTY_WORDS,
    GIVE_VERBS,
    LIGHT_VERBS,
    MOTION,
    NON_OBJECTS,
    OBJECT_PRONOUNS,
    PARTICLES,
    REACHING_PREPS,
    STOP_VERBS,
    TIME_NOUNS,
    TOGETHER,
    TRANSITIVE,
)
from stepformer.narration.phrases import Phrase
from stepformer.narration.syntax import Tree, is_particle, measured, noun_text, noun_tokens, prep_objects, prep_phrase

_HAVE = frozenset(("have", "'ve", "has", "ve"))
_TELLING = frozenset(("NN", "NNS", "NNP", "NNPS", "JJ", "JJR", "RB", "CD", "VBN", "VBG", "FW"))
_STATES = frozenset(("keep", "leave", "hold", "make", "get", "set", "turn"))


class Extractor:
    """Phrases of one parsed stretch. ``resolved`` says what pronouns stand for; ``lemma_of`` gives base forms."""

    def __init__(
        self,
        tree: Tree,
        resolved: Mapping[int, str],
        lemma_of: Callable[[str, str], str],
        *,
        need_object: bool = False,
        detail: bool = False,
        tangible: Callable[[str], float] = noun_score,
    ) -> None:
        self.tree, self.resolved, self.need_object = tree, resolved, need_object
        self.detail, self.tangible = detail, tangible
        self.verbs = [i for i in range(len(tree)) if is_verb(tree, i)]
        self.lemma = {i: self._base(i, lemma_of) for i in self.verbs}

    def _base(self, i: int, lemma_of: Callable[[str, str], str]) -> str:
        tree = self.tree
        if tree.low[i] == "got" and (tree.tag[i] == "VBP" or any(tree.low[c] in _HAVE for c in tree.having(i, "aux"))):
            return "have"  # "we've got our garlic"
        return lemma_of(tree.low[i], tree.tag[i])

    def phrases(self) -> list[Phrase]:
        """Phrases in the order of their verbs."""
        tree = self.tree
        spans = {tree.sentence[first]: range(first, last) for first, last in tree.sentences()}
        sentence, number = "", -1
        found: list[Phrase] = []
        for i in self.verbs:
            if tree.sentence[i] != number:
                number = tree.sentence[i]
                sentence = tree.words(spans[number])
            for phrase in self._of_verb(i, sentence):
                if not found or phrase.text != found[-1].text or phrase.start_s > found[-1].end_s:
                    found.append(phrase)
        return found

    def _of_verb(self, i: int, sentence: str) -> list[Phrase]:
        tree = self.tree
        verb = self.lemma[i]
        denied = negation(tree, i, self.lemma)
        if denied.open:
            return []
        let = self._let(i)
        if let is not None:
            return [self._make(i, verb, [], let, None, denied.no, sentence, extra="let")]
        own = objects(tree, i)
        things = own or shared_objects(tree, i, self.lemma)
        particles = [c for c in tree.children[i] if is_particle(tree, c)][:1]
        if not things:
            if i in self.resolved and not particles and not self.need_object and by_person(tree, i):
                return [self._make(i, verb, [], [], self._prep(i, [i]), denied.no, sentence, elided=self.resolved[i])]
            return self._without_object(i, verb, particles, denied.no, sentence)
        if verb in LIGHT_VERBS and tree.having(i, "xcomp", "ccomp") and verb not in ("keep", "get", "make"):
            return []
        noun = tree.low[things[0]]
        if verb in GIVE_VERBS and noun in ACTION_NOUNS:
            stirred = self._action_noun(i, things[0], denied.no, sentence)
            if stirred is not None:
                return stirred
        prep = self._prep(i, things)
        if not own and things[0] > i:
            # the prepositional phrase belongs to the verb that has the object
            prep = None
        together = verb in TOGETHER or any(tree.low[p] == "together" for p in particles)
        if together and len(things) > 1:
            return [self._make(i, verb, particles, things, prep, denied.no, sentence)]
        return [self._make(i, verb, particles, [thing], prep, denied.no, sentence) for thing in things]

    def _let(self, i: int) -> list[int] | None:
        """ "let the dough rise": the dough, for the verb "rise"; None where it is no such thing."""
        tree = self.tree
        head = tree.head[i]
        if head == i or tree.dep[i] not in ("ccomp", "xcomp") or self.lemma.get(head, tree.low[head]) != "let":
            return None
        own = [s for s in tree.having(i, "nsubj") if tree.low[s] not in ("me", "us", "'s", "s", "you", "i")]
        return own or None

    def _action_noun(self, i: int, noun: int, no: bool, sentence: str) -> list[Phrase] | None:
        """ "give it a stir" is "stir it"; "take a look" has nothing to act on."""
        tree = self.tree
        verb = ACTION_NOUNS[tree.low[noun]]
        things = [t for t in tree.having(i, "dative", "dobj", "iobj") if t < noun and tree.low[t] not in NON_OBJECTS]
        if not things:
            return None
        return [self._make(i, verb, [], things[:1], self._prep(i, [noun]), no, sentence)]

    def _without_object(self, i: int, verb: str, particles: list[int], no: bool, sentence: str) -> list[Phrase]:
        tree = self.tree
        if is_passive(tree, i) or (verb in LIGHT_VERBS and verb not in ("get",)) or tree.dep[i] in ("relcl", "acl"):
            return []
        finite = tree.tag[i].startswith("VB") and tree.tag[i] != "VBN"
        if not finite and not (verb in TRANSITIVE and tree.low[i] == verb):
            return []  # but "put on the cap" comes as a participle from parsers that expect a subject
        for prep in tree.having(i, "prep"):
            word = tree.low[prep]
            _, nouns = prep_objects(tree, prep)
            if not nouns:
                continue
            if (
                verb in TRANSITIVE
                and word in PARTICLES
                and prep == i + 1
                and word in ("on", "off", "in", "out", "up", "down", "over")
            ):
                things = [t for noun in nouns for t in _with_conjuncts(tree, noun)]
                return [self._make(i, verb, [prep], [thing], None, no, sentence) for thing in things]
            reaching = word in REACHING_PREPS or (word == "with" and verb in PHYSICAL_VERBS)
            if self.need_object or not reaching or verb in MOTION or not by_person(tree, i):
                continue
            # what is said about channels and videos is kept, to be marked
            phrase = prep_phrase(tree, prep, self.resolved, any_object=verb in STOP_VERBS)
            if phrase is not None:
                return [self._make(i, verb, particles, [], phrase, no, sentence)]
        return []

    def _prep(self, i: int, things: list[int]) -> tuple[str, int, list[int]] | None:
        """The first prepositional phrase that says where, into or with what, of the verb or of its last object."""
        tree = self.tree
        last = things[-1]
        candidates = [c for c in tree.having(i, "prep", "dative") if c > i and tree.tag[c] in ("IN", "TO", "RP", "RB")]
        if last > i:
            candidates += [c for c in tree.having(last, "prep") if tree.low[c] != "of"]
            candidates += [c for thing in things[:-1] for c in tree.having(thing, "prep") if tree.low[c] != "of"]
        # the parser hangs "in the pan" on a particle or a small clause at times
        for child in tree.having(i, "prt", "advmod", "ccomp", "oprd", "acomp"):
            if child > i and (tree.low[child] in PARTICLES or tree.tag[child] in ("JJ", "IN")):
                candidates += tree.having(child, "prep")
        for prep in sorted(set(candidates)):
            found = prep_phrase(tree, prep, self.resolved)
            if found is not None and found[1] not in things:
                return found
        return None

    def _make(
        self,
        i: int,
        verb: str,
        particles: list[int],
        things: list[int],
        prep: tuple[str, int, list[int]] | None,
        no: bool,
        sentence: str,
        extra: str = "",
        elided: str = "",
    ) -> Phrase:
        tree = self.tree
        spans = [noun_tokens(tree, thing) for thing in things]
        names = [noun_text(tree, thing, self.resolved, span) for thing, span in zip(things, spans, strict=True)]
        named = elided or " and ".join(names if len(names) < 3 else [" ".join(names[:-1]), names[-1]])
        particle = tree.low[particles[0]] if particles else ""
        noun = tree.low[measured(tree, things[0])] if things else (tree.low[prep[1]] if prep else "")
        if elided or (things and things[0] in self.resolved):
            noun = _head_word(elided or self.resolved[things[0]])
        elif not things and noun in TIME_NOUNS:
            noun = ""  # "bake for thirty minutes" is not done to the minutes
        pronoun = bool(things) and things[0] not in self.resolved and tree.low[things[0]] in OBJECT_PRONOUNS
        if extra == "let":
            prep = self._prep(i, [i])
            parts = ["let", named, verb]
        elif pronoun and particle and tree.tag[things[0]] in ("PRP", "DT"):
            parts = [verb, named, particle]  # "turn it off"
        else:
            parts = [verb, particle, named]
        state = self._state(i, verb, things)
        if state:
            parts.append(state)
        where = prep[0] if prep else ""
        if where:
            parts.append(where)
        if no:
            parts.insert(0, "do not")
        if self.detail:
            parts.append(self._rest(i, " ".join(parts)))
        tokens = [i, *particles, *(t for span in spans for t in span), *(prep[2] if prep else [])]
        person = extra == "let" or is_passive(tree, i) or by_person(tree, i)
        around = " ".join([where, *(tree.low[t] for thing in things for t in tree.subtree(thing))])
        chatter = extra != "let" and is_chatter(verb, particle, noun, person, around, bool(where), self.tangible(noun))
        said = tree.words(spans[0]) if things and things[0] in self.resolved else None
        return Phrase(
            text=" ".join(part for part in parts if part),
            start_s=min(tree.start_s[t] for t in tokens),
            end_s=max(tree.end_s[t] for t in tokens),
            chatter=chatter,
            groundability=groundability(
                verb,
                noun,
                chatter=chatter,
                negated=no,
                second=tree.low[prep[1]] if prep and things else "",
                tangible=self.tangible,
            ),
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
            if tree.tag[t] in _TELLING and tree.low[t] not in said and tree.low[t] not in EMPTY_WORDS:
                rest.append(t)
        return tree.words(rest)

    def _state(self, i: int, verb: str, things: list[int]) -> str:
        """ "straight" of "keep your back straight"."""
        tree = self.tree
        if verb not in _STATES or not things:
            return ""
        for clause in tree.having(i, "ccomp", "oprd", "xcomp", "acomp"):
            if clause > things[-1] and tree.tag[clause] == "JJ":
                return tree.low[clause]
        return ""


def _with_conjuncts(tree: Tree, noun: int) -> list[int]:
    return [noun, *(c for c in tree.having(noun, "conj") if tree.tag[c].startswith("NN"))]


def _head_word(text: str) -> str:
    """The head noun of a short name: "the cloves of garlic" -> "cloves"."""
    return (
        text.split(" of ", maxsplit=1)[0].rsplit(" and ", maxsplit=1)[-1].rsplit(maxsplit=1)[-1] if text.strip() else ""
    )
