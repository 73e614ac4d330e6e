"""``stepformer train``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HELP = """Trains a step decoder on a simulated world or on feature stores of real videos.

Options come from the preset (paper, released, default), then the config file, then --set. A run folder keeps its
config, metrics, best and last weights, and resumes exactly; Ctrl-C keeps everything."""

EXAMPLES = [
    "stepformer train --set data.world=world.safetensors --out runs/default",
    "stepformer train --preset paper --set data.world=world.safetensors --set steps=2000 --out runs/paper",
    "stepformer train --config run.toml --out runs/mine",
    "stepformer train --out runs/mine --resume                        # the folder knows its config",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--config", help="TOML file; sections model, loss, optim, data, validation, inference")
    parser.add_argument(
        "--preset", choices=("paper", "released", "default"), help="what is not set otherwise (default)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="one field, e.g. optim.lr=1e-4")
    parser.add_argument("--without", action="append", default=[], metavar="LOSS", help="switch a loss off by name")
    parser.add_argument("--out", required=True, help="run folder")
    parser.add_argument("--resume", action="store_true", help="go on with the run in the folder, with its config")
    parser.add_argument("--device", default=None, help="cpu or cuda; the GPU where there is one")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and stop")


def _value(text: str) -> Any:
    """TOML's idea of a value, or the text itself."""
    import tomllib

    try:
        return tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError:
        return text


def _resolved(path: Path) -> dict[str, Any]:
    """The config that a run folder keeps."""
    from stepformer.errors import InputError

    try:
        values: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}; give --config") from None
    return values


def run(args: argparse.Namespace) -> int:
    """Resolves the config and trains."""
    from stepformer.core.config import make_config, merged, read_config
    from stepformer.errors import UsageError

    overrides: dict[str, Any] = {}
    for pair in args.set:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set takes KEY=VALUE, got {pair!r}")
        overrides[key.strip()] = _value(value.strip())
    if args.preset:
        overrides["preset"] = args.preset
    own = Path(args.out) / "config.json"
    if args.config:
        config = read_config(args.config, overrides)
    elif args.resume and own.is_file():
        config = make_config(merged(_resolved(own), overrides))  # a run knows what it is
    else:
        config = make_config(merged({}, overrides))
    if args.without:
        from stepformer.core.training import with_loss_off

        config = with_loss_off(config, *args.without)
    if args.dry_run:
        print(json.dumps(config.to_dict(), indent=2))
        return 0
    from stepformer.app.training import make_trainer
    from stepformer.show.alignments import draw_alignment

    trainer = make_trainer(config, args.out, args.device, draw=draw_alignment, quiet=args.json)
    scores = trainer.run(args.resume, log=lambda text: print(text, file=sys.stderr))
    if args.json:
        print(json.dumps({"out": str(args.out), "step": trainer.step, "scores": scores}))
    else:
        print(f"trained {trainer.step} steps into {args.out}")
        if scores:
            print("  ".join(f"{k} {v:.3f}" for k, v in scores.items()))
    return 0
