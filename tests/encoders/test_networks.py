"""I3D and EfficientNet-lite without weights: padding, folding of batch norms, shapes; and with them, known answers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stepformer.base import weights
from stepformer.encoders.efficientnet import LITE0, LITE2, EfficientNetLite
from stepformer.encoders.i3d import I3D, same_padding
from stepformer.errors import InputError


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 3))
def test_same_padding_gives_the_size_over_the_stride(n, kernel, stride):
    before, after = same_padding([n], [kernel], [stride])
    assert 0 <= after - before <= 1
    if before + after > 0 or n >= kernel:
        assert (n + before + after - kernel) // stride + 1 == math.ceil(n / stride)


def test_same_padding_lists_the_last_axis_first():
    assert same_padding([16, 224, 223], [7, 7, 7], [2, 2, 2]) == [3, 3, 2, 3, 2, 3]


def _random_i3d_state(seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for name, value in I3D().state_dict().items():
        module, leaf = name.rsplit(".conv.", 1)
        if leaf == "weight":
            state[name] = torch.randn(value.shape, generator=generator) * 0.05
        elif module.startswith("Logits"):
            state[name] = torch.randn(value.shape, generator=generator)
        else:
            state[f"{module}.norm.bias"] = torch.randn(value.shape, generator=generator)
            state[f"{module}.norm.running_mean"] = torch.randn(value.shape, generator=generator)
            state[f"{module}.norm.running_var"] = torch.rand(value.shape, generator=generator) + 0.5
    return state


def test_i3d_folds_its_batch_norms():
    state = _random_i3d_state()
    network = I3D().eval()
    network.load_published(state)
    x = torch.randn(1, 3, 8, 16, 16)
    unit = "Conv3d_1a_7x7"
    plain = torch.nn.functional.conv3d(
        torch.nn.functional.pad(x, same_padding(x.shape[2:], (7, 7, 7), (2, 2, 2))),
        state[f"{unit}.conv.weight"],
        stride=2,
    )
    mean, var = state[f"{unit}.norm.running_mean"], state[f"{unit}.norm.running_var"]
    expected = torch.nn.functional.batch_norm(plain, mean, var, bias=state[f"{unit}.norm.bias"], eps=1e-3).relu()
    with torch.inference_mode():
        torch.testing.assert_close(network.Conv3d_1a_7x7(x), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(("frames", "pixels"), [(8, 32), (16, 64), (10, 50)])
def test_i3d_takes_any_size(frames, pixels):
    network = I3D().eval()
    with torch.inference_mode():
        scores, features = network(torch.zeros(2, 3, frames, pixels, pixels))
    assert scores.shape == (2, 400) and features.shape == (2, 1024)


def test_i3d_says_which_weight_is_missing():
    state = _random_i3d_state()
    del state["Mixed_4b.Branch_1.Conv3d_0b_3x3.norm.bias"]
    with pytest.raises(InputError, match=r"Mixed_4b\.Branch_1\.Conv3d_0b_3x3\.norm\.bias"):
        I3D().load_published(state)


@pytest.mark.parametrize(("scale", "blocks", "last"), [(LITE0, 16, 320), (LITE2, 21, 352)])
def test_efficientnet_lite_has_the_published_shape(scale, blocks, last):
    network = EfficientNetLite(scale).eval()
    assert len(network._blocks) == blocks
    assert network._conv_head.weight.shape == (1280, last, 1, 1)
    with torch.inference_mode():
        scores, features = network(torch.zeros(1, 3, 65, 64))
    assert scores.shape == (1, 1000) and features.shape == (1, 1280)


def test_efficientnet_says_which_weight_is_missing():
    with pytest.raises(InputError, match="_bn0"):
        EfficientNetLite().load_published({"_conv_stem.weight": torch.zeros(32, 3, 3, 3)})


@pytest.mark.slow
def test_i3d_gives_what_the_published_network_gives():
    path = weights.find("i3d-kinetics400")
    if path is None:
        pytest.skip("the I3D weights are not here: stepformer models pull i3d-kinetics400")
    from safetensors.torch import load_file

    network = I3D().eval()
    network.load_published(load_file(path))
    t, y, x, c = np.ogrid[:16, :224, :224, :3]
    clip = np.sin(0.11 * x + 0.07 * y + 0.5 * t + c).astype(np.float32)[None]
    with torch.inference_mode():
        scores, features = network(torch.from_numpy(clip).permute(0, 4, 1, 2, 3))
    # made once by the JAX network that the weights were published with, on the same clip
    np.testing.assert_allclose(scores[0, :5], [1.4036, 6.0107, 8.1315, 6.2975, 6.0038], atol=1e-3)
    np.testing.assert_allclose(features[0, :5], [0.2604, 0.64284, 0.53545, 0.22779, 0.1444], atol=1e-4)
    assert scores[0].argsort()[-5:].tolist() == [236, 241, 239, 31, 252]


@pytest.mark.parametrize(
    ("size", "kernel", "stride"),
    [
        ((4, 9, 10), (1, 3, 3), (1, 2, 2)),
        ((5, 8, 7), (3, 3, 3), (2, 2, 2)),
        ((2, 5, 6), (2, 2, 2), (2, 2, 2)),
        ((3, 4, 5), (3, 3, 3), (1, 1, 1)),
    ],
)
def test_pooling_integers_is_pooling(size, kernel, stride):
    from stepformer.encoders import i3d, i3d_int8

    whole = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
    expected = i3d._pool(whole.float(), kernel, stride)
    assert torch.equal(i3d_int8._pool(whole, kernel, stride).float(), expected)


def test_an_integer_convolution_is_close_to_the_float_one():
    from stepformer.encoders import i3d_int8

    if not i3d_int8.available():
        pytest.skip("this processor has no 8-bit kernels in torch")
    torch.manual_seed(0)
    weight, bias, x = torch.randn(6, 5, 3, 3, 3) / 11, torch.randn(6), torch.rand(1, 5, 4, 6, 6) * 4
    conv = i3d_int8._Conv(weight, bias, 1, 1, came=4 / 255, goes=8 / 255)
    out = conv((x * 255 / 4).round().to(torch.uint8)) * (8 / 255)
    expected = torch.nn.functional.conv3d(x, weight, bias, padding=1).relu()
    # processors without 8-bit dot products add in 16 bits and saturate: .015 with them, .025 without
    assert float((out - expected).norm() / expected.norm()) < 0.04


def test_integers_stand_for_pixels_around_their_zero():
    """A convolution over pixels: p stands for (p - 128) / 127.5, as the network's first layer has it."""
    from stepformer.encoders import i3d_int8

    if not i3d_int8.available():
        pytest.skip("this processor has no 8-bit kernels in torch")
    torch.manual_seed(0)
    weight, bias = torch.randn(6, 3, 7, 7, 7) / 32, torch.randn(6)
    pixels = torch.randint(0, 256, (1, 3, 9, 15, 15), dtype=torch.uint8)
    conv = i3d_int8._Conv(weight, bias, 2, 0, came=1 / 127.5, goes=4 / 255, zero=128)
    expected = torch.nn.functional.conv3d((pixels.float() - 128) / 127.5, weight, bias, stride=2).relu()
    assert float((conv(pixels) * (4 / 255) - expected).norm() / expected.norm()) < 0.02
