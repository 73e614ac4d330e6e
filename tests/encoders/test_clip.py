"""CLIP's image tower against plain torch, what is looked at again, and the text tower against the true vectors."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from benchmarks import clip_data, sight, tower
from stepformer.encoders import clip, clip_vit
from stepformer.encoders.bert import Bert, BertConfig
from stepformer.encoders.sentence import SentenceEncoder
from stepformer.errors import InputError, UsageError


def tiny_state(seed=0, width=128, layers=5, side=2, dim=24):
    """A small tower with weights of the size that training gives, under the hub's names."""
    made = torch.Generator().manual_seed(seed)

    def random(*shape, scale=0.2):
        return scale * torch.randn(*shape, generator=made)

    state = {
        "vision_model.embeddings.class_embedding": random(width),
        "vision_model.embeddings.patch_embedding.weight": random(width, 3, 16, 16, scale=0.05),
        "vision_model.embeddings.position_embedding.weight": random(1 + side * side, width),
        "visual_projection.weight": random(dim, width),
    }
    norms = ["vision_model.pre_layrnorm", "vision_model.post_layernorm"]
    for i in range(layers):
        layer = f"vision_model.encoder.layers.{i}."
        norms += [f"{layer}layer_norm1", f"{layer}layer_norm2"]
        shapes = {f"self_attn.{part}_proj": (width, width) for part in ("q", "k", "v", "out")}
        shapes |= {"mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}
        for name, shape in shapes.items():
            state[f"{layer}{name}.weight"] = random(*shape, scale=shape[1] ** -0.5)
            state[f"{layer}{name}.bias"] = random(shape[0])
    for name in norms:
        state[f"{name}.weight"], state[f"{name}.bias"] = 1 + random(width), random(width)
    return state


def plain(state, pictures):
    """The same network in the words of torch's own modules."""
    width = len(state["vision_model.embeddings.class_embedding"])

    def norm(x, name):
        return nn.functional.layer_norm(x, (width,), state[f"{name}.weight"], state[f"{name}.bias"])

    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (clip_vit._MEAN, clip_vit._DEVIATION))
    pixels = (torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255 - mean) / deviation
    x = nn.functional.conv2d(pixels, state["vision_model.embeddings.patch_embedding.weight"], stride=16)
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([state["vision_model.embeddings.class_embedding"].expand(len(x), 1, -1), x], 1)
    x = norm(x + state["vision_model.embeddings.position_embedding.weight"], "vision_model.pre_layrnorm")
    for i in range(sum(name.endswith("fc1.weight") for name in state)):
        layer = f"vision_model.encoder.layers.{i}."
        attend = nn.MultiheadAttention(width, width // 64, batch_first=True)
        parts = [f"{layer}self_attn.{part}_proj" for part in "qkv"]
        attend.load_state_dict(
            {
                "in_proj_weight": torch.cat([state[f"{part}.weight"] for part in parts]),
                "in_proj_bias": torch.cat([state[f"{part}.bias"] for part in parts]),
                "out_proj.weight": state[f"{layer}self_attn.out_proj.weight"],
                "out_proj.bias": state[f"{layer}self_attn.out_proj.bias"],
            }
        )
        y = norm(x, f"{layer}layer_norm1")
        x = x + attend(y, y, y)[0]
        y = norm(x, f"{layer}layer_norm2") @ state[f"{layer}mlp.fc1.weight"].T + state[f"{layer}mlp.fc1.bias"]
        x = x + (y * torch.sigmoid(1.702 * y)) @ state[f"{layer}mlp.fc2.weight"].T + state[f"{layer}mlp.fc2.bias"]
        if i == 3:
            early = x[:, 1:].mean(1)
    vectors = norm(x[:, 0], "vision_model.post_layernorm") @ state["visual_projection.weight"].T
    return nn.functional.normalize(vectors, dim=-1), nn.functional.normalize(early, dim=-1)


def pictures(count, height=32, width=32, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


@torch.no_grad()
def test_the_tower_is_plain_torch():
    state, seen = tiny_state(), pictures(3)
    tower = clip_vit.ClipViT(state, integers=False)
    torch.testing.assert_close(tower.vectors(seen), plain(state, seen)[0], atol=1e-5, rtol=1e-4)
    doubled = seen.repeat(2, axis=1).repeat(2, axis=2)  # structure is made at half the size
    torch.testing.assert_close(tower.structure(doubled), plain(state, seen)[1], atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not clip_vit.integers_available(), reason="this processor has no integer kernels")
def test_integers_are_close_and_do_not_overflow():
    # weights at their limit and inputs of one sign: where 8-bit weights overflow without VNNI
    worst = torch.full((16, 768), 0.3)
    linear = clip_vit._Integers(worst, torch.zeros(16))
    x = torch.rand(5, 768) + 3.0
    torch.testing.assert_close(linear(x), x @ worst.T, rtol=2e-3, atol=0.1)
    state, seen = tiny_state(), pictures(6)
    exact, integers = clip_vit.ClipViT(state, integers=False), clip_vit.ClipViT(state)
    rounded = integers.vectors(seen)
    assert (exact.vectors(seen) * rounded).sum(-1).min() > 0.995
    torch.testing.assert_close(integers.vectors(seen[2:3]), rounded[2:3], atol=1e-5, rtol=1e-4)  # alone as in a batch


@pytest.mark.skipif(not clip_vit.integers_available(), reason="this processor has no integer kernels")
def test_published_integers_are_rounded_as_their_floats_are():
    g = torch.Generator().manual_seed(0)
    published = torch.randint(-128, 128, (16, 64), dtype=torch.int8, generator=g)
    scale, bias, x = torch.rand(16, generator=g) / 100, torch.randn(16, generator=g), torch.randn(5, 64, generator=g)
    exact = nn.functional.linear(x, published * scale[:, None], bias)
    for linear in (clip_vit._Integers(published, bias, scale), clip_vit._Integers(published * scale[:, None], bias)):
        torch.testing.assert_close(linear(x), exact, rtol=0.05, atol=0.15)


def test_other_shapes_keep_the_place_of_things():
    tower = clip_vit.ClipViT(tiny_state(side=4), integers=False)
    assert tower.vectors(pictures(2, 32, 64)).shape == (2, 24)
    assert tower.structure(pictures(2, 16, 80)).shape == (2, 128)  # no side can be halved into patches
    wide, narrow = tower._place(2, 8), tower._place(4, 4)
    assert wide.shape == (17, 128) and torch.equal(narrow, tower._positions)
    with pytest.raises(InputError, match="multiples of 16"):
        tower.vectors(pictures(1, 30, 32))


def test_missing_weights_are_named():
    state = tiny_state()
    del state["vision_model.encoder.layers.1.mlp.fc2.weight"]
    with pytest.raises(InputError, match=r"lack vision_model.encoder.layers.1.mlp.fc2.weight"):
        clip_vit.ClipViT(state)


# -- the encoder --------------------------------------------------------------------------------------------------


class Network:
    """Stands for the image tower: a picture's vector is its mean, its structure an angle; counts what it was asked."""

    def __init__(self):
        self.seen = 0

    def structure(self, frames):
        means = torch.from_numpy(frames.reshape(len(frames), -1).mean(1, dtype=np.float32))
        structure = torch.zeros(len(frames), 768)
        structure[:, 0], structure[:, 1] = torch.cos(means / 100), torch.sin(means / 100)
        return structure

    def vectors(self, frames):
        self.seen += len(frames)
        return torch.from_numpy(frames.reshape(len(frames), -1).mean(1, dtype=np.float32))[:, None].repeat(1, 512)


class Speaker:
    fingerprint, encode_text = "a text tower", None


@pytest.fixture
def encoder():
    return clip.ClipEncoder(still=0.0004, text=Speaker(), network=Network())  # 2.8 steps of brightness


def shades(*values):
    return np.stack([np.full((128, 224, 3), value, np.uint8) for value in values])


def test_still_pictures_are_looked_at_once(encoder):
    encoded = encoder.encode_video(shades(100, 100, 101, 140, 140, 139, 100))
    assert encoder._network.seen == 3
    np.testing.assert_array_equal(encoded.vectors[:, 0], [100, 100, 100, 140, 140, 140, 100])
    assert len(np.unique(encoded.structure, axis=0)) == 4  # which is every picture's own
    assert encoder.encode_video(shades(1)[:0]).vectors.shape == (0, 512)


def test_pictures_of_a_short_video_are_all_looked_at(encoder):
    encoded = encoder.encode_often(shades(100, 100, 101, 140), 1)
    assert encoder._network.seen == 4
    np.testing.assert_array_equal(encoded.vectors[:, 0], [100, 100, 101, 140])


def test_slow_change_is_seen(encoder):
    encoded = encoder.encode_video(shades(*range(100, 111)))
    np.testing.assert_array_equal(encoded.vectors[:, 0], [100, 100, 100, 103, 103, 103, 106, 106, 106, 109, 109])


def test_pictures_that_come_more_often_share_looks(encoder):
    encoded = encoder.encode_often(shades(10, 20, 30, 40, 50, 60, 70), 3)
    np.testing.assert_array_equal(encoded.vectors[:, 0], [20, 20, 20, 50, 50, 50, 70])  # the middle of each three
    assert len(np.unique(encoded.structure, axis=0)) == 7


def test_other_towers_are_refused():
    with pytest.raises(UsageError, match="clip:openai; got clip:laion"):
        clip.ClipEncoder("laion")


# -- the text tower -----------------------------------------------------------------------------------------------


def test_greedy_and_matched_by_hand():
    similarity = np.array([[[9, 8, 0], [9, 1, 0], [0, 0, 5]]], float)  # two sentences want the first frame
    greedy, matched = sight.frames_of_sentences(similarity)
    assert greedy.tolist() == [2 / 3]
    assert matched.tolist() == [1 / 3]  # 8 + 9 + 5 beats 9 + 1 + 5
    similarity[0, 0, 1] = 0
    assert sight.frames_of_sentences(similarity)[1].tolist() == [1.0]


def test_a_tuned_encoder_reads_as_the_one_that_was_trained(tmp_path):
    """What training ends with and what ClipText makes of the file are the same network; the encoder stays as it was."""
    torch.manual_seed(0)
    sizes = BertConfig(vocab_size=5, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    save_file(Bert(sizes).state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(asdict(sizes)))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nlift\n")
    encoder = SentenceEncoder(tmp_path)
    head = clip.TextTower(size_in=8, hidden=8)
    reader = tower.Reader(encoder, tower.Recipe(rank=2, word_dropout=0.0))
    for value in [head.narrow.weight, *(one for one in reader.parameters() if one.requires_grad)]:
        nn.init.normal_(value)
    texts = ["lift lift the", "the"]
    before = encoder.encode_text(texts)
    tower.save({**head.state_dict(), **reader.changes()}, tmp_path / "tower.safetensors", {})
    with torch.no_grad():
        trained = head(reader(texts)).numpy()
    read = clip.ClipText(tmp_path / "tower.safetensors", sentences=encoder).encode_text(texts)
    assert (read * trained).sum(1).min() > 0.9999  # 16 bits
    with torch.no_grad():
        assert (head(torch.from_numpy(before)).numpy() * trained).sum(1).max() < 0.99  # the changes change something
    np.testing.assert_array_equal(encoder.encode_text(texts), before)


def test_parts_are_fixed():
    """Another split would put what was tested into training."""
    names = ["01lB162koHA", "2TSFTzB0AyU", "put the ingredients into the bowl"]
    assert [clip_data.part_of(name) for name in names] == [5, 4, 3]


@pytest.mark.slow
def test_the_shipped_tower_agrees_with_the_true_vectors():
    """Held-out COIN steps and YouCook2 frames. Bands: an untrained tower has .0, .01 and .33."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not (folder / "clip").is_dir():
        pytest.skip("no ../shared/data/clip with true text vectors")
    data = clip_data.load(folder)
    text = clip.ClipText()
    steps = np.intersect1d(data.coin, data.true.of(0))
    ours = text.encode_text([data.true.texts[row][0] for row in steps])
    assert 0.85 < (ours * data.true.pictures[steps]).sum(1).mean() < 0.93
    first = (ours @ data.true.pictures[data.coin].T).argmax(1) == np.searchsorted(data.coin, steps)
    assert 0.55 < first.mean() < 0.85
    rows = data.videos(0)
    sentences = text.encode_text([data.frames.texts[row][0] for row in rows.ravel()])
    _, matched = sight.on_frames(data, rows, sentences, data.frames.pictures[rows.ravel()])
    assert matched[0] > 0.75
