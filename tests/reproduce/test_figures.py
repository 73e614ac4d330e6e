"""Figures: what is drawn is what was found, and every file is a picture."""

import numpy as np
import pytest
import torch

from stepformer.core.inference import InferenceConfig
from stepformer.core.model import StepDecoder, preset
from stepformer.errors import UsageError
from stepformer.reproduce.figures import attention, draw_figures, make_scene, matched_phrases, named, timelines


@pytest.fixture(scope="module")
def scene(tiny_world):
    torch.manual_seed(0)
    model = StepDecoder(preset("default", feature_dim=64, dim=64, layers=1, context_layers=1)).eval()
    return make_scene(tiny_world, model, InferenceConfig(threshold="automatic"), "test", 0, None, "plain")


def test_clusters_take_the_names_of_the_steps_they_overlap_most_over_all_videos():
    clusters = [np.array([0, 0, 1, 1, -1]), np.array([0, 1, 1, 2, 2])]
    labels = [np.array([1, 1, 0, 0, -1]), np.array([1, 0, 0, -1, -1])]
    a, b = named(clusters, labels)
    assert a.tolist() == [1, 1, 0, 0, -1]
    assert b.tolist() == [1, 0, 0, -2, -2]  # cluster 2 lies on background alone


def test_every_method_has_a_label_for_every_frame(scene):
    n = len(scene.trial.labels()[scene.video])
    found = timelines(scene, fit=())
    assert list(found) == ["uniform", "K-means", "pooled32", "StepFormer"]
    for labels in found.values():
        assert labels.shape == (n,) and labels.min() >= -2 and labels.max() < len(scene.step_names)
    shown = attention(scene)
    for similarity, located in shown.values():
        assert similarity.shape == (len(scene.instance_names), n) and located.shape == (n,)
        # every given step takes a frame
        assert set(located[located >= 0].tolist()) == set(range(len(scene.instance_names)))


def test_matched_phrases_keep_the_order_of_the_slots(scene):
    texts, slots, steps = matched_phrases(scene)
    assert len(texts) == len(slots) == len(steps) > 0
    taken = slots[slots >= 0]
    assert (np.diff(taken) > 0).all()  # one-to-one and in order


def test_files_are_pictures(scene, tmp_path):
    for path in draw_figures(scene, tmp_path, fit=()):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000


def test_a_task_or_video_that_is_not_there(tiny_world):
    model = StepDecoder(preset("default", feature_dim=64, dim=64, layers=1, context_layers=1)).eval()
    with pytest.raises(UsageError, match="has tasks 0 to"):
        make_scene(tiny_world, model, InferenceConfig(), "test", 999, None, "plain")
    with pytest.raises(UsageError, match="has videos 0 to"):
        make_scene(tiny_world, model, InferenceConfig(), "test", 0, 999, "plain")
