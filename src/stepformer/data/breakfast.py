"""Breakfast (Kuehne et al. 2014) in the layout of Kukleva et al.'s code.

``features/<activity>/<video>.txt``: one line per frame, 64 numbers (Fisher vectors of dense trajectories, reduced);
``groundTruth/<video>``: a label a line; ``mapping/mapping.txt``: ``number name`` lines, of which ``SIL`` is background.
The first frames of a video are zeros, where no trajectory has ended yet.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stepformer.base.files import no_such
from stepformer.base.guard import reader
from stepformer.data.labelled import BACKGROUND, LabelledVideo
from stepformer.errors import InputError

RATE_HZ = 15.0
_SILENCE = "SIL"


@reader("Breakfast folder")
def read_breakfast(source: Path | str) -> list[LabelledVideo]:
    """All videos of all activities that have features, by activity and id.

    Raises:
        InputError: a folder or file is missing, a label has no number, or features and labels differ by frames.
    """
    root = Path(source)
    if not (root / "features").is_dir() and (root / "dummy_data" / "features").is_dir():
        root = root / "dummy_data"
    mapping = root / "mapping" / "mapping.txt"
    if not mapping.is_file():
        raise no_such(mapping, "file", "give the folder that holds features, groundTruth and mapping")
    names = [line.split()[1] for line in mapping.read_text(encoding="utf-8").splitlines() if line.strip()]
    steps = tuple(name for name in names if name != _SILENCE)
    number = {name: i for i, name in enumerate(steps)} | {_SILENCE: BACKGROUND}
    out = []
    for path in sorted((root / "features").glob("*/*.txt")):
        truth = root / "groundTruth" / path.stem
        if not truth.is_file():
            raise InputError(f"{truth} does not exist: video {path.stem} has no labels")
        try:
            features = np.loadtxt(path, dtype=np.float32, ndmin=2)
            labels = np.array([number[line] for line in truth.read_text(encoding="utf-8").split()], np.int64)
        except ValueError as error:
            raise InputError(f"{path}: not a table of numbers ({error})") from None
        except KeyError as error:
            raise InputError(f"{truth}: the label {error} is not in {mapping}") from None
        out.append(LabelledVideo(path.stem, path.parent.name, features, labels, RATE_HZ, steps))
    if not out:
        raise InputError(f"{root / 'features'} has no features of any activity")
    return out
