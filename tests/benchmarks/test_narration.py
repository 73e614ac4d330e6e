"""Studies of the narration: the gold set, the scores on real narration, speed and memory."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.spoken import Spoken
from stepformer.cli import main
from stepformer.narration import PhraseOptions


def test_gold_set_is_whole_and_the_table_prints(parser, capsys) -> None:
    from benchmarks.gold import load_gold

    gold = load_gold("test")
    assert len(gold) >= 150 and len(load_gold("dev")) >= 50
    assert not any(mark in sentence for u in gold for sentence in u.sentences for mark in ".,?!;")
    assert {s for u in gold for s in u.sentences}.isdisjoint(s for u in load_gold("dev") for s in u.sentences)


def test_matching_of_gold_phrases() -> None:
    from benchmarks.gold import Score, match

    assert match(["take the lid off", "stir it"], ["take off a lid", "do not stir it"]) == 1
    assert match(["cut red onions"], ["cut onions"]) == 0 and match(["cut red onions"], ["cut onions"], loose=True) == 1
    assert match(["stir it", "stir it"], ["stir it"]) == 1
    assert Score(0, 0, 0).f1 == 0.0 and Score(1, 2, 1).precision == 0.5 and Score(1, 2, 1).f1 == pytest.approx(2 / 3)


def test_dev_gold_stays_where_it_is(parser) -> None:
    from benchmarks.gold import load_gold
    from benchmarks.phrases import _scores, one_by_one

    gold = load_gold("dev")
    whole = _scores(gold, one_by_one(gold, PhraseOptions(), False))["exact"]["f1"]
    without = _scores(gold, one_by_one(gold, PhraseOptions(coreference="none"), False))["exact"]["f1"]
    assert whole > 0.85 and without < whole - 0.05


VIDEO = Spoken("v", (), ((0.0, 5.0, "crack eggs"), (5.0, 9.0, "fry bacon"), (9.0, 12.0, "serve")))
RIGHT, WRONG, OUTSIDE = (1.0, 2.0, "crack the eggs"), (6.0, 7.0, "crack the eggs"), (20.0, 21.0, "fry bacon")


def test_scores_on_real_narration() -> None:
    from benchmarks.speech_score import judge, summary, word_overlap

    found = summary([VIDEO], judge([VIDEO], [[RIGHT, WRONG, OUTSIDE]], word_overlap))
    # the first is right; the second is said in the wrong step, where one other step is better and one as bad
    assert found.auc == pytest.approx((1.0 + 0.25) / 2) and found.top1 == 0.5
    assert found.pieces == 2 and found.covered == pytest.approx(2 / 3)
    # of two pieces in one step the mean is over both, and all at once have one that fits
    both = judge([VIDEO], [[RIGHT, (2.0, 3.0, "fry bacon")]], word_overlap)
    match = summary([VIDEO], both)
    assert match.step_auc == pytest.approx((1.0 + 0.25) / 2) and match.step_top1 == 0.5 and match.pieces == 2
    assert both[0].pooled_auc == pytest.approx(0.75) and both[0].pooled_first == 0.5  # as near to bacon as to eggs
    assert summary([VIDEO], []).pieces == 0


def test_stages_are_compared_on_the_steps_that_both_have() -> None:
    from benchmarks.speech_score import difference, judge, word_overlap

    videos = [VIDEO, VIDEO]
    ours = judge(videos, [[RIGHT, (9.5, 10.0, "serve")], [RIGHT]], word_overlap)
    theirs = judge(videos, [[(1.0, 2.0, "fry bacon")], [RIGHT, (6.0, 7.0, "fry bacon")]], word_overlap)
    less = difference(ours, theirs, draws=200)
    assert less is not None and less.steps == 2  # the first step of either video
    assert less.auc.mean == pytest.approx((0.75 + 0.0) / 2) and less.top1.mean == pytest.approx(0.5)
    assert less.auc.low == 0.0 and less.auc.high == pytest.approx(0.75)  # videos are drawn, not steps
    assert difference(ours, [], draws=10) is None


def test_real_narration_table(parser, capsys, tmp_path) -> None:
    weights = pytest.importorskip("stepformer.base.weights")
    if weights.find("minilm") is None:
        pytest.skip("the sentence encoder's weights are not here")
    said = ["crack the eggs into the bowl", "whisk them with a fork", "fry the bacon in the pan"]
    steps = [[10 * i, 10 * i + 9, text] for i, text in enumerate(said)]
    video = {"asr": [{"start": 10 * i + 1, "text": text} for i, text in enumerate(said)], "segments": steps}
    path = tmp_path / "youcook2.json"
    path.write_text(json.dumps({"a": video, "b": video}))
    assert main(["bench", "phrases", "--youcook2", str(path), "--both-halves", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["data"]
    rows = {row["stage"]: row for row in data["rows"]}
    assert data["videos"] == 2 and rows["cues as they are"]["auc"] == pytest.approx(1.0)
    assert rows["phrases, chatter left out"]["pieces"] == 6 and rows["phrases, chatter left out"]["covered"] == 1.0
    assert {row["less"] for row in data["differences"]} >= {"cues as they are", "sentences, default punctuation"}
    assert main(["bench", "phrases", "--youcook2", str(path), "--both-halves"]) == 0
    assert "on the same steps" in capsys.readouterr().out


def test_speed_bench_prints_a_share(parser, capsys) -> None:
    assert main(["bench", "narration", "--words", "300", "--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["words"] == 300 and result["share"] > 0


@pytest.mark.slow
def test_memory_stays_flat(parser, capsys) -> None:
    assert main(["bench", "narration", "--memory", "200000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["growth_second_half_mb"] < 60


def test_words_that_were_heard_are_compared_with_what_was_said() -> None:
    from benchmarks.quality import auc
    from benchmarks.speech import heard_right
    from stepformer.narration.cues import Word

    heard = ["Rush", "the", "egg", "plant", "with", "butter,", "and", "um", "add", "the", "onion."]
    words = [Word(float(at), at + 1.0, text) for at, text in enumerate(heard)]
    right = heard_right("Brush the eggplant with butter and add the onions!", words)
    assert [word.text for word in words if not right[word]] == ["Rush", "um"]
    assert auc(np.array([0.9, 0.5]), np.array([0.5, 0.1])) == pytest.approx(3.5 / 4)


def test_the_noise_of_a_kitchen_is_as_loud_as_asked_and_the_same_every_time() -> None:
    from benchmarks.speech import in_kitchen

    voice = np.sin(np.arange(16_000) / 5).astype(np.float32)
    quiet, loud = (in_kitchen(voice, louder_db, 0).astype(float) for louder_db in (60.0, 0.0))
    quiet, loud = (sound / np.sqrt((sound**2).mean()) for sound in (quiet, loud))
    assert 0.9 < 2 * np.mean(quiet * loud) ** 2 < 1.1  # half of the power is the voice's
    assert (in_kitchen(voice, 10.0, 1) == in_kitchen(voice, 10.0, 1)).all()
