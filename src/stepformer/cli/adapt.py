"""``stepformer adapt --encoder NAME --out FOLDER``: a StepFormer for an encoder of yours."""

from __future__ import annotations

import argparse
from pathlib import Path

from stepformer.base.defaults import VIDEO_STEPS
from stepformer.cli.log import answer, log, of
from stepformer.cli.options import FOLDER, add, positive, set_fields
from stepformer.cli.prepare import encode_all

HELP = """Trains a StepFormer for any encoder that puts videos and texts into one space (OpenCLIP, SigLIP, UniVL,
MIL-NCE, your own): a simulated world in that encoder's space, then the same training as the default model's.

--world gives a world of real pictures (stepformer bench world), which is mapped into the encoder's space;
without it, procedures come from the package's grammar and pictures are synthetic. --videos adds your own narrated
videos: they are encoded as prepare features does it, and training continues on them. It takes minutes on a GPU; on a
CPU it shows progress and can be stopped and continued with --resume. FOLDER/model.safetensors is the model:
stepformer discover VIDEO --model FOLDER."""
EXAMPLES = [
    "stepformer adapt --encoder openclip:ViT-B-32/laion2b_s34b_b79k --world world.safetensors --out mine/",
    "stepformer adapt --encoder clip --videos narrated/ --out mine/",
    "stepformer adapt --encoder univl:weights/ --out mine/ --train-steps 500 --resume",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "encoder", "world", "videos", "out", "resume", "train_steps", "batch", "set", "seed", "device",
        "threads", encoder={"required": True}, out={"required": True, "metavar": FOLDER})  # fmt: skip
    parser.add_argument(
        "--video-steps",
        type=positive,
        default=VIDEO_STEPS,
        metavar="N",
        help="training steps on the videos of --videos",
    )


def run(args: argparse.Namespace) -> None:
    from stepformer import encoders
    from stepformer.app.training import adapt
    from stepformer.core.config import make_config, merged
    from stepformer.data.world import load_world
    from stepformer.show.export.pictures import draw_alignment

    given = {"seed": args.seed} | set_fields(args.set)
    given |= {key: value for key, value in (("steps", args.train_steps), ("batch", args.batch)) if value}
    config = make_config(merged({}, given))
    encoder = encoders.load(args.encoder)
    world = load_world(args.world) if args.world else None
    store = _store(args) if args.videos else None
    report = adapt(
        config, args.out, encoder, args.encoder, world=world, store=store, video_steps=args.video_steps,
        resume=args.resume, device=args.device, draw=draw_alignment, quiet=args.json, say=log.info,
    )  # fmt: skip
    lines = [f"{report['model']}: for {report['encoder']}, {report['dim']} wide"]
    for name, scores in report["scores"].items():
        lines.append(f"  {name}: " + ", ".join(f"{k} {v:.3f}" for k, v in scores.items()))
    answer(args, report, "\n".join(lines))


def _store(args: argparse.Namespace) -> Path:
    """The user's videos as features and phrases, in the model's folder; what is there already is kept."""
    from stepformer.data.features import Settings, find_sources

    place = Path(args.out) / "features"
    done = encode_all(find_sources(args.videos), Settings(str(place), args.encoder), apart=args.apart)
    for name, error in done.failed:
        log.warning(f"left out: {of(name, error)}")
    return place
