"""``stepformer demo``: the whole product on one real video, with what was found and what is wrong with it."""

from __future__ import annotations

import argparse
import time
from importlib import resources

from stepformer.base.files import make_folder
from stepformer.cli.log import answer, log
from stepformer.cli.options import FOLDER, add

HELP = """Takes a real how-to video (washing hands, 21 seconds, CC BY 4.0, Carlos Máñez-Carvajal) and the default model,
discovers its steps twice, from the pictures alone and with a narration spoken by a speech synthesiser (the clip itself
is silent), locates three typed steps in it, and writes chapters, a picture and an interactive page. The first run
downloads the video and the weights (about 400 MB, pinned by hash); later runs work offline."""

EXAMPLES = [
    "stepformer demo",
    "stepformer demo --out my-demo",
]

STEPS = ("turn on the tap", "rub the hands together with soap", "rinse the hands under the tap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "out", "model", "device", "threads", out={"metavar": FOLDER, "default": "out/demo"})


def run(args: argparse.Namespace) -> None:
    import stepformer as sf
    from stepformer.base import weights
    from stepformer.media.audio import add_sound
    from stepformer.narration import narration_of
    from stepformer.show import export
    from stepformer.show.terminal import draw

    began = time.monotonic()
    out = make_folder(args.out)
    log.info("a real how-to video: washing hands (CC BY 4.0, Carlos Máñez-Carvajal)")
    video = out / "washing-hands.mp4"  # beside the page, which plays it
    with resources.as_file(resources.files("stepformer.cli") / "demo_voice.ogg") as voice:
        add_sound(weights.pull("demo-video"), voice, video)
    model = sf.load_model(args.model, device=args.device)
    log.info("decoding and encoding the video, one vector per second")
    features = model.read(video)
    silent = model.find(features).timeline
    log.info("listening to what is said")
    narration = narration_of(video)
    found = model.find(features, narration=narration)
    timeline = found.timeline
    located = model.place(features, STEPS).timeline

    files = {}
    outputs = dict.fromkeys(("steps.json", "chapters.vtt", "chapters.ffmeta", "timeline.png", "steps.html"), timeline)
    for name, one in (outputs | {"silent.json": silent, "located.json": located}).items():
        written = export.write(one, out / name, similarity=found.similarity)
        files[name] = {"path": str(written.path), "notes": list(written.notes)}
    lines = ["\nsteps found in the pictures alone, without names:\n", draw(silent)]
    if narration.cues:
        heard = f"{narration.where}, a synthetic voice: the clip itself is silent"
        lines += [f"\nsteps found with what is said ({heard}):\n", draw(timeline)]
    lines += ["\nsteps you typed, located in it:\n", draw(located)]
    lines += [f"  not in the video: {text}" for text in located.meta.get("absent", [])]
    lines.append(f"\nin {time.monotonic() - began:.0f} s:")
    for entry in files.values():
        lines += [f"  {entry['path']}", *(f"      {note}" for note in entry["notes"])]
    lines.append(f"\nopen {out / 'steps.html'} in a browser, or: stepformer view {out / 'steps.json'}")
    timelines = {"discovered": timeline, "silent": silent, "located": located}
    result = {name: one.to_dict() for name, one in timelines.items()} | {"files": files}
    answer(args, result, "\n".join(lines))
