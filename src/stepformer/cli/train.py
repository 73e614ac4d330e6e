"""``stepformer train``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepformer.base.files import no_such
from stepformer.cli.log import answer, log
from stepformer.cli.options import FOLDER, OPTIONS, Several, add, set_fields

HELP = """Trains a step decoder on a simulated world or on feature stores of real videos.

Options come from the preset (paper, released, default), then the config file, then --set. The file has the sections
model, loss, optim, data, validation and inference: at its top, or under [train] in a stepformer.toml. A run folder
keeps its config, metrics, best and last weights, and resumes exactly; Ctrl-C keeps everything. Under torchrun each
process trains on its part of every batch: --batch counts all processes together."""

EXAMPLES = [
    "stepformer train --set data.world=world.safetensors --out runs/default",
    "stepformer train --preset paper --set data.world=world.safetensors --set steps=2000 --out runs/paper",
    "stepformer train --config run.toml --out runs/mine",
    "stepformer train --out runs/mine --resume                        # the folder knows its config",
    "torchrun --nproc-per-node 8 -m stepformer train --config run.toml --out runs/mine",
]


FIELDS = (
    "preset", "seed", "steps", "batch", "save_every", "log_every", "loggers", "encoder", "model", "loss", "optim",
    "data", "validation", "inference",
)  # fmt: skip
"""What a config file may hold for this command beside its options: the fields of TrainConfig."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--preset",
        choices=("paper", "released", "default"),
        help="preset for everything not set elsewhere (default: default)",
    )
    seed = {"default": None, "help": f"{OPTIONS['seed']['help']} (default: 0)"}  # None: the config file's
    add(parser, "set", "train_steps", "batch", "seed", seed=seed)
    parser.add_argument("--without", action=Several, default=[], metavar="LOSS", help="switch a loss off by name")
    add(parser, "out", "device", "threads", "dry_run", "resume", out={"required": True, "metavar": FOLDER})


def _resolved(path: Path) -> dict[str, Any]:
    """The config that a run folder keeps."""
    from stepformer.base.guard import read_json
    from stepformer.errors import InputError

    try:
        values = read_json(path)
        if not isinstance(values, dict):
            raise InputError(f"{path} holds no settings")
        return values
    except InputError as error:
        raise InputError(f"{error}; give --config") from None


def run(args: argparse.Namespace) -> None:
    """Resolves the config and trains, in each of the processes that torchrun started."""
    from stepformer.core.distributed import join, leave

    try:
        _run(args, *join(args.device))
    finally:
        leave()


def _run(args: argparse.Namespace, ranks: Any, device: Any) -> None:
    from stepformer.core.config import make_config, merged
    from stepformer.core.distributed import restarted

    resume = args.resume or (restarted() and (Path(args.out) / "state.safetensors").exists())
    flags = {"preset": args.preset, "seed": args.seed, "steps": args.train_steps, "batch": args.batch}
    overrides = {**set_fields(args.set), **{key: value for key, value in flags.items() if value is not None}}
    own = Path(args.out) / "config.json"
    if args.resume and not own.parent.is_dir():
        raise no_such(args.out, "run folder", "start without --resume")
    resumed = resume and own.is_file() and args.config is None  # a run knows what it is
    config = make_config(merged(_resolved(own) if resumed else args.fields, overrides))
    if args.without:
        from stepformer.core.training import with_loss_off

        config = with_loss_off(config, *args.without)
    from stepformer.app.training import make_trainer

    if args.dry_run:
        if config.data.store or config.data.world:
            trainer = make_trainer(config, args.out, device, quiet=True)
            log.info(trainer.rehearse())
            config = trainer.config
        else:
            log.warning("no data is given (data.store or data.world): only the config was checked")
        print(json.dumps(asdict(config), indent=2))
        return
    from stepformer.show.export.pictures import draw_alignment

    trainer = make_trainer(config, args.out, device, draw=draw_alignment, quiet=args.json, ranks=ranks)
    scores = trainer.run(resume, log=log.info if ranks.first else log.debug)
    if not ranks.first:
        return
    shown = "\n" + "  ".join(f"{k} {v:.3f}" for k, v in scores.items()) if scores else ""
    result = {"out": str(args.out), "step": trainer.step, "scores": scores}
    answer(args, result, f"trained {trainer.step} steps into {args.out}{shown}")
