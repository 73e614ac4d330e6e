"""The released checkpoint, written by torch.save in the released layout, through the command line."""

from __future__ import annotations

import json

import torch

from stepformer.cli import main
from stepformer.core.checkpoint import load_checkpoint, to_released
from stepformer.core.model import StepDecoder, preset


def test_a_released_checkpoint_becomes_ours(tmp_path, capsys):
    torch.manual_seed(0)
    model = StepDecoder(preset("released", feature_dim=32, dim=32, feedforward=48, layers=2)).eval()
    wrapped = {"state_dict": to_released(model), "epoch": 3, "global_step": 100}
    torch.save(wrapped, tmp_path / "released.ckpt")
    assert (
        main(["models", "convert", str(tmp_path / "released.ckpt"), str(tmp_path / "ours.safetensors"), "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["layers"] == 2
    loaded = load_checkpoint(tmp_path / "ours.safetensors")
    video = torch.randn(1, 11, 32)
    assert torch.allclose(loaded.model(video).slots, model(video).slots, atol=1e-6)
    assert loaded.encoder == "univl"


def test_what_is_not_a_checkpoint_gets_a_sentence(tmp_path, capsys):
    (tmp_path / "text.ckpt").write_text("hello")
    assert main(["models", "convert", str(tmp_path / "text.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    assert main(["models", "convert", str(tmp_path / "none.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    torch.save({"state_dict": {"conv.weight": torch.zeros(2)}}, tmp_path / "other.ckpt")
    assert main(["models", "convert", str(tmp_path / "other.ckpt"), str(tmp_path / "x.safetensors")]) == 3
    assert "released StepFormer layout" in capsys.readouterr().err
