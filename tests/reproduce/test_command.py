"""``stepformer reproduce``, whole: the smoke world, and a plain folder of timelines and features made here."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stepformer.cli import main
from stepformer.core.checkpoint import load_checkpoint, save_checkpoint
from stepformer.core.model import StepDecoder, preset
from stepformer.core.options import InferenceConfig
from stepformer.data.store import StoredPhrase, StoredVideo, StoreInfo, StoreWriter
from stepformer.reproduce import plan
from stepformer.reproduce.sources import write_tiny_world

D = 16
STEPS = ("crack eggs", "whisk eggs", "pour batter")


@pytest.fixture
def made(tmp_path):
    """Twelve videos of two tasks as plain folders, like NIV's: a vector per step, another for background; the same
    videos with narration as a store; text vectors; and two models of one shape.
    """
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((D, D)))[0].astype(np.float32)
    texts = {}
    with StoreWriter(tmp_path / "store", StoreInfo("toy", "toy-1", dim=D)) as writer:
        for number, task in enumerate(("pancakes", "omelette")):
            folder = tmp_path / "data" / task
            for name in ("annotations", "features"):
                (folder / name).mkdir(parents=True)
            names = tuple(f"{step} for {task}" for step in STEPS)
            (folder / "steps.txt").write_text("\n".join(names), "utf-8")
            own = vectors[4 * number : 4 * number + 4]
            texts |= dict(zip(names, own[:3], strict=True))
            for v in range(6):
                spans = [(5 + 10 * k + v, 11 + 10 * k + v) for k in range(3)]
                labels = np.full(45, 3)
                for k, (a, b) in enumerate(spans):
                    labels[a:b] = k
                features = own[labels] + 0.05 * rng.standard_normal((45, D)).astype(np.float32)
                np.save(folder / "features" / f"{task}{v}.npy", features)
                rows = [f"{names[k]},{a},{b}" for k, (a, b) in enumerate(spans)]
                (folder / "annotations" / f"{task}{v}.csv").write_text("\n".join(rows), "utf-8")
                said = tuple(StoredPhrase(names[k], a, a + 2.0) for k, (a, _) in enumerate(spans))
                writer.append(StoredVideo(f"{task}{v}", features, 1.0, 45.0, None, said, own[:3]))
    np.savez(tmp_path / "texts.npz", text=np.array(list(texts)), emb=np.stack(list(texts.values())))
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = StepDecoder(preset("default", feature_dim=D, dim=D, layers=1, heads=2, feedforward=16))
        (tmp_path / name).mkdir()
        given = InferenceConfig(keep=0.2 * (seed + 1), locate_keep=0.2 * (seed + 1))
        save_checkpoint(tmp_path / name / "last.safetensors", model, "toy", {"preset": "paper"}, given)
    return tmp_path


def reproduce(made, table, *more, out="out"):
    return main([
        "reproduce", table, "--out", str(made / out), "--dataset", str(made / "data"),
        "--texts", str(made / "texts.npz"), "--seeds", "0", "--device", "cpu", "--jobs", "2", *more,
    ])  # fmt: skip


def rows_of(made, table, out="out"):
    return {row["method"]: row for row in json.loads((made / out / f"{table}.json").read_text("utf-8"))["rows"]}


def test_a_plain_folder_of_timelines_and_features_runs_through_both_tables(made):
    """And a second checkpoint into the same folder gives what it gives in a folder of its own."""
    for table in ("table1", "table2"):
        assert reproduce(made, table, "--checkpoint", str(made / "a"), "--only", "control,model") == 0
    rows = rows_of(made, "table2")
    # these steps are clear: texts find theirs and nothing else, which equal parts do not
    assert rows["GT text"]["P"]["value"] > 0.95 > rows["uniform, as many steps"]["P"]["value"]
    assert "StepFormer (paper)" in rows and "uniform, as many cuts as paper" in rows  # what the file says it is
    assert not any("default" in name for name in rows)
    assert not any("et al." in name for name in rows)  # --only control,model fits no published method
    first = {table: rows_of(made, table) for table in ("table1", "table2")}
    for out in ("out", "alone"):
        assert reproduce(made, "table2", "--checkpoint", str(made / "b"), "--only", "control,model", out=out) == 0
    together, alone = rows_of(made, "table2"), rows_of(made, "table2", "alone")
    assert together == alone
    assert together["pooled32"] != first["table2"]["pooled32"]  # controls use what the checkpoint brings, too
    assert together["StepFormer (paper)"] != first["table2"]["StepFormer (paper)"]
    assert rows_of(made, "table1") == first["table1"]


def test_controls_alone_need_no_model_and_fit_nothing(made, monkeypatch):
    from stepformer.evaluation import baselines

    monkeypatch.setattr(baselines, "baseline", None)  # would fail in this process; workers have their own
    assert reproduce(made, "table1", "--only", "control") == 0
    assert set(rows_of(made, "table1")) == {
        "uniform, as many steps", "frame K-means", "random slots", "pooled32", "change-point segments"
    }  # fmt: skip
    written = json.loads((made / "out" / "plan.json").read_text("utf-8"))
    assert {"commit", "date", "machine"} <= set(written)


def test_a_baseline_of_a_plugin_is_a_row_per_setting(made, capsys, monkeypatch):
    monkeypatch.setenv("STEPFORMER_PLUGINS", str(Path(__file__).parents[2] / "examples" / "plugins" / "baseline.py"))
    monkeypatch.setattr(plan, "TABLES", {"table1": replace(plan.TABLES["table1"], rows=plan.UNIFORM[:1])})
    assert reproduce(made, "table1", "--baseline", "jumps", "--jobs", "1") == 0
    rows = rows_of(made, "table1")
    assert set(rows) == {"uniform, as many steps", "jumps, weak", "jumps, unsupervised"}
    # the borders of these steps are where the features jump
    assert rows["jumps, weak"]["F1"]["value"] != rows["uniform, as many steps"]["F1"]["value"]
    assert reproduce(made, "table1", "--baseline", "jump", "--dry-run") == 2
    assert "did you mean jumps?" in capsys.readouterr().err


@pytest.mark.slow
def test_tables_train_on_a_store_and_find_their_runs_again(made, capsys):
    small = ("--train-steps", "2", "--batch", "4", "--set", "model.feedforward=16", "--set", "data.held_out=0")
    train = ("--store", str(made / "store"), *small)
    assert reproduce(made, "table3", *train) == 0
    rows = rows_of(made, "table3")
    assert {"default", "default without L_seq", "default without Drop-DTW", "paper", "released", "pooled32"} <= set(
        rows
    )
    # the untrained default is pooled32, which finds these clear steps, and two steps of training change little of it
    assert rows["default"]["ZS IoU"]["value"] > 0.8 > rows["uniform, as many steps"]["ZS IoU"]["value"]
    capsys.readouterr()
    assert reproduce(made, "table3", *train) == 0
    assert "runs are done already" in capsys.readouterr().err
    assert reproduce(made, "table1", *train) == 0
    found = {(row["knows"], row["method"]) for row in rows_of(made, "table1").values()}
    assert {("weak", "Elhamifar et al."), ("unsupervised", "StepFormer (default)")} <= found
    assert any(name.startswith("Shen et al.") for _, name in found)  # the store has the narration


def test_figures_from_real_features(made, capsys):
    command = ["reproduce", "figures", "--out", str(made / "figures"), "--checkpoint", str(made / "a"), "--dataset"]
    command += [str(made / "data"), "--features", str(made / "data"), "--texts", str(made / "texts.npz"), "--json"]
    assert main([*command, "--store", str(made / "store"), "--no-published", "--draw-task", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["task"] in ("pancakes", "omelette") and not said["simulated"] and len(said["files"]) == 4
    for path in (made / "figures").glob("*.png"):
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and path.stat().st_size > 5000
    assert main([*command, "--no-published"]) == 0  # no store: no narration to draw
    assert len(json.loads(capsys.readouterr().out)["files"]) == 3


def test_what_does_not_fit_is_one_sentence(made, capsys):
    def says(words, *argv):
        assert main(["reproduce", *map(str, argv)]) in (2, 3)
        error = capsys.readouterr().err
        assert words in error and len(error.splitlines()) == 1, error

    out, data = ("--out", made / "o"), made / "data"
    real = ("--features", data, "--dataset", data)
    says("--out FOLDER", "table3")
    says("--world FILE", "table3", *out)
    says("--dataset", "table1", *out, "--features", data)
    says("--texts", "table2", *out, *real)
    says("--store", "table4", *out, *real)
    says("one of the two", "table1", *out, *real, "--store", made / "store", "--checkpoint", made / "a")
    says("run the table first", "table3", *out, "--render")
    says("--only takes", "table3", *out, "--only", "train")
    says("KEY=VALUE", "table1", *out, *real, "--set", "steps")
    says("need weights", "figures", *out, *real)
    says("must not be chosen on the reported videos", "table1", *out, *real, "--dev", "x")
    (made / "empty").mkdir()
    says("has features in", "table1", *out, "--features", made / "empty", "--dataset", data)
    np.savez(made / "bad.npz", text=np.array(STEPS), emb=np.zeros((2, D)))
    says("do not match", "table2", *out, *real, "--texts", made / "bad.npz")
    np.savez(made / "few.npz", text=np.array(STEPS), emb=np.zeros((3, D)))
    says("no vector for", "table2", *out, *real, "--texts", made / "few.npz")


def test_the_smoke_world_plans_and_scores_controls(tmp_path, capsys):
    command = ["reproduce", "table3", "--smoke", "--out", str(tmp_path)]
    assert main([*command, "--dry-run"]) == 0
    planned = capsys.readouterr().out.splitlines()
    assert len(planned) == 22 and all(line.startswith("to do") for line in planned)
    assert main([*command, "--dry-run", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 22 and not any(row["done"] for row in rows)


@pytest.mark.slow
def test_the_smoke_table_is_whole(tmp_path, capsys):
    assert main(["reproduce", "table3", "--smoke", "--out", str(tmp_path), "--json", "--jobs", "2"]) == 0
    table = json.loads(capsys.readouterr().out)["table3"]
    rows = {row["method"]: row for row in table["rows"]}
    assert len(rows) == 22 and not any("Incomplete" in note for note in table["notes"])
    iou = "grammar tasks (test) IoU"
    assert all(0 < row[iou]["value"] < 1 for row in rows.values() if row[iou])
    gap = rows["pooled32"][f"default − row, {iou}"]
    assert gap["interval"][0] <= gap["value"] <= gap["interval"][1]
    assert (tmp_path / "table3.md").exists() and (tmp_path / "table3.tex").exists()


def test_the_model_that_ships_is_called_by_its_preset():
    from pathlib import Path

    import stepformer
    from stepformer.reproduce.plan import read_checkpoint

    path = Path(stepformer.__file__).parent / "models" / "default.safetensors"
    assert read_checkpoint(path).label == load_checkpoint(path).provenance["preset"] == "default"


def test_tables_of_another_machines_results_are_written_without_its_device(tmp_path, capsys):
    """What needs no model runs here, too; what needs the missing device is one sentence."""
    world, out = tmp_path / "world.safetensors", tmp_path / "out"
    write_tiny_world(world)
    given = ["--world", str(world), "--out", str(out), "--seeds", "0", "--device", "cuda"]
    assert main(["reproduce", "table2", *given, "--only", "control"]) == 0
    assert "GT text" in rows_of(tmp_path, "table2")
    if not torch.cuda.is_available():
        capsys.readouterr()
        assert main(["reproduce", "table1", *given, "--only", "published"]) == 4
        assert "device cuda cannot be used here" in capsys.readouterr().err
