import json
from pathlib import Path

import numpy as np
import pytest

from stepformer.cli import main
from stepformer.data.gtea import read_gtea
from stepformer.data.labelled import LabelledVideo
from stepformer.evaluation.baselines import FeatureVideo
from stepformer.evaluation.baselines.spaces import align_spaces
from stepformer.reproduce.real_features import DEV_TASKS, methods, read_real, score_real, tables

DATA = Path(__file__).parents[3].parent / "shared" / "data"


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
    seen = {p: looks(m) for p, m in by_person.items()}
    between = [np.corrcoef(seen[a], seen[b])[0, 1] for a in seen for b in seen if a < b]
    assert min(within) > 0.75 and max(within) < 0.86 and max(map(abs, between)) < 0.1


def test_what_docs_say_of_the_real_videos():
    needs_data()
    data = read_real(DATA)
    labelled = {name: np.mean(np.concatenate([v.labels for v in videos]) >= 0) for name, videos in data.items()}
    assert round(labelled["GTEA"], 2) == 0.81 and round(labelled["Breakfast"], 2) == 0.87
    stretches = [1 + np.count_nonzero(np.diff(v.labels)) for v in data["GTEA"]]
    verbs = [len(np.unique(v.labels[v.labels >= 0])) for v in data["GTEA"]]
    assert (min(stretches), max(stretches), min(verbs), max(verbs)) == (20, 43, 5, 8)


def test_the_gtea_spaces_are_brought_together_without_labels():
    """What a verb looks like after alignment says the same in all four persons' features."""
    needs_data()
    videos = read_gtea(DATA / "gtea")
    found = align_spaces([FeatureVideo(v.video, v.task, v.features, v.rate_hz, space=v.space) for v in videos])
    looks = {}
    for person in ("S1", "S2", "S3", "S4"):
        own = [i for i, v in enumerate(videos) if v.space == person]
        x = np.concatenate([found[i].features for i in own])
        y = np.concatenate([videos[i].labels for i in own])
        looks[person] = np.concatenate([x[y == verb].mean(axis=0) - x.mean(axis=0) for verb in (0, 2, 3, 4, 9)])
    between = [np.corrcoef(looks[a], looks[b])[0, 1] for a in looks for b in looks if a < b]
    assert min(between) > 0.7


@pytest.mark.slow
def test_kukleva_beats_uniform_on_breakfast_by_more_than_the_spread(capsys):
    needs_data()
    code = main(["reproduce", "real-features", "--data", str(DATA), "--dataset", "breakfast", "--json"])
    assert code == 0
    (result,) = json.loads(capsys.readouterr().out)["datasets"]
    mean, spread = result["mean"], result["spread"]
    gain = mean["kukleva, one a task"]["f1"] - mean["uniform"]["f1"]
    assert gain > spread["kukleva, one a task"]["f1"] and gain > 0.03


@pytest.mark.slow
def test_kukleva_without_order_beats_uniform_on_gtea_by_more_than_the_spread():
    """Also on the activities that its options were not chosen on."""
    needs_data()
    used = {name: row for name, row in methods().items() if name in ("uniform", "kukleva, no order")}
    result = score_real("GTEA", read_gtea(DATA / "gtea"), used)
    for tasks in (range(7), [i for i, task in enumerate(result.tasks) if task not in DEV_TASKS]):
        f1 = {name: result.values[name][list(tasks), :, 0].mean(axis=0) for name in used}  # (seeds,) each
        assert f1["kukleva, no order"].mean() - f1["uniform"].mean() > f1["kukleva, no order"].std(ddof=1)


def test_a_folder_without_the_data_is_an_error_that_says_so(tmp_path, capsys):
    assert main(["reproduce", "real-features", "--data", str(tmp_path)]) == 3
    assert "neither a gtea nor a breakfast folder" in capsys.readouterr().err
