"""Readers against small hand-made files with something wrong in each, and against the real files where they are."""

import gzip
import io
import json
import os
import tarfile
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stepformer.data import (
    Annotation,
    Dataset,
    Task,
    VideoRecord,
    guess_dataset,
    read_coin,
    read_crosstask,
    read_dataset,
    read_howto100m,
    read_plain,
    read_procel,
    with_features,
)
from stepformer.errors import InputError, UsageError
from stepformer.narration.readers import structured

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def real(*parts):
    path = DATA.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"the real data is not here: {'/'.join(parts)}")
    return path


def kinds(dataset):
    return Counter(problem.kind for problem in dataset.problems)


# --- CrossTask -------------------------------------------------------------------------------------------------------

TASKS = """23521
Make Jello Shots
http://example.org/a
2
pour water,stir

77
Broken block
"""
CROSSTASK = {
    "tasks_primary.txt": TASKS,
    "tasks_related.txt": "5\nMake Tea\nhttp://example.org/b\n3\nboil,steep\n",
    "videos.csv": "23521,aaa,u\n23521,a_b,u\n23521,aaa,u\n5,ccc,u\n999,ddd,u\nonly\n",
    "videos_val.csv": "23521,aaa,u\n23521,a_b,u\n",
    "annotations/23521_aaa.csv": "2,1.5,3\n1,0.0,2.0\n9,1,2\n1,5,4\nx,y\n",
    "annotations/23521_zzz.csv": "1,0,1\n",
}


@pytest.fixture
def crosstask(tmp_path):
    for name, text in CROSSTASK.items():
        path = tmp_path / "crosstask" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "crosstask"


def test_crosstask_reads_what_it_can_and_reports_the_rest(crosstask):
    data = read_crosstask(crosstask)
    assert list(data.tasks) == ["23521", "5"]
    assert data.tasks["23521"] == Task("23521", "Make Jello Shots", ("pour water", "stir"), group="primary")
    first, second, third = data.videos
    assert first.annotations == (Annotation(1, 1.5, 3.0, "stir"), Annotation(0, 0.0, 2.0, "pour water"))  # file order
    assert [a.step for a in first.ordered_steps] == [0, 1]
    assert (first.subset, third.subset) == ("validation", "training")
    assert first.duration_s is None
    assert second.video == "a_b"
    assert second.annotations is None
    said = [str(problem) for problem in data.problems]
    for part in (
        "tasks_primary.txt:7",  # the broken block
        "says 3 steps and lists 2",
        "videos.csv:6",
        "23521,aaa is listed twice",
        "no task 999",
        "23521_a_b.csv",  # validation without annotation
        "23521_aaa.csv:3: step 9",
        "23521_aaa.csv:4",
        "23521_aaa.csv:5",
        "23521_zzz.csv: annotates a video that no list names",
    ):
        assert any(part in line for line in said), part
    assert len(said) == 10


def test_crosstask_tar_is_the_same_as_its_folder(crosstask, tmp_path):
    archive = tmp_path / "crosstask_release.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name, text in CROSSTASK.items():
            info = tarfile.TarInfo(f"crosstask_release/{name}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    assert read_crosstask(archive) == read_crosstask(crosstask)


def test_a_tar_bomb_is_refused_in_little_memory(tmp_path):
    """A file of 600 MiB in a tar of three: refused by what the tar says of it, before it is unpacked."""
    inside = tarfile.TarInfo("tasks_primary.txt")
    inside.size = 600 << 20
    with gzip.open(tmp_path / "crosstask_release.tar.gz", "wb", 1) as tar:
        tar.write(inside.tobuf())
        for _ in range(600):
            tar.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"unpacks to 600 MiB from \d+ KiB"):
            read_crosstask(tmp_path / "crosstask_release.tar.gz")
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    (tmp_path / "crosstask_release.tar").write_bytes(inside.tobuf())
    with pytest.raises(InputError, match="has 600 MiB; at most 64 MiB are read"):
        read_crosstask(tmp_path / "crosstask_release.tar")


def test_gigabytes_of_zeros_are_no_tar(tmp_path):
    """Each kind of compression would look for its beginning in all of them."""
    tar = tmp_path / "crosstask_release.tar"
    tar.touch()
    os.truncate(tar, 100 << 30)
    with pytest.raises(InputError):
        read_crosstask(tar)


def test_crosstask_that_is_none(tmp_path):
    with pytest.raises(InputError, match=r"videos\.csv"):
        read_crosstask(tmp_path)
    with pytest.raises(InputError, match="there is no dataset"):
        read_crosstask(tmp_path / "nowhere")
    (tmp_path / "x.tar.gz").write_bytes(b"not a tar")
    with pytest.raises(InputError, match="tar"):
        read_crosstask(tmp_path / "x.tar.gz")


def test_real_crosstask():
    data = read_crosstask(real("crosstask"))
    assert len(data.videos) == 4700
    assert data.problems == ()
    assert Counter(task.group for task in data.tasks.values()) == {"primary": 18, "related": 65}
    assert sum(bool(record.labels) for record in data) == 2750
    assert sum(len(record.labels) for record in data) == 20_919
    validation = data.select("validation")
    assert len(validation) == 360
    assert len(validation.tasks) == 18
    assert all(record.labels for record in validation)
    one = next(record for record in data if record.key == "105222_-YtYoSwdUf8")
    assert one.labels[0] == Annotation(4, 2.1, 5.7, "pour sesame oil")


# --- COIN ------------------------------------------------------------------------------------------------------------


def coin_official():
    entry = {"class": "MakeTea", "recipe_type": 7, "subset": "testing", "duration": 20.0, "start": 0, "end": 20}
    return {
        "database": {
            "v1": entry
            | {
                "annotation": [
                    {"id": "12", "segment": [3.0, 6.0], "label": "steep"},
                    {"id": "9", "segment": [1.0, 3.0], "label": "boil"},
                ]
            }
        }
    }


def coin_flat():
    return {
        "v1": {
            "class": "MakeTea", "recipe_type": 7, "subset": "training", "official_subset": "testing", "duration": 20.0,
            "annotation": [[12, 3.0, 6.0, "steep"], [9, 1.0, 3.0, "boil"]],
        }
    }  # fmt: skip


def test_coin_layouts_give_the_same_records(tmp_path):
    (tmp_path / "COIN.json").write_text(json.dumps(coin_official()))
    (tmp_path / "flat.json.gz").write_bytes(gzip.compress(json.dumps(coin_flat()).encode()))
    official = read_coin(tmp_path)
    assert official == read_coin(tmp_path / "flat.json.gz")
    assert official.tasks["MakeTea"] == Task("MakeTea", "MakeTea", ("boil", "steep"))  # 9 before 12
    assert official.videos[0].annotations == (Annotation(1, 3, 6, "steep"), Annotation(0, 1, 3, "boil"))
    assert official.videos[0].subset == "testing"
    assert official.problems == ()


def test_coin_reports_what_is_wrong(tmp_path):
    good = coin_flat()["v1"]
    data = {
        "ok": good,
        "no class": good | {"class": None},
        "nothing": {"duration": 3},
        "not a dict": 4,
        "length": good | {"duration": -1},
        "times": good | {"annotation": [[9, 5.0, 1.0, "boil"], [9, 1.0], [9, "x", 2, "boil"]]},
        "name": good | {"annotation": [[9, 0.0, 1.0, "cool"]]},
        "none": good | {"annotation": None},
    }
    path = tmp_path / "coin.json"
    path.write_text(json.dumps(data))
    read = read_coin(path)
    assert [record.video for record in read] == ["ok", "no class", "length", "times", "name", "none"]
    assert read.videos[1].task == "recipe_type_7"
    assert read.videos[2].duration_s is None
    assert kinds(read) == {"missing": 1, "unparsable": 5, "duration": 1, "inconsistent": 2}


@pytest.mark.parametrize("text", ["[]", "{}", "nonsense", '{"database": []}'])
def test_what_is_not_coin(tmp_path, text):
    (tmp_path / "COIN.json").write_text(text)
    with pytest.raises(InputError):
        read_coin(tmp_path)


def test_real_coin():
    data = read_coin(real("coin"))
    assert (len(data), len(data.tasks)) == (11_015, 180)
    assert sum(len(task.steps) for task in data.tasks.values()) == 778
    testing = data.select("testing")
    assert (len(testing), len(testing.tasks)) == (2596, 180)
    # two of the 180 tasks have no name in this copy of the file
    assert [problem.where for problem in data.problems] == ["recipe type 46", "recipe type 77"]


# --- ProceL ----------------------------------------------------------------------------------------------------------


def test_real_procel_mat_and_json_agree():
    from_json = read_procel(real("procel", "procel_assemble_clarinet.json"))
    from_mat = read_procel(real("procel", "data.mat"))
    assert (len(from_json), sum(len(r.labels) for r in from_json), sum(len(r.cues) for r in from_json)) == (
        60,
        593,
        5093,
    )
    assert len(from_json.tasks["assemble_clarinet"].steps) == 16
    for a, b in zip(from_mat, from_json, strict=True):
        assert a.annotations == b.annotations
        assert a.cues == b.cues
        assert a.duration_s == pytest.approx(b.duration_s)
    # four captions of the .mat have no words, and that is said
    assert [problem.kind for problem in from_mat.problems] == ["inconsistent"] * 4


def test_procel_tasks_are_folders(tmp_path):
    scipy_io = pytest.importorskip("scipy.io")

    def cell(*values):
        out = np.empty((len(values), 1), object)
        out[:, 0] = values
        return out

    for task in ("change_tire", "tie_tie"):
        (tmp_path / task).mkdir()
        scipy_io.savemat(
            tmp_path / task / "data.mat",
            {
                "grammar": cell("JACK UP", "UNSCREW"),
                "key_steps_time": cell(
                    cell(np.array([[7.0, 9.0]]), np.array([[1.0, 2.5], [4.0, 5.0]])),
                    cell(np.zeros((0, 0)), np.zeros((0, 0))),
                ),
                "segment_time": cell(np.array([[0.0, 5.0], [5.0, 12.0]]), np.array([[0.0, 3.0]])),
            },
        )  # fmt: skip
    data = read_procel(tmp_path)
    assert list(data.tasks) == ["change_tire", "tie_tie"]
    first, second = (record for record in data.videos if record.task == "tie_tie")
    assert first.video == "tie_tie_0"
    assert first.duration_s == 12.0
    assert [(a.step, a.start_s) for a in first.labels] == [(1, 1.0), (1, 4.0), (0, 7.0)]
    assert second.labels == ()
    assert all("narration" in problem.what for problem in data.problems)


def test_what_is_not_procel(tmp_path):
    with pytest.raises(InputError, match=r"data\.mat"):
        read_procel(tmp_path)
    (tmp_path / "data.mat").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="MATLAB"):
        read_procel(tmp_path)
    scipy_io = pytest.importorskip("scipy.io")
    scipy_io.savemat(tmp_path / "data.mat", {"grammar": np.array(["A"], object), "key_steps_time": 5})
    with pytest.raises(InputError, match="nested differently"):
        read_procel(tmp_path)
    (tmp_path / "x.json").write_text('{"grammar": ["A"], "videos": [{"index": 0, "key_steps": [[4, 0, 1]]}, 3]}')
    data = read_procel(tmp_path / "x.json")
    assert kinds(data) == {"inconsistent": 1, "unparsable": 1}


# --- HowTo100M -------------------------------------------------------------------------------------------------------

CAPTIONS = {
    "v1": {"start": [0, 2.5], "end": [2.5, 4], "text": ["hello", "crack \"the\" {eggs}, ünd"]},
    "v2": {"start": [], "end": [], "text": []},
    "v3": {"start": [0, 1], "end": [1, None], "text": ["a", "b"]},
    "v4": {"start": [0], "end": [1, 2], "text": ["a", ""]},
    "v5": "nothing",
}  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_captions_stream_whatever_the_chunk(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(structured, "_CHUNK", chunk)
    path = tmp_path / "raw_caption.json"
    path.write_text(json.dumps(CAPTIONS, ensure_ascii=False, indent=1), encoding="utf-8")
    assert dict(structured.iter_captions(path)) == CAPTIONS
    zipped = tmp_path / "raw_caption.json.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert dict(structured.iter_captions(zipped)) == CAPTIONS


def test_howto100m(tmp_path):
    (tmp_path / "raw_caption.json").write_text(json.dumps(CAPTIONS))
    (tmp_path / "HowTo100M_v1.csv").write_text(
        "video_id,category_1,category_2,rank,task_id\nv1,Food,Tea,1,77\nv2,Food,Tea,2,77\nv3,Food,Tea,3,5\nshort\n"
    )
    (tmp_path / "task_ids.csv").write_text("77\tMake Tea\n5\tMake, Coffee\n")
    data = read_howto100m(tmp_path)
    assert data.tasks["5"].title == "Make, Coffee"
    assert [(r.video, r.task, len(r.cues)) for r in data] == [
        ("v1", "77", 2), ("v2", "77", 0), ("v3", "5", 2), ("v4", "howto100m", 0), ("v5", "howto100m", 0),
    ]  # fmt: skip
    assert data.videos[0].cues[1].text == 'crack "the" {eggs}, ünd'
    assert all(record.annotations is None for record in data)
    assert kinds(data) == {"inconsistent": 2, "unparsable": 3}


def test_howto100m_cut_short_keeps_what_came_before(tmp_path):
    text = json.dumps(CAPTIONS)
    (tmp_path / "caption.json").write_text(text[: text.index('"v3"') + 20])
    data = read_howto100m(tmp_path)
    assert [r.video for r in data] == ["v1", "v2"]
    assert any("2 videos came before" in problem.what for problem in data.problems)
    (tmp_path / "caption.json").write_text("[1]")
    with pytest.raises(InputError, match="an object of videos"):
        read_howto100m(tmp_path)
    with pytest.raises(InputError):
        read_howto100m(tmp_path / "no")


# --- plain -----------------------------------------------------------------------------------------------------------


def test_plain_folder_with_names(tmp_path):
    folder = tmp_path / "make_tea"
    for name in ("annotations", "features", "videos"):
        (folder / name).mkdir(parents=True)
    (folder / "annotations" / "a.csv").write_text("step,start,end\nsteep,4,6\nboil,0,2\n")
    (folder / "annotations" / "b.csv").write_text("boil,1,2\nsteep,9,8\nbroken\n")
    np.save(folder / "features" / "a.npy", np.zeros((7, 4), np.float32))
    (folder / "features" / "b.npy").write_bytes(b"no array")
    (folder / "videos" / "c.mp4").write_bytes(b"")
    data = read_plain(folder)
    assert data.tasks["make_tea"].steps == ("boil", "steep")  # by mean start
    a, b, c = data.videos
    assert (a.duration_s, b.duration_s) == (7.0, None)
    assert [x.step for x in a.labels] == [1, 0]
    assert c.annotations is None
    assert c.path.name == "c.mp4"
    assert kinds(data) == {"inconsistent": 1, "unparsable": 2, "missing": 2}
    assert read_plain(tmp_path).videos == data.videos  # a folder of task folders
    assert read_plain(folder, rate_hz=2.0).videos[0].duration_s == 3.5


def test_plain_numbers_with_steps_and_with_mapping(tmp_path):
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "a.csv").write_text("2,0,1\n3,1,2\n")
    assert [a.text for a in read_plain(tmp_path).videos[0].labels] == ["step 2", "step 3"]
    (tmp_path / "mapping.txt").write_text("0 background\n2 boil water\n3 steep\n")
    data = read_plain(tmp_path)
    assert [(a.step, a.text) for a in data.videos[0].labels] == [(0, "boil water"), (1, "steep")]
    (tmp_path / "steps.txt").write_text("boil\nsteep\n")
    data = read_plain(tmp_path)
    assert [a.text for a in data.videos[0].labels] == ["steep"]
    assert "step 3 is none" in data.problems[0].what


# --- all -------------------------------------------------------------------------------------------------------------


def test_the_files_tell_the_dataset(crosstask, tmp_path):
    assert guess_dataset(crosstask) == "crosstask"
    (tmp_path / "COIN.json").write_text("{}")
    assert guess_dataset(tmp_path / "COIN.json") == "coin"
    with pytest.raises(InputError, match="not look like a known dataset"):
        (tmp_path / "empty").mkdir()
        guess_dataset(tmp_path / "empty")
    with pytest.raises(UsageError):
        read_dataset(crosstask, "imagenet")


def test_crosstask_without_its_video_list_is_not_taken_for_a_plain_folder(crosstask):
    (crosstask / "videos.csv").unlink()
    with pytest.raises(InputError, match=r"no videos\.csv"):
        read_dataset(crosstask)


def test_a_cell_too_long_for_csv_is_a_problem_not_the_end(crosstask, tmp_path):
    (crosstask / "annotations" / "23521_aaa.csv").write_text("1,0,1\n" + "x" * 200_000 + ",1,2\n")
    assert any("aaa.csv:2" in p.where and "not readable CSV" in p.what for p in read_dataset(crosstask).problems)
    (tmp_path / "plain" / "annotations").mkdir(parents=True)
    (tmp_path / "plain" / "annotations" / "a.csv").write_text("boil,0,1\n" + "x" * 200_000 + ",1,2\n")
    data = read_dataset(tmp_path / "plain")
    assert len(data.videos[0].labels) == 1
    assert "a.csv:2" in data.problems[0].where


def test_with_features_gives_durations(tmp_path):
    data = Dataset(
        "d", {"t": Task("t", "T", ("a",))}, (VideoRecord("v", "t"), VideoRecord("w", "t", 4.0), VideoRecord("x", "t"))
    )
    np.save(tmp_path / "t_v.npy", np.zeros((30, 2)))
    np.save(tmp_path / "w.npy", np.zeros(3))
    np.savez(tmp_path / "x.npz", np.zeros((3, 2)))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    found = with_features(data, tmp_path, rate_hz=2.0)
    assert found.videos[0].duration_s == 15.0
    assert kinds(found) == {"unparsable": 2}
    (tmp_path / "x.npy").unlink()
    assert kinds(with_features(data, tmp_path, rate_hz=2.0)) == {"unparsable": 1, "missing": 1}
    with pytest.raises(InputError):
        with_features(data, tmp_path / "no")


def test_pickled_features_are_refused(tmp_path):
    np.save(tmp_path / "v.npy", np.array([{"a": 1}], object), allow_pickle=True)
    data = with_features(Dataset("d", {"t": Task("t", "T", ())}, (VideoRecord("v", "t"),)), tmp_path)
    assert "never read" in data.problems[0].what  # and not NumPy's advice to unpickle it
    (tmp_path / "v.npy").write_bytes(b"no array")
    data = with_features(Dataset("d", {"t": Task("t", "T", ())}, (VideoRecord("v", "t"),)), tmp_path)
    assert "not a readable NumPy array" in data.problems[0].what
    assert "allow_pickle" not in data.problems[0].what
    assert data.videos[0].features is None
    assert kinds(data) == {"unparsable": 1}


def test_records_are_checked():
    with pytest.raises(InputError):
        Annotation(-1, 0, 1, "a")
    with pytest.raises(InputError):
        Annotation(0, 2, 1, "a")
    with pytest.raises(InputError):
        VideoRecord("v", "t", -3.0)
    task = {"t": Task("t", "T", ("a",))}
    with pytest.raises(InputError, match="twice"):
        Dataset("d", task, (VideoRecord("v", "t"), VideoRecord("v", "t")))
    with pytest.raises(InputError, match="step 1"):
        Dataset("d", task, (VideoRecord("v", "t", None, (Annotation(1, 0, 1, "b"),)),))
    with pytest.raises(InputError, match="subset"):
        Dataset("d", task, (VideoRecord("v", "t"),)).select("validation")


def test_a_numeric_grammar_is_refused_and_a_crash_of_the_reader_is_one_sentence(tmp_path, monkeypatch):
    scipy_io = pytest.importorskip("scipy.io")
    from stepformer.data import procel

    file = tmp_path / "make_tea" / "data.mat"
    file.parent.mkdir()
    scipy_io.savemat(file, {"grammar": np.arange(4.0), "key_steps_time": np.zeros((1, 0), object)})
    with pytest.raises(InputError, match="nested differently"):
        procel._read_mat(file)
    good = file.read_bytes()
    file.write_bytes(good[:-20])
    with pytest.raises(InputError):
        procel._read_mat(file)
