"""The context layer of a model in a training step on a GPU: what is done to all frames, in few passes and in bf16.

The modules of :mod:`stepformer.core.model` say what is computed. Every frame is normed, projected, attends to
all others of its video and goes through a feed-forward: as separate operations forty passes over all frames.
Here everything between two matrix products is one kernel (`core.context_kernels`), and frames are
stored in the type that products are made in. Attention itself is torch's. Gradients of the weights are written in
place (``graph.Flat``); dropout is a hash of (seed, place, element), as in :mod:`stepformer.core.stack`.

torch's attention takes half as long again with a mask. So heads are made wider by a few numbers: a 1 in every query,
and in the keys of frames that are not there a number that leaves nothing of their weight. Projections write the wider
heads themselves, with weights that have rows of zeros there.

R = B N rows; D the width of the decoder, W that of the features; H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from stepformer.core import stack
from stepformer.core.model import ContextLayer, Looked, StepDecoder

_CHUNKS = 8  # rows are summed in so many parts where they are the long side of a product
_MORE = 8  # numbers added to every head
_NEVER = -30_000.0
_SITES = range(1 << 20, (1 << 20) + 3)  # places of dropout: the branch of attention, feed-forward, its branch


# -- the two functions, before attention and behind it ----------------------------------------------------------------


def fits(model: StepDecoder) -> bool:
    """Whether this file computes what the model's context layers do."""
    return len(model.context) == 1 and model.frames_out is not None


@dataclass(frozen=True)
class Context:
    """The context layer of a model, ready to run: :meth:`look` stands in for its modules.

    half, grad: a parameter's copy that products are made with, and where its gradient is written. seed (1,) int64: of
    this step's dropout.
    """

    model: StepDecoder
    half: Callable[[Tensor], Tensor]
    grad: Callable[[Tensor], Tensor]
    seed: Tensor

    def look(self, video: Tensor, mask: Tensor) -> Looked:
        """video (B, N, W), mask (B, N) -> the frames slots are compared with, the memory, and that with its codes."""
        model, config = self.model, self.model.config
        B, N, _ = video.shape
        layer = self.layer
        kind = self.half(layer.attention.q.weight).dtype
        codes = self._codes(mask, kind)
        rows = video.reshape(B * N, -1)
        q, k, v, u = _Before.apply(layer.norm1.weight, rows, codes, mask, self)  # type: ignore[no-untyped-call]
        q, k, v = (x.view(B, N, config.heads, -1).transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(
            q, k, v, dropout_p=config.dropout if model.training else 0.0, scale=(config.dim // config.heads) ** -0.5
        )
        mixed = mixed.transpose(1, 2).reshape(B * N, -1)
        frames, memory, placed = _After.apply(mixed, u, rows, codes, self)  # type: ignore[no-untyped-call]
        return Looked(*(x.view(B, N, -1) for x in (frames, memory, placed)))

    def _codes(self, mask: Tensor, kind: torch.dtype) -> Tensor:
        """(R or N or 1, D): rows repeat them."""
        config = self.model.config
        if config.positions == "relative" and config.position_code == "textbook" and mask.is_cuda:
            codes: Tensor = self.kernels.relative_codes(mask, config.dim)
            return codes
        return self.model.codes(mask).to(kind).flatten(0, 1)

    @property
    def layer(self) -> ContextLayer:
        """The modules."""
        (layer,) = self.model.context
        assert isinstance(layer, ContextLayer)
        return layer

    @property
    def feedforward(self) -> tuple[nn.Linear, nn.Linear]:
        """The two linear layers behind attention."""
        first, *_, second = self.layer.feedforward
        assert isinstance(first, nn.Linear) and isinstance(second, nn.Linear)
        return first, second

    @property
    def outward(self) -> nn.Linear:
        """What makes frames of the memory."""
        assert self.model.frames_out is not None
        return self.model.frames_out

    @property
    def kernels(self) -> ModuleType:
        """Where the functions between the matrix products are."""
        from stepformer.core import context_kernels

        return context_kernels

    @property
    def threshold(self) -> int:
        """Of dropout."""
        return round(self.model.config.dropout * stack._CHANCES) if self.model.training else 0

    def widened(self, x: Tensor) -> Tensor:
        """(D, ...) -> (H (D / H + _MORE), ...): zeros behind every head."""
        heads = x.view(self.model.config.heads, -1, *x.shape[1:])
        return F.pad(heads, (*(0, 0) * (x.ndim - 1), 0, _MORE)).flatten(0, 1)

    def heads(self, x: Tensor) -> Tensor:
        """The opposite: (H (D / H + _MORE), ...) -> (D, ...)."""
        return x.view(self.model.config.heads, -1, *x.shape[1:])[:, :-_MORE].flatten(0, 1)

    def give(
        self, linear: nn.Linear, down: Tensor, given: Tensor, bias: Tensor | None = None, wide: str = ""
    ) -> None:
        """Writes the gradients of a linear layer: down (R, O) that of its output, given (R, I) its input.

        wide: which of the two has wider heads, "down" or "given".
        """
        R = len(down)
        parts = next(n for n in (_CHUNKS, 4, 2, 1) if R % n == 0)
        if parts > 1 and down.dtype == torch.bfloat16:  # one product would keep few of the GPU's processors busy
            x, y = (some.view(parts, R // parts, -1) for some in (down, given))
            made = torch.bmm(x.mT, y, out_dtype=torch.float32).sum(0)
        else:
            made = down.t() @ given
        sums = down.sum(0, dtype=linear.bias.dtype) if bias is None else bias
        if wide == "down":
            made, sums = self.heads(made), self.heads(sums)
        elif wide == "given":
            made = self.heads(made.t()).t()
        self.grad(linear.weight).copy_(made)
        self.grad(linear.bias).copy_(sums)


class _Before(torch.autograd.Function):
    """Rows (R, W) -> queries, keys and values, (R, H (D / H + _MORE)) each, and the rows as the layer takes them in,
    (R, D)."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, rows: Tensor, codes: Tensor, mask: Tensor, context: Context
    ) -> tuple[Tensor, ...]:
        model, half, ops = context.model, context.half, context.kernels
        layer, into = context.layer, model.project_in
        kind = half(layer.attention.q.weight).dtype
        x = torch.addmm(half(into.bias), rows.to(kind), half(into.weight).t()) if isinstance(into, nn.Linear) else rows
        u, y, placed, mean, rstd = ops.enter(x, codes, weight, layer.norm1.bias, layer.norm1.eps, kind)
        linears = layer.attention.q, layer.attention.k, layer.attention.v
        biases, weights = ([context.widened(half(getattr(x, name))) for x in linears] for name in ("bias", "weight"))
        heads = model.config.heads
        biases[0].view(heads, -1)[:, -_MORE] = 1.0
        q, k, v = (
            torch.addmm(b, given, w.t()) for b, w, given in zip(biases, weights, (placed, placed, y), strict=True)
        )
        k.view(len(k), heads, -1)[:, :, -_MORE].masked_fill_(~mask.flatten()[:, None], _NEVER)
        # an output is kept as a copy of its handle: itself, it would hold this node, and the node it
        ctx.kept, ctx.context = (rows, x, u.detach(), y, placed, mean, rstd, weights), context
        if not isinstance(into, nn.Linear):
            ctx.mark_non_differentiable(u)
        return q, k, v, u

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor, du: Tensor | None) -> tuple[Tensor | None, ...]:
        rows, x, u, y, placed, mean, rstd, weights = ctx.kept
        context: Context = ctx.context
        ops, into = context.kernels, context.model.project_in
        attention, norm = context.layer.attention, context.layer.norm1
        dy = torch.zeros_like(y)
        asked = (attention.q, dq, placed), (attention.k, dk, placed), (attention.v, dv, y)
        for (linear, grad, given), weight in zip(asked, weights, strict=True):
            down = grad.contiguous()
            dy.addmm_(down, weight)
            nothing = down.new_zeros(down.shape[1]) if linear is attention.k else None  # falls out of the softmax
            context.give(linear, down, given, nothing, wide="down")
        dx, more = None, du is not None
        if isinstance(into, nn.Linear):
            dx = torch.empty_like(dy) if du is None else du.contiguous()
        sums = mean.new_empty(ops.norm_parts(*u.shape), 3, u.shape[1])
        ops.add_norm_back(dy, u, norm.weight, mean, rstd, dx, more, None, sums, context.seed, 0, 0)
        context.grad(norm.weight).copy_(sums[:, 0].sum(0))
        context.grad(norm.bias).copy_(sums[:, 1].sum(0))
        if isinstance(into, nn.Linear):
            context.give(into, ops.leave(dx, x).to(dy.dtype), rows.to(dy.dtype))
        return None, None, None, None, None


class _After(torch.autograd.Function):
    """What attention read (R, D) -> frames (R, W), memory (R, D), and the memory with its codes."""

    @staticmethod
    def forward(
        ctx: Any, mixed: Tensor, u: Tensor, rows: Tensor, codes: Tensor, context: Context
    ) -> tuple[Tensor, Tensor, Tensor]:
        model, half, ops, seed = context.model, context.half, context.kernels, context.seed
        layer, outward, threshold = context.layer, context.outward, context.threshold
        first, second = context.feedforward
        R = len(u)
        norm, out, wide = layer.norm2, layer.attention.out, layer.norm2.weight.dtype
        x, z = torch.empty_like(u), torch.empty_like(u)
        mean, rstd = (torch.empty(R, dtype=wide, device=u.device) for _ in range(2))
        wide_out = context.widened(half(out.weight).t())
        branch = mixed @ wide_out
        ops.add_norm(
            u, branch, out.bias, norm.weight, norm.bias, None, x, z, None, mean, rstd, seed, _SITES[0], threshold,
            norm.eps,
        )  # fmt: skip
        before = z @ half(first.weight).t()
        after = torch.empty_like(before)
        gelu = model.config.activation == "gelu"
        ops.activate(before, first.bias, after, gelu, seed, _SITES[1], threshold)
        branch = after @ half(second.weight).t()
        memory, placed = ops.add_end(x, branch, second.bias, codes, seed, _SITES[2], threshold)
        frames = ops.add_unit(rows, memory @ half(outward.weight).t(), outward.bias)
        ctx.kept = mixed.detach(), x, z, mean, rstd, before, after, memory.detach(), wide_out
        ctx.context, ctx.threshold = context, threshold
        ctx.set_materialize_grads(False)
        return frames, memory, placed

    @staticmethod
    def backward(
        ctx: Any, d_frames: Tensor | None, d_memory: Tensor | None, d_placed: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        mixed, x, z, mean, rstd, before, after, memory, wide_out = ctx.kept
        context: Context = ctx.context
        model, half, ops, seed, threshold = context.model, context.half, context.kernels, context.seed, ctx.threshold
        layer, outward = context.layer, context.outward
        first, second = context.feedforward
        norm, out, kind = layer.norm2, layer.attention.out, x.dtype
        dx = torch.zeros_like(x)
        if d_frames is not None:
            d_frames = d_frames.to(kind).contiguous()
            context.give(outward, d_frames, memory)
            torch.mm(d_frames, half(outward.weight), out=dx)
        for more in (d_memory, d_placed):
            if more is not None:
                dx += more
        down = ops.drop(dx, seed, _SITES[2], threshold)
        context.give(second, down, after)
        grad = down @ half(second.weight)
        sums = torch.empty(-(-len(x) // 32), before.shape[1], dtype=mean.dtype, device=x.device)
        gelu = model.config.activation == "gelu"
        ops.activate_back(grad, before, first.bias, sums, gelu, seed, _SITES[1], threshold)
        context.give(first, grad, z, sums.sum(0))
        dz = grad @ half(first.weight)
        down = torch.empty_like(x)
        parts = mean.new_empty(ops.norm_parts(*x.shape), 3, x.shape[1])
        ops.add_norm_back(dz, x, norm.weight, mean, rstd, dx, True, down, parts, seed, _SITES[0], threshold)
        norms = parts.sum(0)  # (3, D)
        context.grad(norm.weight).copy_(norms[0])
        context.grad(norm.bias).copy_(norms[1])
        context.give(out, down, mixed, norms[2], wide="given")
        return down @ wide_out.t(), dx if ctx.needs_input_grad[1] else None, None, None, None
