"""The one rule of choosing, and what every row is scored by."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from stepformer.core.model import Slots
from stepformer.errors import InputError, UsageError
from stepformer.evaluation.table1 import TaskInput, score_table1
from stepformer.evaluation.validation import QUICK, discover_units, locate_units, summary
from stepformer.reproduce.methods import (
    BUDGET,
    Answer,
    Method,
    Stage,
    answer,
    choose,
    first_options,
    grids,
    slot_answer,
    units_of,
)
from stepformer.reproduce.plan import TABLES
from stepformer.reproduce.sources import Simulated


@pytest.fixture(scope="module")
def source(tiny_world, tmp_path_factory):
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("world") / "w.safetensors"
    tiny_world.save(path)
    return Simulated(path)


@pytest.fixture(scope="module")
def stage(source):
    return Stage(source.trial("dev", 0), True, 0)


def perfect(trial):
    """Slots that are the step texts, and frames that are the text of their step or nothing like any."""
    out = []
    for batch, texts in zip(trial.batches, trial.texts, strict=True):
        there = (batch.steps >= 0)[..., None]
        slots = torch.where(there, texts, -texts.mean(1, keepdim=True))
        on = batch.labels >= 0
        own = texts.gather(1, batch.labels.clamp(min=0)[..., None].expand(-1, -1, texts.shape[-1]))
        noise = torch.randn(own.shape, generator=torch.Generator().manual_seed(0))
        out.append(Slots(slots, torch.where(on[..., None], own, torch.nn.functional.normalize(noise, dim=-1)), None))
    return out


def test_every_row_tries_as_many_options_as_every_other(stage):
    located, found = grids("grid")
    assert len(located) == len(found) == BUDGET
    assert all(len(options) <= BUDGET for rule in ("paper", "unordered") for options in grids(rule))
    rows = {row.method for table in TABLES.values() for row in table.rows if row.method.rule == "grid"}
    for kind in ("random", "pooled", "changes", "kmeans"):
        assert Method(kind) in rows
        assert len(answer(Method(kind), stage).discover_options) == BUDGET
    assert len(answer(Method("text", "smoothed"), stage).locate_options) == BUDGET


def test_the_grid_finds_what_suits_perfect_slots(stage):
    trial = stage.trial
    made = slot_answer(trial, perfect(trial), "grid")
    chosen = choose(made, trial)
    assert chosen["dev"]["locate"] > 0.8 and chosen["tried"] == {"locate": BUDGET, "discover": BUDGET}
    scores = [summary({"locate": locate_units(trial, made.locate(o))}, trial.tasks)["zs_iou"]
              for o in made.locate_options]  # fmt: skip
    assert max(scores) == pytest.approx(chosen["dev"]["locate"]) and min(scores) < 0.8
    assert made.locate_options[int(np.argmax(scores))] == chosen["locate"]


def test_a_row_may_keep_all_segments_of_a_cluster(stage):
    made = answer(Method("pooled"), stage)
    kept = []
    for keep in (0.6, 1.0):
        chosen = {"locate": made.locate_options[0], "discover": {**made.discover_options[0], "cluster_keep": keep}}
        counts = units_of(made, chosen, stage.trial)["discover"]
        kept.append(counts[..., 1].sum())  # frames that have a cluster
    assert kept[0] < kept[1]


def test_more_options_than_the_budget_are_refused(stage):
    many = Answer(lambda o: stage.trial.labels(), None, [{"n": n} for n in range(BUDGET + 1)])
    with pytest.raises(UsageError, match="may try"):
        choose(many, stage.trial)


def test_units_add_up_to_the_protocols_scores(stage):
    trial = stage.trial
    made = answer(Method("pooled"), stage)
    found, vectors = made.discover(made.discover_options[3])
    units = discover_units(trial, (found, vectors), QUICK)
    labels = trial.task_labels()
    tasks = {}
    for task in np.unique(trial.tasks):
        own = np.flatnonzero(trial.tasks == task)
        pick = lambda values: [values[i] for i in own]  # noqa: B023, E731
        tasks[str(task)] = TaskInput(pick(found), pick(labels), int(trial.kinds[own].max()) + 1, pick(vectors))
    want = score_table1(tasks, QUICK).mean
    got = summary({"discover": units}, trial.tasks)
    for name in ("f1", "precision", "recall", "mof"):
        assert got[f"un_{name}"] == pytest.approx(want[name])


def test_uniform_has_as_many_parts_as_steps_and_equal_cuts_as_many_as_the_model(stage):
    made = answer(Method("uniform"), stage)
    for found, kinds in zip(made.locate({}), stage.trial.kinds, strict=True):
        assert len(np.unique(found)) == min((kinds >= 0).sum(), len(found))
    seen = replace(stage)
    seen.outputs = perfect(stage.trial)
    reference, cuts = answer(Method("slots"), seen), answer(Method("equal cuts"), seen)
    options = first_options(cuts)
    located, segments = reference.locate(options["locate"]), reference.discover(options["discover"])[0]
    runs = [1 + np.count_nonzero(np.diff(ids)) for ids in located]
    assert [1 + np.count_nonzero(np.diff(ids)) for ids in cuts.locate(options["locate"])] == runs
    parts, vectors = cuts.discover(options["discover"])
    for part, vector, ids in zip(parts, vectors, segments, strict=True):
        assert part[-1] + 1 == len(vector) == 1 + np.count_nonzero(np.diff(ids))


def test_without_texts_nothing_is_localised(stage):
    made = answer(Method("pooled"), Stage(stage.trial, False, 0))
    assert made.locate is None and set(units_of(made, first_options(made), stage.trial)) == {"discover"}


@pytest.mark.parametrize("kind", ["kukleva", "elhamifar", "shen"])
def test_published_methods_are_fitted_with_a_curve_and_tried_within_the_budget(stage, kind):
    made = answer(Method(kind, setting="weak", updates=60), stage)
    if kind == "kukleva":
        each = [50] * len(set(stage.trial.tasks))  # of a task's 60 updates, one mean of 50
        assert [points[-1][0] for points in made.curve] == each
    assert 1 < len(made.discover_options) <= BUDGET
    assert (made.locate is not None) == (kind == "shen")
    ids, vectors = made.discover(made.discover_options[0])
    assert vectors is None and [len(i) for i in ids] == [len(y) for y in stage.trial.labels()]
    different = {tuple(np.concatenate(made.discover(o)[0])) for o in itertools.islice(made.discover_options, 0, 30, 7)}
    assert len(different) > 1  # options do something


def test_a_row_that_needs_a_model_says_so(stage):
    with pytest.raises(UsageError, match="needs a model"):
        answer(Method("slots"), stage)


def test_dev_videos_are_of_tasks_that_no_column_has(source, tiny_world, tmp_path):
    dev = set(source.trial("dev", 0).tasks.tolist())
    assert dev and all(not dev & set(source.trial(split, 0).tasks.tolist()) for split in source.datasets)
    # a world whose untouched tasks were chosen on is refused
    touched = replace(tiny_world, extra={"coin_test": tiny_world.dev.pick(torch.arange(2))})
    touched.save(tmp_path / "w.safetensors")
    with pytest.raises(InputError, match="where options are chosen, are reported in coin_test"):
        Simulated(tmp_path / "w.safetensors")


def test_near_texts_are_counted_at_every_threshold(source):
    shares = [int(share) for share in re.findall(r"(\d+)% at", source.near_texts())]
    reports = [source.world.meta[name] for name in ("near_texts", "near_vectors")]
    assert len(shares) == sum(len(report[split]) for report in reports for split in source.datasets if split in report)
    for row in (row for report in reports for row in report.values()):
        assert list(row.values()) == sorted(row.values(), reverse=True) and len(row) > 1


def test_every_seed_draws_its_own_frames(source):
    a, b, c = (source.trial("test", seed).batches[0].video for seed in (0, 0, 1))
    torch.testing.assert_close(a, b)
    assert a.shape != c.shape or not torch.allclose(a, c)
