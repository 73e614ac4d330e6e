"""The grammar keeps its promises: counts, clean text, determinism, and nothing taken from an evaluation set."""

from __future__ import annotations

import json
import re
import tarfile
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.data.grammar import Procedure, StepText, Task, load_grammar, phrase_bank, read_grammar

CROSSTASK = Path(__file__).parents[2].parent / "shared" / "data" / "crosstask" / "crosstask_release.tar.gz"

# Words no imperative starts with: a label that does is a noun phrase or a clause.
NOT_VERBS = re.compile(
    r"(an?|the|th(is|at|ese|ose|ey|ere|en)|it|we|you|i|s?he|my|your|our|some|any|no|one|two|three|in|on|at|to|of|for|from"
    r"|with(out)?|by|into|onto|over|under|after|before|until|while|when|if|as|and|or|but|so|now|also|just|very|really"
    r"|is|are|was|were|be|been|ha[sd]|have|will|would|could|should|may|might|must|here|what|which|who)"
)


def every_filled(task: Task, most: int = 40) -> list[Procedure]:
    """Fillings spread over the whole product of the slots, the last one among them."""
    step = max(1, task.fillings // most)
    return [task.fill(i) for i in {*range(0, task.fillings, step), task.fillings - 1}]


def texts_of(task: Task) -> set[str]:
    """Every label and paraphrase under every filling."""
    lists, out = dict(task.slots), set()
    for template in (text for step in task.steps for text in (step.label, *step.paraphrases)):
        # only the slots that this one template uses: the product over all of a task's slots is large
        names = dict.fromkeys(re.findall(r"\{([a-z_]+)\}", template))
        alone = Task(template, task.domain, tuple((name, lists[name]) for name in names), ())
        out |= {alone.fill(i).title for i in range(alone.fillings)}
    return out


@lru_cache
def all_texts() -> frozenset[str]:
    return frozenset().union(*map(texts_of, load_grammar().tasks))


def content_words(text: str) -> frozenset[str]:
    """The words of a text without articles, particles and plural endings: "add in the onions" is "add onion"."""
    light = {
        "the",
        "a",
        "an",
        "your",
        "some",
        "it",
        "all",
        "in",
        "on",
        "into",
        "off",
        "out",
        "up",
        "down",
        "over",
        "of",
    }
    words = [w for w in re.findall(r"[a-z]+", text.lower()) if w not in light]
    return frozenset(w[:-1] if w.endswith("s") and not w.endswith("ss") else w for w in words)


def test_there_is_as_much_as_promised() -> None:
    grammar = load_grammar()
    assert len(grammar.tasks) >= 240
    assert len({t.task for t in grammar.tasks}) == len(grammar.tasks)
    assert len({t.domain for t in grammar.tasks}) >= 12
    cooking = sum(t.domain in {"cooking", "baking", "drinks"} for t in grammar.tasks)
    assert 0.25 <= cooking / len(grammar.tasks) <= 0.45
    assert len(set(grammar.chatter)) == len(grammar.chatter) >= 400
    assert len(all_texts()) >= 6000
    assert len(phrase_bank()) >= 2000


def test_tasks_have_five_to_fourteen_steps() -> None:
    for task in load_grammar().tasks:
        assert 5 <= len(task.steps) <= 14, task.task
        assert all(1 <= len(s.paraphrases) <= 3 for s in task.steps), task.task


def test_labels_are_short_imperative_phrases_and_differ_inside_a_procedure() -> None:
    for task in load_grammar().tasks:
        for procedure in [task.generic(), *every_filled(task)]:
            labels = [s.label for s in procedure.steps]
            assert len(set(labels)) == len(labels), procedure.title
            for label in labels:
                words = label.split()
                assert 2 <= len(words) <= 9, label
                assert re.fullmatch(r"[a-z]+", words[0]), label
                assert not NOT_VERBS.fullmatch(words[0]), label
                assert not re.fullmatch(r".*([^er]ed|[^p]ly)", words[0]), label  # but feed, deseed, shred, apply


def test_a_text_says_one_step_of_its_task() -> None:
    for task in load_grammar().tasks:
        texts = [t for s in task.steps for t in (s.label, *s.paraphrases)]
        assert len(set(texts)) == len(texts), task.task


def test_all_text_is_plain_and_braces_resolve() -> None:
    grammar = load_grammar()
    titles = {p.title for task in grammar.tasks for p in [task.generic(), *every_filled(task)]}
    for text in [*all_texts(), *grammar.chatter, *phrase_bank(), *titles]:
        assert re.fullmatch(r"[a-z0-9][a-z0-9 ,'-]*[a-z0-9]", text), text
        assert "  " not in text
        assert not re.search(r"\b(\w+) \1\b", text), text  # "the oven oven": a slot said twice
        assert len(text.split()) <= 12, text
        # "a apple", "an pear": a slot filled against its article ("a used", "a one" are right).
        assert not re.search(r"\ba [aeio](?!ne\b)|\ban [^aeioh]", text), text


def test_phrase_bank_is_generic_and_holds_no_chatter() -> None:
    bank = phrase_bank()
    assert list(bank) == sorted(set(bank))
    assert not set(bank) & set(load_grammar().chatter)
    assert all(task.generic().steps[0].label in bank for task in load_grammar().tasks)


def test_chatter_is_not_a_step() -> None:
    grammar = load_grammar()
    assert not set(grammar.chatter) & set(all_texts())


@pytest.mark.skipif(not CROSSTASK.is_file(), reason="CrossTask release is not beside the repository (shared/data)")
def test_nothing_overlaps_with_the_primary_tasks_of_crosstask() -> None:
    with tarfile.open(CROSSTASK) as tar:
        name = next(n for n in tar.getnames() if n.endswith("tasks_primary.txt"))
        member = tar.extractfile(name)
        assert member is not None
        lines = [line.strip() for line in member.read().decode().splitlines() if line.strip()]
    titles, steps = lines[1::5], [s for line in lines[4::5] for s in line.split(",")]
    assert len(titles) == 18
    assert len(steps) > 100
    grammar = load_grammar()
    assert not {content_words(s) for s in steps} & {content_words(t) for t in all_texts()}
    filled = {content_words(p.title) for task in grammar.tasks for p in [task.generic(), *every_filled(task)]}
    assert not {content_words(t) for t in titles} & filled


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31), st.integers(0, 600), st.integers(0, 600))
def test_procedures_are_deterministic_and_a_longer_list_starts_with_the_shorter(seed: int, n: int, m: int) -> None:
    grammar = load_grammar()
    n, m = sorted((n, m))
    longer = grammar.procedures(m, seed)
    assert len(longer) == m
    assert grammar.procedures(n, seed) == longer[:n]


def test_seeds_differ_tasks_take_turns_and_fillings_do_not_repeat() -> None:
    grammar = load_grammar()
    k = len(grammar.tasks)
    a, b = grammar.procedures(3 * k, 1), grammar.procedures(3 * k, 2)
    assert a != b
    assert {p.task for p in a[:k]} == {t.task for t in grammar.tasks}
    for task in grammar.tasks:
        titles_and_steps = [p for p in a if p.task == task.task]
        assert len(set(titles_and_steps)) == min(3, task.fillings), task.task


def test_fill_turns_every_slot_and_shares_one_choice_within_a_procedure() -> None:
    task = Task(
        "mend a {thing}",
        "here",
        (("color", ("red", "blue")), ("thing", ("cup", "urn", "ukulele"))),
        (StepText("glue the {thing}", ("stick the {color} {thing}",)), StepText("dry the {thing}", ("leave it",))),
    )
    all_of_them = [task.fill(i) for i in range(task.fillings)]
    assert task.fillings == len(set(all_of_them)) == 6
    assert all_of_them[1].title == "mend an urn"
    assert all_of_them[2].title == "mend a ukulele"
    assert all_of_them[1].steps[0] == StepText("glue the urn", ("stick the red urn",))
    assert task.generic().steps[0] == StepText("glue the thing", ("stick the color thing",))
    assert texts_of(task) == {
        *(f"{verb} the {thing}" for verb in ("glue", "dry") for thing in ("cup", "urn", "ukulele")),
        *(f"stick the {color} {thing}" for color in ("red", "blue") for thing in ("cup", "urn", "ukulele")),
        "leave it",
    }


def test_own_slots_go_before_the_shared_ones(tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text('{"pan": ["wok"], "oil": ["ghee"]}')
    (tmp_path / "chatter.json").write_text('{"x": ["hello there"]}')
    entry = {"task": "fry", "vars": {"pan": ["griddle"]}, "steps": [["?oil the {pan} with {oil}", "grease the {pan}"]]}
    (tmp_path / "home.json").write_text(json.dumps([entry]))
    (procedure,) = read_grammar(tmp_path).procedures(1)
    assert procedure == Procedure("fry", "fry", (StepText("oil the griddle with ghee", ("grease the griddle",)),))
