"""Frozen video+text towers behind one protocol. A new encoder is one file and one line of the table below.

>>> names()[0]                                    # the offline default
'clip'
>>> encoder = load("clip")                        # doctest: +SKIP
>>> encoder.encode_text(["whisk the eggs"]).shape # doctest: +SKIP
(1, 512)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from stepformer.base.plugins import Registry
from stepformer.encoders.base import Encoded, Encoder
from stepformer.errors import UsageError
from stepformer.media.picture import FrameSpec

# what is called gives an encoder. Options go in after a colon: "openclip:ViT-B-32/laion2b_s34b_b79k".
ENCODERS: Registry[Callable[..., Any]] = Registry("encoder", "encoders", {
    "clip": "stepformer.encoders.clip:ClipEncoder",  # offline default: CLIP ViT-B/16; clip:openai has the real texts
    "univl": "stepformer.encoders.univl:UniVLEncoder",  # the paper's; needs its published checkpoints
    "milnce": "stepformer.encoders.milnce:MilNceEncoder",  # S3D and words, HowTo100M; needs its checkpoint
    "openclip": "stepformer.encoders.openclip:OpenClipEncoder",  # any OpenCLIP or SigLIP model, by name
    "captions": "stepformer.encoders.captions:CaptionsEncoder",  # a captioner's text per segment, from JSON
    "precomputed": "stepformer.data.precomputed:PrecomputedEncoder",  # features you already have
    "sentence": "stepformer.encoders.sentence:SentenceEncoder",  # text only
})  # fmt: skip

DEFAULT = "clip"

__all__ = ["DEFAULT", "ENCODERS", "Encoded", "Encoder", "FrameSpec", "load", "names"]


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


def load(name: str = DEFAULT, **options: Any) -> Any:
    """An encoder by name; ``options`` are its own (see its module).

    "NAME:VALUE" passes VALUE as the encoder's first argument, so that one string can say it all on a command
    line: a model name for openclip, a folder of weights for univl, a file for captions. Features of your own say
    more of themselves: "precomputed:FOLDER?rate_hz=2&text=vectors.npz".
    """
    kind, _, value = name.partition(":")
    if kind == "precomputed":
        value, _, query = value.partition("?")
        options = {**_parsed(query), **options}
    maker, given = ENCODERS[kind], [value] if value else []
    try:
        inspect.signature(maker).bind(*given, **options)
    except TypeError as wrong:
        raise UsageError(f"{name}: {wrong}") from wrong
    return maker(*given, **options)
