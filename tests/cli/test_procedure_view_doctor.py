"""The commands procedure, view and doctor."""

from __future__ import annotations

import json
import os
import sys
import threading
import urllib.request
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
import pytest

from stepformer.cli import doctor, main
from stepformer.errors import InputError, StepFormerError
from stepformer.show.viewer import Page, address, byte_range, make_page, serve
from stepformer.timeline import Step, Timeline

sys.path.insert(0, str(Path(__file__).parents[1] / "app" / "discover"))
from discover_parts import tiny_model, write_video

COLOURS = [(250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 10), (10, 240, 240)]


# -- procedure ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    for i in range(4):
        colours = [c for j, c in enumerate(COLOURS) if not (i == 3 and j == 2)]
        write_video(folder / f"take{i}.mp4", colours, seconds_each=5 + i)
    return folder


@pytest.fixture
def model(monkeypatch):
    made = tiny_model()
    monkeypatch.setattr("stepformer.load_model", lambda *a, **k: made, raising=False)
    return made


def test_procedure_of_videos(videos, model, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["procedure", str(videos), "--out", str(out), "--json", "--quiet", "--title", "Colours"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["videos"] == 4
    assert 2 <= len(result["steps"]) <= 8
    assert result["order"]["consistency"] > 0.8
    assert len({step["name"] for step in result["steps"]}) == len(result["steps"])
    assert (out / "flow.mmd").read_text().startswith("flowchart TD")
    assert (out / "flow.png").stat().st_size > 5000
    assert len(list((out / "timelines").glob("*.json"))) == 4
    told = Timeline.from_json((out / "timelines" / "take0.steps.json").read_text())
    assert all("common" in step.meta for step in told)
    assert json.loads((out / "procedure.json").read_text())["steps"] == result["steps"]


def test_procedure_as_text_and_mermaid(videos, model, capsys):
    command = ["procedure", *(str(p) for p in sorted(videos.glob("*.mp4"))), "--quiet", "--steps", "5"]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "of 4 videos" in out
    assert "take3.mp4:" in out
    assert main([*command, "--mermaid", "--no-labels"]) == 0
    assert "flowchart TD" in capsys.readouterr().out
    assert main([*command, "--dry-run"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_plain_features_give_a_procedure_without_names(model, tmp_path, capsys):
    """Their encoder is unknown, so the model's text side says nothing of them, as in discover."""
    width = model.checkpoint.model.config.feature_dim
    for i in range(3):
        np.save(tmp_path / f"take{i}.npy", np.repeat(np.eye(4, width, dtype=np.float32), 10 + i, axis=0))
    assert main(["procedure", str(tmp_path), "--json", "--quiet"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert steps and [step["name"] for step in steps] == [f"step {i + 1}" for i in range(len(steps))]
    assert not any(step["guess"] for step in steps)


def test_procedure_bad_input(videos, model, tmp_path, capsys):
    one = str(videos / "take0.mp4")
    assert main(["procedure", one]) == 3
    assert "at least two" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["procedure", str(tmp_path / "empty")]) == 3
    assert "holds no video" in capsys.readouterr().err
    assert main(["procedure", one, str(tmp_path / "nowhere.mp4")]) == 3
    assert main(["procedure", one, one, "--steps", "0"]) == 2
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"not a video")
    names = [str(p) for p in sorted(videos.glob("*.mp4"))]
    assert main(["procedure", *names, str(broken), "--quiet"]) == 3
    capsys.readouterr()
    assert main(["procedure", *names, str(broken), "--quiet", "--keep-going"]) == 5
    assert "broken.mp4" in capsys.readouterr().err


# -- view ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None), ("bytes=0-9", (0, 10)), ("bytes=5-", (5, 100)), ("bytes=-7", (93, 100)),
        ("bytes=0-999", (0, 100)), ("bytes=-999", (0, 100)), ("bytes=9-3", None), ("items=0-3", None),
        ("bytes=0-1,4-5", None), ("bytes=-", None),
    ],
)  # fmt: skip
def test_ranges(header, expected):
    assert byte_range(header, 100) == expected


@pytest.mark.parametrize("header", ["bytes=100-", "bytes=200-300", "bytes=-0"])
def test_ranges_outside_the_file(header):
    with pytest.raises(ValueError, match="bytes"):
        byte_range(header, 100)


@pytest.fixture
def served(tmp_path):
    video = write_video(tmp_path / "my video #1.mp4", COLOURS[:2])
    timeline = Timeline(str(video), 8.0, (Step(0, 4, "red"), Step(4, 8, "green")))
    server = serve(make_page(timeline))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server, video
    server.shutdown()
    server.server_close()
    thread.join(5)


def test_the_page_names_the_video_and_the_server_gives_ranges_of_it(served):
    server, video = served
    data = video.read_bytes()
    page = urllib.request.urlopen(address(server)).read().decode()
    assert "red" in page
    assert 'src="my%20video%20%231.mp4"' in page
    assert address(server).startswith("http://127.0.0.1:")
    url = address(server) + "my%20video%20%231.mp4"
    whole = urllib.request.urlopen(url)
    assert whole.read() == data
    assert whole.headers["Accept-Ranges"] == "bytes"
    part = urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=100-299"}))
    assert (part.status, part.headers["Content-Range"]) == (206, f"bytes 100-299/{len(data)}")
    assert part.read() == data[100:300]
    tail = urllib.request.urlopen(urllib.request.Request(url, headers={"Range": "bytes=-50"}))
    assert tail.read() == data[-50:]


def test_the_server_gives_nothing_else_and_to_no_other_name(served):
    server, _ = served
    connection = HTTPConnection("127.0.0.1", server.server_address[1])
    for path in ("/../etc/passwd", "/etc/passwd", "/%2e%2e/x", "/other.mp4"):
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 404
    connection.request("GET", "/", headers={"Host": "evil.example"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 403
    connection.request("GET", "/my%20video%20%231.mp4", headers={"Range": "bytes=99999999-"})
    answer = connection.getresponse()
    answer.read()
    assert answer.status == 416
    connection.request("HEAD", "/my%20video%20%231.mp4")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")


def test_a_port_in_use_is_told(served):
    server, _ = served
    with pytest.raises(StepFormerError, match="--port"):
        serve(make_page(Timeline("x", 1.0)), server.server_address[1])


def test_view_finds_timeline_and_video_beside_each_other(tmp_path, model):
    from stepformer.cli.view import open_timeline

    video = write_video(tmp_path / "a.mp4", COLOURS[:3])
    found, shown = open_timeline(str(video))
    assert len(found) >= 1
    assert shown == str(video)
    (tmp_path / "a.json").write_text(Timeline("elsewhere/a.mp4", 12.0, (Step(0, 12, "all"),)).to_json())
    found, shown = open_timeline(str(tmp_path / "a.json"))
    assert (found[0].label, shown) == ("all", str(video))
    assert open_timeline(str(video))[0][0].label == "all"
    with pytest.raises(InputError, match="no file"):
        open_timeline(str(tmp_path / "none.json"))
    assert main(["view", str(tmp_path / "none.json")]) == 3


# -- doctor -------------------------------------------------------------------------------------------------------


def test_doctor_says_how_to_fix_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path))
    assert main(["doctor", "--quick", "--json", "--model", "nobody"]) == 4
    result = json.loads(capsys.readouterr().out)
    failing = {check["name"]: check for check in result["checks"] if check["state"] == "fail"}
    assert set(failing) == {"model", *(f"weights {name}" for name in doctor.NEEDED)}
    assert "stepformer models pull minilm" in failing["weights minilm"]["fix"]
    assert all(check["fix"] for check in failing.values())
    assert main(["doctor", "--quick", "--model", "nobody"]) == 4
    assert "FAIL" in capsys.readouterr().out


def test_doctor_names_the_folder_of_the_package():
    import stepformer

    assert next(doctor.examine(quick=True)).found.endswith(f", {Path(stepformer.__file__).parent}")


def test_a_check_that_breaks_is_a_line_and_not_the_end(monkeypatch):
    def broken():
        raise RuntimeError("no such symbol")

    monkeypatch.setattr(doctor, "_torch", broken)
    checks = {check.name: check for check in doctor.examine(quick=True)}
    assert checks["torch"].state == "fail"
    assert "no such symbol" in checks["torch"].found
    assert "disk" in checks


def test_little_disk_is_told(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("U", (), {"free": 10**8})())
    checks = {check.name: check for check in doctor.examine(quick=True)}
    assert checks["disk"].state == "fail" and "2 GB" in checks["disk"].fix


def test_end_to_end_with_a_model(model, monkeypatch):
    monkeypatch.setattr("stepformer.base.weights.find", lambda name: Path())
    assert "6 s video" in doctor._end_to_end("default")


def test_unreadable_array_is_no_timeline(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert main(["view", str(tmp_path / "x.npy")]) in (2, 3)


def test_how_many_steps_a_procedure_has_is_not_said_of_one_video(capsys):
    assert main(["procedure", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "best separates the steps" in shown and "follows from the video" not in shown


@pytest.mark.parametrize(
    ("end_s", "shown"),
    [(5.6, "0:02 – 0:06"), (2.2, "0:01.6 – 0:02.2")],  # none seems to end when it begins
)
def test_search_rounds_times_as_a_drawn_timeline_does(end_s, shown):
    from stepformer.cli import search
    from stepformer.show.terminal import draw

    hit = {"start_s": 1.6, "end_s": end_s, "label": "stir", "video": "a", "score": 3.0}
    assert f"  {shown}  stir" in search._text({"folder": "f", "query": "stir", "here": True, "hits": [hit]})
    assert f"  {shown}  stir" in draw(Timeline("a", 9.0, (Step(1.6, end_s, "stir"),)), unicode=True)


# -- a stranger's timeline ----------------------------------------------------------------------------------------


def test_a_timeline_cannot_name_a_file_outside_its_folder(tmp_path, monkeypatch):
    from stepformer.cli.inputs import video_of

    outside = tmp_path / "private.mp4"
    outside.write_bytes(b"secret")
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "notes.txt").write_text("not a video")
    (folder / "link.mp4").symlink_to(outside)
    monkeypatch.chdir(folder)
    for name in (str(outside), "../private.mp4", "/etc/passwd", "notes.txt", "link.mp4", "http://host/a.mp4", "\0", ""):
        timeline, video = video_of(Timeline(name, 3.0), str(folder / "a.json"))
        assert video is None, name
        assert "/" not in timeline.video
    assert video_of(Timeline("x.mp4", 3.0), str(folder / "a.json"), str(outside))[1] == str(outside)


def test_a_page_does_not_call_home_for_a_strangers_timeline():
    from stepformer.show import export

    timeline = Timeline("https://host.example/a.mp4", 3.0, (Step(0, 3, "all"),))
    assert "host.example" not in export.render(timeline, "html").text.split("</video>")[0].split("<video")[1]
    asked = export.render(timeline, "html", export.Options(video="https://host.example/a.mp4")).text
    assert 'src="https://host.example/a.mp4"' in asked


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1e15", "duration_s"),
        ("-1", "duration_s"),
        ("NaN", "NaN is not a number"),
        ("1" + "0" * 400, "is too large a number"),
        ('"x"', "duration_s"),
    ],
)
def test_a_timeline_of_impossible_length_is_one_sentence(tmp_path, capsys, value, said):
    (tmp_path / "t.json").write_text('{"video": "a", "steps": [], "duration_s": ' + value + "}")
    assert main(["export", str(tmp_path / "t.json")]) == 3
    assert said in capsys.readouterr().err


def test_a_subtitle_of_forty_bytes_makes_no_large_page(tmp_path):
    """The longest time that is believed: ticks and bars of the page do not grow with it."""
    (tmp_path / "t.srt").write_text("1\n0:00:00,0 --> 719:59:00,0\nx\n")
    assert main(["export", str(tmp_path / "t.srt"), str(tmp_path / "p.html"), "-q"]) == 0
    assert (tmp_path / "p.html").stat().st_size < 100_000
    (tmp_path / "t.srt").write_text("1\n0:00:00,0 --> 9999:59:00,0\nx\n")
    assert main(["export", str(tmp_path / "t.srt"), str(tmp_path / "p.html"), "-q", "--overwrite"]) == 3


@contextmanager
def _served(video):
    server = serve(Page(b"page", video))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address
    finally:
        server.shutdown()
        server.server_close()


def test_the_viewer_holds_500_clients_at_once(tmp_path):
    """All of them connected before the first asks; each asks for two ranges on its connection."""
    import resource
    import socket

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))  # both ends are in this process
    video = tmp_path / "a.mp4"
    content = bytes(range(256)) * 4000
    video.write_bytes(content)
    with _served(video) as place, ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(place, timeout=60)) for _ in range(500)]
        for second in (0, 1):
            for i, client in enumerate(clients):
                at = (i + 500 * second) * 100
                client.sendall(f"GET /a.mp4 HTTP/1.1\r\nRange: bytes={at}-{at + 999}\r\n\r\n".encode())
            for i, client in enumerate(clients):
                at = (i + 500 * second) * 100
                answer = client.makefile("rb")
                assert answer.readline().startswith(b"HTTP/1.1 206")
                while answer.readline() != b"\r\n":
                    pass
                assert answer.read(1000) == content[at : at + 1000]


@pytest.mark.parametrize("asks", ["nothing", "half a request", "a byte now and then", "everything and reads nothing"])
def test_slow_clients_are_dropped(tmp_path, monkeypatch, asks):
    import socket
    import time

    from stepformer.show import viewer

    monkeypatch.setattr(viewer._Handler, "timeout", 0.5)
    video = tmp_path / "a.mp4"
    video.write_bytes(bytes(64 << 20))  # more than the buffers of a connection hold
    with _served(video) as place, socket.create_connection(place, timeout=60) as client:
        words = {"nothing": b"", "half a request": b"GET /a.mp4 HT"}.get(asks, b"GET /a.mp4 HTTP/1.1\r\n\r\n")
        got, began = 0, time.monotonic()
        try:
            if asks == "a byte now and then":
                words = b"GET /a.mp4 HTTP/1.1\r\n" + b"X: y\r\n" * 100
                while time.monotonic() < began + 20:
                    client.sendall(words[:1])
                    words = words[1:]
                    time.sleep(0.1)  # always within the time that one wait may take
                raise AssertionError("it kept a thread for 20 s")
            client.sendall(words)
            time.sleep(2.0 if words.endswith(b"\r\n\r\n") else 0.0)
            while part := client.recv(1 << 20):
                got += len(part)
        except (ConnectionResetError, BrokenPipeError):
            pass
        assert got < 64 << 20  # the server has closed: nothing waits for the rest
        with socket.create_connection(place, timeout=60) as other:  # and others are served
            other.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert b"page" in other.makefile("rb").read()


def crash(*_):
    os.abort()


def test_what_decodes_a_strangers_video_cannot_take_the_command_with_it(tmp_path):
    from stepformer.cli.inputs import with_video

    assert with_video(max, 1, 2, video=None, apart=True) == with_video(max, 1, 2, video="a.mp4", apart=True) == 2
    with pytest.raises(InputError, match=r"a\.mp4 is damaged: the library that reads it crashed"):
        with_video(crash, video="a.mp4", apart=True)


@pytest.mark.parametrize("named", ["/etc/passwd", "/proc/self/environ", "/proc/kmsg", "/dev/zero"])
def test_a_strangers_timeline_shows_no_private_file(tmp_path, monkeypatch, named):
    """Neither the command nor the Python functions serve it or put it into a page."""
    from stepformer.show import export

    timeline = Timeline(named, 3.0, (Step(0, 3, "all"),))
    (tmp_path / "t.json").write_text(timeline.to_json())
    monkeypatch.chdir("/")  # even where the file lies below the working folder
    assert main(["export", str(tmp_path / "t.json"), str(tmp_path / "p.html"), "--embed", "-q"]) == 0
    page = make_page(timeline)
    assert page.video is None
    for text in (
        (tmp_path / "p.html").read_text(),
        page.html.decode(),
        export.render(timeline, "html", export.Options(embed=True)).text,
    ):
        assert "base64" not in text and "data:" not in text.split("<video")[1].split(">")[0]


def test_a_video_cut_short_while_it_is_served_leaves_nobody_waiting(tmp_path):
    import socket

    video = tmp_path / "a.mp4"
    video.write_bytes(bytes(32 << 20))  # more than the buffers of a connection hold
    with _served(video) as place, socket.create_connection(place, timeout=20) as client:
        client.sendall(b"GET /a.mp4 HTTP/1.1\r\n\r\n")
        got = len(client.recv(1000))
        os.truncate(video, 1000)
        while part := client.recv(1 << 20):  # ends by the server's closing, not by the time-out of 20 s
            got += len(part)
        assert got < 32 << 20


def test_a_reset_connection_says_nothing(tmp_path, capfd):
    import socket
    import struct

    video = tmp_path / "a.mp4"
    video.write_bytes(bytes(32 << 20))
    with _served(video) as place:
        for words in (b"", b"GET /a.mp4 HT", b"GET /a.mp4 HTTP/1.1\r\n\r\n", b"\x16\x03\x01\0\r\n\r\n"):
            client = socket.create_connection(place, timeout=20)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # close() resets
            client.sendall(words)
            client.close()
        with socket.create_connection(place, timeout=20) as other:
            other.sendall(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
            assert b"page" in other.makefile("rb").read()
    assert capfd.readouterr() == ("", "")
