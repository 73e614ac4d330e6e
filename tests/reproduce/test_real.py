"""Real features: a small folder made here, in which a perfect answer is known."""

import numpy as np
import pytest

from stepformer.cli import main
from stepformer.data.records import Annotation, Dataset, Task, VideoRecord
from stepformer.errors import InputError
from stepformer.reproduce import real
from stepformer.reproduce.render import render
from stepformer.reproduce.results import Results
from stepformer.reproduce.runs import Run

D = 16
STEPS = ("crack eggs", "whisk eggs", "pour batter")


@pytest.fixture
def folder(tmp_path):
    """Four videos of one task at two features a second: a vector a step, another for background."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((D, D)))[0][:4].astype(np.float32)
    videos = []
    (tmp_path / "features").mkdir()
    for v in range(4):
        annotations = tuple(Annotation(k, 5 + 10 * k + v, 11 + 10 * k + v, STEPS[k]) for k in range(3))
        labels = np.full(80, 3)
        for a in annotations:
            labels[int(2 * a.start_s) : int(2 * a.end_s)] = a.step
        noise = 0.05 * rng.standard_normal((80, D))
        np.save(tmp_path / "features" / f"7_v{v}.npy", vectors[labels] + noise.astype(np.float32))
        videos.append(VideoRecord(f"v{v}", "7", 40.0, annotations))
    videos.append(VideoRecord("gone", "7", 40.0, videos[0].annotations))
    np.savez(tmp_path / "texts.npz", text=np.array(STEPS), emb=vectors[:3])
    return tmp_path, Dataset("plain", {"7": Task("7", "pancakes", STEPS)}, tuple(videos))


def test_texts_find_their_steps_and_labels_are_at_the_rate_of_the_features(folder):
    path, dataset = folder
    data = real.load_real(dataset, path / "features", 2.0, real.read_texts(path / "texts.npz"))
    assert (data.videos, data.left_out) == (4, 1)
    first = data.trial.labels()[0]
    assert len(first) == 80 and first[10] == 0 and first[9] == -1 and first[21] == 0 and first[22] == -1
    runs = real.real_runs(data, (0,), None)
    results = Results()
    wanted = [r for r in runs if r.name in ("text", "kmeans", "uniform", "pooled")]
    real.execute_real(data, wanted, results, path, None, "cpu", lambda text: None)
    scores = {r["name"]: r["scores"]["grid"]["test"]["concepts"] for r in results.runs.values()}
    # 10% of the pairs reach the line: 24 of 36 labelled frames, all rightly
    assert scores["text"]["zs_precision"] == pytest.approx(1) and scores["text"]["zs_recall"] > 0.5
    parts = np.arange(80) * 3 // 80
    expected = np.mean([(parts == labels).mean() for labels in data.trial.labels()])
    assert scores["uniform"]["zs_mof"] == pytest.approx(expected, abs=1e-4)
    assert 0 < scores["kmeans"]["un_f1"] < 1 and 0 < scores["pooled"]["zs_iou"] < 1


def test_without_texts_there_is_discovery_alone(folder):
    path, dataset = folder
    data = real.load_real(dataset, path / "features", 2.0)
    runs = {r.name: r for r in real.real_runs(data, (0,), None)}
    assert "text" not in runs and "default" not in runs
    scores = real.score_real(data, runs["pooled"], None, real.InferenceConfig(), "cpu")
    assert set(scores) == {"un_f1", "un_precision", "un_recall", "un_mof", "un_slots"}


def test_a_model_on_real_features_has_its_row(folder, tmp_path):
    path, dataset = folder
    data = real.load_real(dataset, path / "features", 2.0)
    runs = [Run("real", "default", 0, {"method": "pooled"}, "w")]  # any slots will do
    results = Results()
    results.plan("table1", runs)
    results.facts["table1"] = {"datasets": {real.SPLIT: data.name}, "features": "real"}
    real.execute_real(data, runs, results, tmp_path, None, "cpu", lambda text: None)
    rows = render(results, "table1")["table1"].to_dict()["rows"]
    assert [row["method"] for row in rows] == ["StepFormer (default)"]


def test_what_does_not_fit_is_said(folder, tmp_path):
    path, dataset = folder
    texts = dict(real.read_texts(path / "texts.npz"))
    texts.pop("whisk eggs")
    with pytest.raises(InputError, match="no vector for the step text 'whisk eggs'"):
        real.load_real(dataset, path / "features", 2.0, texts)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no annotated video"):
        real.load_real(dataset, tmp_path / "empty", 2.0)
    np.savez(path / "bad.npz", text=np.array(STEPS), emb=np.zeros((2, D)))
    with pytest.raises(InputError, match="as many vectors"):
        real.read_texts(path / "bad.npz")


def test_the_command_needs_annotations_and_texts(folder, capsys):
    path, _ = folder
    assert main(["reproduce", "table1", "--out", str(path / "o"), "--features", str(path / "features")]) == 2
    assert "--dataset" in capsys.readouterr().err
