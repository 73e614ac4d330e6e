from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from stepformer.data import Annotation, Dataset, Task, VideoRecord, read_coin, read_crosstask
from stepformer.data.records import audit
from stepformer.errors import InputError

DATA = Path(__file__).parents[2].parent / "shared" / "data"
TASK = {"t": Task("t", "T", ("a", "b"))}


def video(name, duration_s, *rows):
    return VideoRecord(name, "t", duration_s, tuple(Annotation(k, s, e, "ab"[k]) for k, s, e in rows))


def test_what_only_shows_when_files_are_held_together(tmp_path):
    for name, rows in (("ok", 10), ("long", 30), ("late", 10)):
        np.save(tmp_path / f"{name}.npy", np.zeros((rows, 2)))
    data = Dataset(
        "d",
        TASK,
        (
            video("ok", 10.0, (0, 0, 4), (1, 4, 9.9)),
            video("long", 10.0, (0, 0, 4)),
            video("gone", 10.0, (0, 0, 4), (1, 3, 11)),
            video("late", None, (0, 3, 10.9), (1, 3, 11.1), (1, 5, 5)),
            VideoRecord("empty", "t", 5.0, ()),
            VideoRecord("unlabelled", "t", 5.0, None),
        ),
    )
    found = audit(data, features=tmp_path)
    said = [(p.kind, p.where) for p in found.problems]
    assert ("duration", "video t_long") in said
    assert ("missing", "video t_gone") in said
    assert ("past_end", "video t_gone, annotation 1") in said
    assert ("past_end", "video t_late, annotation 1") in said  # more than a feature past the end
    assert ("past_end", "video t_late, annotation 0") not in said
    assert ("inconsistent", "video t_late, annotation 2") in said
    assert found.by_kind() == {"duration": 1, "missing": 4, "past_end": 2, "inconsistent": 1}
    assert any("overlap" in note for note in found.notes)
    assert found.counts["annotated"] == 4


def test_video_files_are_measured(tmp_path):
    from benchmarks.timecode import write_clip

    write_clip(tmp_path / "ok.mp4", [i / 5 for i in range(20)], rate_hz=5)
    (tmp_path / "broken.mp4").write_bytes(b"nothing")
    data = Dataset(
        "d", TASK, (video("ok", 40.0, (0, 0, 4)), video("broken", 4.0, (0, 0, 1)), video("gone", 4.0, (0, 0, 1)))
    )
    found = audit(data, videos=tmp_path)
    assert Counter(p.kind for p in found.problems) == {"duration": 1, "unparsable": 1, "missing": 1}


def test_folders_that_are_not_there(tmp_path):
    with pytest.raises(InputError):
        audit(Dataset("d", TASK, ()), features=tmp_path / "no")


def test_real_coin_and_crosstask():
    if not (DATA / "coin").exists():
        pytest.skip("the real data is not here")
    coin = audit(read_coin(DATA / "coin"))
    assert coin.by_kind() == {"missing": 2, "past_end": 1}
    assert coin.counts["subset testing"] == 2596
    crosstask = audit(read_crosstask(DATA / "crosstask"))
    assert crosstask.problems == ()
    assert any("2750 annotated videos have no duration" in note for note in crosstask.notes)
    assert any("89 videos" in note for note in crosstask.notes)
