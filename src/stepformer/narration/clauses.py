"""Who does what in a parse: which tokens are verbs of a clause, their subjects, negation and objects."""

from __future__ import annotations

from dataclasses import dataclass

from stepformer.narration.groundability import PHYSICAL_VERBS
from stepformer.narration.lexicon import (
    LIGHT_VERBS,
    NON_OBJECTS,
    NOT_NEEDED,
    NOT_OMITTED,
    PERSON_NOUNS,
    PERSONS,
    STOPPING,
    TRANSITIVE,
    word_set,
)
from stepformer.narration.syntax import Tree, is_particle, joined

_NOT_CLAUSES = word_set("aux auxpass amod compound nummod det prt case poss punct cc mark")
_SHARING = word_set("gon going want wants need needs start starts begin begins seem seems tend tends help helps")
_BRINGING = word_set("get gets getting got have having want need keep leave make")
_BEHIND = frozenset(("it", "them", "this", "these", "those", "that"))
_NOUNS = ("NN", "NNS", "NNP", "NNPS")
_WH = ("WP", "WDT", "WRB", "WP$")


@dataclass(frozen=True, slots=True)
class Negation:
    """``no``: it must not be done. ``open``: it need not be done."""

    no: bool = False
    open: bool = False


def is_verb(tree: Tree, i: int) -> bool:
    """Whether token ``i`` heads a clause: by its tag, or as a noun that has an object ("butter the pan")."""
    tag = tree.tag[i]
    if tree.dep[i] in _NOT_CLAUSES:
        return False
    if tag.startswith("VB"):
        return True
    if tree.dep[i] == "ccomp" and tree.low[tree.head[i]] == "let" and tree.having(i, "nsubj"):
        return True  # "let the sauce simmer"
    if tag in ("NN", "NNP", "JJ", "UH", "NNS", "RB", "IN", "FW"):
        return tree.low[i] in PHYSICAL_VERBS and any(child > i for child in tree.having(i, "dobj"))
    return False


def subject(tree: Tree, i: int) -> int | None:
    """The subject of verb ``i``: its own, or that of the verb it is conjoined with or belongs to; None if none."""
    seen = 0
    while seen < 12:
        own = tree.having(i, "nsubj", "nsubjpass", "expl")
        if own:
            return own[0]
        head = tree.head[i]
        if head == i or tree.dep[i] not in ("conj", "xcomp", "ccomp", "advcl", "pcomp", "prep"):
            return None
        if tree.dep[i] == "ccomp" and tree.low[head] not in ("let", "make", "is", "'s", "be") and tree.tag[i] != "VBG":
            return None
        i = head
        seen += 1
    return None


def _led(tree: Tree, i: int) -> bool:
    """Whether verb ``i`` shares the doer of the verb it hangs on: "it is going to burn the pan"."""
    return tree.dep[i] == "xcomp" and tree.low[tree.head[i]] in _SHARING


def by_person(tree: Tree, i: int) -> bool:
    """Whether a person does what verb ``i`` says; an imperative has no subject and is for a person."""
    own = tree.having(i, "nsubj", "nsubjpass", "expl")
    if not own and (tree.dep[i] in ("advcl", "ROOT") or tree.tag[i] == "VB") and not _led(tree, i):
        # "once it is hot add the oil", "it is best to add it": for a person, whatever the clause beside it is about
        return True
    at = subject(tree, i)
    if at is None or at > i or tree.tag[at] == "VBG":
        return True
    word = tree.low[at]
    if word in PERSONS or word in PERSON_NOUNS:
        return True
    if tree.tag[at] in _WH:
        return word in ("who", "what")
    return tree.tag[at] == "NNP" and tree.text[at][:1].isupper()


def negation(tree: Tree, i: int, lemma: dict[int, str]) -> Negation:
    """Negation of verb ``i``, its own or that of the verbs which lead to it ("i'm not going to use")."""
    no = bool(_denials(tree, i))
    open_ = False
    for _ in range(8):
        head, dep = tree.head[i], tree.dep[i]
        if head == i:
            break
        if dep == "conj":
            # "don't stir or touch it": a negation before the first verb holds for both; "and" starts anew
            if any(tree.low[c] in ("or", "nor") for c in tree.having(head, "cc")) and _denials(tree, head):
                no = True
            if tree.having(i, "aux", "nsubj"):
                break
            i = head
            if not tree.having(i, "aux") or not _leads(tree, i):
                break
            continue
        if dep == "pcomp" and tree.low[head] in ("without", "instead", "of"):
            above = tree.low[tree.head[head]]
            if tree.low[head] == "without" or "instead" in (tree.low[head], above, tree.low[max(0, head - 1)]):
                no = not no
            break
        if dep not in ("xcomp", "ccomp", "pcomp", "prep", "acomp"):
            break
        name = lemma.get(head, tree.low[head])
        denied = bool(_denials(tree, head))
        if tree.low[head : head + 2] == ["used", "to"]:
            open_ = True  # a habit of the past, or what somebody is accustomed to
        elif name in STOPPING:
            no = not no
        elif name in NOT_OMITTED:
            no = no if denied else not no
        elif denied and name in NOT_NEEDED:
            open_ = True
        elif denied and (name in LIGHT_VERBS or tree.tag[head] == "VBG"):
            no = not no
        i = head
    return Negation(no, open_)


def _denials(tree: Tree, i: int) -> list[int]:
    found = [c for c in tree.having(i, "neg") if tree.low[c] != "no"]
    found += [c for c in tree.having(i, "advmod", "aux", "preconj") if tree.low[c] in ("never", "not", "n't", "dont")]
    return found


def _leads(tree: Tree, i: int) -> bool:
    return tree.dep[i] in ("xcomp", "ccomp")


def is_passive(tree: Tree, i: int) -> bool:
    """Whether verb ``i`` is passive, or is conjoined with a passive and has no subject of its own."""
    if tree.having(i, "auxpass", "nsubjpass"):
        return True
    if _made_so(tree, i):
        return True
    if tree.tag[i] not in ("VBN", "VBD") or tree.dep[i] != "conj" or tree.having(i, "nsubj", "aux", "dobj"):
        return False
    return is_passive(tree, tree.head[i])


def _made_so(tree: Tree, i: int) -> bool:
    """ "mixed" of "get it mixed": a participle with a subject, below a verb that brings it about."""
    if (
        tree.tag[i] not in ("VBN", "VBD")
        or tree.dep[i] not in ("ccomp", "oprd", "xcomp")
        or tree.having(i, "aux", "dobj")
    ):
        return False
    return bool(tree.having(i, "nsubj")) and tree.low[tree.head[i]] in _BRINGING


def objects(tree: Tree, i: int) -> list[int]:
    """Nouns or pronouns that verb ``i`` acts on, conjoined ones apart; [] if it has none."""
    if is_passive(tree, i):
        at = subject(tree, i)
        return _things(tree, joined(tree, at)) if at is not None else []
    found = [thing for child in tree.having(i, "dobj") for thing in joined(tree, child)]
    if not found:
        # "keep your back straight", "get it clean": the thing is the subject of a small clause
        for clause in tree.having(i, "ccomp", "oprd", "xcomp"):
            if tree.tag[clause] in ("JJ", "RB", "IN", "JJR") and not tree.having(clause, "aux", "mark", "auxpass"):
                found += [thing for child in tree.having(clause, "nsubj") for thing in joined(tree, child)]
    if not found and tree.tag[i] in ("VB", "VBP") and _pronoun_behind(tree, i):
        found = [i + 1]
    if not found and tree.dep[i] == "relcl":
        found = [tree.head[i]] if _object_is_relative(tree, i) else []
    elif found and all(
        tree.tag[thing] in _WH or (tree.low[thing] == "that" and tree.dep[i] == "relcl") for thing in found
    ):
        found = [tree.head[i]] if tree.dep[i] == "relcl" else []
    return _things(tree, found)


def _pronoun_behind(tree: Tree, i: int) -> bool:
    """ "mix this together", "move it around": the parser hangs the pronoun on what follows at times."""
    return (
        i + 1 < len(tree)
        and tree.low[i + 1] in _BEHIND
        and tree.tag[i + 1] in ("PRP", "DT")
        and tree.dep[i + 1] in ("nsubj", "dep", "npadvmod", "advmod", "attr")
    )


def _object_is_relative(tree: Tree, i: int) -> bool:
    # "the flour (that) i sifted": a person as subject, and nothing else to act on
    own = tree.having(i, "nsubj")
    return bool(own) and tree.low[own[0]] in PERSONS and not tree.having(i, "prep", "xcomp", "ccomp", "prt")


def _things(tree: Tree, found: list[int]) -> list[int]:
    return [
        t
        for t in found
        if tree.low[t] not in NON_OBJECTS and tree.tag[t] not in _WH and tree.tag[t] not in ("EX", "WRB")
    ]


def shared_objects(tree: Tree, i: int, lemma: dict[int, str]) -> list[int]:
    """Objects of a bare verb taken from its neighbour: "peel and slice the potatoes", "drain them and put in a pan"."""
    if tree.having(i, "dobj", "ccomp", "xcomp", "acomp", "attr", "nsubjpass", "auxpass") or lemma.get(i) in LIGHT_VERBS:
        return []
    chain = [child for child in tree.having(i, "conj") if is_verb(tree, child)]
    if chain and not tree.having(i, "prep", "prt"):
        after = chain[0]
        between = range(i + 1, after)
        if all(tree.tag[t] in ("CC", "RB", ",", "TO") or is_verb(tree, t) for t in between) and after - i <= 4:
            return objects(tree, after) or shared_objects(tree, after, lemma)
    if tree.dep[i] == "conj" and is_verb(tree, tree.head[i]) and not tree.having(i, "nsubj"):
        before = tree.head[i]
        if lemma.get(i, tree.low[i]) in TRANSITIVE and (
            tree.having(i, "prep", "prt") or any(is_particle(tree, c) for c in tree.children[i])
        ):
            governed = [
                c
                for c in tree.having(i, "prep")
                if tree.low[c] in ("on", "off", "up", "down", "out", "over") and tree.having(c, "pobj") and c == i + 1
            ]
            return [] if governed else objects(tree, before)[-1:]
        # a list of three: "wash dry and chop the lettuce" may hang all of them on the first
        later = [c for c in tree.having(before, "conj") if c > i and is_verb(tree, c)]
        if later and later[0] - i <= 3 and not tree.having(i, "prep"):
            return objects(tree, later[0])
    return []
