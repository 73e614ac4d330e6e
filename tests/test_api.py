"""The interface that people type: what is public, that it is there, documented, and says its options."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stepformer as sf

ROOMS = ["align", "baselines", "data", "encoders", "evaluation", "export", "media", "narration", "procedure", "search"]
# what an encoder or a baseline takes is its own business: the table of names passes it on
PASS_ON = {"stepformer.encoders.load", "stepformer.evaluation.baselines.baseline"}
SOURCE = Path(sf.__file__).parent


def public():
    """(where, thing) of every public name."""
    for name in sf.__all__:
        yield f"stepformer.{name}", getattr(sf, name)
    for room in ROOMS:
        module = getattr(sf, room)
        for name in module.__all__:
            yield f"stepformer.{room}.{name}", getattr(module, name)


def test_rooms_and_names_are_there_and_listed():
    assert set(ROOMS) | {"load_model", "StepFormer", "Step", "Timeline"} <= set(sf.__all__) <= {*dir(sf)}
    for name in sf.__all__:
        assert getattr(sf, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'serach'"):
        sf.serach  # noqa: B018


def test_every_error_is_listed():
    kinds = {
        name for name, thing in vars(sf.errors).items() if isinstance(thing, type) and issubclass(thing, Exception)
    }
    assert {*sf.errors.__all__} == kinds


def test_everything_public_is_documented_and_typed():
    for where, thing in public():
        if inspect.isfunction(thing) or inspect.isclass(thing):
            assert (thing.__doc__ or "").strip(), where
    assert (SOURCE / "py.typed").is_file()  # mypy --strict checks the rest


def test_options_stand_in_the_signatures():
    """A misspelt option is an error that names it, and an editor can list them all."""
    functions = dict(public())
    for where, thing in public():
        methods = vars(thing).items() if inspect.isclass(thing) else ()
        functions |= {f"{where}.{name}": method for name, method in methods if name[0] != "_"}
    for where, thing in functions.items():
        if inspect.isfunction(thing) and f"{thing.__module__}.{thing.__qualname__}" not in PASS_ON:
            kinds = {p.kind for p in inspect.signature(thing).parameters.values()}
            assert inspect.Parameter.VAR_KEYWORD not in kinds, where


def test_the_contract():
    signature = inspect.signature
    assert [*signature(sf.Step).parameters][:5] == ["start_s", "end_s", "label", "score", "slot"]
    assert [*signature(sf.Timeline).parameters] == ["video", "duration_s", "steps", "meta"]
    align = signature(sf.align.drop_dtw).parameters
    assert [*align] == ["costs", "column_drop", "row_drop", "matching", "contiguous"]
    assert align["matching"].default == "many_to_one" and align["contiguous"].default is True
    batch = signature(sf.align.drop_dtw_batch).parameters
    assert {"costs", "column_drop", "row_drop", "lengths", "matching"} <= {*batch}
    assert signature(sf.align.percentile_drop).parameters["keep"].default == 0.8
    assert signature(sf.load_model).parameters["name"].default == "default"
    for method, names in {
        "discover": ["video", "steps", "detail", "percentile", "similarity", "ordered", "use", "listening", "labels"],
        "discover_features": ["vectors", "rate_hz", "structure", "steps", "detail"],
        "locate": ["video", "texts", "ordered", "method", "all_present", "listening"],
    }.items():
        assert {*names} <= {*signature(getattr(sf.StepFormer, method)).parameters}, method
    assert {"timeline", "path", "format", "video", "fps"} <= {*signature(sf.export.write).parameters}
    assert sf.narration.Cue(0.0, 1.0, "stir").text == "stir"
    assert {"videos", "model", "steps"} <= {*signature(sf.procedure.find).parameters}
    assert {"folder", "model"} <= {*signature(sf.search.update_index).parameters}


def with_examples() -> list[str]:
    return [
        info.name
        for info in pkgutil.walk_packages([str(SOURCE)], "stepformer.")
        if not info.name.endswith("__main__") and re.search(r"^ *>>> ", _text(info.name), re.MULTILINE)
    ]


def _text(name: str) -> str:
    path = SOURCE.joinpath(*name.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_there_are_examples_for_the_parts_that_need_no_weights():
    assert {
        "stepformer.timeline", "stepformer.core.align.single", "stepformer.evaluation.metrics",
        "stepformer.narration.readers", "stepformer.show.export", "stepformer.app.discover",
    } <= {*with_examples()}  # fmt: skip


def test_importing_loads_nothing_heavy():
    code = "import sys, stepformer; dir(stepformer); print(*{'torch', 'numpy', 'spacy', 'av', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
