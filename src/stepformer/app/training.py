"""A training run assembled from its config: its data, validation on annotated or simulated videos, pictures of one.

The loop itself is :mod:`stepformer.core.training`. :func:`adapt` makes a StepFormer for any joint encoder: the
simulated world in that encoder's space, and the same training. Texts go through the encoder's own text tower. Pictures
of a world, of which only vectors are there, are carried by the linear map that takes its texts from the old space to
the new one (:func:`carried`). That the map does the same to pictures is an assumption, which user videos soften: their
frames say where pictures really lie.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from stepformer.base.defaults import VIDEO_STEPS
from stepformer.core.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from stepformer.core.config import DataConfig, OptimConfig, SimConfig, TrainConfig, ValidationConfig, make_config
from stepformer.core.devices import torch_device
from stepformer.core.distributed import Ranks
from stepformer.core.losses import LossConfig, unit
from stepformer.core.model import ModelConfig, Slots, StepDecoder
from stepformer.core.options import InferenceConfig
from stepformer.core.training import ALONE, BatchSource, Painter, Trainer
from stepformer.data import read_dataset
from stepformer.data.batches import StoreBatches
from stepformer.data.simulator import Batch, Simulator
from stepformer.data.world import World, build_world, load_world, to_unit
from stepformer.encoders import Encoder
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.annotated import trial_of
from stepformer.evaluation.validation import Trial, make_trial, model_slots, score_slots

__all__ = [
    "DataConfig", "InferenceConfig", "LossConfig", "ModelConfig", "OptimConfig", "SimConfig", "TrainConfig", "Trainer",
    "ValidationConfig", "adapt", "make_config", "make_trainer",
]  # fmt: skip

Draw = Callable[[Path, Slots, Batch, InferenceConfig, str], None]
"""Draws the first video of a batch into a file: :func:`stepformer.show.export.pictures.draw_alignment`."""
MODEL = "model.safetensors"


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

    Args:
        config: What :func:`make_config` made.
        out: The run's folder.
        device: By default the GPU where there is one.
        world: Saves reading ``data.world`` where it is at hand.
        draw: Makes pictures of a validation video.
        quiet: No progress bar.
        kind: A class of your own with another loop.
        ranks: Which of several processes this is.

    Raises:
        UsageError: the config names no data, or another width than the data has.
        InputError: the data cannot be read.

    Examples:
        >>> config = make_config({"steps": 2, "batch": 2, "loggers": [], "data": {"store": "store", "held_out": 0.4}})
        >>> sorted(make_trainer(config, "runs/mine", "cpu", quiet=True).run())
        ['loss']
        >>> sf.load_model("runs/mine").checkpoint.provenance["steps"]
        2
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
    """Annotated videos with features where a dataset is given, else simulated ones of a world of the same width."""
    v = config.validation
    if not v.every:
        return None
    if v.dataset is not None:
        found = read_dataset(v.dataset, v.reader)
        part = found if v.subset is None else found.select(v.subset)
        _, trial = trial_of(part, v.features, v.texts, v.rate_hz, limit=v.videos, device=device)
        width = trial.batches[0].video.shape[2]
        if width != source.dim:
            raise UsageError(f"validation.features are {width} wide, the training data {source.dim}")
        return trial
    if world is None or world.dim != source.dim:
        return None
    # validation draws with its own seed: every run of every seed is measured on the same videos
    simulator = source if isinstance(source, Simulator) else Simulator(world, device=device)
    return make_trial(simulator, v.split, v.videos, seed=1)


# -- for another encoder -----------------------------------------------------------------------------------------------


def carried(world: World, encoder: Encoder, name: str, centre: Tensor | None = None) -> World:
    """A world in another encoder's space: texts embedded anew, pictures through a linear map fitted on the texts.

    The map is a ridge regression from centred old text vectors to centred new ones. Least squares shrinks what it
    cannot predict, so pictures are stretched until they lie as far from their mean, measured by how far texts do, as
    they did. ``meta["carried"]`` says how well the map predicts texts that it was not fitted on (cosine). centre: (D,)
    the mean of real frames, where some are known.
    """
    if encoder.fingerprint == world.meta.get("fingerprint"):
        return world
    new = to_unit(encoder.encode_text(list(world.texts)))
    old = world.vectors
    old_mean, new_mean = old.mean(0), new.mean(0)
    x, y = old - old_mean, new - new_mean
    fitted = torch.arange(len(x)) % 10 != 0

    def spread(vectors: Tensor) -> Tensor:
        return vectors.square().sum(1).mean().sqrt()

    gram = x[fitted].T @ x[fitted]
    ridge = 1e-3 * gram.diagonal().mean() * torch.eye(len(gram))
    matrix = torch.linalg.solve(gram + ridge, x[fitted].T @ y[fitted])  # (D, D')
    agreement = float(F.cosine_similarity(x[~fitted] @ matrix, y[~fitted]).mean())
    mean = world.pictures.mean(0)
    rest = (world.pictures - mean) @ matrix
    rest = rest * (spread(world.pictures - mean) / spread(x) * spread(y) / spread(rest))
    gap = (mean - old_mean) @ matrix  # texts say nothing of the way from texts to pictures; its length is kept
    gap = gap * ((mean - old_mean).norm() / spread(x) * spread(y) / gap.norm().clamp(min=1e-9))
    pictures = unit(rest + new_mean + gap)
    meta = {
        **world.meta, "encoder": name, "fingerprint": encoder.fingerprint,
        "carried": {"from": world.encoder, "cosine": round(agreement, 4)},
    }  # fmt: skip
    return _centred(replace(world, vectors=new, pictures=pictures, meta=meta), centre)


def _centred(world: World, centre: Tensor | None) -> World:
    """The world with its unit pictures around another mean."""
    if centre is None:
        return world
    return replace(world, pictures=unit(world.pictures - world.pictures.mean(0) + centre))


def adapt(
    config: TrainConfig,
    out: str | Path,
    encoder: Encoder,
    name: str,
    *,
    world: World | None = None,
    store: str | Path | None = None,
    video_steps: int = VIDEO_STEPS,
    resume: bool = False,
    device: str | None = None,
    draw: Draw | None = None,
    quiet: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Trains a model for ``encoder`` (called ``name``) into ``out/model.safetensors`` and says what came of it.

    First on simulated videos in the encoder's space (``out/simulated``): of ``world`` carried over, or of one from the
    grammar. Then, where a store has the user's own narrated videos, some more on those (``out/videos``).

    Args:
        config: What :func:`make_config` made.
        out: The folder of the model.
        encoder: An encoder with a text side.
        name: What the model calls it.
        world: A simulated world of another encoder.
        store: Feature store of own videos, by this encoder.
        video_steps: Training steps on those.
        resume: Go on with a run that was stopped.
        device: By default the GPU where there is one.
        draw: Makes pictures of a validation video.
        quiet: No progress bar.
        say: Called with sentences on what is being done.

    Raises:
        InputError: the encoder has no text side, or the store is another encoder's.
    """
    from stepformer.encoders.sentence import default_sentence_encoder

    out = Path(out)
    if not hasattr(encoder, "encode_text"):
        raise InputError(f"encoder {name} has no text side: it is not a joint encoder, and cannot be aligned")
    centre = None
    if store is not None:
        real = StoreBatches([store], config.data.max_frames, config.data.held_out, config.seed)
        if real.dim != encoder.dim:
            raise InputError(f"{store} holds vectors of width {real.dim}, encoder {name} makes {encoder.dim}")
        centre = real.centre
    if world is None:
        sentences = default_sentence_encoder().encode_text
        made = build_world(encoder.encode_text, sentences=sentences, encoder=name, fingerprint=encoder.fingerprint)
        made = _centred(made, centre)
    else:
        made = carried(world, encoder, name, centre)
    if "carried" in made.meta:
        say(f"pictures mapped from {made.meta['carried']['from']}: {made.meta['carried']['cosine']:.2f} of texts")
    config = replace(config, encoder=name)
    runs = [("simulated", config)]
    if store is not None:
        data = replace(config.data, store=(str(store),))
        optim = replace(config.optim, lr=config.optim.lr / 5)  # what was learned is not to be forgotten at once
        batch = max(2, min(config.batch, len(real.items)))
        runs.append(("videos", replace(config, data=data, optim=optim, steps=video_steps, batch=batch)))
    scores: dict[str, Any] = {}
    done: list[Checkpoint] = []
    for folder, chosen in runs:
        trainer = make_trainer(chosen, out / folder, device, world=made, draw=draw, quiet=quiet)
        going_on = resume and (out / folder / "state.safetensors").exists()
        if done and not going_on:
            trainer.start_from(done[-1].model)
        say(f"{folder}: {chosen.steps} steps of {chosen.batch} videos")
        scores[folder] = trainer.run(going_on, say)
        done.append(load_checkpoint(out / folder / "last.safetensors"))
    last = done[-1]
    digest = save_checkpoint(out / MODEL, last.model, name, last.provenance, last.inference, torch.float16)
    return {"model": str(out / MODEL), "encoder": name, "dim": made.dim, "hash": digest, "scores": scores}
