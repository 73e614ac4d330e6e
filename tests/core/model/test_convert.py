"""Checkpoints of the released code, in its layout and against its decoder, both written from their description."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from released import decode, position_table, random_state

from stepformer.cli import main
from stepformer.core.checkpoint import from_released, load_checkpoint
from stepformer.core.model import StepDecoder, preset
from stepformer.errors import InputError, UsageError


def convert(tmp_path, state):
    torch.save({"state_dict": state, "epoch": 3, "global_step": 100}, tmp_path / "released.ckpt")
    target = tmp_path / "ours.safetensors"
    assert main(["models", "convert", str(tmp_path / "released.ckpt"), str(target), "--json"]) == 0
    return load_checkpoint(target)


def difference(model, state, frames=40, seed=1):
    video = np.random.default_rng(seed).standard_normal((frames, model.config.feature_dim)).astype(np.float32)
    with torch.no_grad():
        slots = model.double()(torch.from_numpy(video)[None].double()).slots[0].numpy()
    return float(np.abs(slots - decode(state, video)).max())


@pytest.mark.parametrize("scale", [1, 3, 6])
@pytest.mark.parametrize("kind", ["formula", "own", "none"])
def test_the_converted_model_is_the_released_decoder(tmp_path, capsys, scale, kind):
    """With their formula's positions, with a table of their own, and without any, at any strength of attention."""
    tables = {
        "formula": position_table(60, 64),
        "own": np.random.default_rng(5).standard_normal((60, 64)),
        "none": None,
    }
    state = random_state(scale=scale, positions=tables[kind])
    loaded = convert(tmp_path, state)
    said = json.loads(capsys.readouterr().out)
    assert (said["layers"], said["slots"], loaded.encoder) == (3, 5, "univl")
    assert said["positions"] == {"formula": "released", "own": "60 of its own", "none": "none"}[kind]
    assert (loaded.model.config.positions == "none") == (kind == "none")
    assert loaded.model.config.position_rows == (60 if kind == "own" else 0)
    assert difference(loaded.model, state) < 1e-5


def test_positions_matter_to_the_test():
    """The textbook's codes, or none, in place of theirs give other slots: the agreement above is not by accident."""
    state = random_state(scale=6, positions=position_table(60, 64))
    model = from_released(state)
    for change in ({"position_code": "textbook"}, {"positions": "none"}):
        other = StepDecoder(preset("released", **{**asdict(model.config), **change})).eval()
        other.load_state_dict(model.state_dict())
        assert difference(other, state) > 0.1


def test_the_preset_has_their_positions():
    model = StepDecoder(preset("released", feature_dim=64, dim=64, slots=5, layers=3, feedforward=96)).eval()
    state = random_state(scale=6, positions=position_table(60, 64))
    model.load_state_dict(from_released(state).state_dict())
    assert difference(model, state) < 1e-5


def test_a_video_longer_than_a_stored_table_gets_a_sentence():
    model = from_released(random_state(positions=np.ones((10, 64))))
    assert model(torch.randn(1, 10, 64)).slots.shape == (1, 5, 64)
    with pytest.raises(UsageError, match="position codes for 10 frames"):
        model(torch.randn(1, 11, 64))


def test_padding_and_batches_change_nothing_with_a_stored_table():
    model = from_released(random_state(positions=np.random.default_rng(0).standard_normal((12, 64))))
    video, mask = torch.randn(2, 12, 64), torch.arange(12)[None] < torch.tensor([[12], [7]])
    assert torch.allclose(model(video, mask).slots[1], model(video[1:, :7]).slots[0], atol=1e-5)


def test_a_foreign_state_is_refused():
    with pytest.raises(InputError, match="released StepFormer layout"):
        from_released({"conv1.weight": torch.zeros(3)})
    state = random_state()
    with pytest.raises(InputError, match=r"extra\.weight"):
        from_released({**state, "model.extra.weight": torch.zeros(2)})
    with pytest.raises(InputError, match=r"pos_enc_like\.pe has the shape"):
        from_released({**state, "model.pos_enc_like.pe": torch.zeros(1, 10, 32)})
    with pytest.raises(InputError, match="do not fit"):
        from_released({**state, "model.decoder.norm.bias": torch.zeros(3)})
    del state["model.decoder.layers.0.norm1.bias"]
    with pytest.raises(InputError, match=r"lacks decoder\.layers\.0\.norm1\.bias"):
        from_released(state)


def test_what_is_not_a_checkpoint_gets_a_sentence(tmp_path, capsys):
    (tmp_path / "text.ckpt").write_text("hello")
    assert main(["models", "convert", str(tmp_path / "text.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    assert main(["models", "convert", str(tmp_path / "none.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    torch.save({"state_dict": {"conv.weight": torch.zeros(2)}}, tmp_path / "other.ckpt")
    assert main(["models", "convert", str(tmp_path / "other.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    assert "released StepFormer layout" in capsys.readouterr().err
