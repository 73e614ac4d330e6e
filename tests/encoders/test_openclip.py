"""OpenCLIP's real models and tokenisers, small and randomly initialised.

open_clip imports torchvision for its own picture transforms, which this encoder does not use. Where torchvision has no
build for the installed torch, an empty stand-in lets the rest of open_clip load; all else here is the real thing.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
import types

import numpy as np
import pytest
import torch

from stepformer.errors import MissingError, UsageError


class _Anything(types.ModuleType):
    """A module that has every name, each of them a class without use."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"BICUBIC": "bicubic", "BILINEAR": "bilinear"})


@pytest.fixture
def open_clip(monkeypatch):
    if importlib.util.find_spec("open_clip") is None:
        pytest.skip("open_clip is not installed: pip install 'stepformer[openclip]'")
    try:
        import torchvision.transforms  # noqa: F401
    except (ImportError, RuntimeError):
        for name in ("", ".transforms", ".transforms.functional", ".ops", ".ops.misc"):
            stand_in = _Anything("torchvision" + name)
            stand_in.__path__ = []
            stand_in.__spec__ = importlib.machinery.ModuleSpec("torchvision" + name, None, is_package=True)
            monkeypatch.setitem(sys.modules, "torchvision" + name, stand_in)
            parent, _, last = ("torchvision" + name).rpartition(".")
            if parent:
                setattr(sys.modules[parent], last, stand_in)
    yield importlib.import_module("open_clip")
    if isinstance(sys.modules.get("torchvision"), _Anything):  # nothing built on the stand-in outlives the test
        for name in [name for name in sys.modules if name.split(".")[0] == "open_clip"]:
            monkeypatch.delitem(sys.modules, name)


def tiny_clip(open_clip, seed=0):
    torch.manual_seed(seed)
    model = open_clip.CLIP(
        embed_dim=24,
        vision_cfg={"image_size": 32, "layers": 2, "width": 32, "patch_size": 16, "head_width": 16},
        text_cfg={"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    )
    model.visual.preprocess_cfg = {
        "size": (32, 32), "mode": "RGB", "mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4),
        "interpolation": "bicubic", "resize_mode": "shortest", "fill_color": 0,
    }  # fmt: skip
    return model


def load(open_clip):
    from stepformer.encoders.openclip import OpenClipEncoder

    return OpenClipEncoder("ViT-B-32/none", network=tiny_clip(open_clip))


def test_shapes_and_unit_length(open_clip):
    encoder = load(open_clip)
    assert (encoder.dim, encoder.wants.size, encoder.wants.frames, encoder.wants.resize) == (24, (32, 32), 2, "crop")
    video = encoder.encode_video(np.random.default_rng(0).integers(0, 256, (3, 2, 32, 32, 3), dtype=np.uint8))
    texts = encoder.encode_text(["whisk the eggs", "pour"])
    assert video.vectors.shape == (3, 24) and texts.shape == (2, 24) and video.structure is None
    np.testing.assert_allclose(np.linalg.norm(video.vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(texts, axis=1), 1, atol=1e-5)
    assert encoder.encode_text([]).shape == (0, 24)


def test_a_second_is_the_mean_of_its_pictures_through_the_models_own_normalisation(open_clip):
    encoder = load(open_clip)
    frames = np.random.default_rng(1).integers(0, 256, (1, 2, 32, 32, 3), dtype=np.uint8)
    pixels = torch.from_numpy(frames[0].transpose(0, 3, 1, 2) / 255.0)
    pixels = (pixels - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    with torch.inference_mode():
        each = torch.nn.functional.normalize(tiny_clip(open_clip).eval().encode_image(pixels.float()), dim=-1)
    expected = torch.nn.functional.normalize(each.mean(0), dim=-1).numpy()
    np.testing.assert_allclose(encoder.encode_video(frames).vectors[0], expected, atol=1e-5)


def test_the_fingerprint_knows_the_weights(open_clip):
    from stepformer.encoders.openclip import OpenClipEncoder

    other = OpenClipEncoder("ViT-B-32/none", network=tiny_clip(open_clip, seed=1))
    assert other.fingerprint != load(open_clip).fingerprint == load(open_clip).fingerprint


def test_a_real_architecture_by_name_from_a_checkpoint_file(open_clip, tmp_path):
    """RN50's smallest sibling by open_clip's own name, its random weights saved and loaded through open_clip."""
    from stepformer.encoders.openclip import OpenClipEncoder

    torch.manual_seed(0)
    model = open_clip.create_model("ViT-S-32-alt", pretrained=None)
    torch.save(model.state_dict(), tmp_path / "w.pt")
    encoder = OpenClipEncoder(f"ViT-S-32-alt/{tmp_path / 'w.pt'}")
    assert (encoder.dim, encoder.wants.size) == (256, (224, 224))
    out = encoder.encode_video(np.zeros((1, 2, 224, 224, 3), np.uint8)).vectors
    mean, deviation = (torch.tensor(v).view(1, 3, 1, 1) for v in (model.visual.image_mean, model.visual.image_std))
    with torch.inference_mode():
        expected = model.eval().encode_image((torch.zeros(1, 3, 224, 224) - mean) / deviation, normalize=True)
    np.testing.assert_allclose(out, expected.numpy(), atol=1e-5)


def test_names_without_weights_and_unknown_names(open_clip):
    from stepformer.encoders.openclip import OpenClipEncoder

    with pytest.raises(UsageError, match="laion2b_s34b_b79k"):
        OpenClipEncoder("ViT-B-32")
    with pytest.raises(UsageError, match="needs a model"):
        OpenClipEncoder()
    with pytest.raises(MissingError, match="cannot load"):
        OpenClipEncoder("ViT-Nonsense/none")


def test_without_open_clip_the_extra_is_named(monkeypatch):
    from stepformer.encoders.openclip import OpenClipEncoder

    monkeypatch.setitem(sys.modules, "open_clip", None)
    with pytest.raises(MissingError, match=r"open_clip"):
        OpenClipEncoder("ViT-B-32/openai")


def test_clip_openai_reads_with_the_published_tower(open_clip):
    from stepformer.encoders.clip import ClipEncoder

    true = load(open_clip)
    encoder = ClipEncoder("openai", text=true, network=object())
    assert encoder.name == "clip:openai" and true.fingerprint in encoder.fingerprint
    np.testing.assert_array_equal(encoder.encode_text(["whisk"]), true.encode_text(["whisk"]))
