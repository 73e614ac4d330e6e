"""Many videos to one table: resumable, and one bad file never stops the rest."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from stepformer.cli import main
from stepformer.errors import InputError, UsageError
from stepformer.narration import PhraseOptions
from stepformer.narration.prepare import prepare
from stepformer.narration.readers.structured import iter_captions

SRT = "1\n00:00:01,000 --> 00:00:03,000\ncrack the eggs\n\n2\n00:00:03,000 --> 00:00:05,000\nand whisk them\n"


@pytest.fixture
def folder(tmp_path):
    src = tmp_path / "subtitles"
    (src / "more").mkdir(parents=True)
    for i in range(5):
        (src / f"v{i}.en.srt").write_text(SRT)
    (src / "more" / "w.vtt").write_text("WEBVTT\n\n00:01.000 --> 00:02.000\nsubscribe to my channel\n")
    (src / "readme.md").write_text("not subtitles")
    return src


def rows(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_folder_to_json_lines(parser, folder, tmp_path) -> None:
    report = prepare(folder, tmp_path / "out.jsonl")
    assert (report.videos, report.phrases, report.failed) == (6, 11, [])
    found = rows(tmp_path / "out.jsonl")
    assert [row["video"] for row in found] == ["more/w"] + [f"v{i}" for i in range(5) for _ in range(2)]
    assert found[1]["text"] == "crack the eggs" and found[2]["text"] == "whisk the eggs" and found[0]["chatter"]
    assert not (tmp_path / "out.jsonl.parts").exists()
    assert prepare(folder / "v2.en.srt", tmp_path / "one.jsonl").videos == 1
    assert {row["video"] for row in rows(tmp_path / "one.jsonl")} == {"v2"}


def test_a_video_has_one_subtitle_file(parser, folder, tmp_path) -> None:
    """That which discover and prepare features would take."""
    for name in ("v0.de.srt", "v1.srt", "v2.live_chat.json3", "v3.info.json", "v4.steps.vtt"):
        (folder / name).write_text(SRT.replace("eggs", "onions"))
    for name in ("stepformer.options.json", "procedure.json", "more/v5.steps.json"):
        (folder / name).write_text('{"schema_version": 1, "steps": []}')
    report = prepare(folder, tmp_path / "out.jsonl")
    assert (report.videos, report.failed) == (6, [])
    found = rows(tmp_path / "out.jsonl")
    assert {row["video"] for row in found} == {"more/w", *(f"v{i}" for i in range(5))}
    assert {row["video"] for row in found if "onions" in row["text"]} == {"v1"}  # it names no language
    prepare(folder / "v4.steps.vtt", tmp_path / "asked.jsonl")  # given by name
    assert {row["video"] for row in rows(tmp_path / "asked.jsonl")} == {"v4.steps"}


def test_what_is_not_english_gives_no_phrases_here_either(parser, folder, tmp_path, capsys) -> None:
    german = "schneide die Zwiebel in kleine Stücke und brate sie dann in der Pfanne, bis sie ganz goldbraun ist; "
    german += "gib jetzt den Knoblauch dazu"
    (folder / "v0.en.srt").write_text(f"1\n00:00:01,000 --> 00:00:03,000\n{german}\n")
    assert main(["prepare", "phrases", str(folder), str(tmp_path / "out.jsonl"), "--jobs", "1"]) == 0
    assert "no phrases of 1: not English" in capsys.readouterr().err
    assert "v0" not in {row["video"] for row in rows(tmp_path / "out.jsonl")}


def test_a_damaged_list_of_finished_videos_gets_a_sentence(parser, folder, tmp_path) -> None:
    parts, settings = tmp_path / "out.jsonl.parts", {"source": folder.name, "options": asdict(PhraseOptions())}
    for lines in ("garbage\n", f"{json.dumps(settings)}\n[1]\n", f"{json.dumps(settings)}\n{{}}\n"):
        parts.write_text(lines)
        with pytest.raises(InputError, match=r"out.jsonl.parts is not a readable list of .*; remove the file to start"):
            prepare(folder, tmp_path / "out.jsonl")
        assert parts.read_text() == lines


def test_a_folder_to_parquet(parser, folder, tmp_path) -> None:
    import pyarrow.parquet as pq

    prepare(folder, tmp_path / "out.parquet", PhraseOptions(chatter=False))
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 10 and table.column("text")[1].as_py() == "whisk the eggs"
    assert str(table.schema.field("start_s").type) == "double"


def test_bad_files_are_listed_and_tried_again(parser, folder, tmp_path, capsys) -> None:
    (folder / "v2.en.srt").write_text("this is a letter")
    (folder / "bad.json").write_text("{")
    out = tmp_path / "out.jsonl"
    command = ["prepare", "phrases", str(folder), str(out), "--jobs", "1", "--quiet", "--json"]
    assert main(command) == 5
    result = json.loads(capsys.readouterr().out)
    assert result["videos"] == 5 and len(result["failed"]) == 2
    assert any("v2.en.srt: line 1: expected" in failed["error"] for failed in result["failed"])
    assert len(rows(out)) == 9

    (folder / "v2.en.srt").write_text(SRT)
    (folder / "bad.json").unlink()
    assert main(command) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["resumed"] == 5 and result["videos"] == 6
    assert [row["video"] for row in rows(out)][1:3] == ["v0", "v0"]
    assert main(command) == 0  # it is there already
    out, err = capsys.readouterr()
    assert "already exists" in err and json.loads(out)["skipped"]
    assert main(["prepare", "phrases", "no-such-folder", *command[3:]]) == 3


def test_a_killed_run_goes_on(parser, folder, tmp_path) -> None:
    done = []

    def stop(words, report) -> None:
        done.append(words)
        if len(done) == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(folder, tmp_path / "out.jsonl", advance=stop)
    assert not (tmp_path / "out.jsonl").exists()
    parts = tmp_path / "out.jsonl.parts"
    parts.write_bytes(parts.read_bytes()[:-10])  # a kill in the middle of a line
    report = prepare(folder, tmp_path / "out.jsonl")
    assert report.resumed == 4 and report.videos == 6 and len(rows(tmp_path / "out.jsonl")) == 11


def test_other_options_do_not_go_on_with_old_parts(parser, folder, tmp_path) -> None:
    (folder / "bad.json").write_text("{")
    prepare(folder, tmp_path / "out.jsonl")
    with pytest.raises(UsageError, match="other options"):
        prepare(folder, tmp_path / "out.jsonl", PhraseOptions(chatter=False))


def test_a_caption_file_and_what_is_wrong_with_one(parser, tmp_path) -> None:
    src = tmp_path / "caption.json"
    lists = {"start": [1, 3], "end": [3, 5], "text": ["crack the eggs", "and whisk them"]}
    src.write_text(json.dumps({"a": lists, "b": {"start": [1]}, "c": lists}))
    report = prepare(src, tmp_path / "out.jsonl")
    assert report.videos == 2 and [name for name, _ in report.failed] == ["b"]
    assert [row["video"] for row in rows(tmp_path / "out.jsonl")] == ["a", "a", "c", "c"]


def test_nothing_to_do_and_wrong_endings(parser, tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no subtitles"):
        prepare(tmp_path / "empty", tmp_path / "out.jsonl")
    with pytest.raises(InputError, match="no file or folder"):
        prepare(tmp_path / "none", tmp_path / "out.jsonl")
    with pytest.raises(UsageError, match="parquet or"):
        prepare(tmp_path / "empty", tmp_path / "out.csv")


def test_caption_files_are_read_a_video_at_a_time(tmp_path, monkeypatch) -> None:
    from stepformer.narration.readers import structured as howto100m

    src = tmp_path / "caption.json"
    videos = {f"v{i}": {"start": [0.5], "end": [1], "text": ['say "{[" \\ \n é' + "x" * i]} for i in range(40)}
    src.write_text(json.dumps(videos, indent=1), encoding="utf-8")
    for chunk in (1, 7, 64, 1 << 20):
        monkeypatch.setattr(howto100m, "_CHUNK", chunk)
        assert dict(iter_captions(src)) == videos


@pytest.mark.parametrize("broken", ['{"a": {"start": [1', '{"a": 5}', "[1]", '{"a" {}}', '{"a": {} "b": {}}', ""])
def test_broken_caption_files_say_where(tmp_path, broken: str) -> None:
    src = tmp_path / "caption.json"
    src.write_text(broken)
    with pytest.raises(InputError, match=r"caption\.json: line 1: expected|caption\.json is empty"):
        list(iter_captions(src))


@pytest.mark.slow
def test_many_processes_give_the_same(parser, folder, tmp_path) -> None:
    prepare(folder, tmp_path / "one.jsonl")
    prepare(folder, tmp_path / "two.jsonl", jobs=2)
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()
