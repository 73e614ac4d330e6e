"""What a run is made of: presets, TOML and overrides; every mistake gets a sentence."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict

import pytest

from stepformer.core.config import TrainConfig, make_config, merged
from stepformer.errors import UsageError


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
def test_a_config_comes_back_from_its_own_json(preset):
    config = make_config({"preset": preset, "steps": 7, "data": {"store": "here"}, "optim": {"betas": [0.8, 0.9]}})
    assert config.preset == preset and config.data.store == ("here",) and config.optim.betas == (0.8, 0.9)
    assert make_config(json.loads(json.dumps(asdict(config)))) == config


def test_a_file_overrides_the_preset_and_the_command_line_overrides_the_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        'preset = "paper"\nsteps = 50\n[optim]\nlr = 0.01\nclip = 0.5\n[loss.weights]\ndiv = 0.7\n'
        "[data.simulator]\nspoken = 0.5\nsources = {grammar = 1, coin = 0.5}\n"
        '[inference]\nthreshold = "fixed"\nsimilarity = 1\n'
    )
    plain = make_config({"preset": "paper"})
    config = make_config(merged(tomllib.loads(path.read_text()), {"optim.lr": 0.02, "loss.weights.seq": 0}))
    assert (config.steps, config.optim.lr, config.optim.clip) == (50, 0.02, 0.5)
    assert dict(config.loss.weights) == {**plain.loss.weights, "div": 0.7, "seq": 0.0}
    assert config.model == plain.model and config.optim.betas == plain.optim.betas
    assert config.data.simulator.spoken == 0.5
    assert config.data.simulator.sources == (("grammar", 1.0), ("coin", 0.5))


def test_merging_changes_neither_of_the_two():
    values = {"optim": {"lr": 1.0}, "data": {"simulator": {"spoken": 0.5}}}
    out = merged(values, {"optim.lr": 2.0, "data.simulator.spoken": 0.1, "model.layers": 3})
    assert out == {"optim": {"lr": 2.0}, "data": {"simulator": {"spoken": 0.1}}, "model": {"layers": 3}}
    assert values == {"optim": {"lr": 1.0}, "data": {"simulator": {"spoken": 0.5}}}
    with pytest.raises(UsageError, match=r"--set steps\.x: steps is not a section"):
        merged({"steps": 3}, {"steps.x": 1})


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"preset": "huge"}, "no preset 'huge'; there are paper, released, default"),
        ({"stepz": 5}, r"\[run\] has no field 'stepz'; did you mean steps\?"),
        ({"optim": {"rate": 1}}, r"\[optim\] has no field 'rate'; there are: .*lr"),
        ({"data": {"simulator": {"grain": 1}}}, r"\[data.simulator\] has no field 'grain'"),
        ({"model": 5}, r"\[model\] is a section with fields, not 5"),
        ({"data": {"simulator": "big"}}, r"\[data.simulator\] is a section"),
        ({"steps": 0}, r"steps must be a number in \[1, inf\), got 0"),
        ({"batch": 1}, r"batch must be a number in \[2, inf\)"),
        ({"steps": "many"}, "steps must be a whole number, not 'many'"),
        ({"steps": 2.5}, "steps must be a whole number, not 2.5"),
        ({"seed": True}, "seed must be a whole number, not True"),
        ({"optim": {"lr": "fast"}}, r"optim\.lr must be a number, not 'fast'"),
        ({"optim": {"lr": -1.0}}, r"optim\.lr must be a number in \(0, inf\), got -1"),
        ({"optim": {"accumulate": 0}}, r"optim\.accumulate must be a number in \[1, inf\)"),
        ({"optim": {"betas": 3}}, r"\[optim\]: .*iterable"),
        ({"optim": {"betas": [2.0, 3.0]}}, r"optim\.betas must be two numbers in \[0, 1\)"),
        ({"optim": {"ema": 2.0}}, r"optim\.ema must be a number in \[0, 1\)"),
        ({"optim": {"weight_decay": -1}}, r"optim\.weight_decay must be a number in \[0, inf\)"),
        ({"optim": {"clip": -1}}, r"optim\.clip must be a number in \[0, inf\)"),
        ({"save_every": 0}, r"save_every must be a number in \[1, inf\)"),
        ({"log_every": 0}, r"log_every must be a number in \[1, inf\)"),
        ({"seed": -1}, r"seed must be a number in \[0, inf\)"),
        ({"loss": {"weights": {"seq": -1}}}, "loss weights must be numbers of at least 0"),
        ({"loss": {"gamma": 0}}, r"loss\.gamma must be a number in \(0, inf\)"),
        ({"data": {"held_out": -1}}, r"data\.held_out must be a number in \[0, 1\)"),
        ({"validation": {"every": -1}}, r"validation\.every must be a number in \[0, inf\)"),
        ({"optim": {"precision": "fp8"}}, r"optim\.precision must be one of auto, fp32, bf16, fp16, not 'fp8'"),
        ({"model": {"queries": "none"}}, r"model\.queries must be one of content, position"),
        ({"model": {"dim": 33}}, "even and divisible"),
        ({"loss": {"weights": {"speed": 1}}}, "no loss 'speed'; there are: div, glob, seq, smooth"),
        ({"loss": {"weights": 3}}, "loss.weights must be a table"),
        ({"loss": {"weights": {"seq": "much"}}}, r"\[loss\]: "),
        ({"loss": {"best_per_slot": "all"}}, r"loss\.best_per_slot must be a whole number or nothing, not 'all'"),
        ({"inference": {"keep": 2.0}}, r"inference\.keep must be a number in \(0, 1\]"),
        ({"inference": {"ordered": "yes"}}, r"inference\.ordered must be true or false, not 'yes'"),
        ({"data": {"simulator": {"sources": ["grammar"]}}}, r"sources must give each source a share"),
    ],
)
def test_a_mistake_gets_a_sentence(values, sentence):
    with pytest.raises(UsageError, match=sentence):
        make_config(values)


def test_the_default_config_is_whole():
    assert make_config({}).preset == "default"
    assert TrainConfig().steps >= 1
