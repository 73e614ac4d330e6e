"""The training loop: the same numbers every time, stopped and resumed anywhere, nothing lost."""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_runs import SMALL, make_store, rows, same_files, small

from stepformer.app.training import make_trainer
from stepformer.base.loggers import LOGGERS
from stepformer.core.checkpoint import load_checkpoint
from stepformer.core.config import make_config
from stepformer.core.training import NonFiniteLossError, Trainer, learning_rate, with_loss_off
from stepformer.data.store import StoredVideo, StoreInfo, StoreWriter
from stepformer.errors import InputError, UsageError, WriteError
from stepformer.show.export.pictures import draw_alignment


def train(config, out, world=None, resume=False) -> Trainer:
    trainer = make_trainer(config, out, "cpu", world=world, draw=draw_alignment, quiet=True)
    trainer.run(resume)
    return trainer


class Stopping(Trainer):
    """A trainer that gets a signal while it works on a step."""

    stop_in = 0
    signal = signal.SIGINT

    def train_step(self, step):
        if step == self.stop_in:
            os.kill(os.getpid(), self.signal)
        return super().train_step(step)


@pytest.fixture(scope="module")
def whole(tiny_world, tmp_path_factory):
    """One uninterrupted run, with dropout and mean weights."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(small(), out, tiny_world)
    return out


# -- one run ------------------------------------------------------------------------------------------------------


def test_a_run_leaves_everything_that_was_promised(whole):
    metrics = rows(whole)
    logged = [row for row in metrics if "loss" in row]
    assert [row["step"] for row in logged] == [1, 2, 3, 4, 5, 6]
    assert all({"lr", "seq", "glob", "div", "smooth", "grad_norm", "matched"} <= row.keys() for row in logged)
    checked = [row for row in metrics if "val_zs_iou" in row]
    assert [row["step"] for row in checked] == [3, 6]
    assert all(0 <= row["val_un_f1"] <= 1 and 0 <= row["val_zs_iou"] <= 1 for row in checked)
    assert json.loads((whole / "config.json").read_text())["steps"] == 6
    pictures = sorted(path.name for path in (whole / "alignment").iterdir())
    assert pictures == ["step-000003.png", "step-000006.png"]
    assert (whole / "alignment" / pictures[0]).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    last, best = (load_checkpoint(whole / f"{name}.safetensors") for name in ("last", "best"))
    assert last.provenance["step"] == 6 and last.provenance["seed"] == 0
    assert last.provenance["data"]["grammar"].startswith("Apache-2.0")
    assert best.provenance["scores"].keys() >= {"zs_iou", "un_f1"}
    chosen = max(checked, key=lambda row: row["val_zs_iou"] + row["val_un_f1"])
    assert best.provenance["step"] == chosen["step"]
    assert not [path for path in whole.rglob("*") if ".partial" in path.name]


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(whole, tiny_world, tmp_path):
    train(small(), tmp_path / "again", tiny_world)
    assert rows(tmp_path / "again") == rows(whole)
    for name in ("last.safetensors", "best.safetensors", "state.safetensors"):
        assert same_files(whole, tmp_path / "again", name), name
    train(small(seed=1, steps=1, validation__every=0), tmp_path / "other", tiny_world)
    assert rows(tmp_path / "other")[0]["loss"] != rows(whole)[0]["loss"]


def test_the_mean_of_the_weights_is_what_is_saved(whole):
    state = load_file(whole / "state.safetensors")
    saved = load_file(whole / "last.safetensors")
    assert all(torch.equal(saved[name], state[f"mean.{name}"]) for name in saved)
    assert any(not torch.equal(saved[name], state[f"model.{name}"]) for name in saved)


def test_training_lowers_the_loss(tmp_path):
    store = make_store(tmp_path / "store", 16)
    config = small(
        steps=40, batch=8, validation__every=0, optim__lr=5e-3, model__dim=64, model__dropout=0.0,
        data__store=[str(store)],
    )  # fmt: skip
    trainer = make_trainer(config, tmp_path / "run", "cpu", quiet=True)
    trainer.run()
    for name, least in (("seq", 1.0), ("glob", 0.8)):
        losses = [row[name] for row in rows(tmp_path / "run")]
        assert sum(losses[-8:]) / 8 < sum(losses[:8]) / 8 - least
    assert trainer.step == 40


@pytest.mark.parametrize("preset", ["paper", "released"])
def test_the_other_presets_train_too(preset, tiny_world, tmp_path):
    train(small(preset, steps=2, validation__every=2), tmp_path / preset, tiny_world)
    assert all(math.isfinite(row["loss"]) for row in rows(tmp_path / preset) if "loss" in row)
    assert load_checkpoint(tmp_path / preset / "best.safetensors").provenance["preset"] == preset


# -- stopping and going on ----------------------------------------------------------------------------------------


def assert_the_same_run(a, b):
    assert rows(a) == rows(b)
    for name in ("last.safetensors", "best.safetensors", "state.safetensors"):
        assert same_files(a, b, name), name


@pytest.mark.parametrize(("stop_in", "number"), [(0, signal.SIGINT), (2, signal.SIGTERM), (4, signal.SIGINT)])
def test_a_run_that_was_stopped_goes_on_exactly(whole, tiny_world, tmp_path, stop_in, number):
    out = tmp_path / "run"
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped = make_trainer(small(), out, "cpu", world=tiny_world, quiet=True, kind=Stopping)
    stopped.stop_in, stopped.signal = stop_in, number
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert stopped.step == stop_in + 1  # the step under way was finished, and nothing after it begun
    assert load_checkpoint(out / "last.safetensors").provenance["step"] == stop_in + 1
    resumed = make_trainer(small(), out, "cpu", world=tiny_world, quiet=True)
    said = []
    resumed.run(resume=True, log=said.append)
    assert said[0] == f"resumed at step {stop_in + 1}"
    assert_the_same_run(out, whole)


def test_a_run_that_was_killed_goes_on_from_its_last_save(whole, tiny_world, tmp_path):
    out = tmp_path / "run"

    class KilledError(Exception):
        pass

    class Killed(Trainer):
        def train_step(self, step):
            if step == 4:
                raise KilledError  # nothing is saved on the way out
            return super().train_step(step)

    with pytest.raises(KilledError):
        make_trainer(small(save_every=2), out, "cpu", world=tiny_world, quiet=True, kind=Killed).run()
    with (out / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"step": 5, "loss": 0.0}\n{"step": 5, "lo')  # later rows, and a line that was cut short
    train(small(save_every=2), out, tiny_world, resume=True)
    assert rows(out) == rows(whole)
    assert same_files(out, whole, "state.safetensors")


def test_a_finished_run_is_left_as_it_is(whole, tiny_world):
    before = (whole / "metrics.jsonl").read_text(), load_file(whole / "state.safetensors")
    trainer = train(small(), whole, tiny_world, resume=True)
    assert trainer.step == 6
    assert (whole / "metrics.jsonl").read_text() == before[0]


def test_resume_needs_the_same_run(whole, tiny_world, tmp_path):
    with pytest.raises(UsageError, match=r"already holds a run; give --resume"):
        train(small(), whole, tiny_world)
    for other in (small(seed=3), small(batch=8), small(model__slots=8)):
        with pytest.raises(UsageError, match="another model, seed or batch size"):
            train(other, whole, tiny_world, resume=True)
    with pytest.raises(InputError, match=r"no state\.safetensors to resume from"):
        train(small(), tmp_path / "empty", tiny_world, resume=True)


# -- guards -------------------------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite_leaves_evidence(tiny_world, tmp_path):
    trainer = make_trainer(small(validation__every=0), tmp_path / "run", "cpu", world=tiny_world, quiet=True)
    good = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    with torch.no_grad():
        trainer.model.queries[0, 0] = math.nan
    with pytest.raises(NonFiniteLossError, match=r"step 0: not finite .*nonfinite-0\.safetensors.*learning rate"):
        trainer.run()
    evidence = load_file(tmp_path / "run" / "nonfinite-0.safetensors")
    assert evidence["model.queries"].isnan().sum() == 1
    assert evidence["loss.loss"].isnan()
    batch = trainer.source.batch(0, 4)
    assert torch.equal(evidence["batch.video"], batch.video)
    assert torch.equal(evidence["batch.phrases"], batch.phrases)
    # nothing was updated with it
    now = trainer.model.state_dict()
    assert all(torch.equal(now[name], value) for name, value in good.items() if name != "queries")
    assert not (tmp_path / "run" / "state.safetensors").exists()


def test_a_run_folder_that_cannot_be_made_is_named(tiny_world, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(WriteError, match=r"file/run cannot be written: .*file is not a folder$"):
        train(small(), tmp_path / "file" / "run", tiny_world)


def test_no_data_and_the_wrong_width_get_a_sentence(tiny_world, tmp_path):
    with pytest.raises(UsageError, match=r"training needs data: --set data\.world=WORLD"):
        make_trainer(small(), tmp_path, "cpu")
    with pytest.raises(UsageError, match=r"width 64, the config says 32; omit model\.feature_dim"):
        make_trainer(small(model__feature_dim=32), tmp_path, "cpu", world=tiny_world)
    with pytest.raises(InputError, match="there is no simulated world"):
        make_trainer(small(data__world=str(tmp_path / "nowhere")), tmp_path, "cpu")


# -- the optimiser ------------------------------------------------------------------------------------------------


def test_the_learning_rate_warms_up_and_follows_a_cosine():
    config = small(steps=100, optim__lr=1.0, optim__final_lr=0.1, optim__warmup=0.1)
    values = [learning_rate(config, step) for step in range(100)]
    assert values[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert values[10] == pytest.approx(1.0)
    assert values[55] == pytest.approx(0.55)  # half way of the cosine is half way between the rates
    assert values[99] == pytest.approx(0.1 + 0.45 * (1 + math.cos(math.pi * 89 / 90)))
    assert all(a >= b for a, b in itertools.pairwise(values[10:]))
    assert learning_rate(config, 500) == pytest.approx(0.1)
    assert learning_rate(small(steps=3, optim__warmup=0.0, optim__lr=0.5), 0) == pytest.approx(0.5)


class Halves:
    """A source whose batches are halves of one batch: number 2 i + j is half j of batch i."""

    def __init__(self, source, parts):
        self.source, self.parts, self.dim = source, parts, source.dim

    def batch(self, step, size):
        whole, part = divmod(step, self.parts)
        full = self.source.batch(whole, 8)
        return type(full)(*(field[part * size : (part + 1) * size] for field in full))


@pytest.mark.parametrize("losses", [{"seq": 1.0}, {"div": 1.0}, {"seq": 1.0, "div": 0.5}])
def test_accumulated_gradients_are_those_of_one_large_batch(losses, tiny_world, tmp_path):
    """For losses that are means over videos. ``glob`` contrasts the videos of a batch, so it depends on its size."""
    weights = {"seq": 0.0, "glob": 0.0, "div": 0.0, "smooth": 0.0} | losses
    grads, logged = [], []
    for parts in (1, 2, 4):
        config = small(
            model__dropout=0.0, validation__every=0, batch=8 // parts, optim__accumulate=parts, optim__clip=0.0,
            loss__weights=weights, data__simulator__jitter=0.0,
        )  # fmt: skip
        trainer = make_trainer(config, tmp_path / str(parts), "cpu", world=tiny_world, quiet=True)
        with torch.no_grad():  # away from the start, where some weights are zero and many gradients vanish
            g = torch.Generator().manual_seed(0)
            for p in trainer.model.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=g))
        trainer.source = Halves(trainer.source, parts)
        row = trainer.train_step(0)
        logged.append({name: float(value) for name, value in row.items()})
        grads.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]))
    assert float(grads[0].norm()) > 1e-4
    for grad, row in zip(grads[1:], logged[1:], strict=True):
        assert torch.allclose(grad, grads[0], atol=1e-5, rtol=1e-4)
        assert row == pytest.approx(logged[0], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_trains_and_resumes_exactly(precision, tiny_world, tmp_path):
    config = small(steps=4, validation__every=0, optim__precision=precision)
    train(config, tmp_path / "whole", tiny_world)
    losses = [row["loss"] for row in rows(tmp_path / "whole")]
    assert all(math.isfinite(loss) for loss in losses)
    train(replace(config, optim=replace(config.optim, precision="fp32")), tmp_path / "full", tiny_world)
    full = [row["loss"] for row in rows(tmp_path / "full")]
    assert losses[0] == pytest.approx(full[0], rel=0.05) and losses != full
    stopped = make_trainer(config, tmp_path / "cut", "cpu", world=tiny_world, quiet=True, kind=Stopping)
    stopped.stop_in = 1
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    train(config, tmp_path / "cut", tiny_world, resume=True)
    assert rows(tmp_path / "cut") == rows(tmp_path / "whole")
    assert same_files(tmp_path / "cut", tmp_path / "whole", "state.safetensors")


def test_gradients_are_clipped(tiny_world, tmp_path):
    trainer = make_trainer(small(optim__clip=1e-3, validation__every=0), tmp_path, "cpu", world=tiny_world, quiet=True)
    row = trainer.train_step(0)
    clipped = torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None]).norm()
    assert float(row["grad_norm"]) > 1e-3 and float(clipped) == pytest.approx(1e-3, rel=1e-3)


def test_a_loss_can_be_switched_on_by_name(tiny_world, tmp_path):
    only = {f"loss__weights__{name}": 0.0 for name in ("seq", "glob", "div", "smooth")}
    config = small(
        **only, loss__weights__soft_dtw=1.0, loss__options__soft_dtw__temperature=0.5, validation__every=0,
        optim__lr=3e-3, model__dropout=0.0,
    )  # fmt: skip
    trainer = make_trainer(config, tmp_path, "cpu", world=tiny_world, quiet=True)
    first, *_, last = (float(trainer.train_step(0)["soft_dtw"]) for _ in range(12))
    assert last < first  # the same batch, again and again


def test_a_loss_can_be_switched_off_by_name(tiny_world, tmp_path):
    config = with_loss_off(small(validation__every=0), "glob", "smooth")
    row = make_trainer(config, tmp_path, "cpu", world=tiny_world, quiet=True).train_step(0)
    assert "seq" in row and "div" in row and "glob" not in row and "smooth" not in row
    with pytest.raises(UsageError, match="no loss 'speed'"):
        with_loss_off(config, "speed")


# -- real videos --------------------------------------------------------------------------------------------------


def test_a_feature_store_trains_with_the_same_config(tiny_world, tmp_path):
    store = make_store(tmp_path / "store")
    config = small(data__store=str(store), data__held_out=0.3, data__max_frames=25)
    out = tmp_path / "whole"
    trainer = train(config, out, tiny_world)
    assert trainer.source.kept and len(trainer.source.items) + len(trainer.source.kept) == 12
    checked = [row for row in rows(out) if "val_loss" in row]
    assert [row["step"] for row in checked] == [3, 6]
    assert all(math.isfinite(row["val_loss"]) and "val_zs_iou" in row for row in checked)
    assert load_checkpoint(out / "last.safetensors").provenance["data"] == [str(store)]
    # stopped and resumed on stored videos too
    stopped = make_trainer(config, tmp_path / "cut", "cpu", world=tiny_world, quiet=True, kind=Stopping)
    stopped.stop_in = 1
    with pytest.raises(KeyboardInterrupt):
        stopped.run()
    train(config, tmp_path / "cut", tiny_world, resume=True)
    assert_the_same_run(tmp_path / "cut", out)


def test_a_run_killed_before_it_saved_leaves_no_rows_in_the_next(tiny_world, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 2, "loss": 9.9}\n')
    train(small(steps=2), tmp_path, tiny_world)
    assert all(row.get("loss") != 9.9 for row in rows(tmp_path))


def test_what_a_store_gives_is_told(tmp_path):
    store = make_store(tmp_path / "store", 8)
    with StoreWriter(store, StoreInfo("toy", "toy-1", dim=64)) as writer:
        writer.append(StoredVideo("silent", np.ones((5, 64), np.float32), 1.0, 5.0))
    said = []
    config = small(data__store=str(store), data__held_out=0.4, steps=1)
    trainer = make_trainer(config, tmp_path / "run", "cpu", quiet=True)
    trainer.run(log=said.append)
    assert said[0] == f"{len(trainer.source.items)} videos to learn from, {len(trainer.source.kept)} held out, " + (
        "1 without phrases left out"
    )


def test_a_store_needs_no_world(tmp_path):
    config = small(data__store=str(make_store(tmp_path / "store", 8)), data__held_out=0.4, steps=3)
    train(config, tmp_path / "run")
    assert {"val_loss"} == {k for row in rows(tmp_path / "run") for k in row if k.startswith("val_")}
    best = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert best.provenance["scores"].keys() == {"loss"}
    assert best.encoder == "toy"  # the store's, not the simulator's, whose vectors it has never seen
    named = make_trainer(replace(config, encoder="mine"), tmp_path / "named", "cpu", quiet=True)
    (tmp_path / "named").mkdir()
    named.save()
    assert load_checkpoint(tmp_path / "named" / "last.safetensors").encoder == "mine"
    # without held-out videos there is no validation loss, rather than one of nothing
    none = replace(config, data=replace(config.data, held_out=0.0))
    assert make_trainer(none, tmp_path / "none", "cpu", quiet=True).validate() == {}
    with pytest.raises(UsageError, match=r"width 64, the config says 32"):
        make_trainer(small(model__feature_dim=32, data__store=str(tmp_path / "store")), tmp_path / "x", "cpu")


def test_the_data_says_how_wide_its_vectors_are(tiny_world, tmp_path):
    values = {**SMALL, "model": {k: v for k, v in SMALL["model"].items() if k != "feature_dim"}}
    store = make_store(tmp_path / "store", 6, width=24)
    config = make_config({**values, "data": {"store": str(store)}})
    trainer = make_trainer(config, tmp_path / "run", "cpu", quiet=True)
    assert trainer.config.model.feature_dim == 24 and trainer.model.config.feature_dim == 24
    assert make_trainer(make_config(values), tmp_path / "w", "cpu", world=tiny_world).config.model.feature_dim == 64


# -- validation on annotated videos ---------------------------------------------------------------------------------


def annotated(folder, videos=6, width=64, seed=0):
    """COIN annotations, a feature file per video and an .npz of step texts, written from their descriptions."""
    rng = np.random.default_rng(seed)
    names = ["crack", "whisk", "pour"]
    vectors = rng.standard_normal((3, width)).astype(np.float32)
    (folder / "features").mkdir(parents=True)
    database = {}
    for i in range(videos):
        frames = rng.standard_normal((30, width)).astype(np.float32)
        marks = []
        for step, start in enumerate((2, 10, 20)):
            frames[start : start + 6] += 3 * vectors[step]
            marks.append({"id": str(step), "segment": [start, start + 6], "label": names[step]})
        np.save(folder / "features" / f"v{i}.mp4.npy", frames)
        database[f"v{i}"] = {"duration": 30, "class": "Omelette", "recipe_type": 1, "subset": "training",
                             "start": 0, "end": 30, "video_url": "", "annotation": marks}  # fmt: skip
    (folder / "COIN.json").write_text(json.dumps({"database": database}))
    np.savez(folder / "steps.npz", text=np.array(names), emb=vectors)
    return {"dataset": str(folder / "COIN.json"), "features": str(folder / "features"), "every": 1}


def test_iou_and_f1_on_annotated_videos_select_the_best(tmp_path):
    told = annotated(tmp_path / "coin")
    base = {**SMALL, "data": {"store": str(make_store(tmp_path / "store", 8))}, "steps": 3}
    config = make_config({**base, "validation": {**told, "texts": str(tmp_path / "coin" / "steps.npz"), "videos": 4}})
    trainer = train(config, tmp_path / "run")
    checked = [row for row in rows(tmp_path / "run") if "val_un_f1" in row]
    assert len(checked) == 3 and all(0 <= row["val_zs_iou"] <= 1 for row in checked)
    sums = [row["val_zs_iou"] + row["val_un_f1"] for row in checked]
    best = load_checkpoint(tmp_path / "run" / "best.safetensors").provenance
    assert best["step"] == 1 + sums.index(max(sums)) and trainer.best == pytest.approx(max(sums))
    # without texts there is nothing to localise, and F1 decides
    blind = make_trainer(make_config({**base, "validation": told}), tmp_path / "blind", "cpu", quiet=True)
    scores = blind.validate()
    assert "un_f1" in scores and not any(name.startswith("zs_") for name in scores)
    # the same features as a store give the same scores
    with StoreWriter(tmp_path / "kept", StoreInfo("toy", "toy-1", dim=64)) as writer:
        for i in range(6):
            frames = np.load(tmp_path / "coin" / "features" / f"v{i}.mp4.npy")
            writer.append(StoredVideo(f"v{i}", frames, 1.0, 30.0))
    stored = make_config({**base, "validation": {**told, "features": str(tmp_path / "kept")}})
    again = make_trainer(stored, tmp_path / "stored", "cpu", quiet=True).validate()
    assert again["un_slots"] == pytest.approx(scores["un_slots"], abs=0.5)


def test_annotated_videos_that_do_not_fit_get_a_sentence(tmp_path):
    told = annotated(tmp_path / "coin", videos=2, width=32)
    (tmp_path / "empty").mkdir()
    base = {**SMALL, "data": {"store": str(make_store(tmp_path / "store", 4))}}
    for change, error, says in (
        ({}, UsageError, "validation.features are 32 wide, the training data 64"),
        ({"features": str(tmp_path / "empty")}, InputError, "none of the 2 annotated videos"),
        ({"subset": "testing"}, InputError, "no subset 'testing'"),
    ):
        with pytest.raises(error, match=says):
            make_trainer(make_config({**base, "validation": {**told, **change}}), tmp_path / "x", "cpu")


# -- loggers ------------------------------------------------------------------------------------------------------


def test_rows_go_to_every_logger_and_absent_ones_are_said_once(tiny_world, tmp_path, monkeypatch):
    seen, closed = [], []

    class Mine:
        def __init__(self, out, config):
            assert config["steps"] == 4 and out == tmp_path / "run"

        def write(self, step, row):
            seen.append((step, row))

        def close(self):
            closed.append(True)

    monkeypatch.setitem(LOGGERS, "mine", Mine)
    monkeypatch.setitem(sys.modules, "wandb", None)  # as where it is not installed
    said = []
    config = small(steps=4, loggers=["mine", "csv", "wandb"], validation__every=2)
    make_trainer(config, tmp_path / "run", "cpu", world=tiny_world, quiet=True).run(log=said.append)
    assert [text for text in said if "wandb" in text] == [
        "logging to Weights & Biases needs wandb; install it with: pip install 'stepformer[wandb]'; "
        "this run continues without it"
    ]
    assert closed == [True] and {step for step, _ in seen} == {1, 2, 3, 4}
    assert any("val_zs_iou" in row for _, row in seen) and any("loss" in row for _, row in seen)
    with (tmp_path / "run" / "metrics.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["step"] for row in table] == ["1", "2", "3", "4"]
    assert table[1]["val_zs_iou"] and not table[0]["val_zs_iou"]
    with pytest.raises(UsageError, match="no logger 'paper'"):
        make_trainer(small(loggers="paper"), tmp_path / "no", "cpu", world=tiny_world, quiet=True).run()


@pytest.mark.slow
def test_wandb_keeps_a_run_offline_and_goes_on_with_it(tiny_world, tmp_path, monkeypatch):
    """The package itself, without an account or a network: WANDB_MODE=offline."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    said = []
    for steps in (2, 4):
        config = small(steps=steps, loggers=["wandb"], validation__every=2, save_every=2)
        trainer = make_trainer(config, tmp_path / "run", "cpu", world=tiny_world, quiet=True)
        trainer.run(resume=steps == 4, log=said.append)
    kept = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(kept) == 2 and len({file.stem for file in kept}) == 1, "two stretches of one run"
    assert b"val_zs_iou" in b"".join(file.read_bytes() for file in kept)
    assert not [text for text in said if "wandb" in text]


@pytest.mark.slow
def test_tensorboard_gets_every_number(tiny_world, tmp_path):
    """The package itself."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = small(steps=4, loggers=["tensorboard"], validation__every=2)
    make_trainer(config, tmp_path / "run", "cpu", world=tiny_world, quiet=True).run()
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("loss")] == [1, 2, 3, 4]
    assert [event.step for event in events.Scalars("val_zs_iou")] == [2, 4]


def test_a_script_with_store_batches_ends_cleanly(tmp_path):
    """The next batch is read while the interpreter ends: no abort, nothing on stderr."""
    make_store(tmp_path / "store", 8)
    script = (
        "from stepformer.data.batches import StoreBatches\n"
        "source = StoreBatches(['store'], 512, 0.0, 0)\n"
        "print(tuple(source.batch(0, 4).video.shape))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr and done.stdout.startswith("(4,")
