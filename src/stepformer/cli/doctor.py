"""``stepformer doctor``: what is here and what is not, one check per line, and how to fix those that fail."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from stepformer.base.cache import cache_folder
from stepformer.cli.log import log
from stepformer.cli.options import add
from stepformer.errors import StepFormerError
from stepformer.version import __version__

HELP = """Checks Python, torch and device, libraries, video decoding, weights (present and verified), the model, extras,
cache and disk, and runs a tiny video through the whole product. Each failing line says how to fix it. Exit code 0 when
nothing fails, 4 when all that fails is weights or packages that are not here, else 1."""

EXAMPLES = ["stepformer doctor", "stepformer doctor --quick", "stepformer doctor --json"]

_MARKS = {"ok": "ok  ", "note": "-   ", "fail": "FAIL"}
State = Literal["ok", "note", "fail"]
NEEDED = ("minilm", "clip-vit-b16-image")
"""Weights without which the default model cannot read a video."""
_EXTRAS = {
    "openclip": ("open_clip", "OpenCLIP and SigLIP encoders"),
    "tensorboard": ("tensorboard", "training curves in TensorBoard"),
    "wandb": ("wandb", "training curves in Weights & Biases"),
    "procel": ("scipy", "reading ProceL's .mat files"),
}
_LIBRARIES = (
    "numpy", "safetensors", "numba", "av", "pillow", "tokenizers", "spacy", "onnxruntime", "usearch", "shtab",
    "faster-whisper",
)  # fmt: skip
_WANTED_FREE_BYTES = 2 * 10**9


@dataclass(frozen=True, slots=True)
class Check:
    """One line: what was looked at, how it is, and where it is not well what to do. ``missing``: weights, a package."""

    name: str
    state: State
    found: str
    fix: str = ""
    missing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--quick", action="store_true", help="hash no weights, run nothing")
    add(parser, "model")


def run(args: argparse.Namespace) -> int:
    """Prints each check as it is done."""
    checks = []
    for check in examine(args.model, args.quick):
        checks.append(check)
        if not args.json:
            print(f"{_MARKS[check.state]}  {check.name:<26} {check.found}", flush=True)
            if check.fix and check.state != "ok":
                print(f"{'':<6}{'':<26} {check.fix}", flush=True)
    failing = [check for check in checks if check.state == "fail"]
    if args.json:
        print(json.dumps({"ok": not failing, "checks": [check.to_dict() for check in checks]}, indent=2))
    else:
        log.info("all is well" if not failing else f"{len(failing)} of {len(checks)} checks fail")
    if not failing:
        return 0
    return 4 if all(check.missing for check in failing) else 1


def examine(model: str = "default", quick: bool = False) -> Iterator[Check]:
    """Every check, in an order in which a failing one explains those after it. ``quick`` hashes and runs nothing."""
    yield Check("stepformer", "ok", f"{__version__}, {Path(__file__).parent}")
    yield _python()
    yield from _guarded("torch", _torch, "reinstall it with: pip install --force-reinstall torch")
    yield _libraries()
    yield from _guarded("video decoding", _decoding, "reinstall it with: pip install --force-reinstall av")
    yield from (_weights(name, quick) for name in NEEDED)
    yield from (_weights(name, quick, optional=True) for name in ("spacy-en-md", "whisper-base"))
    yield from _guarded(
        "model", lambda: _model(model), "install the package again, or name a checkpoint with --model", missing=True
    )
    yield from _extras()
    yield _cache()
    yield _disk()
    if not quick:
        yield from _guarded(
            "end to end",
            lambda: _end_to_end(model),
            "fix the first failing line above",
        )


def _guarded(name: str, check: Callable[[], Check], fix: str, missing: bool = False) -> Iterator[Check]:
    """The check's result; an error in it is a failing line and not the end of the examination."""
    try:
        yield check()
    except StepFormerError as error:
        yield Check(name, "fail", str(error), fix, missing or error.exit_code == 4)
    except Exception as error:  # a broken installation can raise anything
        yield Check(name, "fail", f"{type(error).__name__}: {error}", fix, missing)


def _python() -> Check:
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if sys.version_info < (3, 11):  # noqa: UP036 (pip can ignore what a package requires)
        return Check("python", "fail", found, "install Python 3.11 or later")
    return Check("python", "ok", found)


def _torch() -> Check:
    import torch

    device = "no GPU: the CPU does the work"
    if torch.cuda.is_available():
        device = f"{torch.cuda.get_device_name(0)}, {torch.cuda.get_device_properties(0).total_memory / 2**30:.0f} GiB"
    total = float(torch.ones(8, 8).matmul(torch.ones(8, 8)).sum())
    if total != 512.0:
        return Check("torch", "fail", f"{torch.__version__} multiplies wrongly", "reinstall torch")
    return Check("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {device}")


def _libraries() -> Check:
    found, gone = [], []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            gone.append(name)
    if gone:
        return Check("libraries", "fail", f"{', '.join(gone)} not installed", f"pip install {' '.join(gone)}", True)
    return Check("libraries", "ok", ", ".join(found))


def _decoding() -> Check:
    """Writes two seconds of video and reads a picture back."""
    import av

    from stepformer.media import frames_at

    with tempfile.TemporaryDirectory() as folder:
        path = tiny_video(Path(folder) / "check.mp4")
        pictures = frames_at(path, [0.5, 1.5]).pictures
    if pictures.shape[0] != 2 or not pictures.any():
        return Check("video decoding", "fail", f"read back {pictures.shape}", "pip install --force-reinstall av")
    codecs = [name for name in ("h264", "hevc", "vp9", "av1") if name in av.codecs_available]
    return Check("video decoding", "ok", f"PyAV {av.__version__}, {', '.join(codecs)}")


def tiny_video(path: Path, seconds: int = 2) -> Path:
    """A small video of moving colours, for checks."""
    import av
    import numpy as np

    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        across = np.linspace(0, 255, 160, dtype=np.uint8)
        for i in range(seconds * 10):
            picture = np.zeros((120, 160, 3), np.uint8)
            picture[..., (i // 20) % 3] = np.roll(across, i * 5)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())
    return path


def _weights(name: str, quick: bool, optional: bool = False) -> Check:
    from stepformer.base import weights

    title = f"weights {name}"
    entry = weights.entry(name)
    pull = f"get them with: stepformer models pull {name} ({entry.size / 1e6:.0f} MB)"
    if weights.find(name) is None:
        return Check(title, "note" if optional else "fail", "not here", pull, not optional)
    if quick:
        return Check(title, "ok", "here, not verified (--quick)")
    troubles = weights.verify(name)
    if troubles:
        folder = weights.folder_of(name)
        return Check(title, "fail", "; ".join(troubles), f"remove {folder}, then {pull}", True)
    return Check(title, "ok", "here and verified")


def _model(name: str) -> Check:
    from stepformer.app.discover import checkpoint_file
    from stepformer.core.checkpoint import load_checkpoint

    path = checkpoint_file(name)
    checkpoint = load_checkpoint(path)  # checks the hash of the weights
    size = sum(p.numel() for p in checkpoint.model.parameters()) / 1e6
    slots = checkpoint.model.config.slots
    return Check("model", "ok", f"{name}: {size:.1f} M weights, {slots} slots, hash {checkpoint.hash[:12]} verified")


def _extras() -> Iterator[Check]:
    for extra, (module, purpose) in _EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Check(f"extra {extra}", "note", f"not installed ({purpose})", f"pip install 'stepformer[{extra}]'")
        else:
            yield Check(f"extra {extra}", "ok", purpose)


def _cache() -> Check:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return Check(
            "cache folder", "fail", f"{folder} cannot be written: {error}", "set STEPFORMER_CACHE to one that can"
        )
    return Check("cache folder", "ok", str(folder))


def _disk() -> Check:
    folder = cache_folder("weights")
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    found = f"{free / 1e9:.1f} GB free at {folder}"
    if free < _WANTED_FREE_BYTES:
        return Check("disk", "fail", found, "make 2 GB free there, or set STEPFORMER_CACHE to a folder on another disk")
    return Check("disk", "ok", found)


def _end_to_end(model: str) -> Check:
    """A tiny video through the whole product: decode, encode, slots, steps, chapters."""
    import stepformer
    from stepformer.base import weights
    from stepformer.show import export

    gone = [name for name in NEEDED if weights.find(name) is None]
    if gone:
        pull = f"stepformer models pull {' '.join(gone)}"
        return Check("end to end", "fail", f"needs {', '.join(gone)}", f"get them with: {pull}", True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = tiny_video(Path(folder) / "check.mp4", seconds=6)
        loaded = stepformer.load_model(model)
        timeline = loaded.find(loaded.read(path, cache=False)).timeline
        chapters = Path(folder) / "chapters.vtt"
        export.write(timeline, chapters)
        back = export.read(chapters)
    if len(back) != len(timeline):
        return Check("end to end", "fail", f"{len(timeline)} steps written, {len(back)} read back", "report this")
    took = time.perf_counter() - began
    return Check("end to end", "ok", f"a {timeline.duration_s:.0f} s video to {len(timeline)} steps in {took:.1f} s")
