"""All parameters of a model in one tensor, so that the optimiser's step is one pass (`core.stack_kernels.update`).

A model of 150 parameters takes 150 small kernels for whatever is done to each. Here parameters are views into one
tensor, so that the norm of the gradient, the update, the running mean of the weights and their bf16 copy are four
operations. Checkpoints, ``state_dict`` and the optimiser's own state see the views and notice nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

_ALIGN = 128  # a kind of parameter begins at a multiple of so many elements: whole cache lines in bf16 too


class Flat:
    """The parameters of ``model`` and of its running mean, moved into one tensor each.

    kinds: parameters whose stacks are wanted (see :func:`stepformer.core.stack.weight_kinds`); all others follow.
    values, first, second (P,) float32: parameters and the two moments, taken over from the optimiser, whose state
    becomes views of them; half (P,): the copy in the type that products are made in; grads (P,) in that type too, as
    autocast has them; mean (P,) or None.
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
        self.values, self.first, self.second = (every[0].new_zeros(size) for _ in range(3))
        self.grads = every[0].new_zeros(size, dtype=half)
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
        pairs: Iterator[tuple[Tensor, Tensor]] = (
            (self.view(self.grads, p), g) for p, g in zip(self.rest, gradients, strict=True) if g is not None
        )
        to, made = map(list, zip(*pairs, strict=True))
        torch._foreach_copy_(to, made)


def _move(p: Tensor, to: Tensor) -> None:
    to.copy_(p)
    p.data = to
