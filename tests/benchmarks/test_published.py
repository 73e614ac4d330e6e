from pathlib import Path

import numpy as np
import pytest

from benchmarks.published import DEV_TASKS, ROWS, counts, read, read_breakfast, read_gtea
from benchmarks.spaces import align_spaces
from stepformer.cli import main
from stepformer.evaluation.statistics import by_task, discovery_scores

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def needs_data():
    if not (DATA / "gtea").is_dir() or not (DATA / "breakfast").is_dir():
        pytest.skip("the GTEA and Breakfast files are not here (../shared/data)")


def test_hidden_spaces_of_the_gtea_networks_are_unrelated():
    """What a verb looks like in one person's features says nothing in another's."""
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
    gtea, breakfast = read_gtea(DATA / "gtea"), read_breakfast(DATA / "breakfast")
    labelled = [np.mean(np.concatenate([v.labels for v in videos]) >= 0) for videos in (gtea, breakfast)]
    assert np.round(labelled, 2).tolist() == [0.81, 0.87]
    stretches = [1 + np.count_nonzero(np.diff(v.labels)) for v in gtea]
    verbs = [len(np.unique(v.labels[v.labels >= 0])) for v in gtea]
    assert (min(stretches), max(stretches), min(verbs), max(verbs)) == (20, 43, 5, 8)


def test_the_gtea_spaces_are_brought_together_without_labels():
    """What a verb looks like after alignment says the same in all four persons' features."""
    needs_data()
    videos = read_gtea(DATA / "gtea")
    found = align_spaces(videos)
    looks = {}
    for person in ("S1", "S2", "S3", "S4"):
        own = [i for i, v in enumerate(videos) if v.space == person]
        x = np.concatenate([found[i] for i in own])
        y = np.concatenate([videos[i].labels for i in own])
        looks[person] = np.concatenate([x[y == verb].mean(axis=0) - x.mean(axis=0) for verb in (0, 2, 3, 4, 9)])
    between = [np.corrcoef(looks[a], looks[b])[0, 1] for a in looks for b in looks if a < b]
    assert min(between) > 0.7


def f1(dataset, label, seeds=(0, 1, 2)):
    """Per seed, of a row."""
    videos = read(DATA)[dataset]
    found = counts(videos, [row[0] for row in ROWS].index(label), seeds)  # (S, T, V, 5)
    per_task = np.stack([found[:, :, group].sum(2) for group in by_task([v.task for v in videos])], 2)
    return discovery_scores(per_task)["f1"].mean((1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dataset", "label"),
    [("Breakfast", "Kukleva et al., one model per task"), ("GTEA", "Kukleva et al., no order")],
)
def test_kukleva_beats_uniform_by_more_than_the_spread(dataset, label):
    """On GTEA on the activities that its options were not chosen on."""
    needs_data()
    gain = f1(dataset, label) - f1(dataset, "uniform, as many steps")
    assert gain.mean() > gain.std(ddof=1) and gain.mean() > 0.03


def test_gtea_reports_no_activity_that_chose_an_option():
    needs_data()
    tasks = {video.task for video in read(DATA)["GTEA"]}
    assert len(tasks) == 4 and not tasks & set(DEV_TASKS)


def test_a_folder_without_the_data_is_an_error_that_says_so(tmp_path, capsys):
    assert main(["bench", "published", "--data", str(tmp_path)]) == 3
    assert "neither a gtea nor a breakfast folder" in capsys.readouterr().err
