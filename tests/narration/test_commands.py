"""The commands of the narration, and its stages that come as plugins."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import types
from pathlib import Path

import pytest

from stepformer.base.plugins import import_plugins
from stepformer.cli import _run, main
from stepformer.narration import Cue, PhraseOptions, extract_phrases
from stepformer.narration.cues import Word
from stepformer.narration.pipeline import SEGMENTERS, make_stage

EXAMPLES = Path(__file__).parents[2] / "examples" / "plugins"

SRT = (
    "1\n00:00:01,000 --> 00:00:03,000\ncrack the eggs and whisk them\n\n"
    "2\n00:00:08,000 --> 00:00:09,000\nsubscribe to my channel\n"
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "talk.srt"
    path.write_text(SRT)
    return path


def test_a_video_that_crashes_its_decoder_is_one_sentence(tmp_path, capsys, monkeypatch):
    fork = multiprocessing.get_context("fork")  # it takes the crash along
    monkeypatch.setattr("stepformer.base.many._context", lambda preload: fork)
    monkeypatch.setattr("stepformer.narration.narration_of", lambda *_: os._exit(9))
    (tmp_path / "a.mp4").write_bytes(b"video")
    assert _run(["phrases", str(tmp_path / "a.mp4")], apart=True) == 3
    assert "a.mp4 is damaged: the library that reads it crashed" in capsys.readouterr().err


def test_what_is_no_video_is_not_called_silent(tmp_path, capsys):
    (tmp_path / "a.mp4").write_bytes(b"no video")
    assert main(["phrases", str(tmp_path / "a.mp4")]) == 3
    assert "is not a video that FFmpeg can open" in capsys.readouterr().err


def test_phrases_shows_both_sides(parser, file, capsys) -> None:
    assert main(["phrases", str(file)]) == 0
    out = capsys.readouterr().out
    row = next(line for line in out.splitlines() if "crack the eggs and whisk them" in line)
    assert "│ 0:01  crack the eggs" in row
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


def test_a_stage_whose_package_is_not_installed_says_which(parser, file, monkeypatch, capsys) -> None:
    monkeypatch.setitem(sys.modules, "wtpsplit", None)
    monkeypatch.setenv("STEPFORMER_PLUGINS", str(EXAMPLES / "punctuation.py"))
    assert main(["phrases", str(file), "--punctuation", "sat"]) == 4
    assert "'sat' needs a package that is not installed" in capsys.readouterr().err


def test_a_splitting_model_comes_in_as_a_plugin(parser, monkeypatch) -> None:
    class SaT:
        def __init__(self, model: str) -> None:
            assert model == "tiny"

        def split(self, text: str) -> list[str]:
            head, found, tail = text.partition("now ")
            return [head, found + tail]

    monkeypatch.setitem(sys.modules, "wtpsplit", types.SimpleNamespace(SaT=SaT))
    import_plugins([str(EXAMPLES / "punctuation.py")])
    stage = make_stage(SEGMENTERS, "sat:tiny")
    words = [Word(i, i + 1, text) for i, text in enumerate(["add", "salt", "now", "stir"])]
    assert list(stage.ends(words, ())) == [False, True, False, True]
    assert stage.ends([], ()) == []
    found = extract_phrases([Cue(0, 9, "add the salt now stir the soup")], PhraseOptions(punctuation="sat:tiny"))
    assert [phrase.text for phrase in found] == ["add the salt", "stir the soup"]


def test_clusters_of_a_model_that_comes_in_as_a_plugin_become_names(parser, monkeypatch) -> None:
    def pipeline(sentences: list[list[str]]) -> object:
        at = [token for sentence in sentences for token in sentence].index("them")
        spans = [(1, 5), (at, at + 1)]
        mentions = [types.SimpleNamespace(sentence=0, start_word=first, end_word=last) for first, last in spans]
        return types.SimpleNamespace(coref=[types.SimpleNamespace(mentions=mentions)])

    monkeypatch.setitem(sys.modules, "stanza", types.SimpleNamespace(Pipeline=lambda *_, **options: pipeline))
    import_plugins([str(EXAMPLES / "coreference.py")])
    cue = Cue(0, 9, "crack the two large eggs into a bowl and whisk them")
    found = extract_phrases([cue], PhraseOptions(coreference="stanza"))
    assert [phrase.text for phrase in found] == ["crack the two large eggs into a bowl", "whisk the eggs"]


@pytest.mark.parametrize("name", ["talk.srt", "a.b/c", "\0", "x" * 300, "__main__"])
def test_a_parser_that_is_none_is_one_sentence(file, name, capsys) -> None:
    assert main(["phrases", str(file), "--parser", name]) == 4
    assert "no spaCy pipeline" in capsys.readouterr().err
