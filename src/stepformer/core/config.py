"""What a training run is: frozen sections with checked fields, from presets, a TOML file and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from stepformer.core.losses import LOSS_PRESETS, LossConfig
from stepformer.core.model import PRESETS, ModelConfig, check_ranges, preset
from stepformer.core.options import DEFAULT_INFERENCE, PAPER_INFERENCE, InferenceConfig
from stepformer.errors import UsageError, near


@dataclass(frozen=True, slots=True)
class OptimConfig:
    """An optimiser with warm-up and cosine decay."""

    optimizer: str = "adamw"  # a name of core.training.OPTIMIZERS
    lr: float = 3e-4
    final_lr: float = 1e-6
    warmup: float = 0.05  # share of the steps; the paper has 3 of 60 epochs
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 1e-4
    clip: float = 1.0  # norm of the gradient; 0 = off
    accumulate: int = 1  # batches per step
    ema: float = 0.0  # decay of the running mean of the weights that is validated and saved; 0 = the weights themselves
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"  # auto: bf16 on a GPU, fp32 elsewhere
    options: Mapping[str, Any] = field(default_factory=dict)  # of an optimiser that takes more than these fields

    def __post_init__(self) -> None:
        object.__setattr__(self, "betas", tuple(self.betas))
        none_or_more = dict.fromkeys(("final_lr", "weight_decay", "clip"), "[0, inf)")
        check_ranges(
            self, "optim.", lr="(0, inf)", accumulate="[1, inf)", warmup="[0, 1)", ema="[0, 1)", **none_or_more
        )
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise UsageError(f"optim.betas must be two numbers in [0, 1), got {self.betas}")


@dataclass(frozen=True, slots=True)
class SimConfig:
    """What the simulator makes. Frames are one per second unless a video is longer than ``max_frames``."""

    # (name, share); empty = every source, evenly by video
    sources: tuple[tuple[str, float], ...] = (
        ("grammar", 0.3), ("youcook2", 0.25), ("wikihow", 0.2), ("coin", 0.12), ("goalstep", 0.08),
        ("crosstask-related", 0.05),
    )  # fmt: skip
    max_frames: int = 256
    max_steps: int = 16
    composed: float = 0.25  # share of videos that go from one procedure into another
    spoken: float = 0.6  # share of steps that are said
    irrelevant_every_s: float = 24.0
    shift_s: float = 8.0  # spread of how much early or late a step is said
    reworded: float = 0.3  # share of a neighbouring sentence in how a step is said
    jitter: float = 0.8  # how much the sight differs from video to video in training
    noise: float = 0.5  # length of the white noise that is added to each unit frame vector in training
    turned: float = 0.0  # share of axes that each training batch exchanges; with 1 no picture can be memorised


@dataclass(frozen=True, slots=True)
class DataConfig:
    """Where batches come from: a simulated world, or a feature store of real videos."""

    world: str | None = None  # a world file; needed for the simulator and for validation on it
    store: tuple[str, ...] = ()  # feature stores; when given, training runs on them
    simulator: SimConfig = field(default_factory=SimConfig)
    max_frames: int = 512  # longer stored videos are averaged down to this many frames
    held_out: float = 0.05  # share of stored videos kept for the validation loss

    def __post_init__(self) -> None:
        given: object = self.store  # a TOML file may give one name or a list
        object.__setattr__(self, "store", (given,) if isinstance(given, str) else tuple(self.store))
        check_ranges(self, "data.", held_out="[0, 1)")


@dataclass(frozen=True, slots=True)
class ValidationConfig:
    """What is measured during training: an annotated dataset with features, or the dev split of a simulated world."""

    every: int = 500
    videos: int = 120  # about this many at most
    split: str = "dev"  # of the world
    dataset: str | None = None  # annotations; with it validation runs on real features
    reader: str | None = None  # of the dataset, where its files do not tell
    subset: str | None = None  # of the dataset; None: all annotated videos
    features: str | None = None  # folder of arrays, or a feature store; None: the dataset's own
    rate_hz: float = 1.0  # of a folder of arrays
    texts: str | None = None  # .npz of step texts and vectors, or the encoder that makes them; None: F1 alone counts

    def __post_init__(self) -> None:
        check_ranges(self, "validation.", every="[0, inf)", videos="[1, inf)")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run; ``stepformer train --dry-run`` prints all fields as they would be used."""

    preset: str = "default"
    seed: int = 0
    steps: int = 3000
    batch: int = 128
    save_every: int = 500
    log_every: int = 20
    loggers: tuple[str, ...] = ("tensorboard",)  # names of base.loggers.LOGGERS, beside metrics.jsonl
    encoder: str = ""  # what the checkpoint says it takes; unless given, the encoder of the data
    model: ModelConfig = PRESETS["default"]
    loss: LossConfig = LOSS_PRESETS["default"]
    optim: OptimConfig = field(default_factory=OptimConfig)
    data: DataConfig = field(default_factory=DataConfig)
    validation: ValidationConfig = field(default_factory=ValidationConfig)
    inference: InferenceConfig = field(default_factory=InferenceConfig)

    def __post_init__(self) -> None:
        at_least_one = dict.fromkeys(("steps", "save_every", "log_every"), "[1, inf)")
        check_ranges(self, "", seed="[0, inf)", batch="[2, inf)", **at_least_one)  # the loss contrasts videos
        given: object = self.loggers  # a TOML file may give one name or a list
        object.__setattr__(self, "loggers", (given,) if isinstance(given, str) else tuple(self.loggers))


# what each preset changes beside the model and the losses
_OPTIM_PRESETS = {
    "paper": OptimConfig(),
    "released": OptimConfig(warmup=1 / 60),  # 4.5e-6 per GPU is too low for these few steps
    "default": OptimConfig(ema=0.99),
}
_INFERENCE_PRESETS = {"paper": PAPER_INFERENCE, "released": PAPER_INFERENCE, "default": DEFAULT_INFERENCE}


_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    str: ((str,), "a text"),
    NoneType: ((NoneType,), "nothing"),
}


def _check_kind(where: str, value: Any, hint: Any) -> None:
    """A wrong kind of value is named where it stands, not where it is first used."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UsageError(f"{where} must be one of {', '.join(map(str, get_args(hint)))}, not {value!r}")
    elif get_origin(hint) is Mapping:
        if not isinstance(value, Mapping):
            raise UsageError(f"{where} must be a table of names and values, not {value!r}")
    elif all(option in _KINDS for option in options):
        kinds = [_KINDS[option] for option in options]
        fits = any(isinstance(value, types) and (bool in types or not isinstance(value, bool)) for types, _ in kinds)
        if not fits:
            raise UsageError(f"{where} must be {' or '.join(text for _, text in kinds)}, not {value!r}")


def _section(base: Any, values: Any, name: str = "") -> Any:
    """A dataclass with some fields replaced; an unknown field, or a value of the wrong kind, is named."""
    if not isinstance(values, Mapping):
        raise UsageError(f"[{name}] is a section with fields, not {values!r}")
    known = {f.name for f in fields(base)}
    if unknown := set(values) - known:
        raise UsageError(f"[{name or 'run'}] has no field {near(min(unknown), known)}")
    values, hints = dict(values), get_type_hints(type(base))
    try:
        for key, value in values.items():
            where = f"{name}.{key}".removeprefix(".")
            _check_kind(where, value, hints[key])
            if is_dataclass(hints[key]):
                values[key] = _section(getattr(base, key), value, where)
            elif where == "data.simulator.sources":
                values[key] = _shares(value)
            elif where == "loss.weights":
                values[key] = {**base.weights, **{k: float(v) for k, v in value.items()}}
        return replace(base, **values)
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"[{name or 'run'}]: {error}") from None


def _shares(sources: Any) -> tuple[tuple[str, float], ...]:
    """Sources with their shares, from a table or from pairs."""
    try:
        pairs = sources.items() if isinstance(sources, Mapping) else sources
        return tuple((str(name), float(share)) for name, share in pairs)
    except (TypeError, ValueError):
        raise UsageError(
            f"data.simulator.sources must give each source a share, e.g. {{grammar = 1.0}}, not {sources!r}"
        ) from None


def make_config(values: Mapping[str, Any] | None = None) -> TrainConfig:
    """A run from nested plain values; ``preset`` decides what is not given.

    Raises:
        UsageError: a field that does not exist, or a value that makes no sense.

    Examples:
        >>> config = make_config({"preset": "paper", "steps": 1000, "optim": {"lr": 1e-4}})
        >>> config.model.layers, config.optim.lr
        (6, 0.0001)
    """
    name = str((values or {}).get("preset", "default"))
    if name not in _OPTIM_PRESETS:
        raise UsageError(f"no preset {name!r}; there are {', '.join(_OPTIM_PRESETS)}")
    base = TrainConfig(
        preset=name,
        model=preset(name, feature_dim=0, dim=384),  # the data has the width of vectors; decoders are of one width
        loss=LOSS_PRESETS[name],
        optim=_OPTIM_PRESETS[name],
        inference=_INFERENCE_PRESETS[name],
    )
    made: TrainConfig = _section(base, values or {})
    return made


def merged(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values with dotted overrides such as ``{"optim.lr": 1e-4}`` put in."""
    out = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for dotted, value in overrides.items():
        *path, last = dotted.split(".")
        place: dict[str, Any] = out
        for name in path:
            inner = place.setdefault(name, {})
            if not isinstance(inner, dict):
                raise UsageError(f"--set {dotted}: {name} is not a section")
            place[name] = place = dict(inner)
        place[last] = value
    return out
