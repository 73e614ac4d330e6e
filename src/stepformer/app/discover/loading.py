"""A model by name: one that ships, a file, a folder, or a hub id."""

from __future__ import annotations

import os
import re
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from stepformer.base.files import no_such
from stepformer.errors import InputError, MissingError, near

if TYPE_CHECKING:
    from stepformer.app.discover.stepformer import StepFormer
    from stepformer.encoders.base import Encoder

DEFAULT = "default"
FILES = ("default.safetensors", "model.safetensors", "best.safetensors", "last.safetensors")
"""Names under which a folder's checkpoint is looked for, in this order; with one alone it may be any."""
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def load_model(
    name: str | os.PathLike[str] = DEFAULT, *, encoder: str | Encoder | None = None, device: str | None = None
) -> StepFormer:
    """A model by name.

    Args:
        name: "default", a checkpoint file, a folder with one, or a hub id "owner/name".
        encoder: A name or an encoder object instead of the one the model was trained on (their spaces must agree).
        device: "cpu" or "cuda"; by default the GPU where there is one.

    Raises:
        MissingError: no such model is here, or the hub is needed and huggingface_hub is not installed.
        InputError: what is there is not a checkpoint.

    Examples:
        >>> model = load_model("default")
        >>> timeline = model.discover("pancakes.mp4")       # here a video of three plain colours, ten seconds each
        >>> [(step.start_s, step.end_s) for step in timeline]
        [(0.0, 10.0), (10.0, 20.0), (20.0, 30.0)]
    """
    from stepformer.app.discover.stepformer import StepFormer
    from stepformer.core.checkpoint import load_checkpoint
    from stepformer.core.devices import torch_device

    chosen = str(torch_device(device))
    checkpoint = load_checkpoint(checkpoint_file(name), chosen)
    return StepFormer(checkpoint, name=os.fspath(name), encoder=encoder, device=chosen)


def checkpoint_file(name: str | os.PathLike[str]) -> Path:
    """The checkpoint file that ``name`` stands for; downloads it if it is a hub id.

    A name without a slash is looked for in the package, then in the folder ``$STEPFORMER_MODELS``.
    """
    text = os.fspath(name)
    path = Path(text).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        return _in_folder(path)
    if path.suffix == ".safetensors":
        raise no_such(path, "checkpoint")
    if _HUB_ID.fullmatch(text):
        return _from_hub(text)
    if "/" in text or os.sep in text:
        raise no_such(path, "model file or folder")
    for folder in _folders():
        if (folder / f"{text}.safetensors").is_file():
            return folder / f"{text}.safetensors"
    known = near(text, names())
    known += "" if known.endswith("?") else "."
    raise MissingError(
        f"no model is called {known} A model is a name, a checkpoint, a run folder or a hub id (owner/name); "
        "STEPFORMER_MODELS names a folder of further checkpoints"
    )


def names() -> list[str]:
    """Models that are known by name."""
    return sorted({path.stem for folder in _folders() if folder.is_dir() for path in folder.glob("*.safetensors")})


def _folders() -> list[Path]:
    own = Path(str(resources.files("stepformer"))) / "models"
    other = os.environ.get("STEPFORMER_MODELS")
    return [own, Path(other).expanduser()] if other else [own]


def _in_folder(folder: Path) -> Path:
    for name in FILES:
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        what = "no checkpoint" if not found else f"{len(found)} checkpoints; name one of them"
        raise InputError(f"{folder} holds {what} (looked for {', '.join(FILES)})")
    return found[0]


def _from_hub(name: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise MissingError(
            f"{name} is not a file or folder here, and taking it from the model hub needs huggingface_hub; install it "
            "with: pip install huggingface_hub"
        ) from None
    try:
        return Path(hf_hub_download(name, "model.safetensors"))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        raise MissingError(
            f"{name} is not a file or folder here, and the model hub does not provide it ({type(error).__name__}); "
            "check the name and the network, or download model.safetensors yourself and give its path"
        ) from None
