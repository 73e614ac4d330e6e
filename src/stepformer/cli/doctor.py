"""``stepformer doctor``: what is here and what is not, one check per line, and how to fix those that fail."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from stepformer.base.cache import cache_folder, why_nothing_is_kept
from stepformer.cli.log import answer, log
from stepformer.cli.options import add
from stepformer.errors import MissingError, StepFormerError
from stepformer.version import __version__

HELP = """Checks Python, torch and device, weights (present and verified), the model, extras, cache and disk, and runs a
tiny video through the whole product. Each failing line says how to fix it. Exit code 0 when nothing fails, 4 when only
weights or packages are missing, else 1."""

EXAMPLES = ["stepformer doctor", "stepformer doctor --quick", "stepformer doctor --json"]

_MARKS = {"ok": "ok  ", "note": "-   ", "fail": "FAIL"}
NEEDED = ("minilm", "clip-vit-b16-image")
"""Weights without which the default model cannot read a video."""
_OPTIONAL = ("spacy-en-md", "whisper-base")
_EXTRAS = {
    "openclip": ("open_clip", "OpenCLIP and SigLIP encoders"),
    "tensorboard": ("tensorboard", "training curves in TensorBoard"),
    "wandb": ("wandb", "training curves in Weights & Biases"),
    "procel": ("scipy", "reading ProceL's .mat files"),
}
_WANTED_FREE_BYTES = 2 * 10**9


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and where it is not well what to do. ``missing``: weights, a package."""

    name: str
    state: Literal["ok", "note", "fail"]
    found: str
    fix: str = ""
    missing: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="do not verify weights or run the test video")
    add(parser, "model")


def run(args: argparse.Namespace) -> int:
    checks = []
    for check in examine(args.model, args.quick):
        checks.append(check)
        if not args.json:
            print(f"{_MARKS[check.state]}  {check.name:<26} {check.found}", flush=True)
            if check.fix and check.state != "ok":
                print(f"{'':<6}{'':<26} {check.fix}", flush=True)
    failing = [check for check in checks if check.state == "fail"]
    if args.json:
        answer(args, {"ok": not failing, "checks": [asdict(check) for check in checks]}, "")
    else:
        log.info("all is well" if not failing else f"{len(failing)} of {len(checks)} checks fail")
    if not failing:
        return 0
    return 4 if all(check.missing for check in failing) else 1


def examine(model: str = "default", quick: bool = False) -> Iterator[Check]:
    """Every check, in an order in which a failing one explains those after it. ``quick`` hashes and runs nothing."""
    yield Check("stepformer", "ok", f"{__version__}, {Path(__file__).parents[1]}")
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    yield Check("python", "ok", f"{platform.python_version()} on {system}")
    yield _checked("torch", _torch, "reinstall it with: pip install --force-reinstall torch")
    for name in (*NEEDED, *_OPTIONAL):
        fix = f"get them with: stepformer models pull {name}"
        yield _checked(f"weights {name}", partial(_weights, name, quick), fix, optional=name in _OPTIONAL)
    yield _checked("model", partial(_model, model), "install the package again, or name a checkpoint with --model")
    for extra, (module, purpose) in _EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield Check(f"extra {extra}", "ok", purpose)
        else:
            fix = f"pip install 'stepformer[{extra}]'"
            yield Check(f"extra {extra}", "note", f"not installed ({purpose})", fix, missing=True)
    yield _checked("cache folder", _cache, "set STEPFORMER_CACHE to a folder that can be written")
    yield _checked("disk", _disk, "free 2 GB there, or set STEPFORMER_CACHE to a folder on another disk")
    if not quick:
        yield _checked("end to end", partial(_end_to_end, model), "fix the first failing line above")


def _checked(name: str, look: Callable[[], str], fix: str = "", optional: bool = False) -> Check:
    """What ``look`` found; an error in it is a failing line, or of what is ``optional`` a note, and not the end."""
    try:
        return Check(name, "ok", look())
    except StepFormerError as error:
        missing = error.exit_code == MissingError.exit_code
        return Check(name, "note" if optional and missing else "fail", str(error), fix, missing)
    except Exception as error:  # a broken installation can raise anything
        return Check(name, "fail", f"{type(error).__name__}: {error}", fix)


def _torch() -> str:
    import torch

    device = "no GPU: runs on the CPU"
    if torch.cuda.is_available():
        device = f"{torch.cuda.get_device_name(0)}, {torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB"
    return f"{torch.__version__}, {torch.get_num_threads()} threads, {device}"


def _weights(name: str, quick: bool) -> str:
    from stepformer.base import weights

    if weights.find(name) is None:
        raise MissingError(f"not downloaded ({weights.entry(name).size / 1e6:.0f} MB)")
    if quick:
        return "downloaded, not verified (--quick)"
    if troubles := weights.verify(name):
        raise MissingError(f"{'; '.join(troubles)}: remove {weights.folder_of(name)}")
    return "downloaded and verified"


def _model(name: str) -> str:
    from stepformer.app.discover.loading import checkpoint_file
    from stepformer.core.checkpoint import load_checkpoint

    checkpoint = load_checkpoint(checkpoint_file(name))  # checks the hash of the weights
    size = sum(p.numel() for p in checkpoint.model.parameters()) / 1e6
    return f"{name}: {size:.1f} M weights, {checkpoint.model.config.slots} slots, hash {checkpoint.hash[:12]} verified"


def _cache() -> str:
    if why := why_nothing_is_kept():
        raise StepFormerError(f"{cache_folder()} cannot be written: {why}")
    return str(cache_folder())


def _disk() -> str:
    folder = cache_folder("weights")
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free at {folder}"
    if free < _WANTED_FREE_BYTES:
        raise StepFormerError(found)
    return found


def _end_to_end(model: str) -> str:
    """A tiny video through the whole product: decode, encode, slots, steps, chapters."""
    import stepformer
    from stepformer.base import weights
    from stepformer.show import export

    if gone := [name for name in NEEDED if weights.find(name) is None]:
        raise MissingError(f"needs {', '.join(gone)}")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_video(Path(folder) / "check.mp4")
        loaded = stepformer.load_model(model)
        timeline = loaded.find(loaded.read(path, cache=False)).timeline
        chapters = Path(folder) / "chapters.vtt"
        export.write(timeline, chapters)
        back = export.read(chapters)
    if len(back) != len(timeline):
        raise StepFormerError(f"{len(timeline)} steps written, {len(back)} read back")
    took = time.perf_counter() - began
    return f"a {timeline.duration_s:.0f} s video to {len(timeline)} steps in {took:.1f} s"


def tiny_video(path: Path) -> Path:
    """Six seconds of moving colours, for checks."""
    import av
    import numpy as np

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        across = np.linspace(0, 255, 160, dtype=np.uint8)
        for i in range(60):
            picture = np.zeros((120, 160, 3), np.uint8)
            picture[..., (i // 20) % 3] = np.roll(across, i * 5)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path
