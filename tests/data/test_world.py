"""The simulated world: splits share no text, picture or task; a file gives back what was saved."""

from __future__ import annotations

import gzip
import json
from dataclasses import fields

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from benchmarks.world import NEAR_PICTURE, Pictures, read_pictures, world_of
from stepformer.data import read_crosstask
from stepformer.data.world import NEAR, OWNERS, PARAPHRASES, REPORTED, SOURCES, World, build_world, imagined, load_world
from stepformer.errors import InputError, UsageError

SPLIT_OWNER = {"calibration": "test", "procel": "test", "timelines": "test"}


def seen_by(world: World, owner: str) -> dict[str, set[int]]:
    """Every text and picture that the videos of an owner may say or show, by the way they may."""
    number = OWNERS.index(owner)
    steps = torch.cat([world.split(s).steps.flatten() for s in world.splits if SPLIT_OWNER.get(s, s) == owner])
    steps = steps[steps >= 0].unique()
    paraphrases = world.paraphrases[steps]
    paraphrases = paraphrases[paraphrases >= 0].unique()
    fillers = world.fillers[world.text_owner[world.fillers] == number]
    said = torch.cat((steps, paraphrases, fillers)).unique()
    parts = {
        "steps": steps, "paraphrases": paraphrases, "fillers": fillers, "neighbours": world.neighbours[said].unique(),
        "pictures": torch.cat((world.shows[steps].unique(), world.owned_pictures(owner, background=False))),
        "backgrounds": world.owned_pictures(owner, background=True),
    }  # fmt: skip
    return {name: set(ids.tolist()) for name, ids in parts.items()}


def assert_nothing_is_shared(world: World, sentences: torch.Tensor | None = None) -> None:
    """Owners have no text, picture, background or task in common, nor any that are nearly the same."""
    sentences = world.vectors if sentences is None else sentences
    owners = [owner for owner in OWNERS if owner in world.splits]
    seen = {owner: seen_by(world, owner) for owner in owners}
    tasks = {owner: set(world.split(owner).tasks.tolist()) for owner in owners}
    texts = ("steps", "paraphrases", "fillers", "neighbours")
    for i, early in enumerate(owners):
        for late in owners[i + 1 :]:
            for ways in (texts, ("pictures", "backgrounds")):
                a, b = (set.union(*(seen[owner][way] for way in ways)) for owner in (early, late))
                assert a and b and not a & b, (early, late, ways)
            assert not tasks[early] & tasks[late]
            said = set.union(*(seen[early][way] for way in texts))
            ids, kept = (torch.tensor(sorted(values)) for values in (said, seen[late]["steps"]))
            assert float((sentences[ids] @ sentences[kept].T).max()) <= NEAR + 1e-6, (early, late)


def test_splits_share_nothing(tiny_world):
    assert sum(tiny_world.meta["removed_step_instances"].values()) > 0  # so there was something to remove
    assert_nothing_is_shared(tiny_world)
    report = tiny_world.meta["near_texts"]
    assert set(report) == {"dev", "coin_test", "test"}
    for row in report.values():
        shares = [row[str(threshold)] for threshold in REPORTED]
        assert shares == sorted(shares, reverse=True)
        assert all(share == 0 for share, threshold in zip(shares, REPORTED, strict=True) if threshold >= NEAR)


def test_without_data_the_grammar_is_split_by_task(tiny_world):
    tasks = {name: set(tiny_world.split(name).tasks.tolist()) for name in ("train", "dev", "test")}
    assert all(tasks.values())
    assert not tasks["train"] & tasks["dev"] and not tasks["train"] & tasks["test"] and not tasks["dev"] & tasks["test"]
    names = tiny_world.meta["task_names"]
    assert all(names[task].startswith("grammar:") for group in tasks.values() for task in group)
    only = tiny_world.source_index(["grammar"])[0]
    assert set(tiny_world.train.sources.tolist()) == {only}


def test_the_arrays_fit_together(tiny_world, word_encoder):
    w = tiny_world
    V = len(w.texts)
    assert len(set(w.texts)) == V == len(w.vectors) == len(w.neighbours) == len(w.paraphrases)
    for vectors in (w.vectors, w.pictures):
        assert torch.allclose(vectors.norm(dim=-1), torch.ones(()), atol=1e-5)
    owned = w.text_owner >= 0
    itself = (w.neighbours == torch.arange(V)[:, None]).any(1)
    assert not bool((itself & owned).any())  # a text never stands for itself
    assert bool((w.text_owner[w.neighbours[owned]] == w.text_owner[owned, None]).all())
    closeness = (w.vectors[w.neighbours] * w.vectors[:, None]).sum(-1)[owned]
    assert bool((closeness.diff(dim=1) <= 1e-6).all()) and float(closeness.max()) <= 0.97 + 1e-6
    for owner in OWNERS:
        steps = w.split(owner).steps
        shown = w.shows[steps[steps >= 0].unique()]
        assert bool((w.picture_owner[shown] == OWNERS.index(owner)).all()) and not bool(w.background[shown].any())
    for name in w.splits:
        v = w.split(name)
        there = v.steps >= 0
        assert bool((there[:, 1:] <= there[:, :-1]).all()) and bool((there.sum(1) >= 1).all())
        assert torch.equal(there, v.kinds >= 0)
    # the vectors are those of the texts, in order
    assert np.allclose(w.vectors[:50].numpy(), word_encoder(w.texts[:50]), atol=1e-5)


def test_the_same_seed_makes_the_same_world(word_encoder):
    a, b = (build_world(word_encoder, grammar_procedures=30, seed=3) for _ in range(2))
    assert a.texts == b.texts and torch.equal(a.neighbours, b.neighbours) and torch.equal(a.train.steps, b.train.steps)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("fillers", lambda x: x + 10**6), ("shows", lambda x: x - 10**6), ("neighbours", lambda x: x[:, :2]),
        ("train.steps", lambda x: x.float()), ("dev.tasks", lambda x: x + 10**6), ("pictures", lambda x: x[:, :3]),
    ],
)  # fmt: skip
def test_numbers_that_lead_to_nothing_are_noticed_when_a_world_is_read(word_encoder, tmp_path, name, change):
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    build_world(word_encoder, grammar_procedures=30).save(tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", "pt") as file:
        metadata = file.metadata()
    tensors = load_file(tmp_path / "w.safetensors")
    tensors[name] = change(tensors[name]).contiguous()
    save_file(tensors, tmp_path / "w.safetensors", metadata)
    with pytest.raises(InputError, match=name.split(".")[-1]):
        load_world(tmp_path / "w.safetensors")


def test_too_few_procedures_are_one_sentence(word_encoder):
    for number in (1, 2, 3):
        with pytest.raises(UsageError, match="so few procedures"):
            build_world(word_encoder, grammar_procedures=number)


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
    """A folder with a little of each source."""
    root = tmp_path_factory.mktemp("data")
    (root / "youcook2").mkdir()
    (root / "youcook2" / "yc2_train.json").write_text(json.dumps(RECIPES))
    (root / "wikihow").mkdir()
    with gzip.open(root / "wikihow" / "procedures.json.gz", "wt") as stream:
        json.dump(ARTICLES, stream)
    (root / "goalstep").mkdir()
    with gzip.open(root / "goalstep" / "goalstep_valid.json.gz", "wt") as stream:
        parts = [[30, 40, "tie the first knot"], [41, 55, "tie the second knot."]]
        steps = [[12.0, 20.0, "coil the rope", "essential", []], [30, 55, "tie it", "essential", parts]]
        json.dump([{"video": "g", "start_s": 10.0, "end_s": 60.0, "goal": "rig", "steps": steps}], stream)
    (root / "howto100m_verb_phrases.txt").write_text("".join(f"{text},3,0.5\n" for text in PHRASES))
    return root


@pytest.fixture(scope="module")
def mixed(data, word_encoder) -> World:
    return world_of(word_encoder, data, grammar_procedures=40, wikihow_share=1.0)


def test_each_source_is_read_with_its_own_times_and_texts(mixed, word_encoder):
    recipes = mixed.train.pick(mixed.train.sources == mixed.source_index(["youcook2"])[0])
    assert 1 <= len(recipes) <= 4  # the others' sentences reword held-out steps
    food = mixed.texts[recipes.steps[0, 0]].split()[2]
    assert [mixed.texts[i] for i in recipes.steps[0, :3]] == [
        f"chop the {food} finely", f"fry the {food} in oil", f"serve the {food} warm",
    ]  # fmt: skip
    assert recipes.starts[0, :3].tolist() == [5.0, 40.0, 62.0] and recipes.ends[0, :3].tolist() == [20.0, 60.0, 80.0]
    assert recipes.durations[0] == 90.0
    articles = mixed.train.pick(mixed.train.sources == mixed.source_index(["wikihow"])[0])
    assert 1 <= len(articles) <= 3 and bool(articles.durations.isnan().all())
    assert bool(((articles.steps >= 0).sum(1) == 3).all())  # the empty step is not one
    (rig,) = mixed.train.pick(mixed.train.sources == mixed.source_index(["goalstep"])[0]).steps
    assert [mixed.texts[i] for i in rig if i >= 0] == ["coil the rope", "tie the first knot", "tie the second knot"]
    phrases = mixed.source_index(["howto100m-phrases"])[0]
    said = [mixed.texts[i] for i in mixed.fillers[mixed.filler_sources == phrases]]
    assert said == PHRASES[::2]
    none = build_world(word_encoder, grammar_procedures=40)
    assert torch.equal(none.train.steps[:, :3], mixed.train.steps[: len(none.train), :3])


def test_timelines_of_ones_own_are_one_more_dataset(data, tmp_path, word_encoder):
    """A plain folder of annotations, without features: its steps are held out from training."""
    folder = tmp_path / "niv" / "cpr"
    (folder / "annotations").mkdir(parents=True)
    (folder / "steps.txt").write_text("check the response\nopen the airway\nchop the onion finely\n")
    for video in range(3):
        (folder / "annotations" / f"v{video}.csv").write_text("1,2.0,9.0\n3,12.5,20\n2,21,30\n")
    world = world_of(word_encoder, data, grammar_procedures=40, wikihow_share=1.0, timelines=tmp_path / "niv")
    own = world.split("timelines")
    assert [world.texts[i] for i in own.steps[0]] == ["check the response", "chop the onion finely", "open the airway"]
    assert own.starts[0].tolist() == [2.0, 12.5, 21.0] and float(own.durations[0]) >= 30
    assert set(world.text_owner[own.steps.flatten()].tolist()) == {OWNERS.index("test")}
    assert "chop the onion finely" not in {world.texts[i] for i in world.train.steps[world.train.steps >= 0]}


def test_licences_are_written_down(mixed, word_encoder):
    assert mixed.meta["licences"] == {**SOURCES, "imagined": "made from the texts"}
    assert mixed.encoder == "" and build_world(word_encoder, grammar_procedures=30, encoder="words").encoder == "words"


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
    world = world_of(word_encoder, tmp_path, grammar_procedures=150)
    assert [world.texts[i] for i in world.test.steps[0]] == ["season the halibut", "grill the halibut well"]
    assert len(world.test) == 1 and world.test.ends.tolist() == [[6.0, 15.5]]
    assert float(world.test.durations[0]) >= 15.5 + 3
    assert len(world.dev) > 0
    names = world.meta["task_names"]
    assert all(names[t].startswith("grammar:") for t in world.dev.tasks.tolist())
    related = world.train.pick(world.train.sources == world.source_index(["crosstask-related"])[0])
    assert [world.texts[i] for i in related.steps[0] if i >= 0] == ["open the can", "stir the paint", "paint the wall"]
    assert_nothing_is_shared(world)


def test_a_training_text_that_is_also_a_test_text_is_removed(data, tmp_path, word_encoder):
    for name in ("youcook2", "wikihow"):
        (tmp_path / name).symlink_to(data / name)
    # two steps verbatim in YouCook2 and wikiHow, one nearly
    write_crosstask(tmp_path, ("serve the halibut warm", "paint the canoe twice"))
    world = world_of(word_encoder, tmp_path, grammar_procedures=30, wikihow_share=1.0)
    assert_nothing_is_shared(world)
    seen = {world.texts[i] for i in world.train.steps[world.train.steps >= 0].tolist()}
    assert {"serve the halibut warm", "paint the canoe twice"}.isdisjoint(seen)
    assert {"fry the halibut in oil", "dry the canoe outside"} <= seen


# -- pictures -----------------------------------------------------------------------------------------------------


def write_pictures(folder, width: int = 64, count: int = 40) -> None:
    """A picture folder as data/clip is laid out, with random vectors; the last two states are nearly one picture."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)

    def save(file: str, n: int, **columns) -> None:
        vectors = rng.standard_normal((n, width))
        vectors[-1] = vectors[-2] + 0.01
        scale = np.abs(vectors).max(1) / 127
        vec = (vectors / scale[:, None]).astype(np.int8)
        np.savez(folder / file, vec=vec, scale=scale.astype(np.float32), **columns)

    save(
        "youcook2_frames.npz",
        9,
        video=np.repeat(["v0", "v1", "v2"], 3),
        segment=np.arange(9) % 3,
        text=np.array([f"fry the {food} in oil" for food in ("celery", "plantain", "halibut") for _ in range(3)]),
    )
    names = [f"f8k/{i}.jpg" for i in range(count)]
    save("captioned_images.npz", count, name=np.array(names))
    with gzip.open(folder / "captions.json.gz", "wt") as stream:
        json.dump({name: [f"a person holds thing {i}", "other words"] for i, name in enumerate(names)}, stream)
    labels = ["diced", "lemon", "tench", "jullienne"]
    files = [f"cooking-states/a/{i}.jpg" if i % 2 == 0 else f"grocery/{i}.jpg" for i in range(count)]
    files[2] = "n01/tench.jpeg"
    save("labelled_images.npz", count, name=np.array(files), label=np.array([labels[i % 4] for i in range(count)]))


def test_pictures_are_read_with_their_words_and_what_they_belong_to(tmp_path):
    write_pictures(tmp_path / "clip")
    pictures = read_pictures(tmp_path / "clip")
    assert pictures.vectors.shape == (89, 64) and np.allclose(np.linalg.norm(pictures.vectors, axis=1), 1, atol=1e-5)
    assert pictures.texts[0] == "fry the celery in oil" and pictures.groups[0] == pictures.groups[2] == "youcook2:v0"
    assert pictures.texts[9] == "a person holds thing 0" and pictures.sources[9] == "f8k"
    assert pictures.texts[49] == "diced food" and pictures.groups[50] == "grocery:lemon" == pictures.groups[54]
    assert pictures.sources[51] == "imagenet"
    (tmp_path / "clip" / "captions.json.gz").unlink()
    with pytest.raises(InputError, match=r"no file .*captions\.json\.gz"):
        read_pictures(tmp_path / "clip")
    with pytest.raises(InputError, match="need a vector, a text, a group and a source"):
        Pictures(pictures.vectors, ("a",), ("b",), ("f8k",), {})


def test_a_world_of_pictures_divides_them(tmp_path, word_encoder):
    write_pictures(tmp_path / "clip", count=400)
    world = world_of(word_encoder, tmp_path, grammar_procedures=150)
    assert_nothing_is_shared(world)
    assert len(world.pictures) == 809
    of_videos = world.picture_owner[:9].reshape(3, 3)
    assert bool((of_videos == of_videos[:, :1]).all())  # a video goes to one owner whole
    assert set(world.picture_owner[world.background].tolist()) >= {0, 1, 2, 3}
    with pytest.raises(InputError, match="the pictures are 64 wide and the texts 32"):
        world_of(lambda texts: word_encoder(texts, 32), tmp_path, grammar_procedures=10)


def test_imagined_pictures_have_the_gap_and_some_of_their_text(word_encoder):
    texts = word_encoder([f"word{i} word{i + 1} word{2 * i}" for i in range(200)], 256)
    pictures = imagined(texts, per_text=2)
    assert pictures.shape == (400, 256)
    pairs = float(np.mean([pictures[i] @ pictures[-i - 1] for i in range(100)]))
    assert 0.55 < pairs < 0.75
    centred = pictures - pictures.mean(0)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    rest = texts - texts.mean(0)
    rest /= np.linalg.norm(rest, axis=1, keepdims=True)
    own = (centred.reshape(200, 2, -1) * rest[:, None]).sum(-1)
    assert 0.25 < float(own.mean()) < 0.45


# -- the file -----------------------------------------------------------------------------------------------------


def test_a_world_comes_back_from_its_file(tmp_path, word_encoder):
    write_crosstask(tmp_path)
    world = world_of(word_encoder, tmp_path, grammar_procedures=30)
    world.save(tmp_path / "w.safetensors")
    back = load_world(tmp_path / "w.safetensors")
    assert (back.texts, back.sources, back.meta, back.splits) == (world.texts, world.sources, world.meta, world.splits)
    numbers = ("neighbours", "paraphrases", "fillers", "filler_sources", "text_owner", "picture_owner", "shows")
    for name in (*numbers, "background"):
        assert torch.equal(getattr(back, name), getattr(world, name)), name
    for name in ("vectors", "pictures"):
        assert torch.allclose(getattr(back, name), getattr(world, name), atol=1e-3), name  # float16 on disk
    for split in world.splits:
        for f in fields(world.train):
            a, b = getattr(world.split(split), f.name), getattr(back.split(split), f.name)
            assert a.dtype == b.dtype and torch.equal(a.nan_to_num(-9), b.nan_to_num(-9)), (split, f.name)
    assert back.paraphrases.shape[1] == PARAPHRASES


def test_what_is_no_world_is_refused(tmp_path, tiny_world, word_encoder):
    with pytest.raises(InputError, match="there is no simulated world"):
        load_world(tmp_path / "nowhere.safetensors")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(InputError, match="cannot read the simulated world"):
        load_world(tmp_path / "torn.safetensors")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors", {"format": "pictures"})
    with pytest.raises(InputError, match="is not a simulated world of this version"):
        load_world(tmp_path / "other.safetensors")
    with pytest.raises(InputError, match="splits train, dev, test"):
        tiny_world.split("validation")
    with pytest.raises(InputError, match="no data folder"):
        world_of(word_encoder, tmp_path / "nowhere")


# -- the real datasets --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_world_of_the_public_datasets(shared_data, word_encoder):
    def wide(texts):
        return word_encoder(texts, 512)

    world = world_of(wide, shared_data, grammar_procedures=300, wikihow_share=0.1, encoder="clip")
    assert len(world.test) == 360
    assert len(set(world.test.tasks.tolist())) == 18
    assert not bool(world.test.durations.isnan().any())
    assert_nothing_is_shared(world)
    # no picture of one owner looks like one of another
    for i in range(len(OWNERS)):
        mine, others = world.pictures[world.picture_owner == i], world.pictures[world.picture_owner > i]
        assert i == len(OWNERS) - 1 or float((mine @ others.T).max()) <= NEAR_PICTURE + 1e-3
    release = read_crosstask(next(iter(sorted((shared_data / "crosstask").glob("*.tar.gz")))))
    primary = {
        " ".join(text.split()) for task in release.tasks.values() if task.group == "primary" for text in task.steps
    }
    train = seen_by(world, "train")
    said = {world.texts[i] for way in ("steps", "paraphrases", "fillers", "neighbours") for i in train[way]}
    assert not primary & said
    # half of COIN's tasks choose nothing, and calibration has videos of its own
    names = world.meta["task_names"]
    coin = {split: {names[t] for t in world.split(split).tasks.tolist()} for split in ("dev", "coin_test")}
    assert all(name.lower().startswith("coin:") for tasks in coin.values() for name in tasks)
    assert len(coin["coin_test"]) >= 90 and 20 <= len(coin["dev"]) <= 40  # of 180
    assert len(world.dev) > 300 and len(world.split("calibration")) > 300
    assert not set(map(tuple, world.split("calibration").starts.nan_to_num(-1).tolist())) & set(
        map(tuple, world.test.starts.nan_to_num(-1).tolist())
    )
