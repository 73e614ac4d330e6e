import json
from pathlib import Path

import numpy as np
import pytest

from stepformer.cli import main
from stepformer.corpus.gtea import read_gtea
from stepformer.corpus.labelled import LabelledVideo
from stepformer.reproduce.real_features import methods, score_real, tables

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def needs_data():
    if not (DATA / "gtea").is_dir() or not (DATA / "breakfast").is_dir():
        pytest.skip("the GTEA and Breakfast files are not here (../shared/data)")


def test_scores_of_a_case_worked_by_hand():
    labels = np.array([0, 0, 0, 1, -1, -1])
    video = LabelledVideo("v", "t", np.eye(6, dtype=np.float32), labels, 1.0, ("a", "b"))
    result = score_real("hand", [video], {"uniform": methods()["uniform"]}, seeds=(0, 1))
    # halves: three frames of a are right, one of b; six are predicted, four labelled
    f1, precision, recall, mof, per_video = result.mean("uniform")
    assert (precision, recall, mof) == pytest.approx((4 / 6, 1.0, 4 / 6))
    assert f1 == per_video == pytest.approx(0.8)
    assert (result.spread("uniform") == 0).all() and result.steps == {"t": 2}
    assert "80.0 ± 0.0" in tables([result])[0].to_text()


def test_hidden_spaces_of_the_gtea_networks_are_unrelated():
    """The reason for FeatureVideo.space: what a verb looks like in one person's features says nothing in another's."""
    needs_data()
    videos = read_gtea(DATA / "gtea")

    def looks(members):
        x = np.concatenate([v.features for v in members])
        y = np.concatenate([v.labels for v in members])
        return np.concatenate([x[y == verb].mean(axis=0) - x.mean(axis=0) for verb in (0, 2, 3, 4, 9)])

    by_person = {p: [v for v in videos if v.space == p] for p in ("S1", "S2", "S3", "S4")}
    within = [np.corrcoef(looks(m[:3]), looks(m[3:]))[0, 1] for m in by_person.values()]
    between = [np.corrcoef(looks(by_person["S1"]), looks(by_person[p]))[0, 1] for p in ("S2", "S3", "S4")]
    assert min(within) > 0.7 and max(map(abs, between)) < 0.15


@pytest.mark.slow
def test_kukleva_beats_uniform_on_breakfast_by_more_than_the_spread(capsys):
    needs_data()
    code = main(["reproduce", "real-features", "--data", str(DATA), "--dataset", "breakfast", "--json"])
    assert code == 0
    (result,) = json.loads(capsys.readouterr().out)["datasets"]
    mean, spread = result["mean"], result["spread"]
    gain = mean["kukleva, one a task"]["f1"] - mean["uniform"]["f1"]
    assert gain > spread["kukleva, one a task"]["f1"] and gain > 0.03


def test_a_folder_without_the_data_is_an_error_that_says_so(tmp_path, capsys):
    assert main(["reproduce", "real-features", "--data", str(tmp_path)]) == 3
    assert "neither a gtea nor a breakfast folder" in capsys.readouterr().err
