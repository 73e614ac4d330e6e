"""The decoder: shapes, masks, lengths, widths, presets, and what the untrained default is."""

from __future__ import annotations

import pytest
import torch

from stepformer.core.checkpoint import load_checkpoint, save_checkpoint, weights_hash
from stepformer.core.model import PRESETS, Attention, ModelConfig, StepDecoder, preset, relative_times, time_codes
from stepformer.core.options import InferenceConfig
from stepformer.errors import InputError, UsageError


def small(name, **changes):
    return StepDecoder(preset(name, **{"feature_dim": 24, "dim": 32, "heads": 4, "feedforward": 48, **changes})).eval()


@pytest.mark.parametrize("name", PRESETS)
def test_shapes_for_any_width_and_length(name):
    model = small(name)
    for n in (1, 2, 7, 90):
        output = model(torch.randn(2, n, 24), attention=True)
        assert output.slots.shape == (2, 32, 24)
        assert output.frames.shape == (2, n, 24)
        assert output.attention.shape == (2, 32, n)
        assert torch.allclose(output.attention.sum(-1), torch.ones(2, 32), atol=1e-5)


@pytest.mark.parametrize("name", PRESETS)
def test_padding_changes_nothing(name):
    model = small(name)
    video = torch.randn(1, 20, 24)
    padded = torch.cat((video, 100 * torch.randn(1, 13, 24)), 1)
    mask = torch.arange(33)[None] < 20
    alone, among = model(video, attention=True), model(padded, mask, attention=True)
    assert torch.allclose(alone.slots, among.slots, atol=1e-5)
    assert torch.allclose(alone.frames, among.frames[:, :20], atol=1e-5)
    assert torch.allclose(alone.attention, among.attention[..., :20], atol=1e-6)
    assert among.attention[..., 20:].abs().max().item() == 0.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_parameter_learns(name):
    model = small(name).train()
    with torch.no_grad():  # away from the start, where some weights are zero
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model(torch.randn(3, 15, 24)).slots.square().sum().backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
    # a bias added to every key shifts all logits alike, so softmax gives it no gradient but rounding; and where the
    # target starts at zero, its first norm has nothing to scale
    expected = {"decoder.0.norm1.weight"} if model.config.queries == "position" else set()
    assert {n for n in without if not n.endswith(".k.bias")} == expected


def test_order_of_frames_matters_and_relative_time_does_not_see_length():
    model = small("paper")
    video = torch.randn(1, 30, 24)
    assert not torch.allclose(model(video).slots, model(video.flip(1)).slots, atol=1e-3)
    short, long = (relative_times(torch.ones(1, n, dtype=torch.bool)) for n in (10, 1000))
    assert float(short[0, 5]) == pytest.approx(float(long[0, 550]), abs=0.2)


def test_frames_of_any_length_are_seen_alike_unless_they_are_taken_as_they_are():
    video = torch.randn(1, 30, 24)
    for name, alike in (("paper", True), ("default", True), ("released", False)):
        model = small(name)
        assert torch.allclose(model(video).slots, model(0.05 * video).slots, atol=1e-4) == alike, name
        assert model(video).frames is video


def test_time_codes_are_the_printed_sinusoids():
    codes = time_codes(torch.tensor([3.0]), 8)[0]
    for i in range(4):
        angle = torch.tensor(3.0 / 10000 ** (2 * i / 8))
        assert float(codes[2 * i]) == pytest.approx(float(angle.sin()), abs=1e-6)
        assert float(codes[2 * i + 1]) == pytest.approx(float(angle.cos()), abs=1e-6)


def test_the_presets_are_what_the_paper_and_the_code_say():
    paper, released = PRESETS["paper"], PRESETS["released"]
    assert (paper.layers, paper.slots, paper.dropout, paper.queries) == (6, 32, 0.1, "content")
    assert (released.dim, released.heads, released.feedforward) == (768, 8, 1024)
    assert (released.queries, released.positions_on, released.output_layer) == ("position", "keys", True)


def test_wrong_input_gets_a_sentence():
    model = small("paper")
    with pytest.raises(UsageError, match=r"\(B, N, 24\)"):
        model(torch.randn(2, 5, 23))
    with pytest.raises(UsageError, match="at least one frame"):
        model(torch.randn(2, 0, 24))
    with pytest.raises(UsageError, match="heads"):
        ModelConfig(dim=30, heads=4)
    with pytest.raises(UsageError, match="no model preset"):
        preset("huge")


# -- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_checkpoint_round_trips(name, tmp_path):
    model = small(name)
    digest = save_checkpoint(tmp_path / "m.safetensors", model, "some-encoder", {"seed": 3}, InferenceConfig(keep=0.2))
    loaded = load_checkpoint(tmp_path / "m.safetensors")
    video = torch.randn(1, 9, 24)
    assert torch.equal(model(video).slots, loaded.model(video).slots)
    assert (loaded.encoder, loaded.provenance) == ("some-encoder", {"seed": 3})
    assert loaded.inference == InferenceConfig(keep=0.2)
    assert loaded.hash == digest == weights_hash(model.state_dict())


def test_unknown_options_are_an_error():
    with pytest.raises(InputError, match="cannot be read"):
        InferenceConfig.from_dict({"keeping": 0.2})


def test_half_precision_is_close(tmp_path):
    model = small("default")
    save_checkpoint(tmp_path / "m.safetensors", model, "e", dtype=torch.float16)
    video = torch.randn(1, 9, 24)
    assert torch.allclose(model(video).slots, load_checkpoint(tmp_path / "m.safetensors").model(video).slots, atol=1e-2)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, small("paper"), "e")
    data = bytearray(path.read_bytes())
    data[-5] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="hash"):
        load_checkpoint(path)
    path.write_bytes(data[:100])
    with pytest.raises(InputError, match="cannot read"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="there is no checkpoint"):
        load_checkpoint(tmp_path / "nothing.safetensors")


def test_a_checkpoint_whose_config_makes_no_sense_is_unreadable_not_a_wrong_option(tmp_path):
    path = tmp_path / "m.safetensors"
    save_checkpoint(path, StepDecoder(preset("default", feature_dim=16, dim=16, heads=2, layers=1, slots=4)), "e")
    whole = path.read_bytes()
    damaged = whole.replace(b'\\"layers\\": 1', b'\\"layers\\": 0')
    assert damaged != whole
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="no valid config"):
        load_checkpoint(path)


def test_a_torch_file_is_told_how_to_become_a_checkpoint(tmp_path):
    torch.save({"a": torch.zeros(2)}, tmp_path / "released.ckpt")
    with pytest.raises(InputError, match="stepformer models convert"):
        load_checkpoint(tmp_path / "released.ckpt")


def test_attention_is_what_torch_modules_compute():
    torch.manual_seed(1)
    theirs, ours = torch.nn.MultiheadAttention(16, 8, batch_first=True).eval(), Attention(16, 8, 0.0).eval()
    with torch.no_grad():
        for i, part in enumerate((ours.q, ours.k, ours.v)):
            part.weight.copy_(theirs.in_proj_weight[16 * i : 16 * (i + 1)])
            part.bias.copy_(theirs.in_proj_bias[16 * i : 16 * (i + 1)])
    ours.out.load_state_dict(theirs.out_proj.state_dict())
    query, key, value = torch.randn(2, 3, 16), torch.randn(2, 7, 16), torch.randn(2, 7, 16)
    mask = torch.arange(7)[None] < torch.tensor([[7], [4]])
    want, weights = theirs(query, key, value, key_padding_mask=~mask)
    assert torch.allclose(ours(query, key, value, mask), want, atol=1e-6)
    assert torch.allclose(ours.weights(query, key, mask), weights, atol=1e-6)


@pytest.mark.parametrize("separate_keys", [False, True])
def test_folded_projections_give_the_plain_attention_and_its_gradients(separate_keys):
    torch.manual_seed(0)
    attention = Attention(48, 4, 0.0).double()
    for layer in (attention.q, attention.k, attention.v):
        torch.nn.init.normal_(layer.bias)
    query = torch.randn(2, 5, 48, dtype=torch.float64, requires_grad=True)
    value = torch.randn(2, 70, 48, dtype=torch.float64, requires_grad=True)
    key = value + torch.randn(1, 70, 48, dtype=torch.float64) if separate_keys else value
    mask = torch.arange(70) < torch.tensor([[70], [31]])
    inputs = (query, value, *attention.parameters())
    results = []
    for attend in (attention._projected, attention._folded):
        out = attend(query, key, value, mask[:, None, None])
        grads = torch.autograd.grad((out * torch.arange(12)).sum(), inputs, allow_unused=True, retain_graph=True)
        # the key bias has no gradient but rounding: it falls out of the softmax
        results.append((out, *(torch.zeros(1) if g is None or g.abs().max() < 1e-9 else g for g in grads)))
    for plain, folded in zip(*results, strict=True):
        torch.testing.assert_close(folded, plain, rtol=1e-9, atol=1e-9)


def test_few_queries_over_many_frames_are_folded(monkeypatch):
    attention = Attention(48, 4, 0.0)
    monkeypatch.setattr(attention, "_projected", None)
    attention(torch.randn(1, 5, 48), torch.randn(1, 70, 48), torch.randn(1, 70, 48), None)
    with pytest.raises(TypeError):
        attention(torch.randn(1, 13, 48), torch.randn(1, 70, 48), torch.randn(1, 70, 48), None)


def test_a_config_far_larger_than_its_weights_is_refused_before_it_is_built(tmp_path):
    import json

    from safetensors import safe_open
    from safetensors.torch import save_file

    path = tmp_path / "c.safetensors"
    save_checkpoint(path, small("paper", dim=24), "none")
    with safe_open(path, framework="pt") as file:
        metadata, state = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for field, value in (("layers", 2**31 - 1), ("feedforward", 2**31 - 1), ("slots", 2**31 - 1)):
        info = json.loads(metadata["stepformer"])
        info["config"][field] = value
        save_file(state, path, {**metadata, "stepformer": json.dumps(info)})
        with pytest.raises(InputError, match="far larger than they are"):
            load_checkpoint(path)
