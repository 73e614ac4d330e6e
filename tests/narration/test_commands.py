"""The commands of the narration, and the extras that are not installed."""

from __future__ import annotations

import json
import sys
import types

import pytest

from stepformer.cli import main
from stepformer.errors import MissingError
from stepformer.narration import Cue, PhraseOptions, extract_phrases, neural
from stepformer.narration.cues import Word
from stepformer.narration.neural import ClusterResolver, TextPunctuator, TextSegmenter, load_punctuator, load_resolver

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
    neural._loaded.clear()
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
    neural._loaded.clear()
    stage = load_punctuator("sat")
    words = [Word(i, i + 1, text) for i, text in enumerate(["add", "salt", "now", "stir"])]
    assert list(stage.ends(words, ())) == [False, True, False, True]
    found = extract_phrases([Cue(0, 9, "add the salt now stir the soup")], PhraseOptions(punctuation="sat"))
    assert [phrase.text for phrase in found] == ["add the salt", "stir the soup"]
    neural._loaded.clear()


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
