"""Reading anybody's predictions, and one set of them under every protocol."""

import json

import numpy as np
import pytest

import stepformer as sf
from stepformer.data import Annotation, Dataset, Task, VideoRecord
from stepformer.errors import InputError, UsageError
from stepformer.evaluation import LengthError, Table1Options
from stepformer.evaluation.predictions import (
    Prediction,
    find_predictions,
    prediction_from_timeline,
    read_prediction,
)
from stepformer.evaluation.protocols import PROTOCOLS, prepare, score, score_all
from stepformer.evaluation.tables import Cell, Table, protocols_table

TASK = Task("tea", "Make Tea", ("boil", "steep", "pour"))


def dataset(*videos):
    records = []
    for name, duration_s, rows in videos:
        annotations = tuple(Annotation(k, s, e, TASK.steps[k]) for k, s, e in rows)
        records.append(VideoRecord(name, "tea", duration_s, annotations))
    return Dataset("d", {"tea": TASK}, tuple(records))


ONE = dataset(("v", 10.0, [(0, 0, 3), (1, 4, 7), (0, 8, 10)]))


# --- files -----------------------------------------------------------------------------------------------------------


def test_all_formats_say_the_same(tmp_path):
    ids = [0, 0, 0, -1, 1, 1, 1, -1, 2, 2]
    np.save(tmp_path / "a.npy", np.array(ids))
    np.savez(tmp_path / "b.npz", ids=np.repeat(ids, 2), rate_hz=2.0, vectors=np.eye(3))
    (tmp_path / "c.txt").write_text("\n".join(map(str, ids)))
    (tmp_path / "d.csv").write_text("step,start,end\n1,0,3\n2,4,7\n3,8,10\n")
    steps = (sf.Step(0, 3, slot=4), sf.Step(4, 7, slot=9), sf.Step(8, 10, slot=30))
    (tmp_path / "e.json").write_text(sf.Timeline("v", 10.0, steps).to_json())
    np.save(tmp_path / "e.vectors.npy", np.eye(3))
    found = find_predictions(tmp_path)
    assert list(found) == ["a", "b", "c", "d", "e"]
    read = {name: read_prediction(path) for name, path in found.items()}
    for prediction in read.values():
        assert prediction.at(160, 16.0).tolist() == np.repeat(ids, 16).tolist()
    assert read["b"].vectors.shape == read["e"].vectors.shape == (3, 3)
    assert [read[name].length_s for name in "abcde"] == [10, 10, 10, None, 10]
    assert read["e"].slots == (4, 9, 30)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.npy", b"nothing"),
        ("x.npz", b"nothing"),
        ("x.json", b"{}"),
        ("x.json", b"nothing"),
        ("x.txt", b"1 two 3"),
        ("x.csv", b"1,0,2\n1,5\n"),
        ("x.csv", b"1,0,2\n1,5,3\n"),
        ("x.csv", b"0,0,2\n"),
        ("x.csv", b"x" * 200_000 + b",1,2\n"),
        ("x.csv", b"99999999999999999999,1,2\n"),
        ("x.npz", b"PK\x03\x04" + b"0" * 40),
        ("x.mat", b""),
    ],
)
def test_a_file_that_does_not_parse_is_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name.replace(".", r"\.")):
        read_prediction(tmp_path / name)


def test_files_with_the_wrong_things_inside(tmp_path):
    np.save(tmp_path / "a.npy", np.array([0.5]))
    np.savez(tmp_path / "b.npz", labels=np.zeros(3, int))
    np.save(tmp_path / "c.npy", np.array([{"a": 1}], object), allow_pickle=True)
    for name in ("a.npy", "b.npz", "c.npy"):
        with pytest.raises(InputError, match=name[0]):
            read_prediction(tmp_path / name)
    with pytest.raises(InputError, match="one row per step"):
        prediction_from_timeline(sf.Timeline("v", 3, (sf.Step(0, 1),)), np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("vectors", "says"),
    [(np.array([["a"]]), "numbers"), (np.zeros(3), "numbers"), (np.array([[1.0], [np.nan]]), "segment 1 has NaN")],
)
def test_vectors_that_are_none(tmp_path, vectors, says):
    np.savez(tmp_path / "a.npz", ids=np.zeros(3, int), vectors=vectors)
    with pytest.raises(InputError, match=f"a.npz.*{says}"):
        read_prediction(tmp_path / "a.npz")


@pytest.mark.parametrize("bad", [np.array([0, 2**64 - 1], np.uint64), np.array([0.0, 1e300]), np.array([0, 2**60])])
def test_ids_too_large_to_be_ids(tmp_path, bad):
    np.save(tmp_path / "a.npy", bad)
    with pytest.raises(InputError, match="frame 1 has id"):
        read_prediction(tmp_path / "a.npy")


def test_folders(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        find_predictions(tmp_path / "no")
    with pytest.raises(InputError, match="no predictions"):
        find_predictions(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "v.npy", np.zeros(3, int))
    with pytest.raises(InputError, match="two predictions"):
        find_predictions(tmp_path)


# --- preparing -------------------------------------------------------------------------------------------------------


def test_what_the_ids_mean_is_found_out():
    named = Prediction(segments=((0, 0, 3),), names=("boil",))
    other = Prediction(segments=((0, 0, 3),), names=("fry",), vectors=np.eye(1))
    plain = Prediction(ids=np.zeros(10, np.int64))
    assert prepare(ONE, {"v": named}).kind == "steps"
    assert prepare(ONE, {"v": other}).kind == "segments"
    assert prepare(ONE, {"tea_v": plain}).kind == "clusters"
    assert prepare(ONE, {"v": plain}, kind="positions").kind == "positions"


def test_steps_of_a_timeline_are_told_apart_by_slot():
    steps = (sf.Step(0, 3, slot=7), sf.Step(4, 7, slot=2), sf.Step(8, 10, slot=7))
    prepared = prepare(ONE, {"v": prediction_from_timeline(sf.Timeline("v", 10.0, steps))})
    assert set(prepared.tasks["tea"].ids[0].tolist()) == {7, 2, -1}
    assert score(prepared, "table1").values["f1"] == 1


def test_names_that_are_no_steps_are_the_same_clusters_in_all_videos():
    two = dataset(("v", 10.0, [(0, 0, 5), (1, 5, 10)]), ("w", 10.0, [(1, 0, 5), (0, 5, 10)]))
    v = Prediction(segments=((0, 0.0, 5.0), (1, 5.0, 10.0)), names=("Boiling", "Pouring"))
    w = Prediction(segments=((0, 0.0, 5.0), (1, 5.0, 10.0)), names=("Pouring", "Boiling"))
    assert score(prepare(two, {"v": v, "w": w}), "table1").values["f1"] == 1


def test_a_name_that_is_almost_a_step_is_told():
    slip = Prediction(segments=((0, 0.0, 5.0), (1, 5.0, 10.0)), names=("boil", "Poor"))
    assert any("1 of 2 names" in note and "'Poor'" in note for note in prepare(ONE, {"v": slip}).notes)


@pytest.mark.parametrize("nothing", [Prediction(ids=np.full(10, -1)), Prediction(segments=())])
def test_a_video_without_any_step_needs_no_vectors_and_decides_nothing(nothing):
    two = dataset(("v", 10.0, [(0, 0, 5), (1, 5, 10)]), ("w", 10.0, [(1, 0, 5)]))
    segments = Prediction(ids=np.repeat([0, 1], 5), vectors=np.array([[0.0], [9.0]]))
    prepared = prepare(two, {"v": segments, "w": nothing})
    assert prepared.kind == "segments"
    assert score(prepared, "table1").values["precision"] == 1
    assert prepare(two, {"v": segments, "w": nothing}, kind="segments").kind == "segments"


@pytest.mark.parametrize("kind", ["clusters", "positions", "steps"])
def test_a_stray_large_id_costs_no_memory(kind):
    ids = np.array([0] * 5 + [10**12] * 5)
    values = {r.protocol: r.values for r in score_all(prepare(ONE, {"v": Prediction(ids=ids)}, kind=kind))}
    assert 0 < values["table2"]["precision"] <= 1 and 0 < values["segmental"]["edit"] <= 1


def test_missing_predictions():
    two = dataset(("v", 10.0, [(0, 0, 10)]), ("w", 10.0, [(0, 0, 10)]))
    predictions = {"v": Prediction(ids=np.zeros(10, np.int64)), "stranger": Prediction(segments=())}
    with pytest.raises(InputError, match="1 of 2 annotated videos have no prediction, for instance tea_w"):
        prepare(two, predictions)
    background = prepare(two, predictions, missing="background")
    assert score(background, "table1").values["recall"] == 0.5
    assert any("background" in note for note in background.notes)
    assert any("stranger" in note for note in background.notes)
    assert score(prepare(two, predictions, missing="skip"), "table1").values["recall"] == 1
    with pytest.raises(InputError, match="no prediction is for a video"):
        prepare(two, {"x": Prediction(segments=())})
    with pytest.raises(UsageError):
        prepare(two, predictions, missing="maybe")


def test_lengths():
    unknown = dataset(("v", None, [(0, 0, 9)]))
    from_prediction = prepare(unknown, {"v": Prediction(ids=np.zeros(12, np.int64))})
    assert len(from_prediction.tasks["tea"].labels[0]) == 12 * 16
    guessed = prepare(unknown, {"v": Prediction(segments=((0, 0.0, 4.0),))})
    assert len(guessed.tasks["tea"].labels[0]) == 9 * 16
    assert any("no known length" in note for note in guessed.notes)
    with pytest.raises(LengthError, match="tea_v"):
        prepare(ONE, {"v": Prediction(ids=np.zeros(100, np.int64))})
    with pytest.raises(LengthError, match="tea_v"):
        prepare(ONE, {"v": Prediction(segments=(), duration_s=99.0)})


def test_segments_need_vectors():
    with pytest.raises(InputError, match="vectors"):
        prepare(ONE, {"v": Prediction(ids=np.zeros(10, np.int64))}, kind="segments")
    with pytest.raises(InputError, match="no annotated"):
        prepare(Dataset("d", {"tea": TASK}, (VideoRecord("v", "tea"),)), {"v": Prediction(segments=())})


# --- protocols -------------------------------------------------------------------------------------------------------


def truth_timeline(record):
    steps = tuple(sf.Step(a.start_s, a.end_s, a.text) for a in record.ordered_steps)
    return prediction_from_timeline(sf.Timeline(record.video, record.duration_s, steps))


def test_the_truth_scores_one_everywhere():
    data = dataset(("v", 10.0, [(0, 0, 3), (1, 4, 7), (0, 8, 10)]), ("w", 20.0, [(2, 1, 5), (2, 5, 9), (1, 12, 20)]))
    prepared = prepare(data, {record.video: truth_timeline(record) for record in data})
    for result in score_all(prepared):
        assert result.values == pytest.approx(dict.fromkeys(result.values, 1.0)), result.protocol


def test_nothing_scores_nothing_everywhere():
    for kind in ("clusters", "steps", "positions"):
        prepared = prepare(ONE, {"v": Prediction(segments=())}, kind=kind)
        for result in score_all(prepared):
            assert all(v == 0 for m, v in result.values.items() if "mof" not in m), (kind, result)
            # 2 of 10 seconds are background in both; the historical MoF calls nothing at all perfect
            assert result.values.get("mof", 0.2) == pytest.approx(0.2)
    empty = Prediction(ids=np.full(10, -1), vectors=np.zeros((0, 4)))
    assert all(result.values.get("f1", 0) == 0 for result in score_all(prepare(ONE, {"v": empty}, kind="segments")))


def test_positions_tell_repeats_apart_and_become_steps():
    ids = np.array([0, 0, 0, -1, 1, 1, 1, -1, 2, 2])
    prepared = prepare(ONE, {"v": Prediction(ids=ids)}, kind="positions")
    assert score(prepared, "table2").values["iou"] == 1
    assert score(prepared, "table1").values["f1"] == 1
    assert score(prepared, "crosstask-recall").values["recall"] == 1
    swapped = np.array([2, 2, 2, -1, 1, 1, 1, -1, 0, 0])
    prepared = prepare(ONE, {"v": Prediction(ids=swapped)}, kind="positions")
    assert score(prepared, "table2").values["recall"] == pytest.approx(3 / 8)  # the two boilings are not the same
    assert score(prepared, "table1").values["f1"] == 1


def test_steps_are_counted_into_positions():
    # step 0 three times where the list has it twice: the third run is the second place again
    ids = np.array([0, -1, 0, -1, 1, 1, 1, -1, 0, 0])
    prepared = prepare(ONE, {"v": Prediction(ids=ids)}, kind="steps")
    places = prepared.tasks["tea"].positions[0][::16]
    assert places.tolist() == [0, -1, 2, -1, 1, 1, 1, -1, 2, 2]
    stranger = prepare(ONE, {"v": Prediction(ids=np.full(10, 2))}, kind="steps")
    assert score(stranger, "table2").values["precision"] == 0


def test_more_positions_than_steps_in_the_list():
    prepared = prepare(ONE, {"v": Prediction(ids=np.arange(10))}, kind="positions")
    for result in score_all(prepared):
        assert all(np.isfinite(v) for v in result.values.values()), result.protocol


def test_segments_are_clustered_with_k_of_the_task_and_with_seven():
    rng = np.random.default_rng(0)
    videos, predictions = [], {}
    for v in range(8):
        videos.append((f"v{v}", 30.0, [(0, 0, 10), (1, 10, 20), (2, 20, 30)]))
        vectors = np.eye(3) * 10 + 0.01 * rng.normal(size=(3, 3))
        predictions[f"v{v}"] = Prediction(ids=np.repeat([0, 1, 2], 10), vectors=vectors)
    prepared = prepare(dataset(*videos), predictions)
    table1 = score(prepared, "table1", Table1Options(seeds=(0, 1, 2)))
    assert table1.values["precision"] == 1
    assert table1.values["recall"] == pytest.approx(4 / 8)  # floor(0.6 * 8) = 4 of 8 segments of a cluster stay
    assert table1.spread["f1"] == 0
    assert "seeds" in table1.how
    assert score(prepared, "macro").values["precision"] == 1  # pure, but 3 clusters are split into 7
    assert score(prepared, "per-video").values["f1"] == 1


def test_unknown_protocol():
    with pytest.raises(UsageError, match="table1"):
        score(prepare(ONE, {"v": Prediction(segments=())}), "table9")


# --- tables ----------------------------------------------------------------------------------------------------------


def test_tables_in_every_form():
    table = Table(
        "A & B", ("method", "F1"), (("ours", Cell(0.283, 0.004, bold=True)), ("50% | _x", None)), ("simulated",)
    )
    assert "28.3 ± 0.4" in table.to_text()
    assert "| ours | **28.3 ± 0.4** |" in table.to_markdown()
    assert r"50% \| _x" in table.to_markdown()
    latex = table.to_latex()
    assert r"\textbf{28.3 $\pm$ 0.4}" in latex
    assert r"50\% | \_x" in latex
    assert json.loads(json.dumps(table.to_dict()))["rows"][0]["F1"] == {"value": 0.283, "spread": 0.004}
    with pytest.raises(ValueError, match="cells"):
        Table("t", ("a", "b"), (("x",),))


def test_protocols_side_by_side():
    results = score_all(prepare(ONE, {"v": Prediction(ids=np.zeros(10, np.int64))}))
    text = protocols_table("t", results, ["a note"]).to_text()
    for name in PROTOCOLS:
        assert name in text
    assert "an upper bound" in text
    assert text.endswith("a note")
