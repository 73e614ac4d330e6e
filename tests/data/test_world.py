"""The simulated world: what is held out stays unseen, licences stay apart, a file gives back what was saved."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stepformer.core.config import SimConfig
from stepformer.data import read_crosstask
from stepformer.data.simulator import Simulator
from stepformer.data.world import PARAPHRASES, World, load_world
from stepformer.data.worldbuilder import NEAR, OPEN_SOURCES, SOURCES, build_world
from stepformer.errors import InputError

CONCEPTS = ("cutting food", "washing wood", "pouring water")


def held_out(world: World) -> torch.Tensor:
    """Ids of every step text of dev, test and further held-out splits."""
    steps = [world.split(name).steps for name in world.splits if name != "train"]
    return torch.cat([s[s >= 0] for s in steps]).unique()


def learned_from(world: World) -> dict[str, torch.Tensor]:
    """Every text id that training may see, by the way it may be seen."""
    steps = world.train.steps[world.train.steps >= 0].unique()
    paraphrases = world.paraphrases[steps]
    paraphrases = paraphrases[paraphrases >= 0].unique()
    said = torch.cat((steps, paraphrases, world.fillers)).unique()
    return {
        "steps": steps,
        "paraphrases": paraphrases,
        "fillers": world.fillers.unique(),
        "neighbours": world.neighbours[said].unique(),
    }


def assert_nothing_held_out_is_learned_from(world: World) -> None:
    kept = held_out(world)
    assert len(kept)
    for way, ids in learned_from(world).items():
        assert not bool(torch.isin(ids, kept).any()), way
        nearest = (world.vectors[ids] @ world.vectors[kept].T).amax(1)
        assert float(nearest.max()) <= NEAR + 1e-6, way


def test_held_out_texts_and_near_copies_are_in_no_part_of_training(tiny_world):
    assert tiny_world.meta["removed_step_instances"] > 0  # so there was something to remove
    assert_nothing_held_out_is_learned_from(tiny_world)


def test_without_data_the_grammar_is_split_by_task(tiny_world):
    tasks = {name: set(tiny_world.split(name).tasks.tolist()) for name in ("train", "dev", "test")}
    assert all(tasks.values())
    assert not tasks["train"] & tasks["dev"] and not tasks["train"] & tasks["test"] and not tasks["dev"] & tasks["test"]
    names = tiny_world.meta["task_names"]
    assert all(names[task].startswith("grammar:") for group in tasks.values() for task in group)
    assert tiny_world.meta["videos"]["train"] == len(tiny_world.train)
    only = tiny_world.source_index(["grammar"])[0]
    assert set(tiny_world.train.sources.tolist()) == {only}


def test_the_arrays_fit_together(tiny_world, word_encoder):
    w = tiny_world
    V = len(w.texts)
    assert len(set(w.texts)) == V == len(w.vectors) == len(w.neighbours) == len(w.paraphrases)
    for vectors in (w.vectors, w.concepts, w.stock):
        assert torch.allclose(vectors.norm(dim=-1), torch.ones(()), atol=1e-5)
    assert int(w.neighbours.min()) >= 0 and int(w.neighbours.max()) < V
    itself = (w.neighbours == torch.arange(V)[:, None]).any(1)
    assert not bool(itself.any())  # a text never stands for itself
    closeness = (w.vectors[w.neighbours] * w.vectors[:, None]).sum(-1)
    assert bool((closeness.diff(dim=1) <= 1e-6).all()) and float(closeness.max()) <= 0.97 + 1e-6
    for name in w.splits:
        v = w.split(name)
        there = v.steps >= 0
        assert bool((there[:, 1:] <= there[:, :-1]).all()) and bool((there.sum(1) >= 2).all())
        assert torch.equal(there, v.kinds >= 0)
    # the vectors are those of the texts, in order
    assert np.allclose(w.vectors[:50].numpy(), word_encoder(w.texts[:50]), atol=1e-5)


def test_the_same_seed_makes_the_same_world(word_encoder):
    a, b = (build_world(word_encoder, CONCEPTS, grammar_procedures=30, seed=3) for _ in range(2))
    assert a.texts == b.texts and torch.equal(a.neighbours, b.neighbours) and torch.equal(a.train.steps, b.train.steps)


# -- several sources ----------------------------------------------------------------------------------------------

PHRASES = ["turn the knob gently", "spread the blanket wide", "hold the ladder steady", "polish the silver spoon"]
RECIPES = {
    f"v{i}": {
        "duration": 90.0,
        # the second pair starts first: order is by time, not by place in the file
        "timestamps": [[40, 60], [5.0, 20.0], [62, 80]],
        "sentences": [f"fry the {food} in oil", f"chop the {food} finely", f"serve the {food} warm"],
    }
    for i, food in enumerate(("celery", "plantain", "halibut", "okra"))
}
ARTICLES = [
    {"title": f"article {i}", "steps": [f"lift the {a} slowly", f"paint the {a} twice", " ", f"dry the {a} outside"]}
    for i, a in enumerate(("canoe", "gazebo", "trellis"))
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a little of an open source and of two that are not."""
    root = tmp_path_factory.mktemp("data")
    (root / "youcook2").mkdir()
    (root / "youcook2" / "yc2_train.json").write_text(json.dumps(RECIPES))
    (root / "wikihow").mkdir()
    with gzip.open(root / "wikihow" / "procedures.json.gz", "wt") as stream:
        json.dump(ARTICLES, stream)
    (root / "howto100m_verb_phrases.txt").write_text("".join(f"{text},3,0.5\n" for text in PHRASES))
    return root


@pytest.fixture(scope="module")
def mixed(data, word_encoder) -> World:
    return build_world(word_encoder, CONCEPTS, data, grammar_procedures=40, wikihow_share=1.0)


CLOSED = {*PHRASES, *(" ".join(text.split()) for article in ARTICLES for text in article["steps"])} - {""}


def test_each_source_is_read_with_its_own_times_and_texts(mixed, word_encoder):
    recipes = mixed.train.pick(mixed.train.sources == mixed.source_index(["youcook2"])[0])
    assert len(recipes) == 4
    assert [mixed.texts[i] for i in recipes.steps[0, :3]] == [
        "chop the celery finely", "fry the celery in oil", "serve the celery warm",
    ]  # fmt: skip
    assert recipes.starts[0, :3].tolist() == [5.0, 40.0, 62.0] and recipes.ends[0, :3].tolist() == [20.0, 60.0, 80.0]
    assert recipes.durations[0] == 90.0
    articles = mixed.train.pick(mixed.train.sources == mixed.source_index(["wikihow"])[0])
    assert len(articles) == 3 and bool(articles.durations.isnan().all())
    assert int((articles.steps >= 0).sum()) == 9  # the empty step is not one
    said = [mixed.texts[i] for i in mixed.fillers[mixed.filler_sources == mixed.source_index(["howto100m-phrases"])[0]]]
    assert said == PHRASES
    none = build_world(word_encoder, CONCEPTS, grammar_procedures=40)
    assert torch.equal(none.train.steps[:, :3], mixed.train.steps[: len(none.train), :3])


def test_neighbours_of_open_texts_are_open_texts(mixed):
    closed = torch.tensor([text in CLOSED for text in mixed.texts])
    assert int(closed.sum()) == len(CLOSED)
    seen = mixed.neighbours[~closed].unique()
    assert not bool(closed[seen].any())
    assert bool(closed[mixed.neighbours[closed]].any())  # the others may be like anything


def test_open_sources_show_nothing_else(mixed):
    simulator = Simulator(mixed, SimConfig(sources=tuple((name, 1.0) for name in OPEN_SOURCES), max_frames=30))
    closed = torch.tensor([text in CLOSED for text in mixed.texts])
    for step in range(4):
        batch = simulator.batch(step, 50)
        for ids in (batch.steps[batch.steps >= 0], batch.phrase_ids[batch.phrase_mask]):
            assert not bool(closed[ids].any())
            assert not bool(closed[mixed.neighbours[ids]].any())
    assert not bool(closed[simulator.distractors].any()) and not bool(closed[simulator.fillers].any())


def test_licences_are_written_down(mixed):
    assert mixed.meta["licences"] == {name: licence for name, (licence, _) in SOURCES.items()}
    assert not set(OPEN_SOURCES) & {"coin", "wikihow", "howto100m-phrases"}


def write_crosstask(root, steps=("season the halibut", "grill the halibut well")):
    """A CrossTask release of one primary task with one validation video, and one related task."""
    folder = root / "crosstask"
    (folder / "annotations").mkdir(parents=True)
    (folder / "tasks_primary.txt").write_text(f"7\nGrill Halibut\nurl\n{len(steps)}\n{','.join(steps)}\n\n")
    (folder / "tasks_related.txt").write_text("9\nPaint\nurl\n3\nopen the can,stir the paint,paint the wall\n\n")
    (folder / "videos.csv").write_text("7,aaa,url\n7,bbb,url\n9,ccc,url\n")
    (folder / "videos_val.csv").write_text("7,bbb,url\n")
    for video in ("aaa", "bbb"):
        (folder / "annotations" / f"7_{video}.csv").write_text("1,2.0,6.0\n2,8.0,15.5\n")


def test_crosstask_alone_is_the_test_and_the_grammar_still_gives_a_dev_split(tmp_path, word_encoder):
    write_crosstask(tmp_path)
    world = build_world(word_encoder, CONCEPTS, tmp_path, grammar_procedures=150)
    assert [world.texts[i] for i in world.test.steps[0]] == ["season the halibut", "grill the halibut well"]
    assert len(world.test) == 1 and world.test.ends.tolist() == [[6.0, 15.5]]
    assert float(world.test.durations[0]) >= 15.5 + 3
    assert len(world.dev) > 0
    names = world.meta["task_names"]
    assert all(names[t].startswith("grammar:") for t in world.dev.tasks.tolist())
    related = world.train.pick(world.train.sources == world.source_index(["crosstask-related"])[0])
    assert [world.texts[i] for i in related.steps[0] if i >= 0] == ["open the can", "stir the paint", "paint the wall"]
    assert_nothing_held_out_is_learned_from(world)


def test_a_training_text_that_is_also_a_test_text_is_removed(data, tmp_path, word_encoder):
    for name in ("youcook2", "wikihow"):
        (tmp_path / name).symlink_to(data / name)
    # two steps verbatim in YouCook2 and wikiHow, one nearly
    write_crosstask(tmp_path, ("serve the halibut warm", "paint the canoe twice"))
    world = build_world(word_encoder, CONCEPTS, tmp_path, grammar_procedures=30, wikihow_share=1.0)
    assert_nothing_held_out_is_learned_from(world)
    seen = {world.texts[i] for i in world.train.steps[world.train.steps >= 0].tolist()}
    assert {"serve the halibut warm", "paint the canoe twice"}.isdisjoint(seen)
    assert {"fry the halibut in oil", "dry the canoe outside"} <= seen


# -- the file -----------------------------------------------------------------------------------------------------


def test_a_world_comes_back_from_its_file(tmp_path, word_encoder):
    write_crosstask(tmp_path)
    world = build_world(word_encoder, CONCEPTS, tmp_path, grammar_procedures=30)
    world.save(tmp_path / "w.safetensors")
    back = load_world(tmp_path / "w.safetensors")
    assert (back.texts, back.sources, back.meta, back.splits) == (world.texts, world.sources, world.meta, world.splits)
    for name in ("neighbours", "paraphrases", "fillers", "filler_sources"):
        assert torch.equal(getattr(back, name), getattr(world, name)), name
    for name in ("vectors", "concepts", "stock"):
        assert torch.allclose(getattr(back, name), getattr(world, name), atol=1e-3), name  # float16 on disk
    for split in world.splits:
        for f in fields(world.train):
            a, b = getattr(world.split(split), f.name), getattr(back.split(split), f.name)
            assert a.dtype == b.dtype and torch.equal(a.nan_to_num(-9), b.nan_to_num(-9)), (split, f.name)
    assert back.paraphrases.shape[1] == PARAPHRASES


def test_what_is_no_world_is_refused(tmp_path, tiny_world, word_encoder):
    with pytest.raises(InputError, match="cannot read the simulated world"):
        load_world(tmp_path / "nowhere.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match="cannot read the simulated world"):
        load_world(tmp_path / "torn.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors", {"format": "pictures"})
    with pytest.raises(InputError, match="is not a simulated world"):
        load_world(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="splits train, dev, test"):
        tiny_world.split("validation")
    with pytest.raises(InputError, match="does not exist"):
        build_world(word_encoder, CONCEPTS, tmp_path / "nowhere")


# -- the real datasets --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_world_of_the_public_datasets(shared_data, word_encoder):
    world = build_world(word_encoder, CONCEPTS, shared_data, grammar_procedures=300, wikihow_share=0.1)
    assert len(world.test) == 360
    assert len(set(world.test.tasks.tolist())) == 18
    assert not bool(world.test.durations.isnan().any())
    release = read_crosstask(next(iter(sorted((shared_data / "crosstask").glob("*.tar.gz")))))
    primary = {
        " ".join(text.split()) for task in release.tasks.values() if task.group == "primary" for text in task.steps
    }
    seen = {world.texts[i] for ids in learned_from(world).values() for i in ids.tolist()}
    assert not primary & seen
    assert_nothing_held_out_is_learned_from(world)
    names = world.meta["task_names"]
    dev = {names[t] for t in world.dev.tasks.tolist()}
    train = {names[t] for t in world.train.tasks.tolist()}
    assert len(world.dev) > 100 and all(name.startswith("COIN:") or name.startswith("coin:") for name in dev)
    assert not dev & train
