"""The page: well-formed, self-contained, harmless whatever the names are; and, in a real browser, it works."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from export_browser import Browser, find_browser
from export_timelines import NASTY, nasty, pancakes, timelines
from export_videos import make_video
from hypothesis import given, settings
from lxml import html

from stepformer import Step, Timeline
from stepformer.show import export
from stepformer.show.writing import step_names, within_video


def page_of(timeline: Timeline, **options):
    text = export.render(timeline, "html", export.Options(**options)).text
    return text, html.fromstring(text)


@settings(deadline=None, max_examples=40)
@given(timelines())
def test_names_and_times_are_data(timeline):
    _, page = page_of(timeline)
    cut, _ = within_video(timeline)
    data = json.loads(page.get_element_by_id("data").text)
    assert data["names"] == step_names(cut)
    assert data["steps"] == [[s.start_s, s.end_s] for s in cut]
    # no name has become markup: the elements are those the page has for any name
    assert len(page.xpath("//script")) == 2
    assert len(page.xpath("//li/button")) == len(cut)
    tags = {e.tag for e in page.iter() if isinstance(e.tag, str)}
    assert not tags & {"i", "iframe", "object", "embed", "link", "base"}


def test_shown_names():
    _, page = page_of(nasty())
    shown = ["".join(e.itertext()) for e in page.find_class("name")]
    assert shown == [n.replace("\x00", " ") for n in step_names(nasty())]
    assert len(shown) == len(NASTY)


def test_nothing_is_fetched():
    text, page = page_of(pancakes())
    addresses = page.xpath("//@src") + page.xpath("//link/@href")
    assert [a for a in addresses if not a.startswith("data:")] == ["pancakes.mp4"]
    assert "default-src 'none'" in page.xpath("//meta[@http-equiv]/@content")[0]
    assert not re.search(r"url\(|@import|https?://", text)


def test_guess_marks():
    _, page = page_of(pancakes())
    assert [e.text for e in page.find_class("guess")] == ["guess 0.41"]


@pytest.mark.parametrize(("source", "why"), [("spoken", "was said"), ("seen", "was not said"), (None, "is not sure")])
def test_why_a_name_is_a_guess(source, why):
    meta = {"guess": True} | ({"source": source} if source else {})
    _, page = page_of(Timeline("talk.mp4", 9.0, (Step(0.0, 9.0, "whisk", meta=meta),)))
    assert why in page.find_class("guess")[0].get("title")


def test_missing_video_is_noted():
    rendered = export.render(pancakes(), "html")
    assert any("was not found" in note for note in rendered.notes)


def test_empty_timeline():
    _, page = page_of(Timeline("v.mp4", 0))
    assert "No steps were found" in page.find_class("none")[0].text


def test_relative_address_and_thumbnails(tmp_path):
    (tmp_path / "videos").mkdir()
    video = make_video(tmp_path / "videos" / "how to #1.mp4", 6, sound=False)
    timeline = Timeline(str(video), 6, (Step(0, 2, "a"), Step(3, 5, "b"), Step(5.5, 9, "c")))
    written = export.write(timeline, tmp_path / "pages" / "page.html")
    page = html.fromstring((tmp_path / "pages" / "page.html").read_text())
    assert page.get_element_by_id("video").get("src") == "../videos/how%20to%20%231.mp4"
    assert sum(src.startswith("data:image/jpeg") for src in page.xpath("//li//img/@src")) == 3
    assert any("cut there" in note for note in written.notes)
    export.write(timeline, tmp_path / "one.html", embed=True)
    whole = html.fromstring((tmp_path / "one.html").read_text(), parser=html.HTMLParser(huge_tree=True))
    assert whole.get_element_by_id("video").get("src").startswith("data:video/mp4;base64,")


@pytest.mark.slow
def test_in_a_browser(tmp_path):
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    video = make_video(tmp_path / "pan cakes.mp4", 90, rate=10, gop=10)
    timeline = dataclasses.replace(pancakes(), video=str(video))
    export.write(timeline, tmp_path / "page.html")
    with Browser(binary) as browser:
        browser.open((tmp_path / "page.html").as_uri())
        browser.wait("video.readyState > 0")
        assert browser.run("document.getElementById('missing').hidden")

        # a click on a step seeks and plays
        browser.click("li:nth-child(2) .step")
        browser.wait("Math.abs(video.currentTime - 15) < 5 && !video.paused")
        browser.wait("document.querySelector('.step.on .name').textContent === 'whisk'")
        assert browser.run("document.querySelectorAll('[aria-current]').length") == 1
        browser.wait("parseFloat(document.getElementById('head').style.left) > 16.5")
        browser.run("video.pause()")

        # a click on the bar seeks
        browser.click("#strip", at_x=0.5)
        browser.wait("Math.abs(video.currentTime - 45) < 0.5")
        assert browser.run("document.querySelector('.step.on .name').textContent") == "Step 3"
        assert browser.run("document.getElementById('strip').getAttribute('aria-valuetext')") == "0:45, Step 3"

        browser.click("#strip", at_x=0.05)
        browser.wait("Math.abs(video.currentTime - 4.5) < 0.5")

        # by keyboard: to the list, to a step, next step, five seconds, play and pause
        browser.key("ArrowDown")
        assert browser.run("document.activeElement.className").startswith("step")
        browser.key("ArrowDown")
        browser.key("Enter")
        browser.wait("document.querySelector('.step.on .name').textContent === 'whisk'")
        browser.run("video.pause(); document.activeElement.blur()")
        browser.key("j")
        browser.wait("Math.abs(video.currentTime - 40) < 1")
        browser.run("video.pause()")
        browser.wait("video.paused")
        before = browser.run("video.currentTime")
        browser.key("ArrowRight")
        browser.wait(f"Math.abs(video.currentTime - {before + 5}) < 0.01")
        browser.key(" ")
        browser.wait("!video.paused")
        browser.key(" ")
        browser.wait("video.paused")

        # repeating a step goes back to its start
        browser.key("4")
        browser.key("l")
        browser.wait("document.getElementById('loop').getAttribute('aria-pressed') === 'true'")
        browser.run("video.currentTime = 69.5; video.play()")
        browser.wait("video.currentTime > 54.9 && video.currentTime < 60")
        browser.run("video.pause()")

        # light and dark
        ground = "getComputedStyle(document.body).backgroundColor"
        light = browser.run(ground)
        browser.click("#theme")
        assert browser.run(ground) != light

        shot = tmp_path / "page.png"
        browser.screenshot(shot)
        if folder := os.environ.get("STEPFORMER_SCREENSHOTS"):
            (Path(folder) / "page.png").write_bytes(shot.read_bytes())
        requests = [
            e["params"]["request"]["url"] for e in browser.events if e.get("method") == "Network.requestWillBeSent"
        ]
        assert requests and all(url.startswith(("file:", "data:", "about:")) for url in requests)
        failures = [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]
        assert not failures
        blocked = [e for e in browser.events if e.get("method") == "Log.entryAdded" and "Policy" in str(e)]
        assert not blocked


@pytest.mark.slow
def test_view_in_a_browser(tmp_path):
    """`stepformer view` as it is started by people: page and video over HTTP, a click on a step seeks there."""
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    video = make_video(tmp_path / "pan cakes.mp4", 90, rate=10, gop=10)
    export.write(dataclasses.replace(pancakes(), video=str(video)), tmp_path / "pan cakes.json")
    command = [sys.executable, "-m", "stepformer", "view", "pan cakes.json", "--no-browser", "--json"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        try:
            url = json.loads(b"".join(iter(server.stdout.readline, b"}\n")) + b"}")["url"]
            with Browser(binary, width=700, height=900) as browser:
                browser.open(url)
                browser.wait("video.readyState > 0")
                browser.wait("Math.abs(video.duration - 90) < 1")
                # far into the video first: a server without ranges would have to play up to there
                browser.click("li:nth-child(4) .step")
                browser.wait("Math.abs(video.currentTime - 55) < 5 && !video.paused")
                browser.run("video.pause()")
                browser.click("li:nth-child(2) .step")
                browser.wait("Math.abs(video.currentTime - 15) < 5")
                browser.wait("document.querySelector('.step.on .name').textContent === 'whisk'")
                assert browser.run("document.querySelectorAll('.step.on').length") == 1
                # nothing sticks out sideways on a narrow window
                assert browser.run("document.documentElement.scrollWidth <= innerWidth")
                browser.run("video.pause(); scrollTo(0, 0)")
                if folder := os.environ.get("STEPFORMER_SCREENSHOTS"):
                    browser.screenshot(Path(folder) / "view.png")
                requests = [
                    e["params"]["request"]["url"]
                    for e in browser.events
                    if e.get("method") == "Network.requestWillBeSent"
                ]
                assert requests and all(u.startswith((url, "data:", "about:")) for u in requests)
                assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]
        finally:
            server.terminate()


@pytest.mark.slow
def test_without_the_video_in_a_browser(tmp_path):
    binary = find_browser()
    if binary is None:
        pytest.skip("no Chromium on this machine (apt-get install chromium)")
    export.write(nasty(), tmp_path / "page.html")
    with Browser(binary) as browser:
        browser.open((tmp_path / "page.html").as_uri())
        browser.wait("!document.getElementById('missing').hidden")
        browser.click("li:nth-child(7) .step")
        browser.wait("document.querySelector('.step.on .name').textContent.startsWith('<b>bold</b>')")
        assert browser.run("document.querySelectorAll('.name b, .name i').length") == 0
        browser.run(
            "(f => { f.value = 'pancake'; f.dispatchEvent(new Event('input')); })(document.getElementById('find'))"
        )
        assert browser.run("[...document.querySelectorAll('li')].filter(e => !e.hidden).length") == 1
        assert not [e for e in browser.events if e.get("method") == "Runtime.exceptionThrown"]
