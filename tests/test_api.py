"""The interface that people type: what is public, that it is there, documented, and says its options."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepformer as sf
from stepformer.base.arrays import unit

ROOMS = [
    "align", "baselines", "data", "encoders", "evaluation", "export", "media", "narration", "procedure", "search",
    "training",
]  # fmt: skip
# what a baseline of a plugin takes is its own business: the table of names passes it on
PASS_ON = {"stepformer.evaluation.baselines.baseline"}
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


def described_values() -> set[str]:
    """Names in the package that are assigned with a docstring below."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        for made, said in itertools.pairwise(ast.parse(path.read_text("utf-8")).body):
            if isinstance(said, ast.Expr) and isinstance(getattr(said.value, "value", None), str):
                targets = made.targets if isinstance(made, ast.Assign) else [getattr(made, "target", None)]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_everything_public_is_documented_and_typed():
    values = described_values()
    for where, thing in public():
        if inspect.isclass(thing) or inspect.isfunction(thing) or inspect.ismodule(thing):
            assert (thing.__doc__ or "").strip(), where
        else:
            assert where == "stepformer.__version__" or where.rpartition(".")[2] in values, where
        members = vars(thing) if inspect.isclass(thing) else {}
        methods = {f"{where}.{name}": member for name, member in members.items() if name[0] != "_"}
        for name, function in {where: thing, **methods}.items():
            if inspect.isfunction(function):
                given = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
                typed = all(p.annotation is not p.empty for p in given) and "return" in function.__annotations__
                assert typed and function.__doc__, name
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


@pytest.fixture
def example_files(tmp_path, monkeypatch):
    """What examples find: made videos, subtitles, annotations and a store, and colours in the place of CLIP."""
    sys.path.insert(0, str(Path(__file__).parent / "app" / "discover"))
    from discover_parts import ColourEncoder, write_video

    from stepformer.data.store import StoreInfo, StoreWriter

    colours = {"crack": (200, 40, 40), "whisk": (40, 200, 40), "pour": (40, 40, 200)}

    class Clip(ColourEncoder):
        """Knows what three words look like."""

        name, fingerprint, dim = "clip", "colours-512", 512

        def encode_text(self, texts):
            seen = {word: np.full((1, 16, 16, 3), colour, np.uint8) for word, colour in colours.items()}
            out = super().encode_text(texts)
            for row, text in enumerate(texts):
                for word in seen.keys() & {*text.split()}:
                    out[row] = unit(self.encode_video(seen[word]).vectors[0])
            return out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sf.encoders.ENCODERS, "clip", Clip)
    for name in ("pancakes.mp4", "talk.mp4", "crepes.mp4"):
        write_video(name, colours.values(), seconds_each=10)
    cues = ("00:01.000 --> 00:04.000\ncrack the eggs", "00:12.000 --> 00:15.000\nwhisk the batter")
    Path("talk.vtt").write_text("WEBVTT\n\n" + "\n\n".join(cues), "utf-8")
    Path("videos").mkdir()
    for name in ("pancakes.mp4", "crepes.mp4"):
        Path("videos", name).write_bytes(Path(name).read_bytes())
    Path("kitchen/annotations").mkdir(parents=True)
    Path("kitchen/annotations/one.csv").write_text("crack the eggs,0,10\nwhisk,10,20\n", "utf-8")
    rng = np.random.default_rng(0)
    with StoreWriter("store", StoreInfo("clip", "colours-512", 16)) as store:
        for name in ("one", "two", "three", "four", "five", "six"):
            said = tuple(sf.narration.Phrase(f"step {i}", 5.0 * i, 5.0 * i + 2) for i in range(4))
            vectors = rng.standard_normal((24, 16))
            store.append(sf.data.StoredVideo(name, vectors[:20], 1.0, 20.0, None, said, vectors[20:]))


@pytest.mark.parametrize("name", with_examples())
def test_examples_in_docstrings_run(name, example_files, request, monkeypatch, tmp_path):
    if name.startswith("stepformer.narration"):
        request.getfixturevalue("parser")
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))  # the parser that was loaded stays
    module = importlib.import_module(name)
    result = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE, extraglobs={"sf": sf, "np": np})
    assert result.attempted and not result.failed


def test_no_example_is_skipped():
    assert not [name for name in with_examples() if "doctest: +SKIP" in _text(name)]


def test_there_are_examples_for_the_parts_that_need_no_weights():
    assert {
        "stepformer.timeline", "stepformer.core.align.single", "stepformer.evaluation.metrics",
        "stepformer.narration.readers", "stepformer.show.export", "stepformer.app.discover",
    } <= {*with_examples()}  # fmt: skip


def test_importing_loads_nothing_heavy():
    code = "import sys, stepformer; dir(stepformer); print(*{'torch', 'numpy', 'spacy', 'av', 'rich'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
