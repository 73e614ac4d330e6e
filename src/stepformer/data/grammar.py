"""A grammar of how-to procedures: ordered steps of many tasks, how a narrator says them, and idle talk.

The simulator makes training procedures from it when no dataset is there, and unlabelled steps are named from its
phrase bank. The text is ours and lives in ``procedures/*.json`` beside this module, one file per domain::

    {"task": "fix a flat {bike} tire", "vars": {"bike": ["road bike", "mountain bike"]},
     "steps": [["let the air out of the tube", "deflate the tube"], ["?mark the hole with chalk", "circle the hole"]]}

The first string of a step is its label, the others are paraphrases; ``?`` marks a step that people often skip. A
``{slot}`` is drawn once per procedure, from the task's own ``vars`` or else from the shared lists of ``words.json``.
A slot is named by its most generic word, so that a template with its braces taken off is a generic step name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from math import prod
from typing import Any

import numpy as np

_SLOT = re.compile(r"\{([a-z_]+)\}")
_ARTICLE = re.compile(r"\ba (?=[aeio](?!ne\b)|u[mnpr](?!i))")  # must be "an"; but a one, a unit, a ukulele


@dataclass(frozen=True)
class StepText:
    """One step: the label a person would give it, and one to three ways a narrator would say it."""

    label: str
    paraphrases: tuple[str, ...]


@dataclass(frozen=True)
class Procedure:
    """A task with its slots filled: the ordered steps."""

    task: str  # the template it came from, e.g. "make jam from {berries}"; the same for all its fillings
    title: str  # the filled template, e.g. "make jam from cherries"
    steps: tuple[StepText, ...]


@dataclass(frozen=True)
class Task:
    """A procedure template. ``fillings`` counts the procedures it can give."""

    task: str
    domain: str  # the data file it stands in, e.g. "baking"
    slots: tuple[tuple[str, tuple[str, ...]], ...]  # (name, words) of each slot the template uses, by name
    steps: tuple[StepText, ...]  # braces still in

    @property
    def fillings(self) -> int:
        """How many different procedures the slots give; 1 without slots."""
        return prod(len(words) for _, words in self.slots)

    def fill(self, index: int) -> Procedure:
        """The ``index``-th filling, 0 <= index < fillings; the last slot turns fastest."""
        places = np.unravel_index(index, [len(words) for _, words in self.slots])
        return self._with({name: words[at] for (name, words), at in zip(self.slots, places, strict=True)})

    def generic(self) -> Procedure:
        """The filling where each slot is its own name: "wash the {fruit}" is "wash the fruit"."""
        return self._with({name: name.replace("_", " ") for name, _ in self.slots})

    def _with(self, chosen: Mapping[str, str]) -> Procedure:
        def say(template: str) -> str:
            return _ARTICLE.sub("an ", _SLOT.sub(lambda m: chosen[m.group(1)], template))

        steps = tuple(StepText(say(s.label), tuple(say(p) for p in s.paraphrases)) for s in self.steps)
        return Procedure(self.task, say(self.task), steps)


@dataclass(frozen=True)
class Grammar:
    """All tasks, in the order of their files, and phrases of narration that belong to no step."""

    tasks: tuple[Task, ...]
    chatter: tuple[str, ...]

    def procedures(self, n: int, seed: int = 0) -> list[Procedure]:
        """``n`` procedures, the same for the same seed; a longer list starts with the shorter one.

        Tasks take turns (each once a round, in a fresh order), so none is rare. A task gives a different filling
        each turn until it has given all of them.
        """
        orders = [np.random.default_rng((seed, 0, i)).permutation(t.fillings) for i, t in enumerate(self.tasks)]
        picks: list[tuple[int, int]] = []  # (task, filling)
        for turn in range(-(-n // len(self.tasks))):
            order = np.random.default_rng((seed, 1, turn)).permutation(len(self.tasks)).tolist()
            picks += [(i, int(orders[i][turn % len(orders[i])])) for i in order]
        return [self.tasks[i].fill(at) for i, at in picks[:n]]


def read_grammar(folder: Traversable) -> Grammar:
    """A grammar from a folder of JSON files laid out as the module says (a ``Path`` will do)."""
    files = {f.name: json.loads(f.read_text("utf-8")) for f in folder.iterdir() if f.name.endswith(".json")}
    words = {slot: tuple(listed) for slot, listed in files.pop("words.json").items()}
    chatter = tuple(phrase for group in files.pop("chatter.json").values() for phrase in group)
    return Grammar(tuple(_task(entry, name, words) for name in sorted(files) for entry in files[name]), chatter)


@lru_cache(maxsize=1)
def load_grammar() -> Grammar:
    """The grammar that ships with the package, read once per process."""
    return read_grammar(resources.files("stepformer.data") / "procedures")


def phrase_bank() -> dict[str, str]:
    """Distinct generic step names of the package's grammar, sorted (the labels with every slot said by its most generic
    word), each with its topic: the domain of the first task that has it."""
    topics: dict[str, str] = {}
    for task in load_grammar().tasks:
        for step in task.generic().steps:
            topics.setdefault(step.label, task.domain.replace("_", " and "))
    return dict(sorted(topics.items()))


def _task(entry: dict[str, Any], file: str, shared: Mapping[str, tuple[str, ...]]) -> Task:
    title: str = entry["task"]
    lists = {**shared, **{name: tuple(words) for name, words in entry.get("vars", {}).items()}}
    steps: list[list[str]] = entry["steps"]
    used = sorted({name for text in (title, *(t for step in steps for t in step)) for name in _SLOT.findall(text)})
    return Task(
        task=title,
        domain=file.removesuffix(".json"),
        slots=tuple((name, lists[name]) for name in used),
        steps=tuple(StepText(step[0].removeprefix("?"), tuple(step[1:])) for step in steps),
    )
