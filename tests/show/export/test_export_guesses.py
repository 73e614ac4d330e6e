"""A name that is not sure is marked as a guess in every format, or left out; one function decides what is shown."""

from __future__ import annotations

import pytest

from stepformer.show import export
from stepformer.show.writing import is_guess, step_name, without_guesses
from stepformer.timeline import Step, Timeline

STEPS = (
    Step(0.0, 12.0, "crack the eggs", 0.9, 0, {"source": "spoken", "guess": False, "name_score": 0.9}),
    Step(12.0, 25.0, "wedge the clay", 0.4, 1, {"source": "seen", "guess": True, "name_score": 0.3}),
    Step(25.0, 40.0, None, 0.4, 2),
)
TIMELINE = Timeline("talk.mp4", 40.0, STEPS)
DATA = ("json", "csv", "tsv", "jsonl", "fiftyone")  # a field of their own says that it is a guess
NUMBERS = ("crosstask",)  # no names at all
TEXT = [name for name, entry in export.FORMATS.items() if entry.kind == "text"]


@pytest.mark.parametrize("name", TEXT)
def test_every_text_format_marks_a_guess_or_leaves_it_out(name) -> None:
    marked = export.render(TIMELINE, name).text
    if name not in NUMBERS:
        assert "wedge the clay" in marked and "crack the eggs (guess)" not in marked
        assert ("wedge the clay (guess)" in marked) if name not in DATA else ("guess" in marked)
    sure = export.render(without_guesses(TIMELINE), name).text
    assert "wedge the clay" not in sure and ("crack the eggs" in sure or name in NUMBERS)


@pytest.mark.parametrize("name", ["vtt", "srt", "youtube", "ffmetadata", "matroska", "podlove"])
def test_a_marked_guess_is_read_back_as_one(name) -> None:
    back = export.parse(export.render(TIMELINE, name).text, name, "talk")
    assert [step.label for step in back][:2] == ["crack the eggs", "wedge the clay"]
    assert [is_guess(step) for step in back][:2] == [False, True]


def test_one_place_decides() -> None:
    assert [step_name(step, i) for i, step in enumerate(TIMELINE)] == [
        "crack the eggs", "wedge the clay (guess)", "Step 3",
    ]  # fmt: skip
    sure = without_guesses(TIMELINE)
    assert [step.label for step in sure] == ["crack the eggs", None, None]
    assert sure[1].meta == {} and not is_guess(sure[1])
    spoken = Step(0.0, 9.0, "whisk", 0.5, 0, {"source": "spoken", "guess": True, "name_score": 0.7, "said_s": 2.0})
    assert without_guesses(Timeline("talk.mp4", 9.0, (spoken,)))[0].meta == {}


def test_the_command(tmp_path, capsys) -> None:
    from stepformer.cli import main

    path = tmp_path / "talk.json"
    path.write_text(TIMELINE.to_json())
    assert main(["export", str(path), "-", "--format", "youtube"]) == 0
    assert "wedge the clay (guess)" in capsys.readouterr().out
    assert main(["export", str(path), "-", "--format", "youtube", "--sure-only"]) == 0
    assert "Step 2" in (out := capsys.readouterr().out) and "clay" not in out
