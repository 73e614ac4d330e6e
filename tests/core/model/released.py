"""The released decoder in NumPy float64, from its description, and state dicts in its layout: nothing of ours."""

from __future__ import annotations

import math

import numpy as np
import torch


def position_table(rows, dim):
    """pe[pos, i] = sin(pos / 10000^(2i/d)), pe[pos, i+1] = cos(pos / 10000^(2(i+1)/d)) for even i."""
    table = np.zeros((rows, dim))
    for pos in range(rows):
        for i in range(0, dim, 2):
            table[pos, i] = math.sin(pos / 10000 ** (2 * i / dim))
            table[pos, i + 1] = math.cos(pos / 10000 ** (2 * (i + 1) / dim))
    return table


def random_state(dim=64, layers=3, slots=5, feedforward=96, scale=1.0, seed=0, positions=None, prefix="model."):
    """Random weights under the released names; attention projections are ``scale`` times as strong."""
    rng = np.random.default_rng(seed)

    def normal(*shape, size=1.0):
        return rng.standard_normal(shape) * size

    state = {"query_embed.weight": normal(slots, dim)}
    for i in range(layers):
        at = f"decoder.layers.{i}."
        for attention in ("self_attn", "multihead_attn"):
            state[f"{at}{attention}.in_proj_weight"] = normal(3 * dim, dim, size=scale / math.sqrt(dim))
            state[f"{at}{attention}.in_proj_bias"] = normal(3 * dim, size=0.1)
            state[f"{at}{attention}.out_proj.weight"] = normal(dim, dim, size=1 / math.sqrt(dim))
            state[f"{at}{attention}.out_proj.bias"] = normal(dim, size=0.1)
        state[f"{at}linear1.weight"] = normal(feedforward, dim, size=1 / math.sqrt(dim))
        state[f"{at}linear1.bias"] = normal(feedforward, size=0.1)
        state[f"{at}linear2.weight"] = normal(dim, feedforward, size=1 / math.sqrt(feedforward))
        state[f"{at}linear2.bias"] = normal(dim, size=0.1)
        for norm in ("norm1", "norm2", "norm3"):
            state[f"{at}{norm}.weight"] = 1 + normal(dim, size=0.1)
            state[f"{at}{norm}.bias"] = normal(dim, size=0.1)
    state["decoder.norm.weight"], state["decoder.norm.bias"] = 1 + normal(dim, size=0.1), normal(dim, size=0.1)
    state["output_projection.weight"] = normal(dim, dim, size=1 / math.sqrt(dim))
    state["output_projection.bias"] = normal(dim, size=0.1)
    if positions is not None:
        state["pos_enc_like.pe"] = positions[None]  # (1, P, d)
    return {prefix + name: torch.from_numpy(value).float() for name, value in state.items()}


def decode(state, video, heads=8, prefix="model."):
    """(N, d) frames to (K, d) slots: the target is zero, queries are added at attention, positions on cross keys."""
    w = {name.removeprefix(prefix): value.double().numpy() for name, value in state.items()}
    query, video = w["query_embed.weight"], np.asarray(video, np.float64)
    key = video + w["pos_enc_like.pe"].reshape(-1, video.shape[1])[: len(video)] if "pos_enc_like.pe" in w else video
    x = np.zeros_like(query)
    for i in range(1 + max(int(name.split(".")[2]) for name in w if name.startswith("decoder.layers."))):
        at = f"decoder.layers.{i}."
        y = _norm(x, w, at + "norm1")
        x = x + _attend(y + query, y + query, y, w, at + "self_attn", heads)
        y = _norm(x, w, at + "norm2")
        x = x + _attend(y + query, key, video, w, at + "multihead_attn", heads)
        hidden = np.maximum(_norm(x, w, at + "norm3") @ w[at + "linear1.weight"].T + w[at + "linear1.bias"], 0)
        x = x + hidden @ w[at + "linear2.weight"].T + w[at + "linear2.bias"]
    return _norm(x, w, "decoder.norm") @ w["output_projection.weight"].T + w["output_projection.bias"]


def _norm(x, w, name):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[name + ".weight"] + w[name + ".bias"]


def _attend(query, key, value, w, name, heads):
    d = query.shape[1]
    q, k, v = (
        x @ w[name + ".in_proj_weight"][i * d : (i + 1) * d].T + w[name + ".in_proj_bias"][i * d : (i + 1) * d]
        for i, x in enumerate((query, key, value))
    )
    size, mixed = d // heads, []
    for h in range(heads):
        part = slice(h * size, (h + 1) * size)
        logits = q[:, part] @ k[:, part].T / math.sqrt(size)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        mixed.append(weights / weights.sum(1, keepdims=True) @ v[:, part])
    return np.concatenate(mixed, 1) @ w[name + ".out_proj.weight"].T + w[name + ".out_proj.bias"]
