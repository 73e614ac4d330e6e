"""Adapt: a model for an encoder of another width, made end to end in seconds, that then finds steps."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from stepformer import encoders
from stepformer.app.training import adapt, carried
from stepformer.cli import main
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.config import make_config
from stepformer.data.batches import StoreBatches
from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter
from stepformer.data.world import load_world
from stepformer.errors import InputError

WIDTH = 48
TINY = {
    "steps": 4, "batch": 4, "log_every": 1, "save_every": 2, "loss": {"smooth_frames": 12},
    "model": {"dim": 32, "layers": 1, "heads": 2, "feedforward": 32, "slots": 6},
    "data": {"simulator": {"max_frames": 30, "max_steps": 5}}, "validation": {"every": 2, "videos": 4},
}  # fmt: skip


class Turned:
    """A made-up joint encoder: bag-of-words vectors (64) through a fixed map to another width, with an offset."""

    name, license, dim, rate_hz, structure_dim, wants = "turned", "none", WIDTH, 1.0, 0, None
    fingerprint = "turned-1"

    def __init__(self, words=None) -> None:
        from stepformer.reproduce.sources import word_vectors

        self.words = words or word_vectors
        g = np.random.default_rng(3)
        self.map, self.offset = g.standard_normal((64, WIDTH)) / 8, 0.5 * g.standard_normal(WIDTH) / WIDTH**0.5

    def encode_text(self, texts):
        out = self.words(texts) @ self.map + self.offset
        return (out / np.linalg.norm(out, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def turned(monkeypatch):
    monkeypatch.setitem(encoders.ENCODERS, "turned", "test_adapt:Turned")
    return Turned()


def test_a_world_is_carried_into_another_space(tiny_world, turned):
    world = carried(tiny_world, turned, "turned")
    assert world.dim == WIDTH and world.encoder == "turned" and world.meta["fingerprint"] == "turned-1"
    assert torch.allclose(world.vectors[:20], torch.from_numpy(turned.encode_text(world.texts[:20])), atol=1e-6)
    assert torch.allclose(world.pictures.norm(dim=-1), torch.ones(()), atol=1e-5)
    assert world.meta["carried"]["cosine"] > 0.8  # the made-up encoder is nearly linear in the words
    # a picture is still nearer to a text that it shows than to others
    steps = world.train.steps[world.train.steps >= 0].unique()

    def rest(x):
        return torch.nn.functional.normalize(x - x.mean(0), dim=-1)

    for old in (tiny_world, world):
        texts, pictures = rest(old.vectors)[steps], rest(old.pictures)[old.shows[steps, 0]]
        own = float((texts * pictures).sum(-1).mean())
        assert own > float((texts * pictures.roll(1, 0)).sum(-1).mean()) + 0.1
    # splits stay what they were, and real frames move the pictures
    assert torch.equal(world.picture_owner, tiny_world.picture_owner)
    centre = torch.nn.functional.normalize(torch.ones(WIDTH), dim=-1)
    moved = carried(tiny_world, turned, "turned", centre)
    assert float(torch.nn.functional.cosine_similarity(moved.pictures.mean(0), centre, dim=0)) > 0.95
    assert carried(world, turned, "turned") is world  # nothing to do in its own space


def make_videos(path, encoder, count=8):
    """A store of narrated videos in the encoder's space."""
    g = np.random.default_rng(0)
    with StoreWriter(path, StoreInfo("turned", encoder.fingerprint, dim=WIDTH)) as writer:
        for i in range(count):
            texts = [f"turn knob{i} {j}" for j in range(4)]
            vectors = encoder.encode_text(texts)
            frames = np.repeat(vectors, 6, axis=0) + 0.1 * g.standard_normal((24, WIDTH)).astype(np.float32)
            said = tuple(StoredPhrase(text, 6.0 * j, 6.0 * j + 2) for j, text in enumerate(texts))
            writer.append(StoredVideo(f"v{i}", frames.astype(np.float32), 1.0, 24.0, None, said, vectors))
    return path


def test_a_model_for_another_width_in_seconds(tiny_world, turned, tmp_path):
    config = make_config(TINY)
    said = []
    report = adapt(
        config, tmp_path / "out", turned, "turned", world=tiny_world, device="cpu", quiet=True, say=said.append
    )
    checkpoint = load_checkpoint(report["model"])
    assert checkpoint.encoder == "turned" and checkpoint.model.config.feature_dim == WIDTH == report["dim"]
    assert "zs_iou" in report["scores"]["simulated"] and any("mapped from" in line for line in said)
    # going on with it, now with videos as well: the simulated part is done, the videos' part starts from it
    store = make_videos(tmp_path / "store", turned)
    more = adapt(
        config, tmp_path / "out", turned, "turned", world=tiny_world, store=store, video_steps=2, resume=True,
        device="cpu", quiet=True,
    )  # fmt: skip
    assert set(more["scores"]) == {"simulated", "videos"} and more["hash"] != report["hash"]
    assert load_checkpoint(more["model"]).provenance["data"] == [str(store)]
    with pytest.raises(InputError, match="width 48, encoder wide makes 50"):
        wide = Turned()
        wide.dim = 50
        adapt(config, tmp_path / "x", wide, "wide", world=tiny_world, store=store, quiet=True)
    with pytest.raises(InputError, match="no text side"):
        adapt(config, tmp_path / "x", object(), "blind", quiet=True)


def test_stored_phrases_have_times_in_frames(turned, tmp_path):
    source = StoreBatches([make_videos(tmp_path / "s", turned)], max_frames=12, held_out=0.0, seed=0)
    batch = source.batch(0, 3)
    assert batch.video.shape == (3, 12, WIDTH)
    assert batch.phrase_times[0].tolist() == [0.5, 3.5, 6.5, 9.5]  # the middles, 24 s in 12 frames
    assert source.centre.shape == (WIDTH,)


def test_the_command(tiny_world, turned, tmp_path, capsys):
    tiny_world.save(tmp_path / "w.safetensors")
    assert load_world(tmp_path / "w.safetensors").dim == 64
    given = [f"--set={key}={value}" for key, value in (
        ("model.dim", 32), ("model.layers", 1), ("model.heads", 2),
        ("model.feedforward", 32), ("model.slots", 6), ("data.simulator.max_frames", 30), ("validation.every", 0),
    )]  # fmt: skip
    arguments = ["adapt", "--encoder", "turned", "--world", str(tmp_path / "w.safetensors"), "--out",
                 str(tmp_path / "mine"), "--train-steps", "2", "--batch", "4", "--device", "cpu", *given]  # fmt: skip
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["dim"] == WIDTH and load_checkpoint(report["model"]).provenance["step"] == 2
    assert main(arguments) == 2 and "--resume" in capsys.readouterr().err  # not written over
    from stepformer import load_model

    model = load_model(tmp_path / "mine", encoder=turned)
    frames = torch.nn.functional.normalize(torch.randn(40, WIDTH, generator=torch.Generator().manual_seed(0)), dim=-1)
    assert model.discover_features(frames.numpy(), rate_hz=1.0).duration_s == 40.0
