import json
from pathlib import Path

import numpy as np
import pytest

from stepformer.data.breakfast import read_breakfast
from stepformer.data.gtea import read_gtea
from stepformer.data.labelled import LabelledVideo
from stepformer.errors import InputError

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def write_breakfast(root, labels="SIL\ntake_cup\npour_milk\n", rows="0 0\n1 2\n3 4\n"):
    for name in ("features/coffee", "groundTruth", "mapping"):
        (root / name).mkdir(parents=True)
    (root / "features/coffee/P1_coffee.txt").write_text(rows)
    (root / "groundTruth/P1_coffee").write_text(labels)
    (root / "mapping/mapping.txt").write_text("0 SIL\n1 take_cup\n2 pour_milk\n")


def test_breakfast_frames_labels_and_background(tmp_path):
    write_breakfast(tmp_path)
    (video,) = read_breakfast(tmp_path)
    assert (video.video, video.task) == ("P1_coffee", "coffee")
    assert video.labels.tolist() == [-1, 0, 1] and video.names == ("take_cup", "pour_milk")
    assert video.features.tolist() == [[0, 0], [1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": "SIL\nfly\nSIL\n"}, "fly"),
        ({"labels": "SIL\n"}, "do not fit"),
        ({"rows": "1 2\n3 x\n1 1\n"}, "not a table of numbers"),
    ],
)
def test_breakfast_says_what_is_wrong(tmp_path, change, message):
    write_breakfast(tmp_path, **change)
    with pytest.raises(InputError, match=message):
        read_breakfast(tmp_path)


def test_gtea_features_scores_and_spaces(tmp_path):
    (tmp_path / "label_names.json").write_text(json.dumps(["background", "open", "pour"]))
    arrays = {"S1_Tea_C1|A": np.ones((2, 3), np.float16), "S1_Tea_C1|X": np.eye(3)[:2], "S1_Tea_C1|Y": np.array([0, 2])}
    np.savez(tmp_path / "gtea_features.npz", **arrays)
    (video,) = read_gtea(tmp_path)
    assert (video.task, video.space, video.labels.tolist()) == ("Tea", "S1", [-1, 1])
    assert video.features.shape == (2, 3) and video.features.dtype == np.float32
    (scores,) = read_gtea(tmp_path, "scores")
    assert scores.space == "" and scores.features.tolist() == np.eye(3)[:2].tolist()
    with pytest.raises(InputError, match="there is no file"):
        read_gtea(tmp_path / "nowhere")


def test_labels_outside_the_names_are_an_error():
    with pytest.raises(InputError, match="outside the 1 known names"):
        LabelledVideo("v", "t", np.ones((1, 2), np.float32), np.array([1]), 1.0, ("one",))


def test_the_real_files():
    if not (DATA / "gtea").is_dir() or not (DATA / "breakfast").is_dir():
        pytest.skip("the GTEA and Breakfast files are not here (../shared/data)")
    gtea = read_gtea(DATA / "gtea")
    assert len(gtea) == 28 and len({v.task for v in gtea}) == 7 and {v.space for v in gtea} == {"S1", "S2", "S3", "S4"}
    breakfast = read_breakfast(DATA / "breakfast")
    assert len(breakfast) == 5 and {v.features.shape[1] for v in breakfast} == {64}
