"""All decoder layers as one function with its own backward pass: what a training step on a GPU spends its time in.

The modules of :mod:`stepformer.core.model` say what a layer computes. This file computes the same with a quarter of the
kernels and none of the float32 attention:

- cross-attention with folded projections (``Attention._folded``): ``heads * K`` rows per video against the frames as
  they are, two batched products with one pass of softmax between; what is stored are the scores in bf16
- everything between two matrix products is one kernel: residual, dropout and norm; bias, activation and dropout; the
  attention of slots among each other. Triton on CUDA (`core.stack_kernels`)
- gradients of weights are made for all layers at once when the backward pass is through, in one batched product per
  kind of weight: one layer's alone would keep a quarter of the GPU busy
- weights come in stacks, all layers of one kind behind each other, and their gradients are written in place to stacks
  of the same form (:class:`stepformer.core.graph.Flat`); autograd sees the queries and the frames only

Dropout is a hash of (seed, place, element), so that nothing has to be stored and a step can be replayed.

R = B K rows; D the width; H heads; a row of the folded attention is (video, slot, head).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from stepformer.core.devices import Beside
from stepformer.core.model import DecoderLayer, StepDecoder

_CHANCES = 1 << 24  # dropout draws one of this many numbers


# -- the weights ------------------------------------------------------------------------------------------------------


def weight_kinds(model: StepDecoder) -> dict[str, list[list[Tensor]]]:
    """The decoder's parameters by kind: for each layer those that stand behind each other in the kind's stack."""
    kinds: dict[str, list[list[Tensor]]] = {}

    def put(name: str, *parameters: Tensor) -> None:
        kinds.setdefault(name, []).append(list(parameters))

    for layer in model.decoder:
        assert isinstance(layer, DecoderLayer)
        own, cross, (first, _, _, second) = layer.self_attention, layer.cross_attention, layer.feedforward
        put("qkv", own.q.weight, own.k.weight, own.v.weight)
        put("qkv_bias", own.q.bias, own.k.bias, own.v.bias)
        for name, linear in (("out", own.out), ("q", cross.q), ("v", cross.v), ("cross_out", cross.out)):
            put(name, linear.weight)
            put(f"{name}_bias", linear.bias)
        put("k", cross.k.weight)  # its bias falls out of the softmax
        for name, part in (("ff1", first), ("ff2", second)):
            assert isinstance(part, nn.Linear)
            put(name, part.weight)
            put(f"{name}_bias", part.bias)
        for number, norm in enumerate((layer.norm1, layer.norm2, layer.norm3), 1):
            put(f"norm{number}", norm.weight)
            put(f"norm{number}_bias", norm.bias)
    put("norm", model.norm.weight)
    put("norm_bias", model.norm.bias)
    return kinds


@dataclass(frozen=True)
class Stack:
    """The decoder layers of a model, ready to run: :meth:`decode` stands in for the loop over its modules.

    full, half, grad: by kind, stacks (layers, ...) of the weights, of their copies that products are made with (bf16
    on a GPU), and of the gradients that the backward pass writes. seed (1,) int64: of this step's dropout.
    """

    model: StepDecoder
    full: Mapping[str, Tensor]
    half: Mapping[str, Tensor]
    grad: Mapping[str, Tensor]
    seed: Tensor

    def decode(self, key: Tensor, value: Tensor, mask: Tensor | None, attention: bool) -> tuple[Tensor, Tensor | None]:
        """key, value (B, N, D), mask (B, N) -> normed state of the slots (B, K, D), the last layer's attention."""
        seen = mask if mask is not None else torch.ones(key.shape[:2], dtype=torch.bool, device=self.seed.device)
        made: tuple[Tensor, Tensor] = _Layers.apply(self.model.queries, key, value, seen, self, attention)  # type: ignore[no-untyped-call]
        state, weights = made
        return state, weights if attention else None

    @property
    def kernels(self) -> ModuleType:
        """Where the functions between the matrix products are."""
        from stepformer.core import stack_kernels

        return stack_kernels

    def sites(self, layer: int) -> range:
        """Places of dropout: attention among slots, its branch, attention to frames, its branch, feed-forward, its."""
        return range(6 * layer, 6 * layer + 6)


def weight_gradient(dy: Tensor, x: Tensor, out: Tensor) -> None:
    """out = dy' x for each of a stack: (S, R, I), (S, R, J) -> (S, I, J), summed and written in the type of ``out``."""
    if dy.dtype == out.dtype:
        torch.bmm(dy.mT, x, out=out)
    elif dy.is_cuda:
        torch.bmm(dy.mT, x, out_dtype=out.dtype, out=out)
    else:
        out.copy_(torch.bmm(dy.mT.to(out.dtype), x.to(out.dtype)))


class _Layers(torch.autograd.Function):
    """Forward and backward pass of the stack, with its final norm."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, key: Tensor, value: Tensor, mask: Tensor, stack: Stack, attention: bool
    ) -> tuple[Tensor, Tensor]:
        config, full, half, seed, ops = stack.model.config, stack.full, stack.half, stack.seed, stack.kernels
        same, kind = key is value, half["qkv"].dtype
        key, mask = key.to(kind).contiguous(), mask.contiguous()
        value = key if same else value.to(kind).contiguous()
        B, N, D = key.shape
        K, H, L = config.slots, config.heads, config.layers
        R, size, wide = B * K, D // H, queries.dtype
        dropout = round(config.dropout * _CHANCES) if stack.model.training else 0
        content = config.queries == "content"
        eps = stack.model.norm.eps
        grads_to_frames = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]

        def new(*shape: int, dtype: torch.dtype = kind) -> Tensor:
            return queries.new_empty(shape, dtype=dtype)

        x = new(3 * L + 1, R, D, dtype=wide)  # what each norm sees
        mean, rstd = new(3 * L + 1, R, dtype=wide), new(3 * L + 1, R, dtype=wide)
        y1, y2, y3 = new(L, R, D), new(L, R, D), new(L, R, D)
        yq = y1 if content else new(L, R, D)  # what queries and keys of self-attention are made of
        qkv, own, q, mixed = new(L, R, 3 * D), new(L, R, D), new(L, R, D), new(L, R, D)
        read, level = new(L, B, K * H, D), new(L, B, K * H, dtype=wide)
        scores = new(L, B, K * H, _pitch(N))[..., :N]
        passed = new(B, K * H, _pitch(N))[..., :N]  # what dropout leaves of the attention
        before, after = new(L, R, config.feedforward), new(L, R, config.feedforward)
        folded = new(L if grads_to_frames else 1, B, K * H, D)
        query = None if content else queries.detach()

        beside = Beside(queries.device, 6)
        with beside:
            # weights sum to 1: the bias of the values is one of what follows
            behind = full["cross_out_bias"] + torch.bmm(half["cross_out"], half["v_bias"][..., None])[..., 0]

        start = queries.detach() if content else queries.new_zeros(1, D)
        branch: Tensor | None = None

        def norm(
            number: int, given: str, layer: int, bias: Tensor | None, site: int, y: Tensor | None, add: Any
        ) -> None:
            rows = R if number else K
            ops.add_norm(
                x[number - 1, : K if number == 1 else R] if number else start, branch, bias, full[given][layer],
                full[f"{given}_bias"][layer], query if add is not None else None, x[number, :rows], y, add,
                mean[number, :rows], rstd[number, :rows], seed, site, dropout, eps,
            )  # fmt: skip

        for i in range(L):
            s = stack.sites(i)
            bias = full["ff2_bias"][i - 1] if i else None
            first = K if i == 0 else R  # before they have seen a video, slots are the same in all
            norm(3 * i, "norm1", i, bias, s[0] - 1, y1[i, :first], None if content else yq[i, :first])
            if content:
                torch.mm(y1[i, :first], half["qkv"][i].t(), out=qkv[i, :first])
            else:
                for rows, given in ((slice(0, 2 * D), yq[i, :first]), (slice(2 * D, 3 * D), y1[i, :first])):
                    torch.mm(given, half["qkv"][i, rows].t(), out=qkv[i, :first, rows])
            ops.attend(qkv[i, :first], full["qkv_bias"][i], own[i], None, None, None, K, H, seed, s[0], dropout)
            branch = own[i] @ half["out"][i].t()
            plain, asking = (y2[i], None) if content else (None, y2[i])
            norm(3 * i + 1, "norm2", i, full["out_bias"][i], s[1], plain, asking)
            torch.addmm(half["q_bias"][i], y2[i], half["q"][i].t(), out=q[i])
            asked = folded[i if grads_to_frames else 0]
            torch.bmm(_heads(q[i], H), half["k"][i].view(H, size, D), out=_heads(asked.view(R, H * D), H))
            torch.bmm(asked, key.mT, out=scores[i])
            ops.softmax(scores[i], mask, passed, level[i], size**-0.5, seed, s[2], dropout)
            torch.bmm(passed, value, out=read[i])
            torch.bmm(_heads(read[i].view(R, H * D), H), half["v"][i].view(H, size, D).mT, out=_heads(mixed[i], H))
            branch = mixed[i] @ half["cross_out"][i].t()
            beside.join()
            norm(3 * i + 2, "norm3", i, behind[i], s[3], y3[i], None)
            torch.mm(y3[i], half["ff1"][i].t(), out=before[i])
            ops.activate(before[i], full["ff1_bias"][i], after[i], seed, s[4], dropout)
            branch = after[i] @ half["ff2"][i].t()
        state = new(R, D, dtype=wide)
        norm(3 * L, "norm", 0, full["ff2_bias"][L - 1], 6 * L - 1, state, None)

        seen = new(0, dtype=wide)
        if attention:
            seen = ops.mean_weights(scores[L - 1], mask, level[L - 1], H, size**-0.5)
        if not attention:
            ctx.mark_non_differentiable(seen)
        ctx.save_for_backward(key, value, mask)
        ctx.kept = (x, mean, rstd, y1, y2, y3, yq, qkv, own, q, mixed, read, scores, level, before, after, folded)
        ctx.stack, ctx.dropout, ctx.attention = stack, dropout, attention
        return state.view(B, K, D), seen

    @staticmethod
    def backward(ctx: Any, d_state: Tensor, d_seen: Tensor) -> tuple[Tensor | None, ...]:
        stack, dropout = ctx.stack, ctx.dropout
        x, mean, rstd, y1, y2, y3, yq, qkv, own, q, mixed, read, scores, level, before, after, folded = ctx.kept
        key, value, mask = ctx.saved_tensors
        config, full, half, seed, ops = stack.model.config, stack.full, stack.half, stack.seed, stack.kernels
        B, N, D = key.shape
        K, H, L = config.slots, config.heads, config.layers
        R, size, kind, wide = B * K, D // H, half["qkv"].dtype, x.dtype
        content = config.queries == "content"

        def new(*shape: int, dtype: torch.dtype = kind) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=key.device)

        dx = new(R, D, dtype=wide)
        d_qkv, d_q, d_mixed, d_before = new(L, R, 3 * D), new(L, R, D), new(L, R, D), new(L, R, config.feedforward)
        # of what the norms gave, but for the last, and of the branches before them: norm 0 has none
        dy, d_branch = new(3 * L, R, D), new(3 * L + 1, R, D)
        d_own, d_cross, d_ff = d_branch[1::3], d_branch[2::3], d_branch[3::3]  # (L, R, D)
        d_folded, d_read, d_scores = new(L, B, K * H, D), new(B, K * H, D), new(B, K * H, _pitch(N))[..., :N]
        qkv_sums, before_sums = new(L, B, 3 * D, dtype=wide), new(L, B, config.feedforward, dtype=wide)
        norm_sums = new(3 * L + 1, ops.norm_parts(R, D), 3, D, dtype=wide)
        added = new(0 if content else L, R, D)  # of what the queries were added to in self-attention
        # one gradient where keys and values are the same frames
        shared = key is value or key.data_ptr() == value.data_ptr()
        d_key = key.new_zeros(key.shape) if ctx.needs_input_grad[1] else None
        d_value = None
        if ctx.needs_input_grad[2]:
            d_value = d_key if shared and d_key is not None else value.new_zeros(value.shape)
        passed = new(B, K * H, _pitch(N))[..., :N] if d_value is not None else None

        def norm(number: int, given: str, layer: int, site: int, up: Tensor | None = None) -> None:
            rows = len(dx)
            ops.add_norm_back(
                dy[number, :rows] if up is None else up, x[number, :rows], full[given][layer], mean[number, :rows],
                rstd[number, :rows], dx, up is None, d_branch[number] if number else None, norm_sums[number], seed,
                site, dropout,
            )  # fmt: skip

        grad = stack.grad
        # too small to fill the GPU each: biases and norms, and what is made per head, beside the large products
        small, *per_head = (Beside(key.device, number) for number in (3, 4, 8))

        def to_head(name: str, layer: int, few: Tensor, many: Tensor) -> None:
            out = grad[name][layer].view(H, size, D)
            weight_gradient(_heads(few, H), _heads(many.view(R, H * D), H), out)

        norm(3 * L, "norm", 0, 6 * L - 1, d_state.reshape(R, D).contiguous())
        for i in reversed(range(L)):
            s = stack.sites(i)
            torch.mm(d_ff[i], half["ff2"][i], out=d_before[i])
            ops.activate_back(d_before[i], before[i], full["ff1_bias"][i], before_sums[i], seed, s[4], dropout)
            torch.mm(d_before[i], half["ff1"][i], out=dy[3 * i + 2])
            norm(3 * i + 2, "norm3", i, s[3])
            torch.mm(d_cross[i], half["cross_out"][i], out=d_mixed[i])
            torch.bmm(_heads(d_mixed[i], H), half["v"][i].view(H, size, D), out=_heads(d_read.view(R, H * D), H))
            torch.bmm(d_read, value.mT, out=d_scores)
            extra = d_seen.contiguous() if ctx.attention and i == L - 1 else None
            ops.softmax_back(d_scores, scores[i], mask, level[i], extra, H, passed, size**-0.5, seed, s[2], dropout)
            torch.bmm(d_scores, key, out=d_folded[i])
            with per_head[0]:  # while the GPU's cache holds what was just written
                to_head("k", i, q[i], d_folded[i])
            if d_key is not None:
                d_key.baddbmm_(d_scores.mT, folded[i])
            if d_value is not None and passed is not None:
                d_value.baddbmm_(passed.mT, d_read)
            torch.bmm(_heads(d_folded[i].view(R, H * D), H), half["k"][i].view(H, size, D).mT, out=_heads(d_q[i], H))
            torch.mm(d_q[i], half["q"][i], out=dy[3 * i + 1])
            norm(3 * i + 1, "norm2", i, s[1])
            down = d_own[i] @ half["out"][i]
            given = qkv[i] if i else qkv[i, :K]
            ops.attend(given, full["qkv_bias"][i], None, down, d_qkv[i], qkv_sums[i], K, H, seed, s[0], dropout)
            if i == 0:  # the first layer's slots are the same in all videos: what follows is of their sum
                begun, dx = d_qkv[0].view(B, K, 3 * D).sum(0, dtype=wide).to(kind), dx.view(B, K, D).sum(0)
            rows, up = (R, d_qkv[i]) if i else (K, begun)
            if content:
                torch.mm(up, half["qkv"][i], out=dy[3 * i, :rows])
            else:
                torch.mm(up[:, : 2 * D], half["qkv"][i, : 2 * D], out=added[i, :rows])
                torch.addmm(added[i, :rows], up[:, 2 * D :], half["qkv"][i, 2 * D :], out=dy[3 * i, :rows])
            norm(3 * i, "norm1", i, s[0] - 1)

        def to_qkv(down: Tensor, layers: slice, rows: slice) -> None:
            parts = ((slice(0, 3 * D), y1),) if content else ((slice(0, 2 * D), yq), (slice(2 * D, 3 * D), y1))
            for part, given in parts:
                weight_gradient(down[..., part], given[layers, rows], grad["qkv"][layers, part])

        with per_head[1]:
            for i in range(L):
                to_head("v", i, d_mixed[i], read[i])
        weight_gradient(d_cross, mixed, grad["cross_out"])  # first: the small ones add to it
        with small:
            to_qkv(begun[None], slice(0, 1), slice(0, K))
            to, made = [], []
            rounded = norm_sums.sum(1).to(kind)  # (3 L + 1, 3, D)
            for name, down in (("qkv_bias", qkv_sums), ("q_bias", d_q), ("ff1_bias", before_sums)):
                to.append(grad[name])
                made.append(torch.sum(down, 1, dtype=wide).to(kind))
            layers = rounded[:-1].view(L, 3, 3, D).permute(1, 2, 0, 3).contiguous()  # the norm, which sum, (L, D)
            to += [grad["norm"], grad["norm_bias"], grad["ff2_bias"][L - 1 :]]
            made += [rounded[-1:, 0], rounded[-1:, 1], rounded[-1:, 2]]
            for place in range(3):
                to += [grad[f"norm{place + 1}"], grad[f"norm{place + 1}_bias"]]
                made += [layers[place, 0], layers[place, 1]]
            # the bias of a branch stands in the norm behind it; that of the last layer's feed-forward in the final norm
            to += [grad["out_bias"], grad["cross_out_bias"], grad["ff2_bias"][: L - 1]]
            made += [layers[1, 2], layers[2, 2], layers[0, 2, 1:]]
            torch._foreach_copy_(to, made)
            summed = grad["cross_out_bias"]  # of what the values' bias was added to as well
            torch.bmm(summed[:, None], half["cross_out"], out=grad["v_bias"][:, None])
            grad["cross_out"].addcmul_(summed[..., None], half["v_bias"][:, None])
            d_queries = dx
            if not content:
                d_queries = added[0, :K] + added[1:].reshape(-1, K, D).sum(0, dtype=wide)
                d_queries += dy[1::3].reshape(L * B, K, D).sum(0, dtype=wide)
        to_qkv(d_qkv[1:], slice(1, L), slice(0, R))
        for name, down, given in (
            ("out", d_own, own), ("q", d_q, y2), ("ff1", d_before, y3), ("ff2", d_ff, after),
        ):  # fmt: skip
            weight_gradient(down, given, grad[name])
        for side in (small, *per_head):
            side.join()
        if d_value is d_key and d_key is not None:
            d_value = None  # both are in the one
        return d_queries, d_key, d_value, None, None, None


def _pitch(n: int) -> int:
    """Elements from row to row of the attention: rows begin at whole cache lines, which products read faster."""
    return -(-n // 64) * 64


def _heads(x: Tensor, heads: int) -> Tensor:
    """(R, H W) as (H, R, W), without a copy: products of single heads read and write in place."""
    return x.view(len(x), heads, -1).transpose(0, 1)
