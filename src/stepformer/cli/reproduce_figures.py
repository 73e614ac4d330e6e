"""``stepformer reproduce figures``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

HELP = """Draws the paper's figures for one simulated task: timelines of all methods against the truth, where slots look
in the video, the alignment matrix, and the narration with the matched phrases underlined. The weights come from
--checkpoint, or from OUT/checkpoints of a table made with --keep-checkpoints. The video drawn is that of median IoU."""

EXAMPLES = [
    "stepformer reproduce figures --world world.safetensors --checkpoint default.safetensors --out figures",
    "stepformer reproduce figures --world world.safetensors --out results --task 3 --video 0",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--world", required=True, help="simulated world file")
    parser.add_argument("--checkpoint", help="weights of a model")
    parser.add_argument("--out", required=True, help="folder for the pictures")
    parser.add_argument("--split", default="test", help="split of the world (test)")
    parser.add_argument("--task", type=int, default=0, help="number of the task within the split (0)")
    parser.add_argument("--video", type=int, help="number of the video within the task (that of median IoU)")
    parser.add_argument("--encoder", default="concepts", help="simulated encoder: concepts, plain, joint (concepts)")
    parser.add_argument("--without-published", action="store_true", help="do not fit the published methods")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (cpu)")


def run(args: argparse.Namespace) -> int:
    """Draws the figures and prints their paths."""
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.data.world import load_world
    from stepformer.errors import UsageError
    from stepformer.reproduce.figures import draw_figures, figure_notes, make_scene

    out = Path(args.out)
    path = args.checkpoint or next(iter(sorted((out / "checkpoints").glob("default-seed*.safetensors"))), None)
    if path is None:
        raise UsageError(
            "figures need weights: --checkpoint FILE, or a table made with --keep-checkpoints in the same --out"
        )
    checkpoint = load_checkpoint(path, args.device)
    config = checkpoint.inference
    scene = make_scene(
        load_world(args.world), checkpoint.model, config, args.split, args.task, args.video, args.encoder
    )
    paths = draw_figures(scene, out, fit=() if args.without_published else ("kukleva", "elhamifar", "shen"))
    print(json.dumps(figure_notes(scene, paths)) if args.json else "\n".join(map(str, paths)))
    return 0
