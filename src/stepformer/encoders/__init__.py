"""Frozen video+text towers behind one protocol. A new encoder is one file and one line of the table below.

Examples:
    >>> encoder = sf.encoders.load("clip")                      # the offline default
    >>> encoder.encode_text(["whisk the eggs"]).shape
    (1, 512)
    >>> features = sf.encoders.read_video("pancakes.mp4", encoder)
    >>> features.vectors.shape, features.rate_hz                # a short video has two per second
    ((60, 512), 2.0)
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from stepformer.base.lazy import lazy
from stepformer.base.plugins import Registry
from stepformer.encoders.base import Encoded, Encoder
from stepformer.errors import UsageError
from stepformer.media.picture import FrameSpec

if TYPE_CHECKING:
    from stepformer.encoders.reading import Features, read_video

__getattr__, __dir__ = lazy(__name__, {"reading": "Features read_video"})

ENCODERS: Registry[Callable[..., Any]] = Registry("encoder", "encoders", {
    "clip": "stepformer.encoders.clip:ClipEncoder",  # offline default: CLIP ViT-B/16; clip:openai has the real texts
    "univl": "stepformer.encoders.univl:UniVLEncoder",  # the paper's; needs its published checkpoints
    "milnce": "stepformer.encoders.milnce:MilNceEncoder",  # S3D and words, HowTo100M; needs its checkpoint
    "openclip": "stepformer.encoders.openclip:OpenClipEncoder",  # any OpenCLIP or SigLIP model, by name
    "captions": "stepformer.encoders.captions:CaptionsEncoder",  # a captioner's text per segment, from JSON
    "precomputed": "stepformer.data.precomputed:PrecomputedEncoder",  # features you already have
    "sentence": "stepformer.encoders.sentence:SentenceEncoder",  # text only
})  # fmt: skip
"""What makes each encoder, by name; a plugin adds its own."""

DEFAULT = "clip"

__all__ = ["ENCODERS", "Encoded", "Encoder", "Features", "FrameSpec", "load", "names", "read_video"]


def names() -> list[str]:
    """The registered encoders."""
    return list(ENCODERS)


def _parsed(query: str) -> dict[str, Any]:
    """``rate_hz=2&text=vectors.npz`` as options."""
    given: dict[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    if "rate_hz" in given:
        try:
            given["rate_hz"] = float(given["rate_hz"])
        except ValueError:
            raise UsageError(f"rate_hz is vectors per second, got {given['rate_hz']!r}") from None
    return given


def load(
    name: str = DEFAULT,
    source: str | os.PathLike[str] | None = None,
    *,
    device: str | None = None,
    rate_hz: float | None = None,
    text: str | None = None,
) -> Encoder:
    """An encoder by name.

    "NAME:SOURCE" gives the source too, so that one string can say it all on a command line, and features of your own
    say more of themselves: "precomputed:FOLDER?rate_hz=2&text=vectors.npz".

    Args:
        name: A registered name, see :func:`names`.
        source: What the encoder is made from: a model name for openclip, a folder of weights for univl and milnce, a
            file for captions, a folder of features for precomputed.
        device: Where its networks run, for encoders that have some.
        rate_hz: Vectors per second, of precomputed features.
        text: The text side of precomputed features: an encoder's name, or an .npz of texts and vectors.

    Returns:
        The encoder. Captions and precomputed features take no frames, and ``sentence`` has texts alone.

    Raises:
        UsageError: no such encoder, or an option that it does not take.
        MissingError: its weights, or the package it needs, are not here.
    """
    kind, _, value = name.partition(":")
    options: dict[str, Any] = {}
    if kind == "precomputed":
        value, _, query = value.partition("?")
        options = _parsed(query)
    given = [value if source is None else source] if value or source is not None else []
    asked = {"device": device, "rate_hz": rate_hz, "text": text}
    options |= {option: value for option, value in asked.items() if value is not None}
    maker = ENCODERS[kind]
    try:
        inspect.signature(maker).bind(*given, **options)
    except TypeError as wrong:
        raise UsageError(f"{name}: {wrong}") from wrong
    made: Encoder = maker(*given, **options)
    return made
