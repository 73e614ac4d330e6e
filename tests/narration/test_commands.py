"""The commands of the narration, and the extras that are not installed."""

from __future__ import annotations

import json
import sys
import types

import pytest

from stepformer.cli import main
from stepformer.errors import MissingError
from stepformer.narration import Cue, PhraseOptions, extract_phrases
from stepformer.narration.cues import Word
from stepformer.narration.punctuators import TextPunctuator, TextSegmenter, load_punctuator
from stepformer.narration.resolvers import ClusterResolver, load_resolver
from stepformer.narration.spoken import Spoken

SRT = (
    "1\n00:00:01,000 --> 00:00:03,000\ncrack the eggs and whisk them\n\n"
    "2\n00:00:08,000 --> 00:00:09,000\nsubscribe to my channel\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "talk.srt"
    path.write_text(SRT)
    return path


def test_phrases_shows_both_sides(parser, file, capsys) -> None:
    assert main(["phrases", str(file), "--width", "90"]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "crack the eggs and whisk them" in line)
    assert "│    0:01  crack the eggs" in row
    assert "(subscribe to my channel)" in out and "2 that may be steps, 1 in brackets" in out


def test_phrases_as_json(parser, file, capsys) -> None:
    assert main(["phrases", str(file), "--json", "--no-chatter"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [phrase["text"] for phrase in result["phrases"]] == ["crack the eggs", "whisk the eggs"]
    assert [cue["start_s"] for cue in result["cues"]] == [1.0, 8.0]


def test_exit_codes(parser, file, tmp_path, capsys) -> None:
    (tmp_path / "letter.srt").write_text("dear sir")
    assert main(["phrases", str(tmp_path / "letter.srt")]) == 3
    assert "letter.srt: line 1: expected" in capsys.readouterr().err
    assert main(["phrases", str(tmp_path / "none.srt")]) == 3
    assert main(["phrases", str(tmp_path / "film.mp4")]) == 3
    assert main(["phrases", str(file), "--punctuation", "magic"]) == 2
    assert main(["phrases", str(file), "--parser", str(tmp_path / "none")]) == 4
    assert main(["phrases", str(file), "--parser", str(tmp_path)]) == 3


@pytest.mark.parametrize(("load", "name", "module", "extra"), [
    (load_punctuator, "sat", "wtpsplit", "punctuation-sat"),
    (load_punctuator, "sherpa", "sherpa_onnx", "punctuation-sherpa"),
    (load_resolver, "stanza", "stanza", "coref-stanza"),
    (load_resolver, "maverick", "maverick", "coref-maverick"),
])  # fmt: skip
def test_extras_that_are_not_installed_say_how_to_get_them(monkeypatch, load, name, module, extra) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    load.cache_clear()
    with pytest.raises(MissingError, match=rf"stepformer\[{extra}\]"):
        load(name)


def test_a_splitting_model_is_used(parser, monkeypatch) -> None:
    fake = types.ModuleType("wtpsplit")

    class SaT:
        def __init__(self, model: str) -> None:
            self.model = model

        def split(self, text: str) -> list[str]:
            head, found, tail = text.partition("now ")
            return [head, found + tail]

    fake.SaT = SaT  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wtpsplit", fake)
    load_punctuator.cache_clear()
    stage = load_punctuator("sat")
    words = [Word(i, i + 1, text) for i, text in enumerate(["add", "salt", "now", "stir"])]
    assert list(stage.ends(words, ())) == [False, True, False, True]
    found = extract_phrases([Cue(0, 9, "add the salt now stir the soup")], PhraseOptions(punctuation="sat"))
    assert [phrase.text for phrase in found] == ["add the salt", "stir the soup"]
    load_punctuator.cache_clear()


def test_a_punctuating_model_may_change_case_and_lose_words() -> None:
    stage = TextPunctuator("x", lambda text: "Add salt. Stir, it!")
    words = [Word(i, i + 1, text) for i, text in enumerate(["add", "salt", "um", "stir", "it"])]
    assert stage.ends(words, ()) == [False, True, False, False, True]
    assert TextSegmenter("x", lambda text: [text]).ends([], ()) == []


def test_clusters_of_a_neural_model_become_names(parser) -> None:
    def clusters(sentences: list[list[str]]) -> list[list[tuple[int, int]]]:
        tokens = [token for sentence in sentences for token in sentence]
        at = tokens.index("them")
        return [[(1, 5), (at, at + 1)], [(99, 100)]]

    cue = Cue(0, 9, "crack the two large eggs into a bowl and whisk them")
    found = extract_phrases([cue], resolver=ClusterResolver("x", clusters))
    assert [phrase.text for phrase in found] == ["crack the two large eggs into a bowl", "whisk the eggs"]


def test_gold_set_is_whole_and_the_table_prints(parser, capsys) -> None:
    from stepformer.narration.gold import load_gold

    gold = load_gold("test")
    assert len(gold) >= 150 and len(load_gold("dev")) >= 50
    assert not any(mark in sentence for u in gold for sentence in u.sentences for mark in ".,?!;")
    assert {s for u in gold for s in u.sentences}.isdisjoint(s for u in load_gold("dev") for s in u.sentences)


def test_matching_of_gold_phrases() -> None:
    from stepformer.narration.gold import Score, match

    assert match(["take the lid off", "stir it"], ["take off a lid", "do not stir it"]) == 1
    assert match(["cut red onions"], ["cut onions"]) == 0 and match(["cut red onions"], ["cut onions"], loose=True) == 1
    assert match(["stir it", "stir it"], ["stir it"]) == 1
    assert Score(0, 0, 0).f1 == 0.0 and Score(1, 2, 1).precision == 0.5 and Score(1, 2, 1).f1 == pytest.approx(2 / 3)


def test_dev_gold_stays_where_it_is(parser) -> None:
    from stepformer.bench.phrases import _scores, one_by_one
    from stepformer.narration.gold import load_gold

    gold = load_gold("dev")
    whole = _scores(gold, one_by_one(gold, PhraseOptions(), False))["exact"]["f1"]
    without = _scores(gold, one_by_one(gold, PhraseOptions(coreference="none"), False))["exact"]["f1"]
    assert whole > 0.85 and without < whole - 0.05


VIDEO = Spoken("v", (), ((0.0, 5.0, "crack eggs"), (5.0, 9.0, "fry bacon"), (9.0, 12.0, "serve")))
RIGHT, WRONG, OUTSIDE = (1.0, 2.0, "crack the eggs"), (6.0, 7.0, "crack the eggs"), (20.0, 21.0, "fry bacon")


def test_scores_on_real_narration() -> None:
    from stepformer.narration.speech_score import judge, summary, word_overlap

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
    from stepformer.narration.speech_score import difference, judge, word_overlap

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
    assert main(["bench", "phrases", "--youcook2", str(path), "--all", "--json"]) == 0
    (data,) = json.loads(capsys.readouterr().out)["data"]
    rows = {row["stage"]: row for row in data["rows"]}
    assert data["videos"] == 2 and rows["cues as they are"]["auc"] == pytest.approx(1.0)
    assert rows["phrases, chatter left out"]["pieces"] == 6 and rows["phrases, chatter left out"]["covered"] == 1.0
    assert {row["less"] for row in data["differences"]} >= {"cues as they are", "sentences, default punctuation"}
    assert main(["bench", "phrases", "--youcook2", str(path), "--all"]) == 0
    assert "on the same steps" in capsys.readouterr().out


def test_speed_bench_prints_a_share(parser, capsys) -> None:
    assert main(["bench", "narration", "--words", "300", "--rounds", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["words"] == 300 and result["share"] > 0


@pytest.mark.slow
def test_memory_stays_flat(parser, capsys) -> None:
    assert main(["bench", "narration", "--memory", "200000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["growth_second_half_mb"] < 60
