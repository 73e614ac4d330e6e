"""Whether what is said is done here and now, or belongs to a story, a plan, a supposition, a title or somebody else."""

from __future__ import annotations

from collections.abc import Mapping

from stepformer.narration import lexicon, syntax
from stepformer.narration.lexicon import word_set
from stepformer.narration.syntax import Tree

PAST, DONE, LATER, MAYBE, OTHERS, TITLE = "past", "done", "later", "maybe", "others", "title"
_FAR = 8  # verbs that lead to one another
_CONDITIONS = word_set("if unless whether")
_REASONS = word_set("because 'cause cause since otherwise")
_NOT_YET = word_set("before until till when whenever")
_HAVING = word_set("have 've ve has had having")
_WOULD = word_set("could would might may")
_WISHING = word_set("want like prefer wish")
_HABITS = word_set("normally usually sometimes typically")
_OTHER_PEOPLE = lexicon.PERSON_NOUNS | word_set("they people nobody everybody everyone somebody someone anyone anybody")
_SUPPOSING = word_set("imagine suppose pretend say tell ask wish beg")
_ENDS = (("at", "the", "end"), ("at", "the", "very", "end"))
_WARNING = word_set("not n't never or otherwise")
_ALSO = word_set("also always")
_TODAY = word_set("today tonight video episode")
_AHEAD = word_set("already earlier beforehand previously")
_FINISHED = word_set("now fully already perfectly completely nicely all done")
_NEXT = word_set("time week month video episode")
_SOON = word_set("bit minute moment while second sec hour day week month year few couple")


def aside(tree: Tree, i: int, lemma: Mapping[int, str]) -> str:
    """Why verb ``i`` is not done here and now: "past", "done" (already), "later", "maybe" (a condition, an alternative,
    a supposition), "others" (do it, or are asked to), "title" (what the video is about); "" if it is."""
    if _is_noun(tree, i):
        return OTHERS
    if not _AHEAD.isdisjoint(tree.low[c] for c in tree.having(i, "advmod")):
        return DONE  # "which i cut earlier"
    verb = i
    for _ in range(_FAR):
        found = _own(tree, verb, lemma)
        if found:
            return found
        head, dep = tree.head[verb], tree.dep[verb]
        if dep == "conj":
            if [tree.low[c] for c in tree.having(head, "cc") if head < c < verb][-1:] == ["or"]:
                return MAYBE
            if tree.having(verb, "nsubj", "nsubjpass", "aux"):
                break
        elif dep == "ccomp":
            if lemma.get(head, tree.low[head]) not in _SUPPOSING:
                break
        elif dep == "advcl":  # "use a lever to lift it"
            if tree.low[verb - 1] != "to":
                break
        elif dep == "pcomp" and tree.low[head] in _NOT_YET:
            return LATER  # "before grinding it"
        elif dep not in ("xcomp", "pcomp"):
            break
        verb = head
    return TITLE if _announced(tree, i) else LATER if _deferred(tree, i) else ""


def _own(tree: Tree, i: int, lemma: Mapping[int, str]) -> str:
    """As :func:`aside`, by the words that hang on the verb itself."""
    low = tree.low
    before = [low[c] for c in tree.having(i, "mark", "advmod") if c < i]
    if not _CONDITIONS.isdisjoint(before) or _conditional(tree, i):
        return MAYBE
    if "how" in before:
        return TITLE
    if not _REASONS.isdisjoint(before):
        return OTHERS  # "because you'll pinch the tube"
    own = tree.having(i, "nsubj", "nsubjpass")
    if not _NOT_YET.isdisjoint(before) or ("once" in before and syntax.is_passive(tree, i)):
        return LATER  # "once it's melted"
    helping = tree.having(i, "aux", "auxpass")
    helped = {low[c] for c in helping}
    if lemma.get(i) != "have" and not helped.isdisjoint(_HAVING):
        return DONE  # but "we've got the garlic" is what is there
    if not helped.isdisjoint(("is", "are", "'s", "'re")) and tree.tag[i] == "VBN" and not _FINISHED.isdisjoint(before):
        return DONE  # "it is now fully assembled"
    if tree.tag[i] == "VBN" and not helped and tree.dep[i] not in ("ccomp", "conj") and low[i] != lemma.get(i, ""):
        return DONE  # "a piece made of metal"
    if _was(tree, i, lemma, helped):
        return PAST
    result = not own and tree.dep[i] == "advcl" and tree.tag[i] == "VBG"
    if result and (_by_act(tree, tree.head[i]) or not syntax.by_person(tree, tree.head[i])):
        return OTHERS  # "twisting it will cause keys to collide, bending the keys"
    if _by_act(tree, i) or (own and _of_others(tree, own[0])):
        return OTHERS
    threat = own and low[own[0]] in ("you", "it") and not helped.isdisjoint(("'ll", "will"))
    if threat and not _WARNING.isdisjoint(low[max(0, own[0] - _FAR) : own[0]]):
        return OTHERS  # "don't use the lever you'll pinch the tube"
    if own and own[0] < i and any(c < own[0] and low[c] not in ("let", "lets") for c in helping):
        return OTHERS  # "could you move the camera"
    would = not helped.isdisjoint(_WOULD) or ("'d" in helped and own and low[own[0]] == "you")  # "but you'd scratch it"
    if would or not _HABITS.isdisjoint(before):
        return MAYBE
    other = bool(own) and low[own[0] - 1 : own[0]] == ["but"]  # "it's on a stand, but you can lean it on a wall"
    either = other or any(low[c] == "or" for c in tree.having(i, "cc"))
    return MAYBE if "can" in helped and (either or not _ALSO.isdisjoint(before)) else ""


def _is_noun(tree: Tree, i: int) -> bool:
    """Whether a verb is none: "hot pepper flakes some fresh oregano", "heavy cream some salt"."""
    if tree.having(i, "aux", "auxpass") or syntax.subject(tree, i) is not None:
        return False
    inside = i > 0 and tree.sentence[i - 1] == tree.sentence[i] and not tree.tag[i - 1].startswith("RB")
    bare = tree.low[i] in lexicon.NOUNS_FIRST and tree.low[i - 1] not in lexicon.CLAUSE_BEFORE
    acts = not lexicon.PARTICLES.union(("it", "them")).isdisjoint(tree.low[i + 1 : i + 2])
    return tree.tag[i] == "VBZ" or (inside and bare and not acts)


def _conditional(tree: Tree, i: int) -> bool:
    """Whether a clause with "if" stands before the verb, or one behind it that leaves it open ("if you like")."""
    for clause in tree.having(i, "advcl"):
        if any(tree.low[c] in _CONDITIONS for c in tree.having(clause, "mark", "advmod")):
            wish = tree.low[clause] in _WISHING and any(tree.low[c] == "you" for c in tree.having(clause, "nsubj"))
            if clause < i or wish:
                return True
    return False


def _was(tree: Tree, i: int, lemma: Mapping[int, str], helped: set[str]) -> bool:
    """Whether it is told as past: "i broke a rim", "it was covered"."""
    if not helped.isdisjoint(("was", "were", "did")):
        return True
    if tree.tag[i] != "VBD" or syntax.is_passive(tree, i):
        return False
    # "put", "cut": an imperative that the tagger takes for a past
    return tree.low[i] != lemma.get(i, "") or "once" in tree.low[max(0, i - 2) : i]


def _by_act(tree: Tree, i: int) -> bool:
    """ "turning it too far breaks it"; but "what you're going to do is turn it"."""
    return any(tree.tag[c] == "VBG" and not tree.having(c, "nsubj") for c in tree.having(i, "csubj"))


def _of_others(tree: Tree, subject: int) -> bool:
    if tree.low[subject] in _OTHER_PEOPLE:
        return True
    below = [noun for of in tree.having(subject, "prep") for noun in tree.having(of, "pobj")]
    return any(tree.low[noun] in _OTHER_PEOPLE for noun in below)  # "a lot of people"


def _announced(tree: Tree, i: int) -> bool:
    """Whether it is what the whole video is about: "today we're making fish tacos", "we're making tacos tonight"."""
    led = i
    while tree.dep[led] == "xcomp":
        led = tree.head[led]
    if not tree.having(led, "nsubj"):
        return False
    first = min(led, *tree.children[led])
    behind = [t for t in tree.children[i] if tree.dep[t] == "npadvmod"]
    return not _TODAY.isdisjoint(tree.low[t] for t in [*range(max(0, first - 2), i), *behind])


def _deferred(tree: Tree, i: int) -> bool:
    """Whether it comes later: "later we'll add the peas", "we check the pressure later", "at the very end"."""
    low = tree.low
    first = min([i, *(t for t in tree.children[i] if t < i)])
    last = i + 1
    while last < len(tree) and tree.sentence[last] == tree.sentence[i] and not tree.tag[last].startswith("VB"):
        last += 1
    for at in range(max(0, first - 3), last):
        near = at >= first or at + 1 == first or low[at + 1] in (",", "on")
        if low[at] in ("later", "tomorrow") and not (at and low[at - 1] in lexicon.TIME_NOUNS | {"sooner", "or"}):
            return near
        if low[at] == "next" and low[at + 1 : at + 2] and low[at + 1] in _NEXT:
            return True
        if at > i and any(tuple(low[at : at + len(end)]) == end for end in _ENDS):
            return True
        soon = low[at : at + 2] in (["in", "a"], ["in", "an"]) and not _SOON.isdisjoint(low[at + 2 : at + 4])
        if at > i and soon and "of" not in low[at + 3 : at + 5]:
            return True
    return False
