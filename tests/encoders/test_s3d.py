"""S3D: the published key names, and outputs that agree with a second transcription of the network."""

import pytest
import torch
from published import OUTPUTS, clips, filled, layout

from stepformer.encoders import milnce
from stepformer.encoders.checkpoints import load_published
from stepformer.errors import InputError


@pytest.fixture(scope="module")
def state():
    return filled(layout())


@pytest.fixture(scope="module")
def model(state):
    made = milnce.S3D().eval()
    load_published(made, state, "the test's checkpoint")
    return made


def test_layout_is_the_published_one(model):
    own = {k: tuple(v.shape) for k, v in model.state_dict().items() if not k.endswith("num_batches_tracked")}
    assert own == layout()
    assert own["text_module.word_embd.weight"] == (66250, 300)
    assert own["mixed_5c.conv_b1_b.conv2.weight"] == (384, 384, 3, 1, 1)


@pytest.mark.parametrize("shape", [(2, 3, 16, 64, 96), (1, 3, 32, 56, 72)])
def test_outputs_agree_with_a_second_transcription(model, shape):
    expected = OUTPUTS["x".join(map(str, shape))]
    with torch.inference_mode():
        torch.testing.assert_close(model(clips(shape))[:, :8], torch.tensor(expected["joint"]), rtol=1e-3, atol=5e-3)
        pooled = model.pooled(clips(shape))
    assert pooled.shape == (shape[0], 1024)
    torch.testing.assert_close(pooled[:, :8], torch.tensor(expected["pooled"]), rtol=1e-3, atol=5e-3)


def test_words_agree_with_a_second_transcription(model):
    ids = torch.tensor([[5, 66249, 17] + [0] * 13, [1] * 16])
    with torch.inference_mode():
        torch.testing.assert_close(model.text_module(ids)[:, :8], torch.tensor(OUTPUTS["text"]), rtol=1e-4, atol=1e-4)


def test_a_checkpoint_that_differs_is_refused_by_name(state):
    model = milnce.S3D()
    with pytest.raises(InputError, match=r"lacks 1 tensors, for instance fc\.bias"):
        load_published(model, {k: v for k, v in state.items() if k != "fc.bias"}, "x")
    with pytest.raises(InputError, match="do not belong, for instance head"):
        load_published(model, {**state, "head.weight": torch.zeros(1)}, "x")
    with pytest.raises(InputError, match=r"fc\.weight.*\[3\]"):
        load_published(model, {**state, "fc.weight": torch.zeros(3)}, "x")


def test_wrappers_and_counters_of_training_are_accepted(state):
    odd = {f"module.{k}": v for k, v in state.items()} | {"module.conv1.bn1.num_batches_tracked": torch.tensor(7)}
    model = milnce.S3D(words=False)
    load_published(model, odd, "x", ("text_module.",))
    torch.testing.assert_close(model.fc.weight, state["fc.weight"])


def test_odd_clips_are_refused(model):
    with pytest.raises(InputError, match="even"):
        model(torch.zeros(1, 3, 15, 64, 64))
