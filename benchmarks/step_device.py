"""What the recorded training step does on a GPU: agreement, time by part, kernels, memory."""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

OUT = Path(os.environ.get("OUT", "/tmp"))
FOUND: dict[str, Any] = {}
START = time.perf_counter()


@contextmanager
def section(name: str):
    began = time.perf_counter()
    try:
        yield
    except Exception:
        print(f"!! {name} FAILED\n{traceback.format_exc()[-1800:]}", flush=True)
        FOUND[f"{name}: failed"] = traceback.format_exc()
    torch.cuda.synchronize()
    print(f"-- {name}: {time.perf_counter() - began:.1f} s (at {time.perf_counter() - START:.0f} s)", flush=True)
    (OUT / "found.json").write_text(json.dumps(FOUND, indent=1, default=str))


def say(name: str, value: Any) -> None:
    FOUND[name] = value
    print(f"{name}: {value if not isinstance(value, float) else round(value, 5)}", flush=True)


class Batch(NamedTuple):
    video: torch.Tensor
    video_mask: torch.Tensor
    phrases: torch.Tensor
    phrase_mask: torch.Tensor
    phrase_times: torch.Tensor


class Source:
    """One random batch per number modulo a few, on the device."""

    encoder, origin = "random", "random"

    def __init__(self, B=72, N=1000, L=90, D=768, dtype=torch.float16, several=3) -> None:
        self.dim = D
        self.batches = []
        for i in range(several):
            g = torch.Generator("cuda").manual_seed(i)
            said = torch.randint(20, L + 1, (B,), device="cuda", generator=g)
            said[0] = L
            topics = torch.randn(B, 1, D, device="cuda", generator=g)
            video = (torch.randn(B, N, D, device="cuda", generator=g) + topics).to(dtype)
            phrases = (torch.randn(B, L, D, device="cuda", generator=g) + topics).to(dtype)
            mask = torch.ones(B, N, dtype=torch.bool, device="cuda")
            mask[1, N // 2 :] = False
            times = torch.linspace(0, N, L, device="cuda").expand(B, L).contiguous()
            self.batches.append(Batch(video, mask, phrases, torch.arange(L, device="cuda") < said[:, None], times))
        self.centre = self.batches[0].video.float().mean((0, 1)).cpu()

    def batch(self, step, size):
        return self.batches[step % len(self.batches)]

    def held_out_batches(self, size):
        return []

    def describe(self):
        return ""


def trainer(preset="paper", source=None, eager=False, B=72, N=1000, **model):
    from stepformer.core.config import make_config
    from stepformer.core.training import Trainer

    config = make_config({
        "preset": preset, "batch": B, "steps": 100000, "model": {"dim": 768, **model}, "loggers": [],
        "optim": {"ema": 0.998, "warmup": 0.0}, "data": {"store": "x", "max_frames": N}, "validation": {"every": 0},
    })  # fmt: skip
    made = Trainer(config, tempfile.mkdtemp(), source, "cuda", quiet=True)
    if eager:
        made.eager_because = "asked"
    return made


def timed(fn, repeats=20, warm=3):
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        a.record()
        fn()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    return sorted(times)[len(times) // 2]


def in_graph(fn, repeats=15, inner=1):
    """ms per call of fn, replayed from a graph that holds it ``inner`` times."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fn()
        fn()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(inner):
            fn()
    return timed(graph.replay, repeats) / inner


def per_step(made, steps=30, warm=4, first=0):
    """Host-paced: ms per step over a stretch of steps, no waiting inside."""
    for i in range(warm):
        made.train_step(first + i)
    torch.cuda.synchronize()
    began = time.perf_counter()
    for i in range(steps):
        made.train_step(first + warm + i)
    host = time.perf_counter() - began
    torch.cuda.synchronize()
    total = time.perf_counter() - began
    return {"ms": total / steps * 1e3, "host_ms": host / steps * 1e3}


def error(a, b):
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm().clamp(min=1e-30))


def kernels():
    from stepformer.core import stack, stack_kernels

    R, D, K, H, B, N, W = 2304, 768, 32, 8, 72, 1000, 1024
    seed = torch.tensor([987654321], device="cuda")
    drop = round(0.1 * 2**24)
    half = torch.bfloat16

    def draw(*s, dtype=torch.float32):
        return torch.randn(*s, device="cuda").to(dtype)

    def nan(*s, dtype=torch.float32):
        return torch.full(s, torch.nan, device="cuda", dtype=dtype)

    def compare(name, make):
        results = []
        for ops in (stack, stack_kernels):
            torch.manual_seed(0)
            arguments, written = make()
            getattr(ops, name)(*arguments)
            results.append(written)
        errors = [round(error(b, a), 6) for a, b in zip(*results, strict=True)]
        torch.manual_seed(0)
        arguments, _ = make()
        kind = "softmax" if "softmax" in name else "norm" if "norm" in name else ""
        times = {}
        for warps in (1, 2, 4, 8) if kind else (4,):
            if kind:
                stack_kernels.WARPS[kind] = warps
            times[warps] = round(in_graph(lambda: getattr(stack_kernels, name)(*arguments), inner=4) * 1e3, 2)
            if kind:
                stack_kernels.WARPS[kind] = 4
        say(f"kernel {name}", {"errors": errors, "us by warps": times})

    def add_norm():
        w = [nan(R, D), nan(R, D, dtype=half), nan(R), nan(R)]
        return (draw(R, D), draw(R, D, dtype=half), draw(D), draw(D), draw(D), None, w[0], w[1], None, w[2], w[3],
                seed, 5, drop, 1e-5), w  # fmt: skip

    def add_norm_back():
        x = draw(R, D)
        w = [draw(R, D), nan(R, D, dtype=half)]
        return (draw(R, D, dtype=half), x, draw(D), x.mean(1), 1 / x.std(1), w[0], True, w[1], seed, 5, drop), w

    def activate():
        w = [nan(R, W, dtype=half)]
        return (draw(R, W, dtype=half), draw(W), w[0], False, seed, 4, drop), w

    def activate_back():
        w = [draw(R, W, dtype=half)]
        return (w[0], draw(R, W, dtype=half), draw(W), True, seed, 4, drop), w

    mask = torch.ones(B, N, dtype=torch.bool, device="cuda")
    mask[0, 500:] = False

    def softmax():
        w = [draw(B, K * H, N, dtype=half), nan(B, K * H, N, dtype=half)]
        return (w[0], mask, w[1], 0.3, seed, 2, drop), w

    def softmax_back():
        w = [draw(B, K * H, N, dtype=half)]
        return (w[0], draw(B, K * H, N).softmax(-1).to(half), None, H, None, 0.3, seed, 2, drop), w

    def attend():
        w = [nan(R, D, dtype=half)]
        return (draw(R, 3 * D, dtype=half), w[0], None, None, K, H, seed, 1, drop), w

    def attend_back():
        w = [nan(R, 3 * D, dtype=half)]
        return (draw(R, 3 * D, dtype=half), None, draw(R, D, dtype=half), w[0], K, H, seed, 1, drop), w

    for make in (add_norm, add_norm_back, activate, activate_back, softmax, softmax_back, attend):
        compare(make.__name__, make)
    compare("attend", attend_back)
    S = 19
    dy, x, d_branch = draw(S, R, D, dtype=half), draw(S, R, D), draw(S, R, D, dtype=half)
    mean, rstd = x.mean(2), 1 / x.std(2)
    say("kernel norm_sums", {
        "error": error(stack_kernels.norm_sums(dy, x, mean, rstd, d_branch), stack.norm_sums(dy, x, mean, rstd, d_branch)),
        "us": in_graph(lambda: stack_kernels.norm_sums(dy, x, mean, rstd, d_branch)) * 1e3})
    wide = draw(6, R, 3 * D, dtype=half)
    sums = torch.empty(6, 3 * D, device="cuda")
    say("kernel row_sums qkv us", in_graph(lambda: stack_kernels.row_sums(wide, sums)) * 1e3)
    say("row_sums error", error(sums, wide.float().sum(1)))
    frames, codes = draw(B, N, D, dtype=torch.float16), draw(1, N, D)
    say("kernel add_codes", {"error": error(stack_kernels.add_codes(frames, codes), frames.float() + codes), "us": in_graph(lambda: stack_kernels.add_codes(frames, codes)) * 1e3})
    from stepformer.core import losses, match_kernel
    cos = torch.rand(B, K, 96, device="cuda") * 2 - 1
    said = torch.arange(96, device="cuda") < torch.randint(20, 91, (B, 1), device="cuda")
    plain, keep = losses._kernels, 0.8
    for top in (None, 12):
        losses._kernels = lambda x: False
        want = losses.match(cos, said, keep, top)
        ms = in_graph(lambda: losses.match(cos, said, keep, top))
        losses._kernels = plain
        got = losses.match(cos, said, keep, top)
        say(f"match top={top}", {"equal": torch.equal(want, got), "old us": ms * 1e3, "us": in_graph(lambda: losses.match(cos, said, keep, top)) * 1e3})
    cosg = cos.clone().requires_grad_()
    def own_losses(on):
        losses._kernels = (lambda x: True) if on else (lambda x: False)
        value = losses.Compared(cosg, cosg)
        value.__dict__["cosines"] = cosg
        total = value.local(said, want, 0.07, "all") + sum((y * y).sum() * 1e-3 for y in value.own_sums(said, 0.07))
        out = total, torch.autograd.grad(total, cosg)[0]
        losses._kernels = plain
        return out
    (a, ga), (b, gb) = own_losses(False), own_losses(True)
    say("own", {"values": [float(a.detach()), float(b.detach())], "gradient error": error(gb, ga)})
    picked, slots = draw(B, 64, D), draw(B, K, D).requires_grad_()
    index, valid = losses.sample_frames(torch.ones(B, N, dtype=torch.bool, device="cuda"), 64)
    window = torch.full((B,), 31.0, device="cuda")
    rows = []
    for on in (False, True):
        losses._kernels = (lambda x: True) if on else (lambda x: False)
        from stepformer.core import loss_kernels
        cosines_ = losses.cosines(picked, slots)
        loss = loss_kernels.smooth(cosines_, index, valid, window, 0.03, True, True).mean() if on else losses._smooth_loss(cosines_, index, valid, window, 0.03, "log_mean", True)
        rows.append((loss, torch.autograd.grad(loss, slots)[0]))
        losses._kernels = plain
    say("smooth", {"values": [float(r[0].detach()) for r in rows], "gradient error": error(rows[1][1], rows[0][1])})
    from stepformer.core import loss_kernels
    from stepformer.core.log_sums import _shares, _sums

    I, J = 2304, 72 * 90
    x = torch.nn.functional.normalize(draw(I, D), dim=-1)
    z = torch.nn.functional.normalize(draw(J, D), dim=-1)
    seen = torch.rand(J, device="cuda") < 0.6
    products = x @ z.mT
    for both in (False, True):
        a, b = _sums(products.double(), seen, 0.07, both), loss_kernels.log_sums(products, seen, 0.07, both)
        say(f"kernel log_sums both={both}", {
            "errors": [error(q, p) for p, q in zip(a, b, strict=True) if len(p)],
            "us": in_graph(lambda: loss_kernels.log_sums(products, seen, 0.07, both)) * 1e3})  # noqa: B023
    d_rows, d_columns = draw(I), draw(J)
    want = _shares(products.double(), seen, 0.07, a[0], d_rows.double(), (a[1], d_columns.double()))
    got = loss_kernels.shares(products.clone(), seen, 0.07, b[0], d_rows, (b[1], d_columns))
    say("kernel shares", {"error": error(got, want), "us": in_graph(lambda: loss_kernels.shares(products, seen, 0.07, b[0], d_rows, None)) * 1e3})
    say("tf32 product us", in_graph(lambda: torch.mm(x, z.mT)) * 1e3)
    xh, zh = x.bfloat16(), z.bfloat16()
    say("bf16 product, fp32 out us", in_graph(lambda: torch.mm(xh, zh.mT, out_dtype=torch.float32)) * 1e3)


def products_table():
    B, KH, D, R, L, H = 72, 256, 768, 2304, 6, 8
    half = torch.bfloat16

    def draw(*s):
        return torch.randn(*s, device="cuda").to(half)

    q, read = draw(B, KH, D), draw(B, KH, D)
    for N in (1000, 1024):
        key, p = draw(B, N, D), draw(B, KH, N)
        flops = 2 * B * KH * N * D
        for name, fn in {
            "scores q k'": lambda: torch.bmm(q, key.mT, out=p),
            "read p v": lambda: torch.bmm(p, key, out=read),
        }.items():
            ms = in_graph(fn, inner=4)
            say(f"{name} N={N}", {"us": round(ms * 1e3, 1), "tflops": round(flops / ms / 1e9)})
    x, w, w3, f1 = draw(R, D), draw(D, D), draw(3 * D, D), draw(1024, D)
    bias3 = draw(3 * D)
    xh = x.view(R, H, 96).transpose(0, 1)
    wide = torch.empty(R, H * D, device="cuda", dtype=half)
    wide_heads = wide.view(R, H, D).transpose(0, 1)
    out_heads = torch.empty(R, D, device="cuda", dtype=half).view(R, H, 96).transpose(0, 1)
    dys, xs = draw(L, R, D), draw(L, R, D)
    grads = torch.empty(L, D, D, device="cuda")
    one = torch.empty(H, 96, D, device="cuda")
    three, d3 = draw(L, R, 3 * D), torch.empty(L, 3 * D, D, device="cuda")
    for name, fn in {
        "linear D D": lambda: torch.mm(x, w.t()),
        "linear back D D": lambda: torch.mm(x, w),
        "addmm qkv": lambda: torch.addmm(bias3, x, w3.t()),
        "linear ff1": lambda: torch.mm(x, f1.t()),
        "fold": lambda: torch.bmm(xh, w.view(H, 96, D), out=wide_heads),
        "unfold": lambda: torch.bmm(wide_heads, w.view(H, 96, D).mT, out=out_heads),
        "dW of 6 layers fp32 out": lambda: torch.bmm(dys.mT, xs, out_dtype=torch.float32, out=grads),
        "dW of 6 layers qkv fp32 out": lambda: torch.bmm(three.mT, xs, out_dtype=torch.float32, out=d3),
        "dW heads of 1 layer fp32 out": lambda: torch.bmm(xh.mT, wide_heads, out_dtype=torch.float32, out=one),
        "sum over rows 6 layers qkv": lambda: torch.sum(three, 1, dtype=torch.float32),
    }.items():
        try:
            say(f"product {name} us", round(in_graph(fn, inner=4) * 1e3, 2))
        except Exception as failed:
            say(f"product {name} failed", str(failed)[:300])


def agreement():
    """One step's gradients: the stack in bf16, the modules in bf16, the modules in float64."""
    from stepformer.core.flat import Flat
    from stepformer.core.losses import Criterion, loss_preset
    from stepformer.core.model import StepDecoder, preset
    from stepformer.core.stack import Stack, weight_kinds

    for name in ("paper", "released", "default"):
        torch.manual_seed(0)
        config = preset(name, feature_dim=256, dim=256, dropout=0.0)
        model = StepDecoder(config).cuda()
        source = Source(8, 200, 40, 256, torch.float32, 1)
        b = source.batches[0]
        criterion = Criterion(loss_preset(name))
        need = criterion.needs_attention

        def gradients(m, video, autocast, decode=None):
            torch.manual_seed(1)
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                output = m(video, b.video_mask, attention=need, decode=decode)
            phrases = b.phrases.to(video.dtype)
            return criterion(output, phrases, b.phrase_mask, b.video_mask, phrase_times=b.phrase_times)

        import copy

        exact = copy.deepcopy(model).double()
        loss64, parts64 = gradients(exact, b.video.double(), False)
        g64 = torch.autograd.grad(loss64, list(exact.parameters()), allow_unused=True)
        half = copy.deepcopy(model)
        loss16, parts16 = gradients(half, b.video, True)
        g16 = torch.autograd.grad(loss16, list(half.parameters()), allow_unused=True)
        flat = Flat(model, None, torch.optim.AdamW(model.parameters()), weight_kinds(model), torch.bfloat16)
        stack = Stack(model, flat.stacks(flat.values), flat.stacks(flat.half), flat.stacks(flat.grads), torch.zeros(1, dtype=torch.int64, device="cuda"))
        loss, parts = gradients(model, b.video, True, stack.decode)
        flat.take(torch.autograd.grad(loss, flat.rest, allow_unused=True))
        rows = []
        for (label, p), x, y in zip(model.named_parameters(), g64, g16, strict=True):
            if x is not None and float(x.norm()) > 1e-9:
                rows.append((label, error(flat.view(flat.grads, p), x), error(y, x), float(x.norm())))
        rows.sort(key=lambda r: -r[1])
        both = [torch.cat([t.double().flatten() for t in ts]) for ts in zip(*[(flat.view(flat.grads, p), y, x) for p, x, y in zip(model.parameters(), g64, g16, strict=True) if x is not None and y is not None], strict=True)]
        say(f"agreement {name}", {
            "losses fp64/modules/stack": [float(v.detach()) for v in (loss64, loss16, loss)],
            "parts": {k: [float(y.detach()) for y in (parts64[k], parts16[k], v)] for k, v in parts.items()},
            "gradient error of stack": error(both[0], both[2]), "of bf16 modules": error(both[1], both[2]),
            "worst": [f"{a} stack {e:.3f} modules {f:.3f} norm {n:.2g}" for a, e, f, n in rows[:4]],
        })  # fmt: skip


def parts_of_step(made):
    """Time of graphs that hold the first parts of a step."""
    g = made._graph
    recorded = next(iter(g._recorded.values()))
    x, flat = recorded.inputs, g.flat

    def forward():
        with g._autocast():
            return g.model(x["video"], x["video_mask"], g.criterion.needs_attention, decode=g.stack.decode)

    def losses(output):
        return g.criterion(output, x["phrases"], x["phrase_mask"], x["video_mask"], phrase_times=x["phrase_times"])

    with torch.no_grad():
        kept = forward()
    slots = kept.slots.detach().requires_grad_()
    only = kept._replace(slots=slots, frames=kept.frames.detach())

    def loss_alone():
        torch.autograd.grad(losses(only)[0], slots)

    def backward():
        flat.take(torch.autograd.grad(losses(forward())[0], flat.rest, allow_unused=True))

    from stepformer.core.losses import Criterion

    result = {"forward": in_graph(forward), "losses forward and backward": in_graph(loss_alone), "to gradients": in_graph(backward)}
    whole = g.criterion
    for name in whole.config.weights:
        g.criterion = Criterion(replace(whole.config, weights={**dict.fromkeys(whole.config.weights, 0.0), name: 1.0}))
        result[f"loss {name} alone"] = in_graph(loss_alone)
    g.criterion = whole
    result["whole"] = timed(recorded.graph.replay)
    return {k: round(v, 4) for k, v in result.items()}


def profile(made, name):
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as watch

    with watch(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for i in range(3):
            made.train_step(1000 + i)
        torch.cuda.synchronize()
    rows = {}
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            old = rows.get(event.name, (0, 0.0))
            rows[event.name] = (old[0] + 1, old[1] + event.time_range.elapsed_us())
    table = sorted(((v[1] / 3, v[0] / 3, k) for k, v in rows.items()), reverse=True)
    (OUT / f"kernels_{name}.txt").write_text("\n".join(f"{us:9.1f} us {n:7.1f} x {k}" for us, n, k in table))
    say(f"kernels {name}", {"count": sum(n for _, n, _ in table), "busy_us": sum(us for us, _, _ in table)})
    for us, n, k in table[:45]:
        print(f"  {us:8.1f} us {n:6.1f} x {k[:110]}")


def variants(source):
    from stepformer.core import losses, stack, stack_kernels

    def measure(name):
        made = trainer("paper", source)
        say(f"variant {name}", round(per_step(made, 40)["ms"], 4))
        made.settle()

    measure("as it is")
    stack.OVERLAP = False
    measure("no overlap of weight gradients")
    losses.BESIDE = False
    measure("no overlap at all")
    stack.OVERLAP = True
    measure("overlap of weight gradients alone")
    losses.BESIDE = True
    try:
        torch.backends.cuda.preferred_blas_library("cublaslt")
        measure("cublaslt")
    finally:
        torch.backends.cuda.preferred_blas_library("default")


def main():
    say("torch", torch.__version__)
    say("device", torch.cuda.get_device_name())
    import triton

    say("triton", triton.__version__)
    torch.set_float32_matmul_precision("high")
    with section("ceilings"):
        a = torch.randn(8192, 8192, device="cuda").bfloat16()
        say("bf16 TFLOP/s", 2 * 8192**3 / timed(lambda: a @ a, 5) / 1e9)
        big = torch.randn(2**29, device="cuda")
        to = torch.empty_like(big)
        say("copy TB/s", 2 * big.numel() * 4 / timed(lambda: to.copy_(big), 5) / 1e9)
        del big, to
    with section("kernels"):
        kernels()
    with section("products"):
        products_table()
    with section("agreement"):
        agreement()
    source = Source()
    fast = None
    with section("graph paper"):
        fast = trainer("paper", source)
        say("fast because", fast.eager_because)
        torch.cuda.reset_peak_memory_stats()
        say("graph paper", per_step(fast, 50))
        fast.settle()
        say("graph peak GiB", torch.cuda.max_memory_allocated() / 2**30)
    with section("profile paper"):
        profile(fast, "paper")
    with section("variants"):
        variants(source)
    with section("graph against eager"):
        a, b, c = (trainer("paper", source, dropout=0.0) for _ in range(3))
        c.eager_because = "asked"
        rows = {"graph": [], "modules": []}
        for i in range(20):
            rows["graph"].append(float(a.train_step(i)["loss"]))
            rows["modules"].append(float(c.train_step(i)["loss"]))
        for i in range(20):
            b.train_step(i)
        b.settle()
        same = all(torch.equal(p, q) for p, q in zip(a.model.parameters(), b.model.parameters(), strict=True))
        say("two graph runs equal", same)
        say("losses graph", [round(v, 4) for v in rows["graph"]])
        say("losses modules", [round(v, 4) for v in rows["modules"]])
        far = torch.cat([(p - q).flatten() for p, q in zip(a.model.parameters(), c.model.parameters(), strict=True)]).norm()
        start = trainer("paper", source, dropout=0.0)
        moved = torch.cat([(p - q).flatten() for p, q in zip(c.model.parameters(), start.model.parameters(), strict=True)]).norm()
        say("weights apart / moved", float(far / moved))
    with section("resume"):
        a, b = trainer("paper", source), trainer("paper", source)
        for i in range(8):
            a.train_step(i)
        for i in range(4):
            b.train_step(i)
        b.step = 4
        b.save()
        c = trainer("paper", source)
        c.out = b.out
        c._load_state()
        for i in range(4, 8):
            c.train_step(i)
        a.settle()
        c.settle()
        say("resume equal", all(torch.equal(p, q) for p, q in zip(a.model.parameters(), c.model.parameters(), strict=True)))
        say("resume mean equal", all(torch.equal(p, q) for p, q in zip(a.mean.parameters(), c.mean.parameters(), strict=True)))
    with section("eager paper"):
        slow = trainer("paper", source, eager=True)
        say("eager paper, folded", per_step(slow, 10, 3))
        from stepformer.core.model import Attention

        folded = Attention._folded
        Attention._folded = Attention._projected
        say("eager paper, projected", per_step(slow, 10, 2))
        Attention._folded = folded
        del slow
    for name in ("released", "default"):
        with section(f"graph {name}"):
            made = trainer(name, source)
            say(f"graph {name}", per_step(made, 20))
            made.settle()
            profile(made, name)
    with section("parts"):
        say("parts", parts_of_step(fast))
    with section("not finite"):
        from stepformer.core.training import NonFiniteLossError

        made = trainer("paper", source)
        for i in range(3):
            made.train_step(i)
        with torch.no_grad():
            made.model.queries[0, 0] = math.nan
        try:
            for i in range(3, 9):
                made.train_step(i)
            made.settle()
            say("not finite", "nothing was raised")
        except NonFiniteLossError as failed:
            say("not finite", str(failed)[:200])
    if "1024" in sys.argv:
        with section("batch 1024"):
            del fast
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            made = trainer("paper", Source(1024, several=1), B=1024)
            say("batch 1024", per_step(made, 4, 2))
            say("batch 1024 peak GiB", torch.cuda.max_memory_allocated() / 2**30)
            say("batch 1024 reserved GiB", torch.cuda.memory_reserved() / 2**30)
    print(json.dumps({k: v for k, v in FOUND.items() if "graph" in k or k in ("parts", "kernels paper") or "failed" in k or "variant" in k}, default=str)[:4000])


if __name__ == "__main__":
    main()
