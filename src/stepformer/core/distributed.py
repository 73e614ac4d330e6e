"""Training in several processes: ``torchrun --nproc-per-node 8 -m stepformer train ...``, with torch alone.

Every process holds all weights and trains on its rows of each batch. Losses are split so that what the processes
compute adds up to the loss of the whole batch: a loss that is a mean over videos counts by the rows a process has, and
the global loss has its negatives from all of them. Gradients are added, and every process takes the same step. Only
the first one (rank 0) validates, prints and writes. Chance (dropout, drawn frames) differs from process to process.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from stepformer.core.devices import torch_device
from stepformer.core.losses import LOSSES, Criterion, LossConfig, LossInput, glob_loss
from stepformer.errors import StepFormerError, UsageError

_PATIENCE = timedelta(hours=1)  # how long a process waits for the others: the first one validates and saves meanwhile


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of how many processes this one is. The default is the only one; then nothing is sent."""

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def rows(self, count: int, rank: int | None = None) -> slice:
        """The rows of ``count`` that a process has: all in a row, sizes differ by one at most."""
        each, more = divmod(count, self.size)
        rank = self.rank if rank is None else rank
        start = rank * each + min(rank, more)
        return slice(start, start + each + (rank < more))

    def gather(self, own: Tensor, count: int) -> Tensor:
        """Rows of all processes, (count, ...), from each process's ``own``; the gradient goes to ``own`` alone."""
        if self.size == 1:
            return own
        most = -(-count // self.size)
        sent = own.detach()
        if sent.dtype == torch.bool:  # not every backend sends it
            sent = sent.to(torch.uint8)
        sent = torch.cat((sent, sent.new_zeros(most - len(sent), *sent.shape[1:]))).contiguous()
        got = [torch.empty_like(sent) for _ in range(self.size)]
        with _others():
            dist.all_gather(got, sent)
        parts = [part[: len(range(count)[self.rows(count, rank)])].to(own.dtype) for rank, part in enumerate(got)]
        parts[self.rank] = own
        return torch.cat(parts)

    def add_(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors by their sums over all processes, in one message."""
        found = list(tensors)
        if self.size == 1 or not found:
            return
        flat = torch.cat([tensor.flatten() for tensor in found])
        with _others():
            dist.all_reduce(flat)
        for tensor, total in zip(found, torch.split(flat, [tensor.numel() for tensor in found]), strict=True):
            tensor.copy_(total.view_as(tensor))

    def copy_first_(self, tensors: Iterable[Tensor]) -> None:
        """Replaces tensors by those of the first process."""
        if self.size > 1:
            with _others():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def any(self, flag: bool) -> bool:
        """Whether any process says so."""
        if self.size == 1:
            return flag
        said = torch.tensor([int(flag)])
        with _others():
            dist.all_reduce(said)
        return bool(said)


@contextmanager
def _others() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise StepFormerError(
            f"another process of this run ended or cannot be reached ({str(error).splitlines()[0]}); "
            "start the run again with --resume"
        ) from None


def join(device: str | None = None) -> tuple[Ranks, torch.device]:
    """This process's place among those that torchrun started, and its device; alone where there are no others.

    Raises:
        UsageError: the environment says several processes, but not which one this is.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Ranks(), torch_device(device)
    if "RANK" not in os.environ or "MASTER_ADDR" not in os.environ:
        raise UsageError("WORLD_SIZE is set without RANK and MASTER_ADDR; start several processes with torchrun")
    if device in (None, "cuda") and torch.cuda.is_available():
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    chosen = torch_device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    # numbers on the device go by nccl, the question whether to stop by gloo; nccl refuses processes that share a GPU
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count()
    with _others():
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if chosen.type == "cuda" and not sharing else "gloo", timeout=_PATIENCE
        )
    return Ranks(dist.get_rank(), dist.get_world_size()), chosen


def leave() -> None:
    """Ends what :func:`join` began."""
    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()


def restarted() -> bool:
    """Whether torchrun started this process again after a failure (``--max-restarts``)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


class Batch(NamedTuple):
    """What a training step reads of a padded batch; vectors of a store are float16."""

    video: Tensor  # (B, N, D) frame vectors
    video_mask: Tensor  # (B, N) True where there is a frame
    phrases: Tensor  # (B, L, D) phrase vectors, in order of time
    phrase_mask: Tensor  # (B, L) True where there is a phrase
    phrase_times: Tensor  # (B, L) when each is said, in frames


def own_rows(source: Any, ranks: Ranks, step: int, size: int) -> Any:
    """A process's rows of batch number ``step``, of ``size`` videos in all.

    A source that can make some rows alone has ``part(step, size, rows)``; of others the whole batch is made and cut.
    """
    if ranks.size == 1:
        return source.batch(step, size)
    rows = ranks.rows(size)
    if hasattr(source, "part"):
        part = source.part(step, size, rows)
    else:
        whole = source.batch(step, size)
        part = Batch(*(getattr(whole, name)[rows] for name in Batch._fields))
    if len(part.video) != rows.stop - rows.start:
        raise UsageError(f"there are fewer videos than a batch of {size} takes; lower --batch")
    return part


class SharedCriterion(Criterion):
    """The criterion of one process: total and parts add up, over all processes, to those of the whole batch."""

    def __init__(self, config: LossConfig, ranks: Ranks, batch: int) -> None:
        super().__init__(config)
        if batch < ranks.size:
            raise UsageError(f"a batch of {batch} videos is too small for {ranks.size} processes")
        self.ranks, self.batch = ranks, batch

    def loss(self, name: str, given: LossInput) -> Tensor:
        """This process's share of one loss, of its own rows."""
        if name == "glob":
            return self._glob(given)
        log: dict[str, Tensor] = {}
        share = len(given.phrases) / self.batch  # the others are means over the videos of the batch
        loss = LOSSES[name](replace(given, log=log)) * share
        given.log.update({key: value * share for key, value in log.items()})
        return loss

    def _glob(self, given: LossInput) -> Tensor:
        """``glob_loss`` of the whole batch, with a gradient through this process's own part: the phrases are gathered
        (they are data), and of the similarities of other slots only sums over rows and columns."""
        ranks, c = self.ranks, given.config

        def sums(own: Tensor) -> Tensor:
            return ranks.gather(own[None], ranks.size).logsumexp(0)

        videos = partial(ranks.gather, count=self.batch)
        loss = glob_loss(given.pair, given.phrase_mask, c.gamma, c.glob_form, c.glob_both_ways, videos, sums)
        return loss - loss.detach() * (1 - 1 / ranks.size)  # the values add up to the loss, as the gradients do


def added(ranks: Ranks, logged: Mapping[str, Tensor | float]) -> dict[str, float]:
    """Numbers summed over all processes; ``grad_norm``, of the summed gradient, is the same everywhere and stays."""
    names = [name for name in logged if name != "grad_norm"]
    device = next((value.device for value in logged.values() if isinstance(value, Tensor)), None)
    values = torch.stack([torch.as_tensor(logged[name], device=device).float() for name in names])
    ranks.add_([values])
    return {**dict(zip(names, values.tolist(), strict=True)), "grad_norm": float(logged["grad_norm"])}
