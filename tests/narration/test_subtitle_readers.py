"""Every subtitle format, as files really have it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import time

import pytest

from stepformer.errors import InputError, UsageError
from stepformer.narration import Cue, parse_subtitles, read_subtitles
from stepformer.narration.cleaning import is_english
from stepformer.narration.cues import Word, spread_words

ROLLING = """WEBVTT
Kind: captions
Language: en

00:00:00.160 --> 00:00:02.310 align:start position:0%
{space}
hi<00:00:00.400><c> everyone</c><00:00:00.640><c> crack</c>

00:00:02.310 --> 00:00:02.320 align:start position:0%
hi everyone crack
{space}

00:00:02.320 --> 00:00:04.150 align:start position:0%
hi everyone crack
the<00:00:02.480><c> eggs</c><00:00:02.720><c> now</c>

00:00:04.150 --> 00:00:04.160 align:start position:0%
the eggs now
{space}

00:00:04.160 --> 00:00:06.000 align:start position:0%
the eggs now
[Music]
""".replace("{space}", " ")  # YouTube writes lines of one space


def texts(cues: list[Cue]) -> list[str]:
    return [cue.text for cue in cues]


def test_rolling_captions_say_each_word_once_and_keep_word_times() -> None:
    cues = parse_subtitles(ROLLING)
    assert texts(cues) == ["hi everyone crack", "the eggs now"]
    assert [(word.text, round(word.start_s, 2)) for word in cues[1].words] == [
        ("the", 2.32),
        ("eggs", 2.48),
        ("now", 2.72),
    ]
    assert cues[0].words[1].end_s == pytest.approx(0.64)


def test_rolling_captions_whose_blank_lines_were_stripped() -> None:
    assert texts(parse_subtitles(ROLLING.replace("\n \n", "\n\n"))) == ["hi everyone crack", "the eggs now"]


def test_the_line_above_stays_over_a_pause() -> None:
    later = ROLLING.replace("00:00:04.160 -->", "00:00:08.160 -->").replace("--> 00:00:06.000", "--> 00:00:09.000")
    assert texts(parse_subtitles(later.replace("[Music]", "then whisk"))) == [
        "hi everyone crack", "the eggs now", "then whisk",
    ]  # fmt: skip


def test_rolling_captions_converted_to_srt() -> None:
    srt = (
        "1\n00:00:00,000 --> 00:00:02,000\nwelcome to\n\n2\n00:00:02,000 --> 00:00:02,010\nwelcome to\n\n"
        "3\n00:00:02,010 --> 00:00:04,000\nwelcome to\nmy kitchen\n\n"
        "4\n00:00:04,000 --> 00:00:06,000\nmy kitchen\ntoday we cook\n"
    )
    assert " ".join(texts(parse_subtitles(srt))) == "welcome to my kitchen today we cook"


def test_a_line_revealed_word_by_word() -> None:
    srt = "\n\n".join(
        f"{i + 1}\n00:00:0{i},000 --> 00:00:0{i + 1},000\n{' '.join(['add', 'the', 'red', 'onions', 'now'][: i + 1])}"
        for i in range(5)
    )
    assert " ".join(texts(parse_subtitles(srt))) == "add the red onions now"


def test_a_sentence_that_is_said_twice_stays_twice() -> None:
    srt = "".join(
        f"{i}\n00:00:0{i * 2},000 --> 00:00:0{i * 2 + 1},000\n{text}\n\n"
        for i, text in enumerate(["stir it", "stir it", "serve"], start=1)
    )
    assert texts(parse_subtitles(srt)) == ["stir it", "stir it", "serve"]


def test_overlapping_cues_are_cut_where_the_next_starts() -> None:
    cues = parse_subtitles("1\n00:00:00,000 --> 00:00:07,500\nhi my\n\n2\n00:00:03,959 --> 00:00:09,960\nname is\n")
    assert [(cue.start_s, cue.end_s) for cue in cues] == [(0.0, 3.959), (3.959, 9.96)]


@pytest.mark.parametrize(
    "srt",
    [
        "00:00:01.000 --> 00:00:02.000\nadd salt\n00:00:03.000 --> 00:00:04.000\nstir",  # no numbers, no blank lines
        "1\r\n00:00:01,000 --> 00:00:02,000\r\nadd salt\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\r\nstir\r\n",
        "2\n00:00:03,000 --> 00:00:04,000\nstir\n\n1\n00:00:01,000 --> 00:00:02,000\nadd salt\n",  # out of order
        "1\n00:01,000 --> 00:02,000  X1:0 Y1:5\n<i>add</i> {\\an8}salt\n\n2\n0:00:03,000 --> 0:00:02,000\n- stir",
        "0:00:01.000,0:00:02.000\nadd salt\n\n0:00:03.000,0:00:04.000\nstir\n",  # SBV
    ],
)
def test_srt_as_it_is_found(srt: str) -> None:
    cues = parse_subtitles(srt)
    assert texts(cues) == ["add salt", "stir"]
    assert cues[0].start_s == 1.0 and cues[1].start_s == 3.0 and cues[1].end_s >= 3.0


def test_a_number_in_the_text_of_an_srt_stays() -> None:
    assert texts(
        parse_subtitles("1\n00:00:01,000 --> 00:00:02,000\nbake it at\n350\n\n2\n00:00:03,000 --> 00:00:04,000\nok\n")
    ) == ["bake it at 350", "ok"]


def test_negative_times_become_zero() -> None:
    cues = parse_subtitles("1\n-00:00:01,000 --> 00:00:02,000\nadd salt\n")
    assert (cues[0].start_s, cues[0].end_s) == (0.0, 2.0)


def test_webvtt_notes_styles_names_and_voices() -> None:
    vtt = (
        "WEBVTT - a title\n\nSTYLE\n::cue { color: red }\n\nNOTE this\nis --> not a cue\n\n"
        "intro\n00:01.000 --> 00:02.000 line:0\n<v Ann>Crack &amp; whisk\n\n"
        "00:03.000 --> 00:04.000\n>> JOHN: the eggs&nbsp;now\n"
    )
    assert texts(parse_subtitles(vtt)) == ["Crack & whisk", "the eggs now"]


@pytest.mark.parametrize(
    ("said", "clean"),
    [
        ("[Music] crack the eggs [Applause]", "crack the eggs"),
        ("♪ la la la ♪", ""),
        ("(upbeat music) stir", "stir"),
        ("stir (gently) now", "stir (gently) now"),
        ("&gt;&gt; stir &amp;amp; fold", "stir & fold"),
        ("SPEAKER 1: stir", "stir"),
        ("Note: stir", "Note: stir"),
        ("don’t “stir”", 'don\'t "stir"'),
        ("a\u200bdd\u00a0salt", "add salt"),
        ("3 < 4 and 5 > 2", "3 < 4 and 5 > 2"),
    ],
)
def test_marks_are_taken_away(said: str, clean: str) -> None:
    cues = parse_subtitles(f"1\n00:00:01,000 --> 00:00:02,000\n{said}\n\n2\n00:00:03,000 --> 00:00:04,000\nend\n")
    assert texts(cues) == ([clean, "end"] if clean else ["end"])


def test_json3_with_word_offsets_and_windows() -> None:
    data = {
        "wireMagic": "pb3",
        "events": [
            {"tStartMs": 0, "dDurationMs": 9000, "id": 1, "wpWinPosId": 1},
            {"tStartMs": 80, "dDurationMs": 4000, "segs": [
                {"utf8": "crack"}, {"utf8": " the", "tOffsetMs": 400}, {"utf8": " eggs", "tOffsetMs": 700}]},
            {"tStartMs": 2000, "aAppend": 1, "segs": [{"utf8": "\n"}]},
            {"tStartMs": 2010, "dDurationMs": 3000, "segs": [{"utf8": "[Music]"}]},
        ],
    }  # fmt: skip
    (cue,) = parse_subtitles(json.dumps(data))
    assert cue.text == "crack the eggs"
    assert [round(word.start_s, 2) for word in cue.words] == [0.08, 0.48, 0.78]


@pytest.mark.parametrize(
    ("body", "times"),
    [
        ('<p begin="00:00:01.500" end="00:00:03">add<br/>salt</p>', (1.5, 3.0)),
        ('<p begin="1.5s" dur="1500ms">add <span>salt</span></p>', (1.5, 3.0)),
        ('<p begin="15t" end="30t">add salt</p>', (1.5, 3.0)),
        ('<p begin="00:00:01:15" end="00:00:03:00">add salt</p>', (1.5, 3.0)),
    ],
)
def test_ttml(body: str, times: tuple[float, float]) -> None:
    names = 'xmlns="http://www.w3.org/ns/ttml" xmlns:ttp="http://www.w3.org/ns/ttml#parameter"'
    rates = 'ttp:tickRate="10" ttp:frameRate="30"'
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    ttml = f"{head}<tt {names} {rates}><body><div>{body}</div></body></tt>"
    (cue,) = parse_subtitles(ttml)
    assert cue.text == "add salt"
    assert (cue.start_s, cue.end_s) == pytest.approx(times)


def test_youtube_xml() -> None:
    assert texts(parse_subtitles('<transcript><text start="1.2" dur="2">it&amp;#39;s hot</text></transcript>')) == [
        "it's hot"
    ]
    (cue,) = parse_subtitles(
        '<timedtext format="3"><body><p t="1200" d="2000"><s>add</s><s t="300"> salt</s></p></body></timedtext>'
    )
    assert cue.text == "add salt" and [word.start_s for word in cue.words] == pytest.approx([1.2, 1.5])


def test_ttml_with_entities_is_refused() -> None:
    with pytest.raises(InputError, match="entities"):
        parse_subtitles('<!DOCTYPE tt [<!ENTITY a "aaaa">]><tt><body><p begin="1s" end="2s">&a;</p></body></tt>')


def test_howto100m_one_and_many_videos() -> None:
    one = {"abc": {"start": [3.0, 1.0], "end": [4.0, 2.0], "text": ["stir", "add salt"]}}
    assert texts(parse_subtitles(json.dumps(one))) == ["add salt", "stir"]
    two = {**one, "def": {"start": [0.5], "end": [1], "text": ["fry"]}}
    assert texts(parse_subtitles(json.dumps(two), video="def")) == ["fry"]
    with pytest.raises(InputError, match="2 videos"):
        parse_subtitles(json.dumps(two), "caption.json")
    with pytest.raises(UsageError, match="no video 'x'"):
        parse_subtitles(json.dumps(two), video="x")


def test_whisperx_with_words_that_were_not_aligned() -> None:
    words = [{"word": "Add", "start": 1.0, "end": 1.3}, {"word": "2"}]
    words.append({"word": "eggs.", "start": 1.9, "end": 2.4, "score": 0.4})
    data = {"segments": [{"start": 1.0, "end": 3.0, "text": " Add 2 eggs.", "words": words}]}
    (cue,) = parse_subtitles(json.dumps(data))
    assert [(word.text, word.start_s) for word in cue.words] == [("Add", 1.0), ("2", 1.3), ("eggs.", 1.9)]
    assert all(word.certainty == 1.0 for word in cue.words)  # a score says how well sound and letters fit


@pytest.mark.parametrize("key", ["probability", "p"])
def test_how_certain_a_recogniser_was_of_each_word_stays_with_it(key: str) -> None:
    given = [0.25, "0.5", 1, 7, -0.1, math.nan, math.inf, "x", None, True, [0.5]]  # from the 7 on no certainties
    words = [{"word": f"w{i}", "start": i, "end": i + 1, key: value} for i, value in enumerate(given)]
    words += [{"word": "[Music]", "start": 19, "end": 20}, {"word": "one two", "start": 20, "end": 21, key: 0.75}]
    text = " ".join(word["word"] for word in words)
    cues = [{"start": 0, "end": 30, "text": text, "words": words}, {"start": 20.5, "end": 40, "text": "a"}]
    cue, _ = parse_subtitles(json.dumps(cues))  # cleaned, and cut where the next one starts
    assert [word.certainty for word in spread_words(cue)] == [0.25, 0.5, 1.0, *[1.0] * 8, 0.75, 0.75]


def test_tokens_of_whisper_cpp_are_words_as_certain_as_their_least_certain_part() -> None:
    parts = [("[_BEG_]", 0.9), (" Rush", 0.2), (" the", 1.0), (" pot", 0.9), ("atoes", 0.6), (".", 0.8), ("[_TT_9]", 0)]
    tokens = [
        {"text": text, "p": p, "offsets": {"from": i * 100, "to": i * 100 + 100}} for i, (text, p) in enumerate(parts)
    ]
    segment = {"offsets": {"from": 0, "to": 900}, "text": " Rush the potatoes.", "tokens": tokens}
    (cue,) = parse_subtitles(json.dumps({"transcription": [segment]}))
    assert cue.words == (Word(0.1, 0.2, "Rush", 0.2), Word(0.2, 0.3, "the", 1.0), Word(0.3, 0.6, "potatoes.", 0.6))
    segment["tokens"] = [50364, 10000, 13]  # Whisper's own
    assert parse_subtitles(json.dumps({"transcription": [segment]}))[0].words == ()


@pytest.mark.parametrize("certainty", [math.nan, -0.1, 7.0])
def test_a_word_with_an_impossible_certainty_is_no_word(certainty: float) -> None:
    with pytest.raises(InputError, match="certainty"):
        Word(0.0, 1.0, "salt", certainty)


def test_a_bare_list_of_segments() -> None:
    assert texts(parse_subtitles(json.dumps([{"start": 1, "duration": 2, "text": "add salt"}]))) == ["add salt"]


@pytest.mark.parametrize(
    "text",
    [
        "0:05 crack the eggs\n0:08 whisk them",
        "[00:00:05] crack the eggs\n[00:00:08] whisk them\n",
        "00:05.0 - 00:08.0 crack the eggs\n00:08 --- \nwhisk them".replace(" --- ", ""),
        "5.0\t8.0\tcrack the eggs\n8.0\t9.0\twhisk them",
        "0:05\ncrack the eggs\n0:08\nwhisk them",
        "start\tend\ttext\n5000\t8000\tcrack the eggs\n8000\t9000\twhisk them",
        "5.0 8.0 crack the eggs\n8.0 9.0 whisk them",
    ],
)
def test_plain_text_with_times(text: str) -> None:
    cues = parse_subtitles(text, "talk.txt")
    assert texts(cues) == ["crack the eggs", "whisk them"]
    assert [cue.start_s for cue in cues] == [5.0, 8.0]
    assert cues[0].end_s == 8.0


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_encodings(tmp_path, encoding: str) -> None:
    path = tmp_path / "talk.srt"
    path.write_bytes("1\n00:00:01,000 --> 00:00:02,000\nsauté the jalapeño\n".encode(encoding))
    assert texts(read_subtitles(path)) == ["sauté the jalapeño"]


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a.srt", "hello there\nthis is a letter", r"a\.srt: line 1: expected .*-->"),
        ("a.srt", "1\n00:00:xx --> 00:00:02,000\nhi", r"a\.srt: line 2: expected '00:00:01,000 -->"),
        ("a.vtt", "hello", r"a\.vtt: line 1: expected 'WEBVTT'"),
        ("a.txt", "\n\nDear Sir,\nthank you", r"a\.txt: line 3: expected"),
        ("a.json", '{"events": [{"segs": [{"utf8": "x"}]}]}', r"a\.json: line 1: .*tStartMs"),
        ("a.json", '{\n"a": [1,\n}', r"a\.json is not readable JSON: .*line 3"),
        ("a.json", '{"name": "package"}', r"a\.json: video name: line 1: expected three lists"),
        ("a.ttml", "<html><body>hi</body></html>", r"a\.ttml: line 1: found <html>"),
        ("a.ttml", "<tt>\n<p>", r"a\.ttml is not readable XML: .*line 2"),
        ("a.vtt", "", r"a\.vtt: line 1: the file is empty"),
        ("a.vtt", "\x00\x01\x02\x03PK\x03\x04" * 50, r"a\.vtt: line 1: this is a binary file"),
    ],
)
def test_no_subtitles_names_file_line_and_what_was_expected(tmp_path, name: str, content: str, where: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(InputError, match=where):
        read_subtitles(path)


def test_a_missing_file_and_an_unknown_format(tmp_path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_subtitles(tmp_path / "none.vtt")
    with pytest.raises(UsageError, match="no subtitle format"):
        parse_subtitles("x", format="docx")


def test_crosstask_subtitles(shared) -> None:
    for path in sorted((shared / "crosstask" / "subtitles").glob("*.srt")):
        cues = read_subtitles(path)
        assert len(cues) > 20
        assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(cues))


def test_cues_are_checked() -> None:
    for start, end in ((-1.0, 2.0), (3.0, 2.0), (float("nan"), 1.0), (0.0, float("inf"))):
        with pytest.raises(InputError):
            Cue(start, end, "x")


def test_srv2_counts_milliseconds_in_t_and_d() -> None:
    xml = (
        '<timedtext><window t="0" id="1"/><text t="100" d="2000" w="1">crack the eggs</text>'
        '<text t="2000" w="1" append="1">\n</text><text t="2100" d="1000">whisk them</text></timedtext>'
    )
    assert [(cue.start_s, cue.end_s, cue.text) for cue in parse_subtitles(xml)] == [
        (0.1, 2.1, "crack the eggs"),
        (2.1, 3.1, "whisk them"),
    ]


@pytest.mark.parametrize(("begin", "start_s"), [("1s", 11.0), ("12s", 12.0)])
def test_ttml_paragraphs_counted_from_their_container(begin: str, start_s: float) -> None:
    """Before the container they cannot be; from it on they are taken as they stand, as most writers mean them."""
    end = f"{int(begin[:-1]) + 1}s"
    ttml = f'<tt><body><div begin="10s"><p begin="{begin}" end="{end}">crack the eggs</p></div></body></tt>'
    assert [(cue.start_s, cue.end_s) for cue in parse_subtitles(ttml)] == [(start_s, start_s + 1)]


def test_xml_with_text_but_no_times_is_not_no_subtitles() -> None:
    with pytest.raises(InputError, match="text without times"):
        parse_subtitles("<tt><body><div><q>crack the eggs</q></div></body></tt>")


def test_lrc() -> None:
    lrc = "[ti:Pancakes]\n[ar:me]\n[00:01.00]crack the eggs\n[00:05.50]<00:05.50>whisk <00:06.00>them\n"
    assert [(cue.start_s, cue.text) for cue in parse_subtitles(lrc)] == [(1.0, "crack the eggs"), (5.5, "whisk them")]


@pytest.mark.parametrize("text", ["{25}{100}crack the eggs\n", "[Script Info]\nTitle: x\n"])
def test_what_only_begins_like_json_is_not_called_broken_json(text: str) -> None:
    with pytest.raises(InputError, match="expected WEBVTT"):
        parse_subtitles(text)


@pytest.mark.parametrize(
    ("said", "english"),
    [
        ("so now we crack the eggs into this bowl and then you want to whisk them until it is all even", True),
        (
            "nun schlagen wir die Eier in eine Schüssel und rühren alles um bis der Teig ganz schön glatt und fein ist",
            False,
        ),
        ("теперь мы разбиваем яйца в миску и хорошо взбиваем их венчиком до однородной массы", False),
        ("卵をボウルに割り入れて泡立て器でよく混ぜます そして小麦粉と牛乳を加えます", False),
        ("crack the eggs", None),
    ],
)
def test_whether_it_is_english(said: str, english: bool | None) -> None:
    assert is_english([Cue(0.0, 9.0, said)]) is english


def test_cues_of_many_words_and_lines_take_time_in_proportion():
    """Two cues that touch, each of 100,000 words or lines: what they share is looked for in what a screen holds."""
    for gap in (" ", "\n"):
        taken = []
        for words in (25_000, 100_000):
            text = gap.join(["whisk"] * words)
            cues = "".join(f"{i}\n00:00:0{i},000 --> 00:00:0{i + 1},000\nno {i}{gap}{text}\n\n" for i in range(3))
            began = time.process_time()
            assert len(parse_subtitles(cues)) == 3
            taken.append(time.process_time() - began)
        assert taken[1] < 10 * taken[0]  # four times the words; sixteen if every pair were compared
    tabs = "\t" * 100_000
    began = time.process_time()
    for line in (
        f"0:01{tabs}00 --> 0:02",
        f"0{tabs}: 1 --> 0:02",
        f"0:01 --> 0{tabs}:02",
        f"0:01{tabs}0:02{tabs}whisk",
    ):
        with contextlib.suppress(InputError):
            parse_subtitles(f"0:00\nwhisk\n{line}\nwhisk\n", "a.vtt" if "-->" in line else "a.txt")
    assert time.process_time() - began < 5.0
