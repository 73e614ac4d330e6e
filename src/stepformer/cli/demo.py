"""``stepformer demo``: the whole product on one real video, with what was found and what is wrong with it."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

from stepformer.cli.log import log
from stepformer.cli.options import add

HELP = """Takes a real how-to video (washing hands, 21 seconds, CC BY 4.0, Carlos Máñez-Carvajal) and the default model,
discovers its steps, locates three typed steps in it, and writes chapters, a picture and a page to click on. The
first run downloads the video and the encoders' weights (about 250 MB, pinned by hash); later runs are offline."""

EXAMPLES = [
    "stepformer demo",
    "stepformer demo --out my-demo",
    "stepformer demo mine.mp4 --step 'cut the onion'",
]

STEPS = ("turn on the tap", "rub the hands together with soap", "rinse the hands under the tap")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("video", nargs="?", metavar="VIDEO", help="another video instead of the demo's")
    add(parser, "out", "step", "model", "device", "threads", out="out/demo", step=list(STEPS))


def run(args: argparse.Namespace) -> int:
    """Runs the demo and says where everything is."""
    import stepformer as sf
    from stepformer.base import weights
    from stepformer.show import export
    from stepformer.show import terminal as picture

    began = time.monotonic()
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if args.video:
        video = Path(args.video)
    else:
        log.info("a real how-to video: washing hands (CC BY 4.0, Carlos Máñez-Carvajal)")
        video = out / "washing-hands.mp4"
        source = weights.pull("demo-video")
        if not video.exists():
            shutil.copyfile(source, video)  # beside the page, which plays it
    model = sf.load_model(args.model, device=args.device)
    log.info("decoding and encoding the video, one vector a second")
    features = model.read(video)
    found = model.find(features)
    timeline = found.timeline
    texts = args.step
    located = model.place(features, texts).timeline

    files = {}
    outputs: tuple[tuple[str, sf.Timeline, dict[str, Any]], ...] = (
        ("steps.json", timeline, {}),
        ("chapters.vtt", timeline, {}),
        ("chapters.ffmeta", timeline, {}),
        ("timeline.png", timeline, {"similarity": found.similarity}),
        ("steps.html", timeline, {"similarity": found.similarity}),
        ("located.json", located, {}),
    )
    for name, result, options in outputs:
        written = export.write(result, out / name, **options)
        files[name] = {"path": str(written.path), "notes": list(written.notes)}
    if args.json:
        result_json = {"discovered": timeline.to_dict(), "located": located.to_dict(), "files": files}
        print(json.dumps(result_json, ensure_ascii=False))
        return 0
    print("\nsteps found in the video alone (names are guesses from a phrase bank):\n")
    print(picture.draw(timeline))
    print("\nsteps you typed, located in it:\n")
    print(picture.draw(located))
    for text in located.meta.get("absent", []):
        print(f"  not in the video: {text}")
    print(f"\nin {time.monotonic() - began:.0f} s:")
    for entry in files.values():
        print(f"  {entry['path']}")
        for note in entry["notes"]:
            print(f"      {note}")
    print(f"\nopen {out / 'steps.html'} in a browser, or: stepformer view {out / 'steps.json'}")
    return 0
