"""The tables as data: their rows, which weights and which method stand behind a row, and the ids of the runs.

A *run* is one row with one seed. Its id is a hash of all that decides its numbers: the method and the rule of its
options, the weights (the whole training config, or the hash of a checkpoint and the options it brings), the videos
with their features, labels and texts, the kind of device it is trained on, and the code. So nothing is done twice,
nothing stale is shown, and two tables share what they have in common.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from stepformer.app.discover.loading import checkpoint_file
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.config import TrainConfig, make_config, merged
from stepformer.core.training import with_loss_off
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.baselines import baseline
from stepformer.reproduce import methods
from stepformer.reproduce.methods import Method
from stepformer.reproduce.sources import DATASET_NAMES, Source

OPEN_TEXTS = (("grammar", 0.44), ("youcook2", 0.37), ("goalstep", 0.12), ("crosstask-related", 0.07))
"""Sources with their shares when none is for non-commercial use only."""
CLEAR = {"spoken": 0.95, "irrelevant_every_s": 120.0, "shift_s": 1.0}
"""Narration that is nearly all about the steps, and at their time."""
# rooms and files whose code decides numbers; comments, docstrings and layout do not count
_TRAIN_CODE = (
    "core",
    "core/align",
    "app/training.py",
    "data/simulator.py",
    "data/world.py",
    "data/batches.py",
    "data/store.py",
)
_CODE = (*_TRAIN_CODE, "evaluation", "evaluation/baselines", "reproduce/methods.py", "reproduce/sources.py")


# -- the numbers that the paper prints, in shares, keyed as our scores are ---------------------------------------

ZERO_SHOT = ("zs_iou", "zs_precision", "zs_recall", "zs_mof")
UNSUPERVISED = ("un_f1", "un_precision", "un_recall", "un_mof")
DATASETS = ("crosstask", "procel", "coin")
Numbers = Mapping[str, float]
_PRINTED = tomllib.loads((files(__package__) / "paper.toml").read_text("utf-8"))


def _shares(names: Sequence[str], percent: Sequence[float]) -> dict[str, float]:
    return {name: value / 100 for name, value in zip(names, percent, strict=True)}


def _by_dataset(table: str, names: Sequence[str]) -> dict[str, dict[str, Numbers]]:
    """Method -> dataset -> numbers."""
    return {
        method: {dataset: _shares(names, percent) for dataset, percent in zip(DATASETS, rows, strict=True)}
        for method, rows in _PRINTED[table].items()
    }


def _on_crosstask(table: str) -> dict[str, Numbers]:
    """Row -> numbers on CrossTask."""
    return {row: _shares(UNSUPERVISED, un) | _shares(ZERO_SHOT, zs) for row, (un, zs) in _PRINTED[table].items()}


TABLE1, TABLE2 = _by_dataset("table1", UNSUPERVISED), _by_dataset("table2", ZERO_SHOT)
TABLE3, TABLE4 = _on_crosstask("table3"), _on_crosstask("table4")  # the paper's own model: 32 slots, 6 layers


# -- weights ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Recipe:
    """Weights to be trained: a preset with config fields changed and losses switched off."""

    preset: str = "default"
    changes: tuple[tuple[str, Any], ...] = ()
    without: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of one seed: a training by its whole config, or a checkpoint by the hash of its tensors."""

    config: Mapping[str, Any] | None = None
    path: str | None = None
    hash: str = ""
    inference: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""  # that trains
    label: str = ""  # of a checkpoint, from what the file itself says
    dim: int = 0  # of the features that a checkpoint takes

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the numbers; where a checkpoint lies does not."""
        if self.config is not None:
            return {"config": self.config, "code": self.code}
        return {"weights": self.hash, "inference": dict(self.inference)}


def read_checkpoint(name: str | Path) -> Weights:
    """A checkpoint by its name, its file, or a run folder, of which the best weights are taken, else the last."""
    file = checkpoint_file(name)
    loaded = load_checkpoint(file)
    known = str(loaded.provenance.get("preset") or "") or f"weights {loaded.hash[:8]}"
    dim = loaded.model.config.feature_dim
    return Weights(None, str(file), loaded.hash, asdict(loaded.inference), label=known, dim=dim)


# -- rows -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table. ``{model}`` in the label becomes the name of the model whose frames or cuts it uses.

    knows: what a method may learn from (``none``, ``weak`` = one model per task, ``unsupervised``); paper: the numbers
    that the paper prints in its place, by dataset.
    """

    label: str
    method: Method
    recipe: Recipe | None = None
    knows: str = "none"
    paper: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """What --only takes: ``control`` (nothing is learned), ``published`` or ``model`` (needs a model's weights)."""
        if methods.is_published(self.method):
            return "published"
        return "control" if self.recipe is None else "model"

    @property
    def control(self) -> bool:
        """Whether it is a control: what is possible without the model's slots."""
        return self.method.kind != "slots" and not methods.is_published(self.method)


DEFAULT, PAPER, RELEASED = (Recipe(name) for name in ("default", "paper", "released"))
SLOTS = Method("slots")
_FULL = {"crosstask": TABLE3["full"]}


def _model(label: str, recipe: Recipe, method: Method = SLOTS, numbers: Mapping[str, Numbers] | None = None) -> Row:
    return Row(label, method, recipe, "unsupervised", numbers or {})


def _changed(label: str, recipe: Recipe, *changes: tuple[str, Any], paper: Numbers | None = None) -> Row:
    return _model(label, replace(recipe, changes=changes), numbers={"crosstask": paper} if paper else None)


UNIFORM = (
    Row("uniform, as many steps", Method("uniform")),
    Row("uniform, as many cuts as {model}", Method("equal cuts"), DEFAULT),
)
CONTROLS = (
    Row("frame K-means", Method("kmeans")),
    Row("random slots", Method("random")),
    Row("pooled32", Method("pooled")),
    Row("change-point segments", Method("changes")),
)
TEXT = (
    Row("GT text", Method("text"), knows="unsupervised", paper=TABLE2["text"]),
    Row("GT text, smoothed frames", Method("text", smoothed=True), knows="unsupervised"),
)
PUBLISHED = tuple(
    Row(label, Method(name, setting=setting), None, setting,
        {d: {**TABLE1[f"{name} {setting}"].get(d, {}), **TABLE2.get(f"{name} {setting}", {}).get(d, {})}
         for d in DATASETS})
    for name, label, setting in (
        ("kukleva", "Kukleva et al.", "weak"), ("elhamifar", "Elhamifar et al.", "weak"),
        ("shen", "Shen et al.", "weak"), ("kukleva", "Kukleva et al.", "unsupervised"),
        ("shen", "Shen et al.", "unsupervised"),
    )
)  # fmt: skip
_OURS = {d: {**TABLE1["stepformer"][d], **TABLE2["stepformer"][d]} for d in DATASETS}
MODELS = (
    _model("StepFormer (paper)", PAPER, numbers=_OURS),
    _model("StepFormer (released)", RELEASED),
    _model("StepFormer ({model}), the product's options", DEFAULT, Method("slots", rule="own")),
    _model("StepFormer ({model})", DEFAULT),
)
PAPER_WAY = tuple(
    Row(f"{label}, paper's inference", Method(kind, rule="paper"))
    for label, kind in (("random slots", "random"), ("pooled32", "pooled"), ("GT text", "text"))
)
UNTRAINED = _changed("{model}, untrained", DEFAULT, ("steps", 1))
LOSSES = ("seq", "glob", "div", "smooth")


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table: its rows, the row that all others are compared with, and its columns.

    tasks: ``zs`` (localisation), ``un`` (discovery) or both; splits: all that the source has, or only these.
    """

    title: str
    rows: tuple[Row, ...]
    tasks: tuple[str, ...] = ("zs", "un")
    splits: tuple[str, ...] | None = ("test",)
    reference: str = "{model}"
    main_only: bool = False  # IoU and F1 alone


TABLES: dict[str, TableSpec] = {
    "table1": TableSpec(
        "Table 1: unsupervised step discovery", (*UNIFORM, *CONTROLS, *PUBLISHED, *MODELS),
        ("un",), None, MODELS[-1].label,
    ),
    "table2": TableSpec(
        "Table 2: zero-shot step localisation", (*UNIFORM, *CONTROLS, *TEXT, *PUBLISHED, *MODELS),
        ("zs",), None, MODELS[-1].label,
    ),
    "table3": TableSpec(
        "Table 3: ablation and controls",
        (
            *UNIFORM, *CONTROLS, *TEXT, *PAPER_WAY,
            _model("paper", PAPER), _model("paper, its inference", PAPER, Method("slots", rule="paper")),
            _model("released", RELEASED), UNTRAINED,
            _model("{model}, the product's options", DEFAULT, Method("slots", rule="own")),
            _model("{model}", DEFAULT, numbers=_FULL),
            *(_model(f"default without L_{loss}", Recipe(without=(loss,)),
                     numbers={"crosstask": TABLE3.get(f"without {loss}", {})}) for loss in LOSSES),
            _model("{model} without Drop-DTW", DEFAULT, Method("slots", rule="unordered"),
                   {"crosstask": TABLE3["without Drop-DTW"]}),
        ),
        splits=("test", "coin_test"), main_only=True,
    ),
    "table4": TableSpec(
        "Table 4: slots and layers of the default preset",
        (
            _model("{model}", DEFAULT, numbers={"crosstask": TABLE4["2 layers"]}),
            *(_changed(f"{n} slots", DEFAULT, ("model.slots", n), paper=TABLE4[f"{n} slots"]) for n in (24, 48)),
            *(_changed(f"{n} layers", DEFAULT, ("model.layers", n), paper=TABLE4[f"{n} layers"])
              for n in (4, 6, 8)),
        ),
        splits=("test", "coin_test"), main_only=True,
    ),
    "evidence": TableSpec(
        "Which parts matter: the changes of default against paper, one by one, and controls",
        (
            *UNIFORM, *CONTROLS, TEXT[0],
            _model("paper", PAPER),
            _changed("default without relative time", DEFAULT, ("model.positions", "absolute")),
            _changed("default without a mean of the weights", DEFAULT, ("optim.ema", 0.0)),
            _changed("default on unit vectors", DEFAULT, ("model.level", False)), UNTRAINED,
            _model("{model}, the product's options", DEFAULT, Method("slots", rule="own")), _model("{model}", DEFAULT),
        ),
        splits=("test", "coin_test"), main_only=True,
    ),
    "data": TableSpec(
        "Training data of the default preset",
        (
            CONTROLS[2], _model("{model}", DEFAULT),
            _changed("open texts only", DEFAULT, ("data.simulator.sources", [list(pair) for pair in OPEN_TEXTS])),
            _changed("clear narration", DEFAULT, *((f"data.simulator.{k}", v) for k, v in CLEAR.items())),
        ),
        splits=("test", "coin_test"), main_only=True,
    ),
}  # fmt: skip


# -- runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """What all runs of one call share."""

    source: Source
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int | None = None  # of training; None: the preset's
    batch: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)  # dotted config fields of every training
    stores: tuple[str, ...] = ()  # to train on instead of the simulation
    checkpoint: Weights | None = None  # a given model instead of training
    device: str = "cpu"  # that models are trained on
    updates: int = methods.UPDATES  # of published methods, at most
    baselines: tuple[str, ...] = ()  # of plugins: a row each, per setting

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise UsageError(f"seeds must be given and differ, got {self.seeds}")
        if self.checkpoint is not None and self.checkpoint.dim != self.source.dim:
            raise InputError(
                f"the model takes features {self.checkpoint.dim} wide, these are {self.source.dim}; "
                "they are of another encoder"
            )

    @property
    def made(self) -> str:
        """How the models of a table are made, for its caption."""
        if self.checkpoint is not None:
            return f"StepFormer: {self.checkpoint.label}, weights {self.checkpoint.hash[:12]}."
        if self.source.real and not self.stores:
            return ""
        steps = f"{self.steps} steps" if self.steps else "the preset's number of steps"
        stores = f"the stores {', '.join(self.stores)}"
        seen = "no StepFormer has seen a test text, though the encoder's text tower has seen some"
        data = stores if self.stores else f"simulated videos; {seen}"
        return f"Trained for {steps}, batch {self.batch or 128}, on {data}."


def smaller(setup: Setup, seeds_given: bool = False) -> Setup:
    """The setup of a smoke test: a few steps of training of small models, and one seed unless seeds are given."""
    tiny = {"model.feedforward": 64, "model.heads": 4, "data.simulator.max_frames": 96}
    return replace(
        setup,
        seeds=setup.seeds if seeds_given else (0,),
        steps=setup.steps or 6,
        batch=setup.batch or 8,
        overrides={**tiny, **setup.overrides},
        updates=20,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One row with one seed; ``weights`` where a model is behind it. Label and places do not decide its numbers."""

    method: Method
    seed: int
    data: str  # fingerprint
    device: str = "cpu"
    weights: Weights | None = None
    given: Mapping[str, Any] | None = None  # options of every row where there are no dev videos to choose on
    code: str = ""  # hash, taken when the run is planned: files may change while it works
    label: str = ""  # of the row, in the first table that needs it
    places: tuple[str, ...] = ()  # that it is to be scored on

    @property
    def inference(self) -> Mapping[str, Any] | None:
        """Options that are not chosen: given to every row, or brought by the weights."""
        return self.given if self.given is not None else self.weights.inference if self.weights is not None else None

    @property
    def spec(self) -> dict[str, Any]:
        """Everything that decides the numbers, as plain values."""
        return {
            "method": asdict(self.method), "seed": self.seed, "data": self.data, "device": self.device,
            "weights": None if self.weights is None else self.weights.identity, "given": self.given,
            "code": self.code,
        }  # fmt: skip

    @property
    def id(self) -> str:
        """16 hex digits of the hash of the spec."""
        return digest(self.spec)


def digest(value: Any) -> str:
    """16 hex digits of the hash of plain values."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


@cache
def code_hash(parts: tuple[str, ...] = _CODE) -> str:
    """12 hex digits of the code that decides numbers, without comments, docstrings and layout."""
    root = Path(__file__).parents[1]
    total = hashlib.sha256()
    for part in parts:
        for file in sorted((root / part).glob("*.py")) if (root / part).is_dir() else [root / part]:
            tree = ast.parse(file.read_text("utf-8"))
            for node in ast.walk(tree):
                body = getattr(node, "body", None)
                if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
                    constant = body[0].value
                    if isinstance(constant, ast.Constant) and isinstance(constant.value, str):
                        body[:] = body[1:]
            total.update(f"{file.name}\0{_shape(tree)}".encode())
    return total.hexdigest()[:12]


def _shape(node: Any) -> Any:
    """A syntax tree as plain values, the same in every version of Python: fields that are empty are left out."""
    if isinstance(node, ast.AST):
        return [type(node).__name__, *((name, _shape(v)) for name, v in ast.iter_fields(node) if v not in (None, []))]
    return [_shape(part) for part in node] if isinstance(node, list) else node


def training(setup: Setup, recipe: Recipe, seed: int) -> TrainConfig:
    """The whole config of a training."""
    values: dict[str, Any] = {
        "preset": recipe.preset,
        "seed": seed,
        "model": {"feature_dim": setup.source.dim, "level": True},  # whatever the length of the vectors
        "data": {"store": [str(Path(store).resolve()) for store in setup.stores]},
        # the last weights are scored; nothing is selected along the way
        "validation": {"every": 0},
    }
    values |= {"steps": setup.steps} if setup.steps else {}
    values |= {"batch": setup.batch} if setup.batch else {}
    config = make_config(merged(merged(values, setup.overrides), dict(recipe.changes)))
    return with_loss_off(config, *recipe.without) if recipe.without else config


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A row that is run: its name in this table, and its runs by seed."""

    row: Row
    label: str
    runs: Mapping[int, Run]


_WITHOUT_DEV = {"grid": "own", "unordered": "own unordered"}


def plan_table(name: str, setup: Setup, only: Sequence[str] = ()) -> list[PlannedRow]:
    """The rows of a table that can be run with a setup, of these kinds or methods (all)."""
    if name not in TABLES:
        raise UsageError(f"no table {name!r}; there are {', '.join(TABLES)}")
    source, planned = setup.source, []
    for row in (*TABLES[name].rows, *(row for added in setup.baselines for row in registered_rows(added))):
        method = row.method
        wanted = not only or row.kind in only or method.kind in only
        if not wanted or not _possible(row, setup, TABLES[name].tasks):
            continue
        if row.kind == "published":
            method = replace(method, updates=setup.updates)
        label = row.label.format(model="default" if setup.checkpoint is None else setup.checkpoint.label)
        runs = {}
        for seed in setup.seeds:
            weights = given = None
            if row.recipe is not None:
                weights = _weights(setup, row.recipe, seed)
            if not source.has_dev:
                # nothing to choose on: every row alike takes what the model brings, or what the preset would, but for
                # what sets the row apart
                method = replace(method, rule=_WITHOUT_DEV.get(method.rule, method.rule))
                bringing = weights or _weights(setup, DEFAULT, seed)
                given = dict(bringing.inference)
            learned = method.kind in methods.LEARNED or (weights is not None and weights.config is not None)
            device = setup.device if learned else source.device
            runs[seed] = Run(method, seed, source.fingerprint, device, weights, given, code_hash(), label)
        planned.append(PlannedRow(row, label, runs))
    return planned


def plan_tables(names: Sequence[str], setup: Setup, only: Sequence[str] = ()) -> tuple[dict[str, Any], list[Run]]:
    """What the plan file keeps of tables, by name, and the runs that they need, each once."""
    entries: dict[str, Any] = {}
    wanted: dict[str, Run] = {}
    for name in names:
        rows = plan_table(name, setup, only)
        entries[name] = plan_entry(name, rows, setup)
        for row in rows:
            for run in row.runs.values():
                before = wanted.get(run.id, run)
                places = dict.fromkeys((*before.places, *entries[name]["places"]))
                wanted[run.id] = replace(before, places=tuple(places))
    return entries, list(wanted.values())


def plan_entry(name: str, rows: Sequence[PlannedRow], setup: Setup) -> dict[str, Any]:
    """What the plan file keeps of a table: enough to draw it without the options that it was run with."""
    spec, source = TABLES[name], setup.source
    splits = [s for s in source.datasets if spec.splits is None or s in spec.splits] or list(source.datasets)[:1]
    called = {s: DATASET_NAMES.get(source.datasets[s], source.datasets[s]) for s in splits}
    often = Counter(called.values())  # two splits of one dataset differ in their names
    called = {s: f"{name} ({s})" if often[name] > 1 else name for s, name in called.items()}
    return {
        "rows": [
            {
                "label": row.label, "knows": row.row.knows, "kind": row.row.kind, "control": row.row.control,
                "paper": {k: dict(v) for k, v in row.row.paper.items()}, "ids": [run.id for run in row.runs.values()],
            }
            for row in rows
        ],
        "reference": next((row.label for row in rows if row.row.label == spec.reference), ""),
        "places": called if len(splits) > 1 else dict.fromkeys(splits, ""),
        "datasets": dict(source.datasets),
        "real": source.real,
        "about": source.about,
        "training": setup.made,
        "chosen": source.has_dev,
        "seeds": sorted({seed for row in rows for seed in row.runs}),
    }  # fmt: skip


def registered_rows(name: str) -> list[Row]:
    """The rows of a baseline that a plugin registered, one per setting that it has."""
    made = baseline(name)
    code = digest(inspect.getsource(inspect.getmodule(type(made)) or type(made)))
    return [
        Row(f"{name}, {setting}", Method(f"{methods.REGISTERED}{name}", setting=setting, code=code), knows=setting)
        for setting in made.settings
    ]


def _weights(setup: Setup, recipe: Recipe, seed: int) -> Weights:
    if setup.checkpoint is not None:
        return setup.checkpoint
    config = training(setup, recipe, seed)
    values = json.loads(json.dumps(asdict(config)))
    return Weights(values, inference=asdict(config.inference), code=code_hash(_TRAIN_CODE))


def _possible(row: Row, setup: Setup, tasks: Sequence[str]) -> bool:
    """Whether a row can be run: it has the texts, narration and weights that it needs."""
    source, method = setup.source, row.method
    can_train = not source.real or bool(setup.stores)
    locates = method.kind == "shen" or not (method.kind == "kmeans" or methods.is_published(method))
    discovers = method.kind != "text"
    return (
        (row.recipe is None or can_train or (setup.checkpoint is not None and row.recipe == DEFAULT))
        and (setup.checkpoint is None or row.recipe in (None, DEFAULT))
        and (method.kind != "shen" or source.narrated)
        # without dev videos every row has its own options, or none
        and ((method.rule not in ("own", "paper") and not method.smoothed) or source.has_dev)
        and (("zs" in tasks and locates and source.has_texts) or ("un" in tasks and discovers))
    )
