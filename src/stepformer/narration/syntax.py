"""What the parser gives, in the words of the phrases: base forms of verbs, the tree, noun phrases, who does what."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepformer.narration import lexicon

_LEFT = lexicon.word_set("det amod compound nummod poss quantmod nmod predet advmod neg case")
_MAX_LEFT = 7  # tokens before the noun; more is a misparse
_NAMES = frozenset(("NN", "NNS", "NNP", "NNPS", "PRP", "DT", "CD", "VBG", "JJ", "FW"))
_NOT_CLAUSES = lexicon.word_set("aux auxpass amod compound nummod det prt case poss punct cc mark")
_SHARING = lexicon.word_set(
    "gon going want wants need needs start starts begin begins seem seems tend tends help helps"
)
_BRINGING = lexicon.word_set("get gets getting got have having want need keep leave make")
_SPOONS = lexicon.word_set("cup cups tablespoon tablespoons teaspoon teaspoons pound pounds ounce ounces bit")
_BEHIND = frozenset(("it", "them", "this", "these", "those", "that"))
_WH = ("WP", "WDT", "WRB", "WP$")

Place = tuple[str, int, list[int]]
"""A prepositional phrase: its text, the token of its noun, all its tokens."""


def verb_lemmas(nlp: Any) -> Callable[[str, str], str]:
    """(verb, tag) -> base form, by the tables of the pipeline's lemmatiser; the verb itself where it has none.

    As a component the lemmatiser costs as much as the parser.
    """
    tables: dict[str, Any] = {}
    if "lemmatizer" in nlp.component_names:
        lookups = nlp.get_pipe("lemmatizer").lookups
        tables = {name: lookups.get_table(name).get("verb", ()) for name in lookups.tables}
    exceptions, index = dict(tables.get("lemma_exc", ())), frozenset(tables.get("lemma_index", ()))
    rules = tables.get("lemma_rules", ())

    def base(word: str, tag: str) -> str:
        if word in ("gon", "gonna"):
            return "go"
        if word in ("'s", "'re", "'m"):
            return "be"
        if tag not in ("VBD", "VBN", "VBZ", "VBG"):
            return word
        if word in exceptions:
            return str(exceptions[word][0])
        if tag in ("VBD", "VBN") and word in index and not word.endswith("ed"):
            return word  # put, cut, set
        bases = (word.removesuffix(old) + new for old, new in rules if word.endswith(old))
        return next((str(found) for found in bases if found in index), word)

    return functools.lru_cache(maxsize=50_000)(base)  # broken text has no end of new words


def _fix_conjuncts(tag: list[str], dep: list[str], head: list[int]) -> None:
    """Hangs a noun that the parser joined to a verb on the noun before it: "slice the potatoes and the carrots"."""
    for i, label in enumerate(dep):
        if label != "conj" or not tag[i].startswith("NN") or not tag[head[i]].startswith("VB"):
            continue
        # back over the noun's own words to "and"; the noun before it is its partner
        at = i - 1
        while at > head[i] and head[at] == i and tag[at] != "CC":
            at -= 1
        if at > head[i] + 1 and tag[at] == "CC" and tag[at - 1].startswith("NN") and dep[at - 1] != "compound":
            head[i] = at - 1


def _fix_compounds(low: list[str], tag: list[str], dep: list[str], head: list[int]) -> None:
    """Makes one noun of two that the parser did not join: "loosen the wheel nuts", "pull the washer lever"."""
    for i in range(1, len(dep) - 1):
        left = [j for j in range(max(0, i - 4), i) if head[j] == i] if dep[i] == "dobj" and tag[i] == "NN" else []
        if head[i + 1] != head[i] or not any(tag[j] in ("DT", "PRP$") for j in left):
            continue
        lost = dep[i + 1] == "advmod" and tag[i + 1] == "RB" and low[i + 1] in lexicon.CONCRETE_NOUNS
        if lost or (dep[i + 1] == "dobj" and tag[i + 1] in ("NN", "NNS")):
            dep[i], dep[i + 1], tag[i + 1] = "compound", "dobj", "NN" if lost else tag[i + 1]
            for j in (i, *left):
                head[j] = i + 1


@dataclass(slots=True)
class Tree:
    """Tokens of one stretch, all lists of one length T; ``head[i] == i`` for the root of a sentence."""

    text: list[str]  # (T,) as said
    low: list[str]  # (T,) lower case
    tag: list[str]  # (T,) Penn Treebank tags
    dep: list[str]  # (T,) dependency labels as spaCy's English pipelines name them
    head: list[int]  # (T,)
    sentence: list[int]  # (T,) number of the sentence
    start_s: list[float]  # (T,)
    end_s: list[float]  # (T,)
    glued: list[bool]  # (T,) no space before this token ("do" + "n't")
    children: list[list[int]] = field(default_factory=list)  # (T,) ascending

    def __post_init__(self) -> None:
        _fix_conjuncts(self.tag, self.dep, self.head)
        _fix_compounds(self.low, self.tag, self.dep, self.head)
        self.children = [[] for _ in self.text]
        for i, head in enumerate(self.head):
            if head != i:
                self.children[head].append(i)

    def __len__(self) -> int:
        return len(self.text)

    def having(self, i: int, *deps: str) -> list[int]:
        """Children of ``i`` with one of these labels."""
        children = self.children[i]
        if not children:  # most tokens
            return []
        dep = self.dep
        return [child for child in children if dep[child] in deps]

    def subtree(self, i: int) -> list[int]:
        """``i`` and everything below it, ascending."""
        found = [i]
        for node in found:
            found.extend(self.children[node])
        return sorted(found)

    def words(self, tokens: Sequence[int]) -> str:
        """The tokens as text, lower case, contractions glued."""
        parts: list[str] = []
        for i in tokens:
            word = self.low[i]
            if parts and self.glued[i] and i - 1 in tokens:
                parts[-1] += word
            else:
                parts.append(word)
        return " ".join(parts)

    def sentences(self) -> Iterator[tuple[int, int]]:
        """(first, one past the last) token of each sentence."""
        for _, group in itertools.groupby(range(len(self)), self.sentence.__getitem__):
            tokens = list(group)
            yield tokens[0], tokens[-1] + 1


# -- nouns ---------------------------------------------------------------------------------------------------------


def joined(tree: Tree, i: int) -> list[int]:
    """``i`` and the nouns conjoined with it, in order."""
    found = [i]
    for node in found:
        # "the salt, the pepper and the cumin": the second of a list is no other name of the first
        listed = [child for child in tree.having(node, "appos") if tree.having(child, "conj")]
        # a verb that the parser took for a noun ("add the onions and stir", "and torque it") is no object
        others = [child for child in [*tree.having(node, "conj"), *listed] if tree.tag[child] in _NAMES]
        found += [child for child in others if tree.low[child + 1 : child + 2] not in (["it"], ["them"])]
    return sorted(found)


def noun_tokens(tree: Tree, i: int, *, whole: bool = False) -> list[int]:
    """Tokens of the noun phrase around ``i``: modifiers before it, "of …" behind it; with ``whole``, conjuncts too."""
    tokens = [i]
    for child in tree.children[i]:
        if child < i and tree.dep[child] in _LEFT:
            tokens += [t for t in tree.subtree(child) if t < i]
        elif tree.dep[child] == "prep" and tree.low[child] == "of":
            tokens.append(child)
            for below in tree.having(child, "pobj"):
                tokens += noun_tokens(tree, below, whole=True)
        elif whole and child > i and tree.dep[child] == "conj" and tree.tag[child] in _NAMES:
            tokens += [t for t in tree.having(i, "cc") if i < t < child]
            tokens += noun_tokens(tree, child, whole=True)
    tokens = sorted(set(tokens))
    before = [t for t in [t for t in tokens if t < i][-_MAX_LEFT:] if _kept(tree, t)]
    while before and tree.tag[before[0]] == "CC":
        before = before[1:]
    return before + [t for t in tokens if t >= i]


def _kept(tree: Tree, i: int) -> bool:
    if tree.low[i] == "and" and tree.low[i + 1 : i + 2] in (["half"], ["a"]):
        return True  # "two and a half cups"
    return (
        tree.low[i] not in lexicon.SOFTENERS
        and tree.tag[i] != "UH"
        and not (tree.tag[i] == "CC" and not tree.tag[i - 1].startswith("NN"))
    )


def short_name(tree: Tree, i: int) -> str:
    """What a pronoun that stands for ``i`` is replaced by: "two large brown eggs" is called "the eggs" from then on."""
    amount, i = i, measured(tree, i) if tree.low[i] in _SPOONS else i
    tokens = [i]
    for child in tree.children[i]:
        if child < i and tree.dep[child] in ("compound", "nmod", "poss"):
            tokens += [t for t in tree.subtree(child) if t < i and _kept(tree, t)]
        elif tree.dep[child] == "prep" and tree.low[child] == "of" and i == amount:
            for below in tree.having(child, "pobj"):
                tokens += [child, *noun_tokens(tree, below)]
    text = tree.words(sorted(set(tokens)))
    own = tree.having(i, "poss") or (tree.text[i][:1].isupper() and tree.tag[i] == "NNP" and not tree.having(i, "det"))
    return text if own else f"the {text}"


def measured(tree: Tree, i: int) -> int:
    """What an amount is an amount of: "sauce" for "a little bit of soy sauce"; any other noun is itself."""
    if tree.low[i] in lexicon.MEASURES:
        for of in tree.having(i, "prep"):
            if tree.low[of] == "of":
                return next(iter(tree.having(of, "pobj")), i)
    return i


def prep_phrase(tree: Tree, prep: int, resolved: Mapping[int, str], *, any_object: bool = False) -> Place | None:
    """A prepositional phrase that says where, with or into what; None if it does not."""
    if tree.low[prep] in lexicon.EMPTY_PREPS:
        return None
    tokens = [prep]  # more than one in "out of"
    while not (nouns := tree.having(tokens[-1], "pobj")):
        further = [child for child in tree.having(tokens[-1], "prep", "pcomp") if child == tokens[-1] + 1]
        if not further:
            return None
        tokens.append(further[0])
    noun = nouns[0]
    if tree.low[noun] in lexicon.EMPTY_PREP_OBJECTS and noun not in resolved and not any_object:
        return None
    named = noun_tokens(tree, noun, whole=True)
    said = resolved.get(noun) or tree.words(named)
    return f"{tree.words(tokens)} {said}", noun, tokens + named


# -- verbs ---------------------------------------------------------------------------------------------------------


def is_particle(tree: Tree, i: int) -> bool:
    """Whether a child of a verb is a particle: labelled so, or a bare preposition or adverb of the kind."""
    if tree.dep[i] == "prt":
        return True
    below = [c for c in tree.children[i] if tree.low[c] != "there"]  # "stick the patch on there"
    if tree.low[i] not in lexicon.PARTICLES or any(tree.dep[c] not in ("advmod", "punct") for c in below):
        return False
    # "on top" is a place, though the parser leaves "top" hanging at times
    return tree.dep[i] in ("advmod", "prep") and tree.low[i + 1 : i + 2] != ["top"]


def is_verb(tree: Tree, i: int) -> bool:
    """Whether token ``i`` heads a clause: by its tag, or as a noun that has an object ("butter the pan")."""
    if tree.dep[i] in _NOT_CLAUSES or _is_result(tree, i):
        return False
    if tree.tag[i].startswith("VB"):
        return True
    return tree.low[i] in lexicon.PHYSICAL_VERBS and any(child > i for child in tree.having(i, "dobj"))


def _is_result(tree: Tree, i: int) -> bool:
    """Whether a word is what becomes of a thing: "dry" of "pat the area dry"."""
    small = tree.dep[i] in ("ccomp", "dep") and tree.tag[i] == "VB" and tree.low[i] in lexicon.RESULTS
    return small and tree.low[tree.head[i]] in lexicon.PHYSICAL_VERBS and not tree.having(i, "aux")


def is_kind(tree: Tree, i: int) -> bool:
    """Whether a form in -ing says of what kind a thing is: "a few inches of potting soil"."""
    of = tree.head[i]
    if tree.tag[i] != "VBG" or tree.dep[i] != "pcomp" or tree.low[of] != "of" or i != of + 1:
        return False
    return tree.tag[tree.head[of]].startswith("NN") and i + 1 in tree.having(i, "dobj")


def subject(tree: Tree, i: int) -> int | None:
    """The subject of verb ``i``: its own, or that of the verb it is conjoined with or belongs to; None if none."""
    for _ in range(12):
        own = tree.having(i, "nsubj", "nsubjpass", "expl")
        if own:
            return own[0]
        if tree.head[i] == i or tree.dep[i] not in ("conj", "xcomp", "ccomp", "advcl", "pcomp", "prep"):
            return None
        i = tree.head[i]
    return None


def by_person(tree: Tree, i: int) -> bool:
    """Whether a person does what verb ``i`` says; an imperative has no subject and is for a person."""
    own = tree.having(i, "nsubj", "nsubjpass", "expl")
    led = tree.dep[i] == "xcomp" and tree.low[tree.head[i]] in _SHARING  # "it is going to burn the pan"
    if not own and (tree.dep[i] in ("advcl", "ROOT") or tree.tag[i] == "VB") and not led:
        # "once it is hot add the oil", "it is best to add it": for a person, whatever the clause beside it is about
        return True
    at = subject(tree, i)
    if at is not None and tree.low[at + 1 : i] == [","] and tree.tag[i] in ("VB", "VBP"):
        return True  # "first thing, turn on the oven"
    if at is None or at > i or tree.low[at] in lexicon.PERSONS or tree.low[at] in lexicon.PERSON_NOUNS:
        return True
    # "Anna cuts it"; but "Toner helps prepare the face", if it is a toner elsewhere
    return tree.tag[at] == "NNP" and tree.text[at][:1].isupper() and tree.low[at] not in tree.text


def negation(tree: Tree, i: int, lemma: Mapping[int, str]) -> bool | None:
    """Whether verb ``i`` must not be done, by its own negation or that of the verbs which lead to it ("i'm not going to
    use", "without burning it", "instead of burning it", "avoid touching"); None where it need not be done."""
    no = _denied(tree, i)
    for _ in range(8):
        head = tree.head[i]
        if tree.dep[i] == "conj" and not tree.having(i, "aux", "nsubj"):
            # "don't stir or touch it": the negation before the first verb holds for both; "and" starts anew
            no = no or (_denied(tree, head) and any(tree.low[c] in ("or", "nor") for c in tree.having(head, "cc")))
            if tree.dep[head] in ("xcomp", "ccomp"):
                i = head
                continue
        if tree.dep[i] in ("advcl", "relcl", "acl") and tree.low[i - 1] == "to":
            user = head if is_verb(tree, head) else tree.head[head]
            return no or _denied(tree, user)  # "never use a screwdriver to lever the tire off"
        if head == i or tree.dep[i] not in ("xcomp", "ccomp", "pcomp", "prep", "acomp"):
            break
        if tree.low[head] == "without" or any(tree.low[c] == "instead" for c in tree.children[head]):
            return not no
        name, denied = lemma.get(head, tree.low[head]), _denied(tree, head)
        if (denied and name in lexicon.NOT_NEEDED) or tree.low[head : head + 2] == ["used", "to"]:
            return None
        if name in lexicon.NOT_OMITTED:
            no = no != (not denied)
        elif name in lexicon.STOPPING or (
            denied and (name in lexicon.LIGHT_VERBS or tree.tag[head] == "VBG" or tree.dep[i] == "xcomp")
        ):
            no = not no
        i = head
    return no


def _denied(tree: Tree, i: int) -> bool:
    words = ("never", "not", "n't", "dont")
    return any(tree.low[c] in words for c in tree.having(i, "neg", "advmod", "aux", "preconj"))


def is_passive(tree: Tree, i: int) -> bool:
    """Whether verb ``i`` is passive, or is conjoined with a passive and has no subject of its own."""
    if tree.having(i, "auxpass", "nsubjpass"):
        return True
    if tree.tag[i] not in ("VBN", "VBD") or tree.having(i, "aux", "dobj"):
        return False
    if tree.having(i, "nsubj"):
        return tree.low[tree.head[i]] in _BRINGING  # "get it mixed"
    return tree.dep[i] == "conj" and is_passive(tree, tree.head[i])


def objects(tree: Tree, i: int) -> list[int]:
    """Nouns or pronouns that verb ``i`` acts on, conjoined ones apart; [] if it has none."""
    if is_passive(tree, i):
        at = subject(tree, i)
        return _things(tree, joined(tree, at)) if at is not None else []
    found = [thing for child in _direct(tree, i) for thing in joined(tree, child)]
    if not found:
        # "keep your back straight", "get it clean": the thing is the subject of a small clause
        for clause in tree.having(i, "ccomp", "oprd", "xcomp"):
            if tree.tag[clause] in ("JJ", "RB", "IN", "JJR") or _is_result(tree, clause):
                found += [thing for child in tree.having(clause, "nsubj") for thing in joined(tree, child)]
    if not found and tree.tag[i] in ("VB", "VBP") and _pronoun_behind(tree, i):
        found = [i + 1]
    if tree.dep[i] == "relcl":
        own = tree.having(i, "nsubj")
        # "the flour (that) i sifted": a person as subject, and nothing else to act on
        bare = own and tree.low[own[0]] in lexicon.PERSONS and not tree.having(i, "prep", "xcomp", "ccomp", "prt")
        if all(tree.tag[thing] in _WH or tree.low[thing] == "that" for thing in found) and (found or bare):
            found = [tree.head[i]]
    return _things(tree, found)


def _direct(tree: Tree, i: int) -> list[int]:
    """Direct objects. One behind a pronoun, or behind another's prepositional phrase, is none: "push it down fish
    slices are flexible", "pour milk over the season chicken"."""
    found = tree.having(i, "dobj")
    if tree.low[i + 1 : i + 2] in (["it"], ["them"]) and tree.dep[i + 1] not in ("dative", "iobj", "nsubj", "poss"):
        return [i + 1]
    for at, (before, child) in enumerate(itertools.pairwise(found), 1):
        if any(tree.tag[t] in ("IN", "TO") and tree.low[t] != "of" for t in range(before + 1, child)):
            return found[:at]
    return found


def _pronoun_behind(tree: Tree, i: int) -> bool:
    """ "mix this together", "move it around": the parser hangs the pronoun on what follows at times."""
    behind = i + 1 < len(tree) and tree.low[i + 1] in _BEHIND
    return behind and tree.dep[i + 1] in ("nsubj", "dep", "npadvmod", "advmod", "attr")


def _things(tree: Tree, found: list[int]) -> list[int]:
    return [t for t in found if tree.low[t] not in lexicon.NON_OBJECTS and tree.tag[t] not in _WH]


def shared_objects(tree: Tree, i: int, lemma: Mapping[int, str]) -> list[int]:
    """Objects of a bare verb taken from the verb behind it: "peel and slice the potatoes"."""
    complements = tree.having(i, "dobj", "ccomp", "xcomp", "acomp", "attr", "nsubjpass", "auxpass")
    chain = [child for child in tree.having(i, "conj") if is_verb(tree, child)]
    if complements or not chain or lemma.get(i) in lexicon.LIGHT_VERBS:
        return []
    after = chain[0]
    if tree.tag[i + 1] in ("RB", "JJ") and not tree.low[i + 1].endswith("ly"):
        return []  # "pull tight and weave in the ends"
    if all(tree.tag[t] in ("CC", "RB", ",", "TO") or is_verb(tree, t) for t in range(i + 1, after)):
        return objects(tree, after) or shared_objects(tree, after, lemma)
    return []
