"""A training run assembled from its config: its data, validation on annotated or simulated videos, pictures of one.

The loop itself is :mod:`stepformer.core.training`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from stepformer.core.config import TrainConfig
from stepformer.core.devices import torch_device
from stepformer.core.distributed import Ranks
from stepformer.core.inference import InferenceConfig
from stepformer.core.model import Slots, StepDecoder
from stepformer.core.training import ALONE, BatchSource, Painter, Trainer
from stepformer.data.batches import StoreBatches
from stepformer.data.simulator import Batch, Simulator
from stepformer.data.world import World, load_world
from stepformer.errors import UsageError
from stepformer.evaluation.annotated import read_trial
from stepformer.evaluation.validation import Trial, make_trial, model_slots, score_slots

Draw = Callable[[Path, Slots, Batch, InferenceConfig, str], None]
"""Draws the first video of a batch into a file: :func:`stepformer.show.export.pictures.draw_alignment`."""


def make_trainer(
    config: TrainConfig,
    out: str | Path,
    device: str | torch.device | None = None,
    *,
    world: World | None = None,
    draw: Draw | None = None,
    quiet: bool = False,
    kind: type[Trainer] = Trainer,
    ranks: Ranks = ALONE,
) -> Trainer:
    """The trainer of a config.

    ``world`` saves reading ``data.world`` where it is at hand; without ``draw`` no pictures are made. ``ranks``: which
    of several processes this is (:func:`stepformer.core.distributed.join`).

    Raises:
        UsageError: the config names no data, or another width than the data has.
        InputError: the data cannot be read.
    """
    device = torch_device(device)
    if world is None and config.data.world:
        world = load_world(config.data.world)
    source = _source(config, world, device)
    trial = _trial(config, world, source, device) if ranks.first else None
    if trial is None:
        return kind(config, out, source, device, quiet=quiet, ranks=ranks)
    without_texts = config.validation.dataset is not None and config.validation.texts is None

    def validate(model: StepDecoder) -> dict[str, float]:
        scores = score_slots(trial, model_slots(model), config.inference)
        return {k: v for k, v in scores.items() if not (without_texts and k.startswith("zs_"))}

    painter = None if draw is None else _painter(trial, config.inference, Path(out) / "alignment", draw)
    return kind(config, out, source, device, validate, painter, quiet, ranks)


def _painter(trial: Trial, inference: InferenceConfig, folder: Path, draw: Draw) -> Painter:
    first = trial.batches[0]
    one = first._replace(**{name: value[:1] for name, value in first._asdict().items()})

    def paint(model: StepDecoder, step: int) -> None:
        with suppress(ImportError):  # matplotlib is not on every training machine
            draw(folder / f"step-{step:06d}.png", model_slots(model)(one), one, inference, f"step {step}")

    return paint


def _source(config: TrainConfig, world: World | None, device: torch.device) -> BatchSource:
    if config.data.store:
        return StoreBatches(config.data.store, config.data.max_frames, config.data.held_out, config.seed)
    if world is None:
        raise UsageError("training needs data: --set data.world=WORLD (see stepformer simulate) or data.store=FOLDER")
    return Simulator(world, config.data.simulator, config.seed, device)


def _trial(config: TrainConfig, world: World | None, source: BatchSource, device: torch.device) -> Trial | None:
    """Annotated videos with features where a dataset is given, else simulated ones where there is a world of the width.

    Raises:
        UsageError: the annotated videos' features have another width than the data to learn from.
    """
    v = config.validation
    if not v.every:
        return None
    if v.dataset is not None:
        trial = read_trial(
            v.dataset, v.features, v.texts, reader=v.reader, subset=v.subset, rate_hz=v.rate_hz, limit=v.videos,
            device=device,
        )  # fmt: skip
        width = trial.batches[0].video.shape[2]
        if width != source.dim:
            raise UsageError(f"validation.features are {width} wide, the data to learn from {source.dim}")
        return trial
    if world is None or world.dim != source.dim:
        return None
    # validation draws with its own seed: every run of every seed is measured on the same videos
    simulator = source if isinstance(source, Simulator) else Simulator(world, device=device)
    return make_trial(simulator, v.split, v.videos, seed=1)
