"""Names of steps as file formats need them: one line, never empty, and safe inside XML."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from stepformer.timeline import Step, Timeline

# what XML 1.0 cannot hold even escaped: most control characters, surrogates and two non-characters
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def one_line(text: str) -> str:
    """``text`` on one line: control characters, line ends and runs of white space become single spaces."""
    return " ".join("".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text).split())


def step_name(step: Step, index: int) -> str:
    """The step's label on one line, or "Step 3" for the unlabelled step of index 2."""
    return one_line(step.label or "") or f"Step {index + 1}"


def step_names(timeline: Timeline) -> list[str]:
    """The names of all steps, in order."""
    return [step_name(step, i) for i, step in enumerate(timeline)]


def is_guess(step: Step) -> bool:
    """Whether the name was taken from a phrase bank rather than heard or given."""
    return bool(step.meta.get("guess"))


def xml_text(text: str) -> str:
    """``text`` with the characters that XML cannot hold replaced by U+FFFD; escaping is the XML writer's work."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def step_numbers(timeline: Timeline, task_steps: Sequence[str] = ()) -> list[int]:
    """A 1-based number a step, the same for steps of the same name, as annotation files use.

    Numbers follow ``task_steps`` (the task's ordered list of names) where a name is in it, compared without case;
    other names are numbered behind it in the order in which they first appear. A step without a name has the
    number of its slot's first appearance, or one of its own.
    """
    seen: dict[object, int] = {one_line(name).casefold(): i + 1 for i, name in enumerate(task_steps)}
    following = len(task_steps) + 1
    numbers = []
    for i, step in enumerate(timeline):
        label = one_line(step.label or "").casefold()
        key: object = label or (("slot", step.slot) if step.slot is not None else ("step", i))
        if key not in seen:
            seen[key] = following
            following += 1
        numbers.append(seen[key])
    return numbers
