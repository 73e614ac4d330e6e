"""``stepformer models convert``: a checkpoint of the released research code, as one of ours."""

from __future__ import annotations

import argparse
import json
from typing import Any

HELP = """Converts a checkpoint of the authors' released code (a .ckpt or .pth file) to safetensors, once.

The file is read by the restricted reader, which rebuilds tensors and runs nothing else. The result is a decoder of the
preset `released` for UniVL features, used like any other: stepformer discover --model FILE --encoder univl. Position
codes are the checkpoint's own; one trained without them gets none."""

EXAMPLES = ["stepformer models convert stepformer.ckpt released.safetensors"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("source", help="the released checkpoint")
    parser.add_argument("target", help="safetensors file to write")
    parser.add_argument("--encoder", default="univl", help="encoder its features come from (univl)")
    parser.add_argument("--prefix", default="model.", help="what stands before its key names (model.)")


def run(args: argparse.Namespace) -> int:
    """Reads, converts, writes."""
    from pathlib import Path

    from stepformer.base.safe_pickle import load_restricted
    from stepformer.core.checkpoint import from_released, save_checkpoint
    from stepformer.errors import InputError

    if not Path(args.source).is_file():
        raise InputError(f"there is no checkpoint {args.source}")
    loaded: Any = load_restricted(args.source)
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict):
        raise InputError(f"{args.source} holds no state_dict")
    tensors = {name: value for name, value in state.items() if hasattr(value, "shape")}
    model = from_released(tensors, args.prefix)
    digest = save_checkpoint(args.target, model, args.encoder, {"converted_from": Path(args.source).name})
    config = model.config
    positions = "none" if config.positions == "none" else config.position_code
    result = {
        "target": args.target,
        "layers": config.layers,
        "slots": config.slots,
        "positions": f"{config.position_rows} of its own" if config.position_rows else positions,
        "hash": digest,
    }
    print(json.dumps(result) if args.json else "  ".join(f"{k} {v}" for k, v in result.items()))
    return 0
