"""The numbers that the paper prints, in shares: its Tables 1 to 3 and the supplement's table (here Table 4).

Zero-shot is (IoU, precision, recall, MoF) and unsupervised (F1, precision, recall, MoF), keyed as our scores are.
"""

from __future__ import annotations

from collections.abc import Mapping

ZERO_SHOT = ("zs_iou", "zs_precision", "zs_recall", "zs_mof")
UNSUPERVISED = ("un_f1", "un_precision", "un_recall", "un_mof")
DATASETS = ("crosstask", "procel", "coin")

Numbers = Mapping[str, float]


def _zero_shot(*percent: float) -> dict[str, float]:
    return {name: value / 100 for name, value in zip(ZERO_SHOT, percent, strict=True)}


def _unsupervised(*percent: float) -> dict[str, float]:
    return {name: value / 100 for name, value in zip(UNSUPERVISED, percent, strict=True)}


# method -> dataset -> numbers
TABLE1: dict[str, dict[str, Numbers]] = {
    "kukleva weak": {
        "crosstask": _unsupervised(15.9, 10.3, 37.2, 28.5),
        "procel": _unsupervised(19.4, 14.1, 34.3, 30.4),
        "coin": _unsupervised(28.5, 21.5, 48.6, 8.2),
    },
    "elhamifar weak": {
        "crosstask": _unsupervised(17.2, 10.9, 41.7, 41.7),
        "procel": _unsupervised(15.5, 11.3, 27.3, 27.3),
        "coin": _unsupervised(28.4, 20.6, 52.0, 30.2),
    },
    "shen weak": {
        "crosstask": _unsupervised(22.3, 16.2, 37.5, 41.0),
        "procel": _unsupervised(20.3, 17.4, 26.7, 35.4),
        "coin": _unsupervised(30.1, 25.9, 39.8, 35.6),
    },
    "kukleva unsupervised": {
        "crosstask": _unsupervised(18.1, 12.0, 39.8, 29.4),
        "procel": _unsupervised(17.2, 12.8, 30.0, 28.9),
        "coin": _unsupervised(27.9, 21.8, 45.0, 13.6),
    },
    "shen unsupervised": {
        "crosstask": _unsupervised(16.0, 11.7, 23.1, 37.1),
        "procel": _unsupervised(18.0, 13.6, 22.8, 33.1),
        "coin": _unsupervised(18.8, 16.5, 25.1, 32.7),
    },
    "stepformer": {
        "crosstask": _unsupervised(28.3, 22.1, 42.0, 41.9),
        "procel": _unsupervised(21.9, 18.3, 28.1, 40.9),
        "coin": _unsupervised(32.1, 27.1, 42.5, 38.6),
    },
}

TABLE2: dict[str, dict[str, Numbers]] = {
    "shen weak": {
        "crosstask": _zero_shot(16.3, 27.2, 26.2, 67.2),
        "procel": _zero_shot(12.1, 16.0, 19.0, 30.7),
        "coin": _zero_shot(20.8, 31.3, 33.7, 40.5),
    },
    "text": {
        "crosstask": _zero_shot(18.6, 32.2, 29.2, 67.9),
        "procel": _zero_shot(12.6, 20.2, 21.1, 36.1),
        "coin": _zero_shot(24.4, 38.1, 35.3, 50.6),
    },
    "shen unsupervised": {
        "crosstask": _zero_shot(12.8, 25.2, 19.9, 66.9),
        "procel": _zero_shot(10.5, 13.8, 14.7, 24.2),
        "coin": _zero_shot(11.7, 18.3, 24.3, 29.2),
    },
    "stepformer": {
        "crosstask": _zero_shot(23.7, 32.9, 43.1, 67.1),
        "procel": _zero_shot(18.1, 36.3, 24.8, 36.9),
        "coin": _zero_shot(27.1, 42.8, 37.9, 48.4),
    },
}

# row -> numbers on CrossTask
TABLE3: dict[str, Numbers] = {
    "without seq": {**_unsupervised(17.3, 18.4, 20.5, 63.5), **_zero_shot(4.6, 5.9, 6.3, 69.8)},
    "without glob": {**_unsupervised(20.9, 14.9, 41.1, 33.3), **_zero_shot(11.5, 17.9, 26.2, 55.2)},
    "without div": {**_unsupervised(26.7, 20.5, 40.9, 44.6), **_zero_shot(16.9, 27.6, 29.3, 66.1)},
    "without smooth": {**_unsupervised(27.1, 21.2, 40.0, 48.7), **_zero_shot(17.7, 26.9, 33.0, 63.4)},
    "without Drop-DTW": {**_unsupervised(28.1, 20.3, 41.4, 47.0), **_zero_shot(20.1, 28.0, 40.8, 62.1)},
    "full": {**_unsupervised(28.3, 22.1, 42.0, 41.9), **_zero_shot(23.7, 32.9, 43.1, 67.1)},
}

# slots or layers -> numbers on CrossTask; the paper's own model has 32 slots and 6 layers
TABLE4: dict[str, Numbers] = {
    "24 slots": {**_unsupervised(27.9, 21.4, 40.5, 45.3), **_zero_shot(21.6, 30.9, 44.2, 66.4)},
    "32 slots": TABLE3["full"],
    "48 slots": {**_unsupervised(26.5, 20.7, 39.8, 40.6), **_zero_shot(24.2, 34.1, 40.1, 67.7)},
    "2 layers": {**_unsupervised(23.2, 18.4, 34.1, 39.6), **_zero_shot(14.9, 24.9, 26.8, 68.1)},
    "4 layers": {**_unsupervised(27.8, 21.4, 41.2, 43.6), **_zero_shot(20.8, 28.9, 38.8, 67.4)},
    "6 layers": TABLE3["full"],
    "8 layers": {**_unsupervised(26.6, 22.0, 39.7, 42.5), **_zero_shot(22.7, 32.4, 45.5, 66.7)},
}
