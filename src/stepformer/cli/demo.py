"""``stepformer demo``: the whole product on one real video, with what was found and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import time
from importlib import resources
from pathlib import Path

from stepformer.cli.log import log
from stepformer.cli.options import add

HELP = """Takes a real how-to video (washing hands, 21 seconds, CC BY 4.0, Carlos Máñez-Carvajal) and the default model,
discovers its steps twice, from the pictures alone and with a narration that a speech synthesiser speaks over it (the
clip itself is silent), locates three typed steps in it, and writes chapters, a picture and a page to click on. The
first run downloads the video and the weights (about 400 MB, pinned by hash); later runs are offline."""

EXAMPLES = [
    "stepformer demo",
    "stepformer demo --out my-demo",
]

STEPS = ("turn on the tap", "rub the hands together with soap", "rinse the hands under the tap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "out", "model", "device", "threads", out="out/demo")


def run(args: argparse.Namespace) -> None:
    import stepformer as sf
    from stepformer.base import weights
    from stepformer.media import add_sound
    from stepformer.narration import narration_of
    from stepformer.show import export
    from stepformer.show.terminal import draw

    began = time.monotonic()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
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
    for name, result in (outputs | {"silent.json": silent, "located.json": located}).items():
        written = export.write(result, out / name, similarity=found.similarity)
        files[name] = {"path": str(written.path), "notes": list(written.notes)}
    if args.json:
        timelines = {"discovered": timeline, "silent": silent, "located": located}
        result_json = {name: one.to_dict() for name, one in timelines.items()} | {"files": files}
        print(json.dumps(result_json, ensure_ascii=False))
        return
    print("\nsteps found in the pictures alone, which name none:\n")
    print(draw(silent))
    if narration.cues:
        print(f"\nsteps found with what is said ({narration.where}, a synthetic voice: the clip itself is silent):\n")
        print(draw(timeline))
    print("\nsteps you typed, located in it:\n")
    print(draw(located))
    for text in located.meta.get("absent", []):
        print(f"  not in the video: {text}")
    print(f"\nin {time.monotonic() - began:.0f} s:")
    for entry in files.values():
        print(f"  {entry['path']}")
        for note in entry["notes"]:
            print(f"      {note}")
    print(f"\nopen {out / 'steps.html'} in a browser, or: stepformer view {out / 'steps.json'}")
