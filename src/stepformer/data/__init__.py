"""Features and phrases of many videos: the store, readers for public datasets, and the simulator.

A dataset is one file with one ``read_*`` function and one line in ``READERS``; every reader gives the records of
:mod:`stepformer.data.records`, and an InputError where nothing of its layout is there. Names are
loaded when first used.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepformer.base.files import no_such
from stepformer.base.lazy import lazy
from stepformer.base.plugins import Registry
from stepformer.errors import InputError

if TYPE_CHECKING:
    from stepformer.data.coin import read_coin
    from stepformer.data.crosstask import read_crosstask
    from stepformer.data.howto100m import read_howto100m
    from stepformer.data.plain import read_plain
    from stepformer.data.procel import read_procel
    from stepformer.data.records import Annotation, Dataset, Problem, Task, VideoRecord, with_features
    from stepformer.data.store import FeatureStore, StoredVideo

_READERS = ("crosstask", "coin", "procel", "howto100m", "plain")
READERS: Registry[Callable[[Any], Dataset]] = Registry(
    "dataset reader", "datasets", {name: f"stepformer.data.{name}:read_{name}" for name in _READERS}
)
"""Readers of datasets by name; a plugin adds its own."""

__getattr__, __dir__ = lazy(__name__, {
    **{name: f"read_{name}" for name in _READERS},
    "records": "Annotation Dataset Problem Task VideoRecord with_features", "store": "FeatureStore StoredVideo",
})  # fmt: skip


_FOLDERS = {  # what is in the folder of a dataset
    "crosstask": ("videos.csv", "tasks_primary.txt", "crosstask*release*.tar*", "*/videos.csv"),
    "howto100m": ("raw_caption.json", "caption.json", "HowTo100M_v1.csv"),
    "coin": ("COIN.json*", "coin_annotations.json*"),
    "procel": ("data.mat", "*/data.mat"),
    "plain": ("annotations", "features", "videos", "*/annotations"),
}
_FILES = {  # what the file of a dataset is called
    "crosstask": ("*.tar*",),
    "procel": ("*.mat", "procel*"),
    "howto100m": ("*caption*", "*htm*", "*.csv"),
    "coin": ("*.json", "*.json.gz"),
}


def guess_dataset(source: Path | str) -> str:
    """Which reader a path is for, from the files that are there."""
    path = Path(source)
    if not path.exists():
        raise no_such(path, "dataset")
    for name, patterns in (_FOLDERS if path.is_dir() else _FILES).items():
        for pattern in patterns:
            if any(path.glob(pattern)) if path.is_dir() else fnmatch(path.name.lower(), pattern):
                return name
    raise InputError(
        f"{path} does not look like a known dataset; name its reader (stepformer evaluate --reader NAME, or name= in "
        f"Python): {', '.join(READERS)}"
    )


def read_dataset(source: Path | str, name: str | None = None) -> Dataset:
    """The dataset at a path.

    Args:
        source: A file or folder.
        name: Its reader; by default the one that its files suggest.

    Raises:
        InputError: nothing is there that the reader knows.

    Examples:
        >>> dataset = read_dataset("kitchen")       # a plain folder with annotations/one.csv
        >>> [(record.key, step.text, step.start_s) for record in dataset for step in record.ordered_steps]
        [('kitchen_one', 'crack the eggs', 0.0), ('kitchen_one', 'whisk', 10.0)]
    """
    return READERS[name or guess_dataset(source)](source)


__all__ = [
    "READERS", "Annotation", "Dataset", "FeatureStore", "Problem", "StoredVideo", "Task", "VideoRecord", "read_coin",
    "read_crosstask", "read_dataset", "read_howto100m", "read_plain", "read_procel", "with_features",
]  # fmt: skip
