"""BERT against an independent reading of its formulas in NumPy, and published key names."""

import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepformer.encoders.bert import Bert, BertConfig, WordPiece
from stepformer.encoders.checkpoints import load_published
from stepformer.errors import InputError

TINY = BertConfig(
    vocab_size=20, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16,
    max_position_embeddings=12,
)  # fmt: skip

_ERF = np.vectorize(math.erf)


def numpy_bert(state, ids):
    """Last hidden states (T, D) of one text without padding."""

    def w(name):
        return state[name].double().numpy()

    def linear(x, name):
        return x @ w(name + ".weight").T + w(name + ".bias")

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * w(name + ".weight") + w(name + ".bias")

    e = "embeddings."
    x = w(e + "word_embeddings.weight")[ids] + w(e + "position_embeddings.weight")[: len(ids)]
    x = norm(x + w(e + "token_type_embeddings.weight")[0], e + "LayerNorm")
    for i in range(TINY.num_hidden_layers):
        p = f"encoder.layer.{i}."
        q, k, v = (linear(x, p + f"attention.self.{n}") for n in ("query", "key", "value"))
        heads = []
        for h in range(2):
            part = slice(4 * h, 4 * h + 4)
            scores = q[:, part] @ k[:, part].T / 2.0
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            heads.append(weights / weights.sum(-1, keepdims=True) @ v[:, part])
        x = norm(x + linear(np.concatenate(heads, -1), p + "attention.output.dense"), p + "attention.output.LayerNorm")
        wide = linear(x, p + "intermediate.dense")
        wide = wide * 0.5 * (1 + _ERF(wide / np.sqrt(2)))
        x = norm(x + linear(wide, p + "output.dense"), p + "output.LayerNorm")
    return x


@pytest.fixture
def bert():
    torch.manual_seed(0)
    return Bert(TINY).eval()


def test_it_computes_what_the_formulas_say(bert):
    ids = [3, 5, 7, 11, 2]
    with torch.inference_mode():
        got = bert(torch.tensor([ids]), torch.ones(1, 5, dtype=torch.bool))[0].numpy()
    np.testing.assert_allclose(got, numpy_bert(bert.state_dict(), ids), atol=1e-5)


def test_padding_changes_nothing(bert):
    ids, mask = torch.tensor([[3, 5, 7, 0, 0]]), torch.tensor([[1, 1, 1, 0, 0]], dtype=torch.bool)
    with torch.inference_mode():
        padded = bert(ids, mask)[0, :3]
        plain = bert(ids[:, :3], mask[:, :3])[0]
    torch.testing.assert_close(padded, plain, atol=1e-5, rtol=0)


def test_published_names_load_with_old_layer_norm_names(bert):
    state = {}
    for key, value in bert.state_dict().items():
        old = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        state[old] = value
    state["embeddings.position_ids"] = torch.arange(12)
    state["cls.predictions.bias"] = torch.zeros(3)
    other = Bert(TINY)
    load_published(other, state, "x", ("cls.",))
    for key, value in bert.state_dict().items():
        assert torch.equal(value, other.state_dict()[key])


def test_the_names_are_those_of_published_checkpoints(bert):
    names = set(bert.state_dict())
    for name in (
        "embeddings.word_embeddings.weight", "embeddings.LayerNorm.bias", "encoder.layer.1.attention.self.query.bias",
        "encoder.layer.0.attention.output.dense.weight", "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layer.1.intermediate.dense.weight", "encoder.layer.1.output.LayerNorm.bias",
    ):  # fmt: skip
        assert name in names
    assert len(names) == 5 + 16 * 2


def test_a_checkpoint_that_lacks_tensors_or_has_other_sizes_is_refused(bert):
    state = dict(bert.state_dict())
    state["pooler.dense.bias"] = torch.zeros(8)
    with pytest.raises(InputError, match=r"pooler\.dense\.bias"):
        load_published(Bert(TINY), state, "x")
    load_published(Bert(TINY), state, "x", ("pooler.",))
    state["embeddings.word_embeddings.weight"] = torch.zeros(3, 8)
    with pytest.raises(InputError, match=r"word_embeddings.*\[3, 8\].*\[20, 8\]"):
        load_published(Bert(TINY), state, "x", ("pooler.",))


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(InputError, match="heads"):
        BertConfig(hidden_size=10, num_attention_heads=3)


def test_word_pieces(tmp_path):
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "whisk", "the", "egg", "##s", "."]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary))
    tokenize = WordPiece(tmp_path / "vocab.txt")
    assert tokenize(["Whisk the EGGS.", "zebra", ""], 16) == [[2, 4, 5, 6, 7, 8, 3], [2, 1, 3], [2, 3]]
    assert tokenize(["whisk the eggs ."], 4) == [[2, 4, 5, 3]]
    with pytest.raises(InputError, match="vocabulary"):
        WordPiece(tmp_path / "nothing.txt")


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 9), max_size=12), batch=st.integers(1, 5))
def test_batches_by_length_hold_every_text_once(tmp_path, lengths, batch):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijkl"]))
    tokens = [[2, *[i + 4] * length, 3] for i, length in enumerate(lengths)]
    texts = [" ".join("abcdefghijkl"[i] * length) for i, length in enumerate(lengths)]
    seen = {}
    for rows, ids, mask in WordPiece(tmp_path / "vocab.txt").batches(texts, 99, batch):
        assert len(rows) <= batch
        for row, line, kept in zip(rows, ids, mask, strict=True):
            seen[row] = line[kept].tolist()
    assert seen == dict(enumerate(tokens))
