"""GTEA (Fathi et al. 2011): 28 egocentric kitchen videos, 7 activities by 4 people, 10 verbs and background.

Read from one ``gtea_features.npz`` with, for each video, ``ID|A`` 128 features of a spatio-temporal CNN, ``ID|X`` its
11 class scores and ``ID|Y`` labels, and ``label_names.json`` beside it (the first name is background). An id such as
``S2_Coffee_C1`` is person, activity, camera; the activity is the task.

The features are those of four networks: each person's videos come from the network that was trained on the others, and
four networks have four unrelated hidden spaces. So ``space`` is the person, and frames of different persons cannot be
compared by these features; the class scores can, but were learned from labels of the very verbs that are sought.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np

from stepformer.base.files import no_such
from stepformer.base.guard import load_arrays, read_json, reader
from stepformer.data.labelled import LabelledVideo
from stepformer.errors import InputError

RATE_HZ = 15.0  # the released frame rate

GteaFeatures = Literal["cnn", "scores"]


@reader("GTEA folder")
def read_gtea(source: Path | str, features: GteaFeatures = "cnn") -> list[LabelledVideo]:
    """All videos, by id. ``features``: "cnn" (128) or "scores" (11 class probabilities, one space for all).

    Raises:
        InputError: a file is missing or does not have the arrays.
    """
    root = Path(source)
    archive, names_file = root / "gtea_features.npz", root / "label_names.json"
    for path in (archive, names_file):
        if not path.is_file():
            raise no_such(path, "file", "give the folder that holds gtea_features.npz and label_names.json")
    names = tuple(map(str, read_json(names_file)))
    kind = {"cnn": "A", "scores": "X"}[features]
    out = []
    arrays = load_arrays(archive)
    for video in sorted({key.split("|")[0] for key in arrays}):
        try:
            person, activity = video.split("_")[:2]
            x, y = arrays[f"{video}|{kind}"], arrays[f"{video}|Y"]
        except (KeyError, ValueError) as error:
            raise InputError(f"{archive}: video {video} is not complete ({error})") from None
        out.append(
            LabelledVideo(
                video, activity, x.astype(np.float32), y.astype(np.int64) - 1, RATE_HZ, names[1:],
                space=person if features == "cnn" else "",
            )
        )  # fmt: skip
    return out
