"""StepFormer from features and from files: planted steps are found, options work, odd videos are survived."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from discover_parts import ColourEncoder, planted, tiny_checkpoint, tiny_model, write_video

import stepformer as sf
from stepformer.app.discover.loading import load_model
from stepformer.app.discover.options import DiscoverOptions
from stepformer.errors import InputError, MissingError, NonFiniteError, UsageError
from stepformer.narration import Listening

RED, GREEN, BLUE, WHITE = (220, 20, 20), (20, 200, 30), (20, 30, 220), (235, 235, 235)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPFORMER_CACHE", str(tmp_path / "cache"))


def cuts(timeline):
    return [step.start_s for step in timeline] + [timeline[-1].end_s]


@pytest.mark.parametrize("seed", range(4))
def test_planted_steps_are_found_exactly(model, seed):
    vectors, _, edges = planted(seed=seed, noise=0.25)
    timeline = model.discover_features(vectors)
    assert cuts(timeline) == edges
    slots = [step.slot for step in timeline]
    assert slots == sorted(slots) and len(set(slots)) == len(slots)
    assert all(step.score is not None and step.label is None for step in timeline)


def test_times_follow_the_rate(model):
    vectors, _, edges = planted()
    assert cuts(model.discover_features(vectors, rate_hz=0.5)) == [2.0 * e for e in edges]


def test_features_of_a_high_rate_are_averaged_down(model):
    vectors, _, edges = planted()
    timeline = model.discover_features(np.repeat(vectors, 16, 0), rate_hz=16.0)
    assert np.allclose(cuts(timeline), edges, atol=0.26) and timeline.duration_s == 85


def test_structure_places_the_cuts(model):
    rng = np.random.default_rng(0)
    same = np.ones((40, 64), np.float32) + 0.05 * rng.standard_normal((40, 64)).astype(np.float32)
    structure = np.repeat(rng.standard_normal((2, 10)), [13, 27], 0) + 0.05 * rng.standard_normal((40, 10))
    timeline = model.discover_features(same, structure=structure, use="structure")
    assert cuts(timeline) == [0, 13, 40]


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 9, 14])
def test_about_so_many_steps(model, steps):
    vectors, _, _ = planted(lengths=(9,) * 14)
    assert abs(len(model.discover_features(vectors, steps=steps)) - steps) <= 1


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_slots_alone_in_so_many_steps_show_the_same_part_of_the_video(model, steps):
    vectors, _, _ = planted(lengths=(9,) * 8)
    default = model.discover_features(vectors, use="slots")
    given = model.discover_features(vectors, use="slots", steps=steps)
    assert len(given) == steps and len(default) != steps
    assert sum(s.duration_s for s in given) >= 0.9 * sum(s.duration_s for s in default)


def test_slots_alone_with_less_detail_give_fewer_steps(model):
    vectors, _, _ = planted(lengths=(3,) * 20, noise=0.8)
    counts = [len(model.discover_features(vectors, use="slots", detail=d)) for d in (0.0, 0.25, 0.5)]
    assert 0 < counts[0] < counts[1] < counts[2]


def test_more_steps_than_slots(model):
    vectors, _, edges = planted(lengths=(5,) * 40, noise=0.2)
    timeline = model.discover_features(vectors, steps=40)
    assert len(timeline) > 32 and set(cuts(timeline)) <= set(edges)


def test_detail_gives_more(model):
    vectors, _, _ = planted(lengths=(3,) * 20, noise=0.8)
    counts = [len(model.discover_features(vectors, detail=d)) for d in (0.0, 0.5, 1.0)]
    assert counts == sorted(counts) and counts[0] < counts[2]


def test_a_high_line_drops_all_and_a_low_one_nothing(model):
    vectors, _, _ = planted()
    assert len(model.discover_features(vectors, similarity=1.5)) == 0
    low = model.discover_features(vectors, similarity=-1.5)
    assert sum(step.duration_s for step in low) == 85
    assert len(model.discover_features(vectors, percentile=0.0, use="slots")) > 0


def test_the_options_are_checked():
    for wrong in ({"steps": 0}, {"steps": 2, "detail": 0.5}, {"detail": 2.0}, {"percentile": 100}, {"use": "magic"},
                  {"use": "structure", "similarity": 0.3}, {"similarity": float("nan")}):  # fmt: skip
        with pytest.raises(UsageError):
            DiscoverOptions(**wrong)
    with pytest.raises(TypeError, match="stpes"):
        tiny_model().discover_features(planted()[0], stpes=3)


def test_provenance_is_complete(model):
    meta = model.discover_features(planted()[0], steps=4).meta
    assert meta["stepformer"] == sf.__version__ and meta["model"] == {"name": "tiny", "hash": "0" * 64}
    assert meta["options"]["steps"] == 4 and meta["command"] == "discover" and meta["method"] == "slots+structure"


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_the_shortest_videos(model, frames):
    timeline = model.discover_features(planted()[0][:frames])
    assert 1 <= len(timeline) <= frames and timeline.duration_s == frames


def test_a_picture_that_never_changes_has_no_steps(model):
    timeline = model.discover_features(np.full((60, 64), 0.3))
    assert len(timeline) == 0 and "never changes" in timeline.meta["notes"][0]


def test_an_hour_is_cut_where_it_changes(model):
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.standard_normal((6, 64)), 600, 0) + 0.3 * rng.standard_normal((3600, 64))
    # untrained slots prefer one half of a long step to the other, for no reason: their part is left out
    assert cuts(model.discover_features(vectors, use="structure")) == [600.0 * i for i in range(7)]


def test_features_that_are_not(model):
    with pytest.raises(NonFiniteError, match=r"vectors\[2, 5\]"):
        bad = planted()[0]
        bad[2, 5] = np.nan
        model.discover_features(bad)
    with pytest.raises(UsageError, match="64"):
        model.discover_features(np.zeros((10, 32)))
    with pytest.raises(InputError):
        model.discover_features(np.zeros((0, 64)))
    with pytest.raises(UsageError, match="rate_hz"):
        model.discover_features(planted()[0], rate_hz=0)


# -- localisation -----------------------------------------------------------------------------------------------


def test_given_steps_are_located(model):
    vectors, centres, edges = planted()
    timeline = model.locate_features(vectors, list("abcde"), text_vectors=centres)
    assert cuts(timeline) == edges and [step.label for step in timeline] == list("abcde")
    assert timeline.meta["absent"] == [] and timeline.meta["method"] == "text"


def test_by_slots_alone_they_come_in_order(model):
    vectors, centres, _ = planted()
    timeline = model.locate_features(vectors, list("abcde"), text_vectors=centres, method="slots")
    assert [step.label for step in timeline] == list("abcde") and timeline.meta["method"] == "slots"
    assert all(step.slot is not None for step in timeline)


def test_any_order(model):
    vectors, centres, _ = planted(lengths=(12, 20, 8, 30))
    timeline = model.locate_features(
        vectors, list("abcd"), text_vectors=centres[[2, 0, 3, 1]], ordered=False, method="text"
    )
    assert [step.label for step in timeline] == ["b", "d", "a", "c"]


def test_more_texts_than_slots(model):
    vectors, centres, edges = planted(lengths=(5,) * 40)
    timeline = model.locate_features(vectors, [str(i) for i in range(40)], text_vectors=centres)
    assert len(timeline) == 40 and np.abs(np.array(cuts(timeline)) - edges).mean() < 2.5


def test_more_texts_than_frames(model):
    vectors, centres, _ = planted(lengths=(1,) * 6)
    timeline = model.locate_features(vectors[:3], list("abcdef"), text_vectors=centres)
    assert len(timeline) <= 3 and len(timeline.meta["absent"]) >= 3


def test_a_step_that_is_not_there_is_absent(model, monkeypatch):
    texts = ["crack two eggs", "whisk the milk", "pour hot oil"]
    said = model.encoder.encode_text(texts)
    rng = np.random.default_rng(0)
    vectors = np.repeat(said, 20, 0) + 0.05 * rng.standard_normal((60, 64)).astype(np.float32)
    elsewhere = -said.sum(0) / np.linalg.norm(said.sum(0))
    real = model.encoder.encode_text
    monkeypatch.setattr(
        model.encoder, "encode_text", lambda t: np.stack([elsewhere if x == "fly" else real([x])[0] for x in t])
    )
    found = model.locate_features(vectors, [texts[0], "fly", *texts[1:]])
    assert found.meta["absent"] == ["fly"]
    assert [step.label for step in found] == texts and cuts(found) == [0, 20, 40, 60]


def test_texts_are_checked(model):
    for wrong in ([], ["a", " "], "abc"):
        with pytest.raises(UsageError):
            model.locate_features(planted()[0], wrong)


# -- files ------------------------------------------------------------------------------------------------------


def test_a_video_file_and_what_is_kept_of_it(tmp_path):
    model = tiny_model()
    video = write_video(tmp_path / "colours.mp4", [RED, GREEN, BLUE, WHITE])
    seen = []
    timeline = model.discover(video, report=lambda done, total: seen.append((done, total)))
    assert np.allclose(cuts(timeline), [0, 4, 8, 12, 16], atol=1.01) and seen[-1][0] == pytest.approx(16, abs=0.3)
    assert all(step.meta["guess"] and step.label for step in timeline)
    names = [step.label for step in timeline]
    assert all(a != b for a, b in itertools.pairwise(names))
    before = model.encoder.videos_encoded
    assert model.discover(video).to_json() == timeline.to_json()
    assert model.encoder.videos_encoded == before
    model.discover(video, cache=False, labels="none")
    assert model.encoder.videos_encoded > before


def test_short_videos_are_looked_at_more_often(tmp_path):
    from stepformer.encoders.reading import looks_hz

    assert [looks_hz(t, 1.0) for t in (0.0, 8.0, 21.0, 33.0, 64.0, 500.0)] == [2, 2, 2, 2, 1, 1]
    features = tiny_model().read(write_video(tmp_path / "v.mp4", [RED, GREEN, BLUE], seconds_each=3))
    assert features.rate_hz == 2 and len(features) == 18


def test_pictures_share_a_vector_where_the_encoder_can(tmp_path):
    from stepformer.encoders.reading import pictures_per_look

    often = [(8.0, 4.0), (47.0, 2.0), (48.0, 2.0), (64.0, 1.0), (127.0, 1.0), (128.0, 1.0), (500.0, 1.0), (64.0, 0.5)]
    assert [pictures_per_look(*each, 1.0) for each in often] == [1, 1, 2, 1, 1, 2, 3, 1]
    model = tiny_model()
    asked = []

    def encode_often(frames, times):
        asked.append((len(frames), times))
        return model.encoder.encode_video(frames)

    model.encoder.encode_often = encode_often
    model.read(write_video(tmp_path / "v.mp4", [RED, GREEN, BLUE], seconds_each=3))
    assert asked == [(4, 1)] * 4 + [(2, 1)]  # four at a time, each with a vector of its own
    asked.clear()
    model.read(write_video(tmp_path / "w.mp4", [RED, GREEN, BLUE], seconds_each=17))
    assert asked == [(8, 2)] * 12 + [(6, 2)]  # four pairs at a time


def test_a_damaged_cache_is_made_again(tmp_path):
    model = tiny_model()
    video = write_video(tmp_path / "v.mp4", [RED, GREEN])
    first = model.discover(video, labels="none")
    for kept in (tmp_path / "cache" / "features").iterdir():
        kept.write_bytes(b"nonsense")
    assert model.discover(video, labels="none").to_json() == first.to_json()


def test_a_huge_file_that_is_no_video_is_refused_without_being_read(tmp_path):
    """Its hash alone would take minutes."""
    video = tmp_path / "v.mp4"
    video.touch()
    os.truncate(video, 100 << 30)
    began = time.process_time()
    with pytest.raises(InputError, match=r"v\.mp4"):
        tiny_model().read(video)
    assert time.process_time() - began < 5


def test_memory_is_flat_in_the_number_of_videos(tmp_path):
    """Sixty videos, one after the other, need no more than twenty."""
    model, held = tiny_model(), []
    video = write_video(tmp_path / "v.mp4", [RED, GREEN], seconds_each=2)
    for number in range(60):
        shutil.copy(video, tmp_path / f"{number}.mp4")
        model.discover(tmp_path / f"{number}.mp4", cache=number % 2 == 0)
        held.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert held[59] - held[19] < 8 << 20, [n >> 20 for n in held[::10]]


class Stopped(KeyboardInterrupt):
    """Ctrl-C at a moment of our choice."""


@pytest.mark.parametrize("batches", [1, 5, 9])
def test_a_stopped_run_goes_on_where_it_was_and_gives_the_same(tmp_path, batches):
    video = write_video(tmp_path / "v.mp4", [RED, GREEN, BLUE, WHITE, RED])  # 20 s, two looks a second
    whole = tiny_model().read(video, cache=False)
    model = tiny_model()
    encode, given = model.encoder.encode_video, []

    def stops(frames):
        if len(given) == batches:
            raise Stopped
        given.append(frames)
        return encode(frames)

    model.encoder.encode_video = stops
    with pytest.raises(Stopped):
        model.read(video)
    seen = []
    again = tiny_model()
    features = again.read(video, lambda done, total: seen.append(done))
    assert again.encoder.videos_encoded == len(whole) // 4 - batches and seen[0] == pytest.approx(2 * (batches + 1))
    assert np.array_equal(features.vectors, whole.vectors) and np.array_equal(features.structure, whole.structure)
    assert (features.duration_s, features.rate_hz, features.problems) == (whole.duration_s, whole.rate_hz, ())
    assert not list((tmp_path / "cache" / "features").glob("*.partial"))


def test_chunks_are_kept_while_a_video_is_read_for_a_run_that_is_killed(tmp_path, monkeypatch):
    from stepformer.encoders import reading as features

    monkeypatch.setattr(features, "_CHUNK_S", -1.0)
    monkeypatch.setattr(features, "_keep", lambda *_: None)
    monkeypatch.setattr(features.shutil, "rmtree", lambda *_, **__: None)
    video = write_video(tmp_path / "v.mp4", [RED, GREEN, BLUE])
    first = tiny_model().read(video)
    (folder,) = (tmp_path / "cache" / "features").glob("*.partial")
    chunks = sorted(folder.iterdir())
    assert len(chunks) == 6
    chunks[4].write_bytes(b"nonsense")  # from there on it is read again
    again = tiny_model()
    assert np.array_equal(again.read(video).vectors, first.vectors) and again.encoder.videos_encoded == 6 - 4


def test_a_renamed_copy_is_known_and_a_changed_file_is_not(tmp_path):
    video = write_video(tmp_path / "v.mp4", [RED, GREEN])
    model = tiny_model()
    first = model.read(video)
    (tmp_path / "elsewhere").mkdir()
    copy = Path(shutil.copyfile(video, tmp_path / "elsewhere" / "copy.mp4"))
    before = model.encoder.videos_encoded
    assert np.array_equal(model.read(copy).vectors, first.vectors) and model.read(copy).video == str(copy)
    assert model.encoder.videos_encoded == before
    write_video(copy, [GREEN, RED])
    assert not np.array_equal(model.read(copy).vectors, first.vectors)


def test_one_second_and_all_black(tmp_path):
    model = tiny_model()
    short = model.discover(write_video(tmp_path / "s.mp4", [RED], seconds_each=1))
    assert len(short) == 1 and short[0].end_s == pytest.approx(1.0, abs=0.3)
    black = model.discover(write_video(tmp_path / "b.mp4", [(0, 0, 0)], seconds_each=20))
    assert len(black) == 0 and "never changes" in black.meta["notes"][0]


def test_no_video_stream(tmp_path):
    import wave

    with wave.open(str(tmp_path / "sound.wav"), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0\0" * 8000)
    with pytest.raises(InputError, match=r"sound\.wav"):
        tiny_model().discover(tmp_path / "sound.wav")


# -- loading ----------------------------------------------------------------------------------------------------


def test_models_by_name_file_and_folder(tmp_path, monkeypatch):
    file = tiny_checkpoint(tmp_path / "mine.safetensors")
    for name in (file, str(file), tmp_path):
        assert load_model(name, encoder=ColourEncoder(), device="cpu").checkpoint.model.config.slots == 32
    monkeypatch.setenv("STEPFORMER_MODELS", str(tmp_path))
    assert sf.load_model("mine", encoder=ColourEncoder(), device="cpu").name == "mine"
    assert sf.StepFormer is type(sf.load_model("mine", device="cpu"))


def test_models_that_are_not_there(tmp_path, monkeypatch):
    with pytest.raises(MissingError, match="no model is called 'nothing'"):
        load_model("nothing")
    with pytest.raises(InputError, match="no checkpoint"):
        load_model(tmp_path / "gone.safetensors")
    with pytest.raises(InputError, match="holds no checkpoint"):
        load_model(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingError, match="pip install huggingface_hub"):
        load_model("someone/something")


def test_an_encoder_of_another_width(tmp_path):
    encoder = ColourEncoder()
    encoder.dim = 12
    model = load_model(tiny_checkpoint(tmp_path / "m.safetensors"), encoder=encoder, device="cpu")
    with pytest.raises(UsageError, match="64 dimensions"):
        _ = model.encoder


# -- the real thing ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_default_model_on_a_real_video_with_subtitles(tmp_path, monkeypatch):
    """The shipped model and encoder on the demo clip: names come from what is said, boundaries beat equal parts."""
    monkeypatch.delenv("STEPFORMER_CACHE")
    from stepformer.base import weights

    try:
        video = weights.pull("demo-video", quiet=True)
        model = sf.load_model("default", device="cpu")
        encoder = model.encoder
    except MissingError as error:
        pytest.skip(f"weights are not here: {error}")
    said = tmp_path / "talk.srt"
    said.write_text(
        "1\n00:00:01,500 --> 00:00:04,000\nFirst turn on the tap.\n\n"
        "2\n00:00:08,000 --> 00:00:09,500\nNow put some soap on your hands.\n\n"
        "3\n00:00:16,000 --> 00:00:19,000\nRinse your hands under the water.\n"
    )
    timeline = model.discover(video, listening=Listening(said))
    assert 5 <= len(timeline) <= 12
    spoken = {step.label for step in timeline if step.meta.get("source") == "spoken"}
    assert {"turn on the tap", "put soap on the hands"} <= spoken
    located = model.locate(video, ["turn on the tap", "rinse the hands", "change the tyre of a car"])
    assert located.meta["absent"] == ["change the tyre of a car"]
    assert encoder.name == "clip"


def test_a_model_of_an_unknown_encoder_asks_for_it(tmp_path):
    model = load_model(tiny_checkpoint(tmp_path / "m.safetensors"))  # it names "colours", which is not registered
    with pytest.raises(UsageError, match=r"takes vectors of 'colours'.*--encoder"):
        model.encoder  # noqa: B018


class TableEncoder(ColourEncoder):
    """Knows the vectors of some texts only, as a table of precomputed ones does."""

    known = ("open the box", "close the box")

    def encode_text(self, texts):
        if any(text not in self.known for text in texts):
            raise InputError("table.npz has no vector for a text")
        return super().encode_text(texts)


def test_without_vectors_for_the_phrase_bank_texts_are_present_and_steps_unnamed():
    from stepformer.app.discover.stepformer import StepFormer
    from stepformer.encoders.reading import Features

    model = StepFormer(tiny_model().checkpoint, "tiny", TableEncoder())
    vectors, _, _ = planted()
    found = model.place(Features(vectors), TableEncoder.known).timeline
    assert found.meta["absent"] == [] and "every text is assumed to be present" in found.meta["notes"][0]
    unnamed = model.find(Features(vectors), DiscoverOptions()).timeline
    assert all(step.label is None for step in unnamed) and "steps are not named" in unnamed.meta["notes"][0]
    with pytest.raises(InputError, match="no vector"):  # a bank that was asked for is not left out in silence
        model.find(Features(vectors), DiscoverOptions(), bank=["stir the pot"])


def test_memory_does_not_grow_with_the_number_of_videos(model, tmp_path):
    """Of what a video needed, its timeline stays."""
    import resource

    def grown(count):
        """KiB that the process gained at most while this number of videos were discovered."""
        Path("/proc/self/clear_refs").write_text("5")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        kept = [model.discover(video) for _ in range(count)]
        assert len(kept) == count
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    video = tmp_path / "v.mp4"
    write_video(video, [(220, 20, 20), (20, 30, 220)])
    grown(5)  # what is imported and made once
    assert grown(60) < grown(5) + (8 << 10)


@pytest.mark.slow
def test_three_hours_take_less_time_than_they_play_and_the_memory_of_minutes(tmp_path):
    """With the default model. Pictures stand still in between, as slides do; all others take some minutes more."""
    code = (
        "import resource, sys, stepformer; t = stepformer.load_model('default').discover(sys.argv[1], cache=False); "
        "print(len(t), t.duration_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"
    )
    # what is freed goes back to the system: what is in use is measured, not the holes in the heap
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000"}
    colours = [(60 + 180 * (i % 2), 30 + 40 * (i % 5), 20 + 30 * (i % 7)) for i in range(90)]
    peaks_mib = []
    for name, count in (("minutes.mp4", 3), ("hours.mp4", 90)):
        video = write_video(tmp_path / name, colours[:count], seconds_each=120, rate=1, size=(256, 144))
        began = time.monotonic()
        command = [sys.executable, "-c", code, str(video)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        steps, length_s, peak_mib = map(float, said.stdout.split())
        assert steps and length_s == pytest.approx(120 * count, abs=2)
        peaks_mib.append(peak_mib)
    assert time.monotonic() - began < 10_800 / 4
    assert peaks_mib[1] < peaks_mib[0] + 100, peaks_mib
