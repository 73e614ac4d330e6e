"""Timelines the tests of this room share: hand-made ones, and any that Hypothesis can think of."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st

from stepformer import Step, Timeline
from stepformer.show.writing import spans, step_names

relaxed = settings(deadline=None, max_examples=60)

NASTY = [
    "crack the eggs",
    "line one\nline two\r\nline three",
    "a --> b",
    "00:00:01,000 --> 00:00:02,000",
    "salt = 1; pepper # two \\ three",
    "say \"hello\", 'world'",
    "<b>bold</b> & <i>it</i> &amp; &lt;",
    "]]> <!-- comment -->",
    "flip 🥞 the 👩‍🍳 pancake",
    "اقلب الفطيرة",
    "翻转煎饼",
    "=SUM(A1:A9)",
    "\ttab\tand nul \x00 and bell \x07",
    "NOTE not a note",
    "12",
    "line\u2028separator and \u0085 next line",
]


def nasty(duration_s: float = 400.0) -> Timeline:
    """Every awkward name once, twenty seconds each with a gap."""
    steps = tuple(Step(i * 24.0, i * 24.0 + 20.0, label, score=0.5, slot=i) for i, label in enumerate(NASTY))
    return Timeline("folder/how to.mp4", duration_s, steps, {"model": "default", "sha256": "ab--cd"})


def pancakes() -> Timeline:
    """A small ordinary timeline."""
    steps = (
        Step(2.0, 14.5, "crack the eggs", 0.81, 0),
        Step(15.0, 31.2, "whisk", 0.77, 1, {"guess": True, "name_score": 0.41}),
        Step(40.0, 55.0, None, 0.4, 3),
        Step(55.0, 70.0, "flip the pancake", 0.66, 4),
    )
    return Timeline("pancakes.mp4", 90.0, steps, {"model": "default"})


def timelines(max_s: float = 4000.0, text: st.SearchStrategy[str] | None = None) -> st.SearchStrategy[Timeline]:
    """Any timeline: overlaps, zero lengths, no steps, no names, steps past the end."""
    seconds = st.floats(0, max_s, allow_nan=False, allow_infinity=False)
    whole = st.integers(1 - 10**18, 10**18 - 1)  # what has more digits is read as a float
    label = st.none() | st.sampled_from(NASTY) | (st.text(max_size=30) if text is None else text)
    step = st.builds(
        lambda a, b, name, score, slot, guess: Step(min(a, b), max(a, b), name, score, slot, guess),
        seconds,
        seconds,
        label,
        st.none() | st.floats(-1, 1),
        st.none() | st.integers(0, 31),
        st.sampled_from([{}, {"guess": True}]),
    )
    return st.builds(
        lambda video, duration, steps, meta: Timeline(
            video, duration, tuple(sorted(steps, key=lambda s: s.start_s)), meta
        ),
        st.sampled_from(["a.mp4", "folder/ünï cödé -- x.mkv", "https://example.org/v?x=1&y=2", "", "-->"]),
        st.just(0.0) | seconds,
        st.lists(step, max_size=8),
        st.dictionaries(st.text(max_size=8), st.text(max_size=8) | whole | st.none(), max_size=3),
    )


def ms(timeline: Timeline) -> list[tuple[int, int, str]]:
    """The steps as a millisecond format must hold them."""
    return [(s.start, s.end, n) for s, n in zip(spans(timeline, 1000), step_names(timeline), strict=True)]


def read_ms(timeline: Timeline) -> list[tuple[int, int, str]]:
    """The steps of a file that was read back, in milliseconds."""
    names = step_names(timeline)
    return [(round(s.start_s * 1000), round(s.end_s * 1000), n) for s, n in zip(timeline, names, strict=True)]
