"""A training step without host synchronisation: forward, losses, backward, clipping, update and mean as one CUDA graph.

A step of the modules is some 2,700 kernels, which take longer to launch than to run. Here they are recorded once per
shape and replayed with one call; a batch is copied into buffers that stay where they are.

- *Shapes.* Frames and phrases are padded to the next of a few sizes. Each shape has two graphs that read buffers of
  their own and take turns: a batch comes from the host while the step before is under way. The last :data:`_GRAPHS`
  graphs are kept.
- *Chance* is a function of (seed, step), as in the loop without graphs: before frames are drawn, and before a replay,
  torch's generator gets the step's seed, and dropout hashes that seed out of a buffer. A run resumed at any step goes
  on with the same numbers.
- *Rates* of this step (learning rate, how far the mean of the weights follows, the optimiser's bias corrections)
  are read from a buffer that is filled before the replay, and so is the seed: nothing stands before the first norm.
- *A loss or gradient that is not finite* stops every update from then on, on the device; the host reads that flag two
  steps late, so that it never waits for the step under way.

The decoder layers run as :mod:`stepformer.core.stack` where that applies, parameters lie as in :class:`Flat`. What
cannot be recorded gets a sentence from :func:`why_not` and runs as before.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from stepformer.core.devices import Beside, has_triton, seed_device, side_stream
from stepformer.core.losses import BUILT_IN, Ahead, Criterion, Drawn
from stepformer.core.model import Looked, Slots, StepDecoder
from stepformer.core.stack import Stack, weight_kinds

if TYPE_CHECKING:
    from stepformer.core.config import TrainConfig

_ALIGN = 128  # a kind of parameter begins at a multiple of so many elements: whole cache lines in bf16 too
_GRAPHS = 12
LATE = 2  # a flag is looked at when so many further steps were started


def why_not(
    config: TrainConfig, model: nn.Module, device: torch.device, precision: str, processes: int = 1
) -> str | None:
    """Why the steps of this run cannot be recorded; None where they can."""
    o = config.optim
    plugins = [name for name, weight in config.loss.weights.items() if weight and name not in BUILT_IN]
    reasons = {
        "they run on the CPU": device.type != "cuda",
        f"{processes} processes exchange numbers in the middle of a step": processes > 1,
        "Triton is not installed, or does not work here": not has_triton(),
        f"{o.accumulate} batches make one step": o.accumulate > 1,
        "the optimiser is not plain Adam or AdamW": o.optimizer not in ("adam", "adamw")
        or not {"eps"} >= set(o.options),
        "fp16 scales its loss by what came before": precision == "fp16",
        f"the loss {' and '.join(plugins)} may wait for the device": bool(plugins),
        "the decoder is not this package's own": type(model) is not StepDecoder,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def padded_size(n: int, most: int, parts: int = 8) -> int:
    """n rounded up to one of ``parts`` sizes that end at ``most``; beyond it they go on in the same steps.

    All are multiples of 8: rows that do not begin at a multiple of 16 bytes are multiplied by slower kernels.
    """
    step, most = max(8, -(-most // parts // 8) * 8), -(-most // 8) * 8
    size = -(-n // step) * step
    return most if n <= most < size else size


class Flat:
    """The parameters of ``model`` and of its running mean, moved into one tensor each.

    A model of 150 parameters takes 150 small kernels for whatever is done to each. Here parameters are views into one
    tensor, so that the norm of the gradient, the update, the running mean of the weights and their bf16 copy are four
    operations. Checkpoints, ``state_dict`` and the optimiser's own state see the views and notice nothing.

    kinds: parameters whose stacks are wanted (see :func:`stepformer.core.stack.weight_kinds`); all others follow.
    values (P,) float32: the parameters; half (P,): their copy in the type that products are made in; grads (P,) in that
    type too, as autocast has them, and so are first and second (P,), the two moments: in bf16 an update moves a quarter
    less. They are taken over from the optimiser, whose state becomes views of them; mean (P,) or None.
    """

    def __init__(
        self,
        model: nn.Module,
        mean: nn.Module | None,
        optimizer: torch.optim.Optimizer,
        kinds: Mapping[str, list[list[Tensor]]],
        half: torch.dtype,
    ) -> None:
        self._kinds = dict(kinds)
        stacked = {id(p) for layers in kinds.values() for group in layers for p in group}
        self.rest = [p for p in model.parameters() if id(p) not in stacked]
        places: dict[int, int] = {}
        size = 0
        for block in (
            *((p for group in layers for p in group) for layers in kinds.values()),
            *([p] for p in self.rest),
        ):
            size = -(-size // _ALIGN) * _ALIGN
            for p in block:
                places[id(p)], size = size, size + p.numel()
        self._places = places
        every = list(model.parameters())
        self.values = every[0].new_zeros(size)
        self.grads, self.first, self.second = (every[0].new_zeros(size, dtype=half) for _ in range(3))
        self.mean = every[0].new_zeros(size) if mean is not None else None
        self.count = torch.zeros((), device=every[0].device)  # steps made, which the optimiser's state shares
        names = {id(p): name for name, p in model.named_parameters()}
        means = dict(mean.named_parameters()) if mean is not None else {}
        with torch.no_grad():
            for p in every:
                state = optimizer.state.get(p) or {}
                if "step" in state:
                    self.count.fill_(float(state["step"]))
                moments = {}
                for key, flat in (("exp_avg", self.first), ("exp_avg_sq", self.second)):
                    moments[key] = self.view(flat, p)
                    if key in state:
                        moments[key].copy_(state[key])
                optimizer.state[p] = {"step": self.count, **moments}
                if self.mean is not None:
                    _move(means[names[id(p)]], self.view(self.mean, p))
                _move(p, self.view(self.values, p))
        self.half = self.values.to(half)

    def view(self, flat: Tensor, p: Tensor) -> Tensor:
        """The part of a flat tensor that belongs to a parameter, in its shape."""
        return flat[self._places[id(p)] :][: p.numel()].view(p.shape)

    def stacks(self, flat: Tensor) -> dict[str, Tensor]:
        """The parts of a flat tensor that belong to the kinds, each (layers, ...)."""
        made = {}
        for kind, layers in self._kinds.items():
            first = layers[0][0]
            rows = sum(p.shape[0] for p in layers[0])
            shape = (len(layers), rows, *first.shape[1:])
            place = self._places[id(first)]
            made[kind] = flat[place:][: torch.Size(shape).numel()].view(shape)
        return made

    def take(self, gradients: Sequence[Tensor | None]) -> None:
        """Writes the gradients of the parameters outside the stacks; one without any keeps zero."""
        for p, g in zip(self.rest, gradients, strict=True):  # a copy of all at once takes longer for the one or two
            if g is not None:
                self.view(self.grads, p).copy_(g)


def _move(p: Tensor, to: Tensor) -> None:
    to.copy_(p)
    p.data = to


@dataclass
class _Recorded:
    """One of a shape's two: its input buffers, its graph, and where the graph leaves the numbers to log."""

    inputs: dict[str, Tensor]  # the batch, and "control": this step's rates, seed (as an integer) and number
    looked: Looked | None = None  # the video as the decoder reads it, where that depends on nothing learned
    drawn: Drawn | None = None  # the frames for smoothness
    free: Any = None  # the event after which the buffers may be written: the last replay is through
    graph: Any = None
    names: list[str] = field(default_factory=list)
    stats: Tensor | None = None


class GraphStep:
    """The recorded steps of one run. Made when the first step is; weights or moments loaded later need a new one.

    On the CPU, in tests, it computes the same without recording.
    """

    def __init__(
        self,
        config: TrainConfig,
        model: StepDecoder,
        mean: StepDecoder,
        optimizer: torch.optim.Optimizer,
        criterion: Criterion,
        precision: str,
    ) -> None:
        self.config, self.model, self.criterion, self.precision = config, model, criterion, precision
        device = model.queries.device
        fused = model.config.slots <= 128 and model.config.dim // model.config.heads <= 256  # what one program holds
        averaged = mean if mean is not model else None
        half = torch.bfloat16 if precision == "bf16" else torch.float32
        self.flat = Flat(model, averaged, optimizer, weight_kinds(model) if fused else {}, half)
        self.count = int(self.flat.count)  # read once, before anything runs
        self.device = device
        self._flags = Flags(device, torch.int32)
        flat = self.flat
        self.stack: Callable[[Tensor], Stack] | None = None  # of a seed
        if fused:
            self.stack = partial(
                Stack, model, flat.stacks(flat.values), flat.stacks(flat.half), flat.stacks(flat.grads)
            )
        # the decoder reads frames, in bf16, to which nothing but fixed codes is done before
        self._reads_as_is = fused and precision == "bf16" and isinstance(model.project_in, nn.Identity)
        self._recorded: OrderedDict[tuple[Any, ...], _Recorded] = OrderedDict()
        self._cuda = device.type == "cuda"
        self._copies: Any = side_stream(device, 10) if self._cuda else None
        self._turn = 0
        self._rates = [torch.zeros(6, dtype=torch.float64, pin_memory=self._cuda) for _ in range(LATE + 2)]

    # -- one step -----------------------------------------------------------------------------------------------------

    def __call__(self, batch: Any, step: int, seed: int, lr: float, follow: float) -> dict[str, Tensor]:
        """Starts a step and returns its numbers on the device, without waiting for them; the step after the next
        writes over them."""
        with torch.cuda.device(self.device) if self._cuda else nullcontext():  # Triton asks for the current one
            return self._start(batch, step, seed, lr, follow)

    def _start(self, batch: Any, step: int, seed: int, lr: float, follow: float) -> dict[str, Tensor]:
        self.finish(LATE)  # the buffers of older steps are free
        self.count += 1
        beta1, beta2 = self.config.optim.betas
        rates = self._rates[step % len(self._rates)]
        corrections = (1 - beta1**self.count, math.sqrt(1 - beta2**self.count))
        rates.copy_(torch.tensor([lr, follow, *corrections, 0.0, self.count], dtype=torch.float64))
        rates.view(torch.int64)[4] = seed
        recorded = self._ready(batch, rates)
        seed_device(self.device, seed)
        if recorded.graph is not None:
            recorded.graph.replay()
        else:
            self._step(recorded)
        if recorded.free is not None:
            recorded.free.record()
        assert recorded.stats is not None
        self._flags.send(step)
        return dict(zip(recorded.names, recorded.stats.unbind(), strict=True))

    def finish(self, running: int = 0) -> None:
        """As :meth:`Flags.finish`."""
        self._flags.finish(running)

    # -- recording ----------------------------------------------------------------------------------------------------

    def _ready(self, batch: Any, rates: Tensor) -> _Recorded:
        """The recording for a batch's shape, with the batch and the rates in its buffers."""
        data = self.config.data
        most = data.max_frames if data.store else data.simulator.max_frames
        frames, phrases = padded_size(batch.video.shape[1], most), batch.phrases.shape[1]
        phrases = padded_size(phrases, 48, 6) if phrases <= 48 else padded_size(phrases, 96, 3)
        shape = (len(batch.video), frames, phrases, batch.video.dtype, batch.phrases.dtype)
        self._turn = 1 - self._turn if self._cuda else 0
        recorded = self._recorded.get((*shape, self._turn))
        if recorded is None:
            buffers = self._buffers(*shape, batch.video.shape[2])
            looked = self._looked(buffers) if self._reads_as_is else None
            recorded = _Recorded(buffers, looked, self.criterion.draw(buffers["video_mask"]))
            self._fill(recorded, batch, rates)
            if self._cuda:
                recorded.free = torch.cuda.Event()  # type: ignore[no-untyped-call]
                self._record(recorded)
            self._recorded[*shape, self._turn] = recorded
            if len(self._recorded) > _GRAPHS:
                self.finish()
                self._recorded.popitem(last=False)
        else:
            self._recorded.move_to_end((*shape, self._turn))
            self._fill(recorded, batch, rates)
        return recorded

    def _fill(self, recorded: _Recorded, batch: Any, rates: Tensor) -> None:
        """Copies a batch to the front of its buffers, from the host beside the step under way; masks end with it."""
        here = batch.video.device.type == "cpu" and self._cuda
        if here and recorded.free is not None:
            self._copies.wait_event(recorded.free)
        elif here:
            self._copies.wait_stream(torch.cuda.current_stream())  # which made the buffers
        with torch.cuda.stream(self._copies) if here else nullcontext():
            for name, buffer in recorded.inputs.items():
                if name == "control":
                    buffer.copy_(rates, non_blocking=True)
                    continue
                value = getattr(batch, name)
                n = value.shape[1]
                buffer[:, :n].copy_(value, non_blocking=True)
                if name.endswith("mask") and n < buffer.shape[1]:
                    buffer[:, n:] = False
            if recorded.looked is not None:
                self._looked(recorded.inputs, recorded.looked)
            if recorded.drawn is not None:  # recorded, torch's generator would be written to before every replay
                seed_device(self.device, int(rates.view(torch.int64)[4]))
                drawn = self.criterion.draw(recorded.inputs["video_mask"])
                assert drawn is not None
                for kept, new in zip(recorded.drawn, drawn, strict=True):
                    kept.copy_(new)
        if here:
            torch.cuda.current_stream().wait_stream(self._copies)

    def _looked(self, inputs: dict[str, Tensor], out: Looked | None = None) -> Looked:
        """A video with the codes of its frames, in bf16; made while the batch comes, beside the step under way."""
        return self.model.look_in_half(inputs["video"], self.model.codes(inputs["video_mask"]), out)

    def _buffers(self, B: int, N: int, L: int, video: torch.dtype, phrases: torch.dtype, D: int) -> dict[str, Tensor]:
        device = self.device
        return {
            "control": torch.zeros(6, dtype=torch.float64, device=device),
            "video": torch.zeros(B, N, D, dtype=video, device=device),
            "video_mask": torch.zeros(B, N, dtype=torch.bool, device=device),
            "phrases": torch.zeros(B, L, D, dtype=phrases, device=device),
            "phrase_mask": torch.zeros(B, L, dtype=torch.bool, device=device),
            "phrase_times": torch.zeros(B, L, device=device),
        }

    def _record(self, recorded: _Recorded) -> None:
        """Runs the step twice to warm up, without an update, and records it."""
        self.finish()
        self._flags.bad.fill_(1)
        warm_up = Beside(self.device, 11)
        with warm_up:
            for _ in range(2):
                self._step(recorded)
        warm_up.join()
        torch.cuda.synchronize()
        recorded.graph = torch.cuda.CUDAGraph()
        others = [other.graph for other in self._recorded.values()]  # all shapes share their memory
        with torch.cuda.graph(recorded.graph, pool=others[0].pool() if others else None):
            self._step(recorded)
        self._flags.bad.zero_()

    def forward(self, recorded: _Recorded) -> Slots:
        """The model's output for what is in the buffers."""
        video, seed = recorded.inputs["video"], recorded.inputs["control"].view(torch.int64)[4:5]
        if recorded.looked is None:
            video = video.float()  # lengths and the sum with the positions are made in float32
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            decode = self.stack(seed).decode if self.stack is not None else None
            mask, attention = recorded.inputs["video_mask"], self.criterion.needs_attention
            made: Slots = self.model(video, mask, attention, decode=decode, looked=recorded.looked)
        return made

    def ahead(self, recorded: _Recorded) -> Ahead | None:
        """What the losses need beside the model's output."""
        x, kind = recorded.inputs, torch.bfloat16 if self.precision == "bf16" else torch.float32
        return self.criterion.ahead(self.model.config.slots, x["phrases"], x["phrase_mask"], recorded.drawn, kind)

    def losses(self, recorded: _Recorded, output: Slots, ahead: Ahead | None) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its parts."""
        x = recorded.inputs
        given = (x["phrases"], x["phrase_mask"], x["video_mask"])
        return self.criterion(output, *given, phrase_times=x["phrase_times"], ahead=ahead)

    def gradients(self, loss: Tensor) -> None:
        """Writes the gradients of all parameters."""
        self.flat.take(torch.autograd.grad(loss, self.flat.rest, allow_unused=True))

    def _step(self, recorded: _Recorded) -> None:
        """What is recorded."""
        from stepformer.core import stack_kernels

        flat, o = self.flat, self.config.optim
        control = recorded.inputs["control"]
        beside = Beside(self.device, 2)
        with beside:
            flat.count.copy_(control[5])
            ahead = self.ahead(recorded)
        output = self.forward(recorded)
        beside.join()
        loss, parts = self.losses(recorded, output, ahead)
        self.gradients(loss)
        norm = torch.linalg.vector_norm(flat.grads, dtype=flat.values.dtype)
        logged = {"loss": loss, **parts, "grad_norm": norm}
        recorded.names = list(logged)
        with beside:
            recorded.stats = torch.stack([value.detach().float() for value in logged.values()])
        stack_kernels.update(
            flat.values, flat.grads, flat.first, flat.second, flat.mean, flat.half, control, norm, self._flags.bad,
            o.clip or math.inf, o.betas, o.weight_decay, float(o.options.get("eps", 1e-8)), o.optimizer == "adamw",
        )  # fmt: skip
        beside.join()


class Flags:
    """Whether steps failed, told late: the host never waits for the step under way.

    bad (): not 0, on the device, from the first step on that failed; what makes an update there looks at it.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.bad = torch.zeros((), dtype=dtype, device=device)
        self._device, self._cuda = device, device.type == "cuda"
        self._sent: list[tuple[int, Tensor, torch.cuda.Event | None]] = []  # (step, pinned flag, when it is there)
        self._free = [torch.zeros((), dtype=dtype, pin_memory=self._cuda) for _ in range(LATE + 2)]

    def send(self, step: int) -> None:
        """Starts to bring ``bad`` to the host, as it is behind the step."""
        flag = self._free.pop()
        event = torch.cuda.Event() if self._cuda else None  # type: ignore[no-untyped-call]
        with Beside(self._device, 7):  # the next step need not wait for it
            flag.copy_(self.bad, non_blocking=True)
            if event is not None:
                event.record()
        self._sent.append((step, flag, event))

    def finish(self, running: int = 0) -> None:
        """Waits until at most so many steps are under way; raises :class:`NotFinite` where one of the others failed."""
        while len(self._sent) > running:
            step, flag, event = self._sent.pop(0)
            if event is not None:
                event.synchronize()
            failed = bool(flag)
            self._free.append(flag)
            if failed:
                self._sent.clear()
                raise NotFinite(step)


class NotFinite(Exception):  # noqa: N818  # the trainer turns it into its own error
    """The gradient of a step was not finite; no update was made in it or after it."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step
