"""How strong the simulated signal must be for ground-truth texts to score what they score on real features.

The paper aligns ground-truth step texts with real UniVL features of CrossTask and reports IoU 18.6, precision 32.2,
recall 29.2, MoF 67.9 (its Table 2, "GT text features"). A simulated encoder is calibrated when the same alignment of
the same texts on the simulated CrossTask validation videos gives the same IoU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from stepformer.corpus.simulator import ENCODERS, Simulator
from stepformer.corpus.world import World

PAPER_TEXT_ROW = {"zs_iou": 0.186, "zs_precision": 0.322, "zs_recall": 0.292, "zs_mof": 0.679}


def calibrate(
    world: World,
    device: str | torch.device | None = None,
    factors: tuple[float, ...] = (0.7, 0.85, 1.0, 1.2, 1.4),
    keep: float = 0.1,
) -> list[dict[str, Any]]:
    """Rows of {encoder, strength, zs_iou, ...} around each encoder's strength, and the paper's row last."""
    from stepformer.inference import InferenceConfig
    from stepformer.validation import make_trial, text_scores

    simulator = Simulator(world, device=device or ("cuda" if torch.cuda.is_available() else "cpu"))
    rows: list[dict[str, Any]] = []
    for name, encoder in ENCODERS.items():
        for factor in factors:
            tried = replace(encoder, strength=encoder.strength * factor)
            scores = text_scores(make_trial(simulator, "test", tried, seed=1), InferenceConfig(locate_keep=keep))
            rows.append({"encoder": name, "strength": tried.strength, **scores})
    return [*rows, {"encoder": "paper (UniVL)", "strength": float("nan"), **PAPER_TEXT_ROW}]
