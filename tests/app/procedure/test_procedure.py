"""Planted procedures: the common steps, how often they occur and their order come out; controls do not."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import Planted, found_labels, pair_f1, plant

from stepformer.app.naming import PhraseBank
from stepformer.app.procedure.clustering import cheapest_path, cluster_steps
from stepformer.app.procedure.finding import (
    best_order,
    consistency,
    find_procedure,
    group_likeness,
    least_likeness,
    likeness,
    precedence,
    transitions,
)
from stepformer.app.procedure.records import VideoSteps
from stepformer.cli.procedure import as_text
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.kmeans import kmeans
from stepformer.show.flow import mermaid, save_flow
from stepformer.timeline import Step, Timeline


def kinds_of(procedure, planted):
    """The true step that each common step mostly stands for."""
    found, truth = np.concatenate(found_labels(procedure, planted)), np.concatenate(planted.truth)
    return [int(np.bincount(truth[(found == c) & (truth >= 0)]).argmax()) for c in range(len(procedure.steps))]


def relabelled(video, name):
    steps = tuple(Step(s.start_s, s.end_s, name(i)) for i, s in enumerate(video.timeline))
    return VideoSteps(Timeline(video.timeline.video, video.timeline.duration_s, steps), video.vectors)


@pytest.mark.parametrize("seed", range(4))
def test_planted_steps_come_out_in_number_frequency_and_order(seed):
    planted = plant(steps=6, videos=14, seed=seed)
    procedure = find_procedure(planted.videos)
    assert len(procedure.steps) == 6
    assert pair_f1(found_labels(procedure, planted), planted.truth) > 0.9
    assert kinds_of(procedure, planted) == [0, 1, 2, 3, 4, 5]
    for number, step in enumerate(procedure.steps):
        true = sum(number in path for path in planted.truth)
        assert abs(step.videos - true) <= 1
        assert step.times >= step.videos
        assert step.share == step.videos / 14
    assert procedure.consistency > 0.85


@pytest.mark.parametrize("noise", [0.5, 1.0])
def test_better_than_kmeans_random_and_place_controls(noise):
    score = dict.fromkeys(("ours", "kmeans", "random", "place"), 0.0)
    for seed in range(5):
        planted = plant(steps=7, videos=10, noise=noise, seed=seed)
        points = np.concatenate([v.vectors for v in planted.videos])
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
        cuts = np.cumsum([len(p) for p in planted.truth])[:-1]
        places = np.concatenate([v.places for v in planted.videos])
        rng = np.random.default_rng(seed)
        answers = {
            "ours": list(
                cluster_steps([v.vectors for v in planted.videos], [v.places for v in planted.videos], 7).labels
            ),
            "kmeans": np.split(kmeans(points, 7, seed=seed).labels, cuts),
            "random": np.split(rng.integers(7, size=len(points)), cuts),
            "place": np.split(np.minimum((places * 7).astype(int), 6), cuts),
        }
        for name, labels in answers.items():
            score[name] += pair_f1(labels, planted.truth) / 5
    assert score["ours"] > score["kmeans"] + 0.02
    assert score["ours"] > score["place"] + 0.2
    assert score["random"] < 0.3


def test_a_step_only_one_video_has_is_not_common():
    planted = plant(steps=5, videos=8, missing=0, swap=0, split=0, extra=0, noise=0.3)
    odd = planted.videos[0]
    rng = np.random.default_rng(5)
    alien = rng.standard_normal(odd.vectors.shape[1]) * 1.5
    steps = (*odd.timeline.steps, Step(odd.timeline.duration_s, odd.timeline.duration_s + 9))
    planted.videos[0] = VideoSteps(
        Timeline("odd", odd.timeline.duration_s + 10, steps), np.vstack((odd.vectors, alien))
    )
    procedure = find_procedure(planted.videos, 6)
    assert procedure.timelines[0].steps[-1].meta["common"] is None
    assert all(step.videos == 8 for step in procedure.steps)


def test_repeats_are_counted_and_halves_of_one_step_joined():
    planted = plant(steps=4, videos=6, missing=0, swap=0, split=1.0, extra=0, noise=0.3)
    procedure = find_procedure(planted.videos)
    assert [len(timeline) for timeline in procedure.timelines] == [4] * 6
    assert [step.times for step in procedure.steps] == [6] * 4
    for video, told in zip(planted.videos, procedure.timelines, strict=True):
        assert told.steps[0].start_s == video.timeline.steps[0].start_s
        assert told.steps[0].end_s == video.timeline.steps[1].end_s


def test_order_statistics_of_hand_made_paths():
    paths = [np.array([0, 1, 2]), np.array([1, 0, 2]), np.array([0, -1, 0, 2]), np.array([], int)]
    first, both = precedence(paths, 3)
    assert first.tolist() == [[0, 1, 3], [1, 0, 2], [0, 0, 0]]
    assert both.tolist() == [[3, 2, 3], [2, 2, 2], [3, 2, 3]]
    assert consistency(first) == 6 / 7
    follows = transitions(paths, 3)
    assert follows[0].tolist() == [2, 1, 0, 1]  # starts: two at 0, one at 1, one empty video
    assert follows[1].tolist() == [0, 1, 2, 0]
    assert follows[3].tolist() == [0, 0, 0, 3]


@given(st.integers(2, 5), st.integers(0, 10_000))
def test_the_order_found_is_as_good_as_the_best_of_all(count, seed):
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 6, (count, count))
    np.fill_diagonal(first, 0)

    def agreed(order):
        return sum(first[a, b] for a, b in itertools.combinations(order, 2))

    found = best_order(first, rng.random(count))
    assert sorted(found.tolist()) == list(range(count))
    best = max(agreed(order) for order in itertools.permutations(range(count)))
    assert agreed(found) == best
    # one step moved elsewhere never agrees with more
    for at in range(count):
        rest = [x for i, x in enumerate(found) if i != at]
        for to in range(count):
            assert agreed([*rest[:to], found[at], *rest[to:]]) <= agreed(found)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(0, 10_000))
def test_cheapest_path_is_the_cheapest_of_all(n, count, seed):
    rng = np.random.default_rng(seed)
    distance = rng.random((n, count)) * 2
    change, back, out = rng.random(3)

    def cost(path):
        total, last = 0.0, None
        for t, c in enumerate(path):
            if c < 0:
                total += out
                continue
            if last is not None and c != last:
                total += change + (back if c < last else 0)
            total += distance[t, c]
            last = c
        return total

    path, total = cheapest_path(distance, change, back, out)
    best = min(cost(p) for p in itertools.product(range(-1, count), repeat=n))
    assert total == pytest.approx(best)
    assert cost(path) == pytest.approx(best)


def test_names_are_elected_guessed_and_never_twice():
    planted = plant(steps=3, videos=6, missing=0, swap=0, split=0, extra=0, noise=0.2, labels=True)
    procedure = find_procedure(planted.videos, 3)
    assert [step.name for step in procedure.steps] == ["step 0", "step 1", "step 2"]
    assert not any(step.guess for step in procedure.steps)
    bare = [relabelled(v, lambda i: None) for v in planted.videos]
    numbered = find_procedure(bare, 3)  # nobody names anything: that is no guess
    assert [(step.name, step.guess) for step in numbered.steps] == [(f"step {i}", False) for i in (1, 2, 3)]
    assert {step.label for timeline in numbered.timelines for step in timeline} == {None}
    middle = np.stack([np.mean([v.vectors[k] for v in planted.videos], 0) for k in range(3)])
    others = np.random.default_rng(0).standard_normal((200, 48)) / 7  # about as long as the steps
    bank = PhraseBank(
        ("first", "second", "third", *(f"other {i}" for i in range(200))),
        np.vstack((middle, others)).astype(np.float32),
    )
    named = find_procedure(bare, 3, bank=bank)
    assert [step.name for step in named.steps] == ["first", "second", "third"]
    assert all(step.guess for step in named.steps)
    narrow = PhraseBank(
        ("a", "b", "c"), np.tile(middle[:1], (3, 1)).astype(np.float32) + np.eye(3, 48, dtype=np.float32)
    )
    assert len({step.name for step in find_procedure(bare, 3, bank=narrow).steps}) == 3


def test_bad_input_is_told():
    planted = plant(videos=3)
    with pytest.raises(InputError, match="several videos"):
        find_procedure(planted.videos[:1])
    empty = VideoSteps(Timeline("a", 5), np.zeros((0, 48)))
    with pytest.raises(InputError, match="fewer than two"):
        find_procedure([planted.videos[0], empty, empty])
    with pytest.raises(InputError, match="one row for each"):
        VideoSteps(planted.videos[0].timeline, np.zeros((1, 4)))
    with pytest.raises(UsageError):
        find_procedure(planted.videos, 0)


def test_a_video_without_steps_stays_in_the_count():
    planted = plant(steps=4, videos=6, missing=0, swap=0, split=0, extra=0)
    empty = VideoSteps(Timeline("empty", 5), np.zeros((0, 48)))
    procedure = find_procedure([*planted.videos, empty])
    assert procedure.steps[0].share == pytest.approx(6 / 7)
    assert len(procedure.timelines[-1]) == 0


def test_same_seed_same_procedure():
    planted = plant(seed=3, noise=0.9)
    a, b = find_procedure(planted.videos), find_procedure(planted.videos)
    assert json.dumps(a.to_dict()) == json.dumps(b.to_dict())


def test_mermaid_is_well_formed_and_names_are_escaped():
    planted = plant(steps=3, videos=5, missing=0, swap=0, split=0, extra=0, noise=0.2)
    videos = [relabelled(v, lambda i: f'say "{i}" <b> #1;') for v in planted.videos]
    text = mermaid(find_procedure(videos, 3))
    lines = text.splitlines()
    assert lines[0] == "flowchart TD"
    nodes = [line for line in lines if re.match(r"\s+s\d+\[", line)]
    assert len(nodes) == 3
    for line in nodes:
        inside = re.fullmatch(r'\s+s\d+\["(.*)"\]', line).group(1)
        assert '"' not in inside
        assert "<b>" not in inside
    assert re.search(r"start -->\|100%\| s1", text)
    assert re.search(r"s3 -->\|100%\| finish", text)


def test_the_picture_is_written(tmp_path):
    from PIL import Image

    planted: Planted = plant(steps=5, videos=8, missing=0.3, swap=0.3)
    save_flow(find_procedure(planted.videos), tmp_path / "flow.png", title="5 $ steps")
    with Image.open(tmp_path / "flow.png") as picture:
        assert picture.size[0] > 800
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 20
    assert [p.name for p in tmp_path.iterdir()] == ["flow.png"]


def test_videos_of_different_tasks_are_said_not_to_belong_together():
    rng = np.random.default_rng(0)
    task, others = rng.standard_normal((6, 48)), rng.standard_normal((3, 6, 48))
    timeline = Timeline("v", 60.0, (Step(0.0, 20.0), Step(20.0, 40.0), Step(40.0, 60.0)))

    def said(pictures):
        # steps that cluster well either way: only the whole videos tell
        videos = [
            VideoSteps(timeline, np.eye(3, 48) + 0.01 * rng.standard_normal((3, 48)), stretches=x) for x in pictures
        ]
        found = find_procedure(videos)
        return found.meta.get("doubt"), found.meta.get("notes"), as_text(found).splitlines()[0]

    assert said([task + 0.5 * rng.standard_normal(task.shape) for _ in range(3)])[:2] == (None, None)
    doubt, _, headline = said(others)
    assert "do not seem to show one task" in doubt
    assert "do not seem to show one task" in headline and "common steps" not in headline  # the first thing that is read
    alike = [task + 0.5 * rng.standard_normal(task.shape) for _ in range(5)]
    doubt, (note,), headline = said([*alike, others[0]])
    assert doubt is None and "v may not belong here" in note and "common steps" in headline


def test_what_is_said_tells_videos_of_one_task():
    rng = np.random.default_rng(0)
    bank = PhraseBank(("stir", "pour"), np.eye(2, 48, dtype=np.float32))
    talk, others = rng.standard_normal((8, 48)), rng.standard_normal((3, 8, 48))

    def alike(talks):
        timeline = Timeline("v", 60.0, ())
        return group_likeness(likeness([VideoSteps(timeline, np.zeros((0, 48)), said=x) for x in talks], bank))

    assert alike([talk + 0.2 * rng.standard_normal(talk.shape) for _ in range(3)]) > least_likeness(3) > alike(others)
    assert alike([talk[:2], others[0][:2]]) == 0.0  # two phrases say nothing of a video
