"""What the Triton kernels of a training step compute, in plain torch; `core.stack_kernels` says what each function
takes. The kernels are tested against it, and where there is no GPU it stands in for them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

_CHANCES = 1 << 24
_LOG2E = math.log2(math.e)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit integer hash, in int64."""
    low = 0xFFFFFFFF
    x = x ^ (x >> 16)
    x = (x * 0x7FEB352D) & low
    x = x ^ (x >> 15)
    return (x * 0x046CA68B) & low


def _kept(seed: Tensor, site: int, shape: tuple[int, ...], threshold: int) -> Tensor:
    """Which elements dropout keeps; seed (1,) int64, site: the place in the network."""
    low = 0xFFFFFFFF
    key = (_mix(_mix(seed & low) + site & low)) & low
    index = torch.arange(math.prod(shape), device=seed.device)
    return ((_mix((index * 0x1E3779B1 + key) & low) >> 8) >= threshold).view(shape)


def _drop(x: Tensor, seed: Tensor, site: int, threshold: int) -> Tensor:
    if not threshold:
        return x
    return torch.where(_kept(seed, site, tuple(x.shape), threshold), x * (_CHANCES / (_CHANCES - threshold)), 0.0)


def add_norm(
    x: Tensor, branch: Tensor | None, bias: Tensor | None, weight: Tensor, shift: Tensor, query: Tensor | None,
    x_out: Tensor, y: Tensor | None, y_query: Tensor | None, mean: Tensor, rstd: Tensor, seed: Tensor, site: int,
    threshold: int, eps: float,
) -> None:  # fmt: skip
    x = x.repeat(len(x_out) // len(x), 1)
    if branch is not None:
        assert bias is not None
        x = x + _drop(branch.to(x.dtype) + bias, seed, site, threshold)
    x_out.copy_(x)
    mean.copy_(x.mean(1))
    centred = x - mean[:, None]
    rstd.copy_((centred.square().mean(1) + eps).rsqrt())
    normed = centred * rstd[:, None] * weight + shift
    if y is not None:
        y.copy_(normed)
    if y_query is not None:
        assert query is not None
        y_query.copy_((normed.view(-1, *query.shape) + query).flatten(0, 1))


def add_norm_back(
    dy: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor, dx: Tensor, more: bool,
    d_branch: Tensor | None, sums: Tensor, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    unit = (x - mean[:, None]) * rstd[:, None]
    g = dy.to(x.dtype)
    sums.zero_()[0, :2] = torch.stack(((g * unit).sum(0), g.sum(0)))
    g = g * weight
    new = rstd[:, None] * (g - unit * (unit * g).mean(1, keepdim=True) - g.mean(1, keepdim=True))
    dx.copy_(dx + new if more else new)
    if d_branch is not None:
        d_branch.copy_(_drop(dx, seed, site, threshold))
        sums[0, 2] = d_branch.to(x.dtype).sum(0)


def norm_parts(rows: int, dim: int) -> int:
    return 1


def activate(before: Tensor, bias: Tensor, out: Tensor, seed: Tensor, site: int, threshold: int) -> None:
    x = before.to(bias.dtype) + bias
    out.copy_(_drop(x.relu(), seed, site, threshold))


def activate_back(
    grad: Tensor, before: Tensor, bias: Tensor, sums: Tensor, seed: Tensor, site: int, threshold: int
) -> None:
    x = before.to(bias.dtype) + bias
    g = _drop(grad.to(bias.dtype), seed, site, threshold)
    grad.copy_(torch.where(x > 0, g, 0.0))
    sums.zero_()[0] = _wide(grad).sum(0)


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _drop_attention(x: Tensor, seed: Tensor, site: int, threshold: int) -> Tensor:
    """Dropout of x (B, rows, N): one number for two elements, those of a row's two halves."""
    if not threshold >> 8:
        return x
    threshold, low, N = threshold >> 8, 0xFFFFFFFF, x.shape[-1]
    half = max(16, 1 << (N - 1).bit_length()) // 2
    row = torch.arange(x.shape[0] * x.shape[1], device=x.device)[:, None]
    bits = (row * half + torch.arange(half, device=x.device)) * 0x1E3779B1 + _mix(_mix(seed & low) + site & low) & low
    bits = (bits ^ (bits >> 16)) * 0x7FEB352D & low
    bits = bits ^ (bits >> 15)
    kept = (torch.cat((bits & 0xFFFF, bits >> 16), 1) >= threshold)[:, :N].view(x.shape)
    return torch.where(kept, x * (65536 / (65536 - threshold)), 0.0)


def softmax(
    scores: Tensor, seen: Tensor, out: Tensor, level: Tensor, scale: float, seed: Tensor, site: int, threshold: int
) -> None:
    level.copy_(_logits(scores, seen, scale).logsumexp(-1) * _LOG2E)
    level.masked_fill_(level == -torch.inf, torch.inf)  # no frame, no attention
    out.copy_(_drop_attention(_weights(scores, seen, level, scale), seed, site, threshold))


def _logits(scores: Tensor, seen: Tensor, scale: float) -> Tensor:
    return (_wide(scores) * scale).masked_fill(~seen[:, None], -torch.inf)


def _weights(scores: Tensor, seen: Tensor, level: Tensor, scale: float) -> Tensor:
    return torch.exp2(_logits(scores, seen, scale) * _LOG2E - level[..., None])


def softmax_back(
    grad: Tensor, scores: Tensor, seen: Tensor, level: Tensor, extra: Tensor | None, heads: int,
    dropped: Tensor | None, scale: float, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    p, g = _weights(scores, seen, level, scale), _drop_attention(_wide(grad), seed, site, threshold)
    if extra is not None:
        g = g + (extra / heads).repeat_interleave(heads, 1)
    grad.copy_(p * (g - (p * g).sum(-1, keepdim=True)) * scale)
    if dropped is not None:
        dropped.copy_(_drop_attention(p, seed, site, threshold))


def mean_weights(scores: Tensor, seen: Tensor, level: Tensor, heads: int, scale: float) -> Tensor:
    B, rows, N = scores.shape
    return _weights(scores, seen, level, scale).view(B, rows // heads, heads, N).mean(2)


def attend(
    qkv: Tensor, bias: Tensor, out: Tensor | None, grad: Tensor | None, d_qkv: Tensor | None, sums: Tensor | None,
    slots: int, heads: int, seed: Tensor, site: int, threshold: int,
) -> None:  # fmt: skip
    size = qkv.shape[1] // 3 // heads
    made = out if grad is None else grad
    qkv = (_wide(qkv) + bias).repeat(len(made) // len(qkv), 1)  # given once where it is the same in all videos
    q, k, v = qkv.view(-1, slots, 3, heads, size).permute(2, 0, 3, 1, 4)  # (B, H, K, D / H) each
    p = (q @ k.mT * size**-0.5).softmax(-1)
    passed = _drop(p, seed, site, threshold)
    if out is not None:
        out.copy_((passed @ v).transpose(1, 2).flatten(2).flatten(0, 1))
    if grad is not None and d_qkv is not None and sums is not None:
        g = _wide(grad).view(-1, slots, heads, size).transpose(1, 2)
        dp = _drop(g @ v.mT, seed, site, threshold)
        ds = p * (dp - (p * dp).sum(-1, keepdim=True)) * size**-0.5
        made = torch.stack((ds @ k, ds.mT @ q, passed.mT @ g))  # (3, B, H, K, D / H)
        d_qkv.copy_(made.permute(1, 3, 0, 2, 4).reshape(d_qkv.shape))
        sums.copy_(_wide(d_qkv).view(-1, slots, d_qkv.shape[1]).sum(1))


def update(
    values: Tensor, grads: Tensor, first: Tensor, second: Tensor, mean: Tensor | None, half: Tensor, control: Tensor,
    norm: Tensor, bad: Tensor, clip: float, betas: tuple[float, float], decay: float, eps: float, decoupled: bool,
) -> None:  # fmt: skip
    if bool(bad) or not bool(norm.isfinite()):
        bad.fill_(1)
        return
    lr, follow, bias1, bias2 = control[:4].to(values.dtype)
    g = grads.to(values.dtype) * (clip / (norm + 1e-6)).clamp(max=1.0)
    if decoupled:
        values.mul_(1 - lr * decay)
    else:
        g = g + decay * values
    m = first.to(g.dtype).lerp(g, 1 - betas[0])
    v = (second.to(g.dtype) * betas[1]).addcmul(g, g, value=1 - betas[1])
    values.sub_(lr / bias1 * m / (v.sqrt() / bias2 + eps))
    first.copy_(m)  # the kernel rounds by chance
    second.copy_(v)
    half.copy_(values)
    if mean is not None:
        mean.lerp_(values, float(follow))
