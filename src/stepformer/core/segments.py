"""The best way to cut videos into segments: one dynamic programme, batched, compiled on the CPU or in torch anywhere.

A video is cut into segments. A segment is a *step*, shown by one row (a slot or a text), or *background*; the rows of
successive steps rise (or not, without an order). The cut that is chosen makes this largest:

    sum over steps of     (its row's gain in each of its frames)
  - sum over segments of  (squared distance of its frames to their own mean, in units of the video's variance per frame)
  - penalty per segment
  - what it costs to pass a row over
  + what a step is worth that holds an act (a frame at which an action is spoken of)

The first and fourth lines are Drop-DTW, many columns to one row, both droppable: with nothing else (no structure,
penalty 0) the optimum is the same. The second is kernel change-point detection, which needs no rows. Together rows say
what the steps are and structure says where they begin and end; acts say where there must be one, however many one step
holds.

Distances are divided by the video's own variance per frame, so the penalty has a plain meaning: *a segment must
explain as much of the video as ``penalty`` frames that have nothing in common with the rest*.
"""

from __future__ import annotations

import functools
import importlib.util
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.core.align.torch_batch import sum_dtype

WIDTH = 64
"""Structure is kept in this many principal directions: enough for distances between segments, and quick."""
LONGEST = 600
"""Frames a segment may have at most, or a quarter of the video where that is more: keeps long videos quick."""
STEP, IDLE, SKIP = 0, 1, 2  # how a state was reached: by a step, by background, by passing a row over


@dataclass(frozen=True, slots=True)
class Segment:
    """Frames ``[first, last)`` and the row they show, -1 for none."""

    first: int
    last: int
    row: int


@dataclass(frozen=True, slots=True, eq=False)
class Acts:
    """Frames at which an action is spoken of, and what a step is worth that holds one or more of them."""

    at: Tensor  # (B, N) bool
    worth: Tensor  # (B,)
    shortest: int  # frames that such a step has at least

    @property
    def last(self) -> Tensor:
        """(B, N + 1) the last act before each end, -1 where there is none."""
        frames = torch.arange(self.at.shape[1], device=self.at.device)
        return torch.nn.functional.pad(torch.where(self.at, frames, -1).cummax(1).values, (1, 0), value=-1)


@functools.cache
def _sketch(wide: int, narrow: int) -> NDArray[np.float64]:
    return np.random.default_rng(0).standard_normal((wide, narrow))


def spread_out(structure: Tensor, mask: Tensor) -> Tensor:
    """Structure vectors (B, N, S) as (B, N, <= WIDTH) with the same distances, nearly, and a mean variance of 1 per
    frame; zeros outside the mask (B, N).

    A video whose frames are all the same (black, a still picture) gives zeros: it has no inner structure at all.
    """
    weight = mask[..., None].to(sum_dtype(structure.device))
    count = weight.sum(1, keepdim=True).clamp(min=1.0)
    x = torch.where(mask[..., None], structure.to(weight.dtype), 0.0)
    x -= x.sum(1, keepdim=True) / count  # in place: the largest arrays of a long video
    x.masked_fill_(~mask[..., None], 0.0)
    if x.shape[2] > WIDTH and x.shape[1]:
        x = _narrowed(x, min(WIDTH, x.shape[1]))
    variance = (x * x).sum((1, 2), keepdim=True) / count
    # float32 unit vectors of identical pictures differ by rounding alone
    return torch.where(variance < 1e-9, 0.0, x / variance.clamp(min=1e-9).sqrt())


def _narrowed(x: Tensor, rank: int) -> Tensor:
    """Coordinates (B, N, rank) of x (B, N, S) in the range of a fixed random sketch, refined once: exact for
    N <= rank, close otherwise."""
    sketch = torch.from_numpy(_sketch(x.shape[2], rank)).to(x)
    base = torch.linalg.qr(x @ sketch).Q
    base = torch.linalg.qr(x @ (x.mT @ base)).Q
    narrow: Tensor = base @ torch.linalg.qr(x.mT @ base).R.mT
    return narrow


@dataclass(frozen=True, slots=True, eq=False)
class Programme:
    """What is solved, for a batch; made by :func:`programme`. All sums begin with a zero."""

    gains: Tensor  # (B, N + 1, R) prefix sums of each row's gain
    sums: Tensor  # (B, N + 1, W) prefix sums of structure; W = 0 without
    squares: Tensor  # (B, N + 1) of its squared length
    lengths: list[int]  # frames of each video

    def on_rows(self, segments: list[Segment], item: int, ordered: bool) -> list[Segment]:
        """The same segments with the rows that gain most in them: rising where the order is kept (not falling where
        there are more segments than rows)."""
        if not segments or self.gains.shape[2] == 0:
            return segments
        sums = self.gains[item].cpu().numpy()
        gained = np.asarray([sums[s.last] - sums[s.first] for s in segments])  # (M, R)
        rows = rows_in_order(gained) if ordered else gained.argmax(1).tolist()
        return [Segment(s.first, s.last, row) for s, row in zip(segments, rows, strict=True)]


def programme(gains: Tensor | None, structure: Tensor | None, mask: Tensor) -> Programme:
    """gains (B, R, N) or None, structure (B, N, W) from :func:`spread_out` (times the root of its weight) or None,
    mask (B, N)."""
    B, N = mask.shape
    dtype = sum_dtype(mask.device)
    none = torch.zeros(B, N, 0, dtype=dtype, device=mask.device)
    g = none if gains is None else torch.where(mask[..., None], gains.mT.to(dtype), 0.0)
    x = none if structure is None else structure.to(dtype)

    def prefix(values: Tensor) -> Tensor:
        return torch.nn.functional.pad(values.cumsum(1), (0, 0, 1, 0)).contiguous()

    return Programme(
        prefix(g), prefix(x), prefix((x * x).sum(2, keepdim=True))[..., 0].contiguous(), mask.sum(1).tolist()
    )


def longest_segment(frames: int) -> int:
    """How many frames a segment of a video may have."""
    return max(LONGEST, frames // 4)


def solve(
    task: Programme,
    penalty: Tensor,
    *,
    ordered: bool = True,
    skip: Tensor | None = None,
    count: list[int] | None = None,
    number: list[NDArray[np.float64]] | None = None,
    least: Tensor | None = None,
    acts: Acts | None = None,
    backend: str = "auto",
) -> tuple[list[list[Segment]], list[float]]:
    """The best steps of each video, in order (what lies between them is background), and the sums they reach.

    penalty: (B,) per segment, those of background too. Without ``count`` there are as many steps as is best: with
    rising rows, where passing row r over costs ``skip`` (B, R) (inf: it must have a segment; 0 by default), or, not
    ``ordered``, each with whichever row gains most. ``count``: the number of steps (at most the frames), wherever
    their best rows gain most; rows are given to them in order afterwards. ``number``: as many steps as is best,
    likewise, where each video's (C,) says what 1 to C steps cost beside; no more than those that each gain ``least``
    (B,) before penalties. Without rows every segment is a step. acts: what is spoken of. backend: "numba" or "torch"
    instead of what suits the device.
    """
    B, R = len(task.lengths), task.gains.shape[2]
    idle = R > 0
    if number is not None:
        count = [len(costs) for costs in number]
    pooled = count is not None or not ordered or R == 0
    loop = pooled and count is None
    if loop:
        stages, skips = [0] * B, task.gains.new_zeros(B, 0)
    elif count is not None:
        stages = [min(c, n) for c, n in zip(count, task.lengths, strict=True)]
        skips = task.gains.new_full((B, max(stages, default=0)), torch.inf)
    else:
        stages, skips = [R] * B, task.gains.new_zeros(B, R) if skip is None else skip.to(task.gains.dtype)
    longest = [
        # without background the steps fill the video, so four or fewer may have to be longer than usual
        n if not idle and count is not None and number is None and count[i] <= 4 else longest_segment(n)
        for i, n in enumerate(task.lengths)
    ]
    here = task.gains.device.type == "cpu" and importlib.util.find_spec("numba") is not None
    compiled = backend == "numba" or (backend == "auto" and here)
    tables = _with_numba if compiled else _with_torch
    acts = acts or Acts(torch.zeros(B, 0, dtype=torch.bool, device=task.gains.device), penalty.new_zeros(B), 0)
    sums, begins, hows = tables(task, skips, penalty.to(task.gains.dtype), acts, stages, longest, pooled, loop, idle)
    found: list[list[Segment]] = []
    values: list[float] = []
    for item, most in enumerate(stages):
        stage = most
        if number is not None and most:
            better = sums[item][1 : most + 1] - number[item][:most]
            if least is not None:
                with np.errstate(invalid="ignore"):  # -inf less -inf: too few steps to fill the video, not poor
                    poor = np.diff(sums[item][1 : most + 1]) + float(penalty[item]) < float(least[item])
                better[1:][np.logical_or.accumulate(poor)] = -np.inf
            stage = 1 + int(better.argmax())
        values.append(float(sums[item][stage]))
        if values[-1] == -np.inf:  # rows that must have a segment, and too few frames for them
            found.append([])
            continue
        steps = _trace(begins[item], hows[item], task.lengths[item], stage, loop)
        if pooled and R:
            steps = task.on_rows(steps, item, ordered)
        if loop and R:
            steps = _joined(steps)
        found.append(steps)
    return found, values


def _trace(begin: NDArray[np.int32], how: NDArray[np.int8], frames: int, stage: int, loop: bool) -> list[Segment]:
    """The steps on the way back from the end; ``row`` is the stage they took, -1 where there are none (loop)."""
    steps: list[Segment] = []
    end = frames
    while end > 0 or stage > 0:
        if how[end, stage] == SKIP and not loop and stage > 0:
            stage -= 1
            continue
        first = int(begin[end, stage])
        if how[end, stage] == STEP:
            stage -= 0 if loop else 1
            steps.append(Segment(first, end, -1 if loop else stage))
        end = first
    return steps[::-1]


def _joined(steps: list[Segment]) -> list[Segment]:
    """Neighbours that show the same row as one."""
    out: list[Segment] = []
    for step in steps:
        if out and out[-1].row == step.row and out[-1].last == step.first:
            out[-1] = Segment(out[-1].first, step.last, step.row)
        else:
            out.append(step)
    return out


Tables = tuple[list[NDArray[np.float64]], list[NDArray[np.int32]], list[NDArray[np.int8]]]


def _with_numba(
    task: Programme, skip: Tensor, penalty: Tensor, acts: Acts, stages: list[int], longest: list[int], pooled: bool,
    loop: bool, idle: bool,
) -> Tables:  # fmt: skip
    """The tables of each video: values at its end (S + 1,), begins and hows (N + 1, S + 1)."""
    fill = _compiled()
    gains, sums, squares, skips = (x.numpy() for x in (task.gains, task.sums, task.squares, skip.contiguous()))
    last, worth = acts.last.numpy(), acts.worth.tolist()
    values, begins, hows = [], [], []
    for i, n in enumerate(task.lengths):
        shape = n + 1, stages[i] + 1
        best, begin, how = np.empty(shape), np.zeros(shape, np.int32), np.zeros(shape, np.int8)
        fill(
            gains[i, : n + 1], sums[i, : n + 1], squares[i, : n + 1], skips[i, : stages[i]], float(penalty[i]),
            longest[i], last[i], worth[i], acts.shortest, pooled, loop, idle, best, begin, how,
        )  # fmt: skip
        values.append(best[-1])
        begins.append(begin)
        hows.append(how)
    return values, begins, hows


@functools.cache
def _compiled() -> Any:
    from stepformer.core.align.cpu import jit

    # sums over the structure's width may be made in any order: that makes them several times as fast
    return jit(_fill, fastmath={"reassoc", "contract"})


def _fill(  # type: ignore[no-untyped-def]
    gains, sums, squares, skip, penalty, longest, last, worth, shortest, pooled, loop, idle, best, begin, how
):
    """Fills the tables of one video, (N + 1, S + 1) each; see :func:`solve`. Compiled where numba is.

    gains (N + 1, R), sums (N + 1, W) and squares (N + 1,) are prefix sums; skip (S,); last (N + 1,) of acts, or (1,).
    """
    frames, rows = gains.shape[0] - 1, gains.shape[1]
    width, stages = sums.shape[1], skip.shape[0]
    shift = 0 if loop else 1
    taken = 1 if loop else stages  # states that a step can lead to
    best[:] = -np.inf
    best[0, 0] = 0.0
    for j in range(stages):
        best[0, j + 1] = best[0, j] - skip[j]
        how[0, j + 1] = SKIP
    idle_best, idle_begin = np.empty(stages + 1), np.empty(stages + 1, np.int32)
    step_best, step_begin = np.empty(taken), np.empty(taken, np.int32)
    for end in range(1, frames + 1):
        idle_best[:], step_best[:] = -np.inf, -np.inf
        idle_begin[:], step_begin[:] = 0, 0
        for start in range(max(0, end - longest), end):
            cost = penalty
            if width:
                total = 0.0
                for w in range(width):
                    inside = sums[end, w] - sums[start, w]
                    total += inside * inside
                cost += max(squares[end] - squares[start] - total / (end - start), 0.0)
            if idle:
                for j in range(stages + 1):
                    value = best[start, j] - cost
                    better = value > idle_best[j]
                    idle_best[j] = value if better else idle_best[j]
                    idle_begin[j] = start if better else idle_begin[j]
            if worth and end - start >= shortest and last[end] >= start:
                cost -= worth
            if pooled:
                top = 0.0 if rows == 0 else -np.inf
                for r in range(rows):
                    top = max(top, gains[end, r] - gains[start, r])
                for j in range(taken):
                    value = best[start, j] - cost + top
                    better = value > step_best[j]
                    step_best[j] = value if better else step_best[j]
                    step_begin[j] = start if better else step_begin[j]
            else:
                for j in range(taken):
                    value = best[start, j] - cost + (gains[end, j] - gains[start, j])
                    better = value > step_best[j]
                    step_best[j] = value if better else step_best[j]
                    step_begin[j] = start if better else step_begin[j]
        for j in range(taken):
            best[end, j + shift], begin[end, j + shift], how[end, j + shift] = step_best[j], step_begin[j], STEP
        if idle:
            for j in range(stages + 1):
                if idle_best[j] > best[end, j]:  # of equals a step goes before background
                    best[end, j], begin[end, j], how[end, j] = idle_best[j], idle_begin[j], IDLE
        for j in range(stages):
            if best[end, j] - skip[j] > best[end, j + 1]:
                best[end, j + 1], how[end, j + 1] = best[end, j] - skip[j], SKIP


def _with_torch(
    task: Programme, skip: Tensor, penalty: Tensor, acts: Acts, stages: list[int], longest: list[int], pooled: bool,
    loop: bool, idle: bool,
) -> Tables:  # fmt: skip
    """The tables of all videos at once: a loop over the frames that segments end at, all starts and states together."""
    gains, device = task.gains, task.gains.device
    B, N, S = len(task.lengths), gains.shape[1] - 1, skip.shape[1]
    best = gains.new_full((B, N + 1, S + 1), -torch.inf)
    begin = torch.zeros(B, N + 1, S + 1, dtype=torch.int32, device=device)
    how = torch.full((B, N + 1, S + 1), STEP, dtype=torch.int8, device=device)
    limit = torch.tensor(longest, device=device)
    most = max(longest, default=1)
    last, spoken = acts.last, bool(acts.at.any())
    passed = torch.nn.functional.pad(skip.cumsum(1), (1, 0))  # (B, S + 1) cost of passing all rows before
    states = torch.arange(S + 1, device=device)

    must = skip.isinf()
    forced, free = bool(must.all()), not bool(must.any())

    def settle(end: int, here: Tensor) -> None:
        """Keeps the values of one end, rows passed over where that is better."""
        if free and S:
            top, source = (here + passed).cummax(1)
            moved = source < states
            how[:, end] = torch.where(moved, SKIP, how[:, end].long()).to(torch.int8)
            here = torch.where(moved, top - passed, here)
        for j in range(0 if free or forced else S):
            over = here[:, j] - skip[:, j]
            better = over > here[:, j + 1]
            here[:, j + 1] = torch.where(better, over, here[:, j + 1])
            how[:, end, j + 1] = torch.where(better, SKIP, how[:, end, j + 1].long()).to(torch.int8)
        best[:, end] = here

    start_values = gains.new_full((B, S + 1), -torch.inf)
    start_values[:, 0] = 0.0
    settle(0, start_values)
    for end in range(1, N + 1):
        start = max(0, end - most)
        spans = end - torch.arange(start, end, device=device)  # (w,)
        total = task.sums[:, end, None] - task.sums[:, start:end]
        inside = task.squares[:, end, None] - task.squares[:, start:end] - (total * total).sum(2) / spans
        base = best[:, start:end] - (inside.clamp(min=0.0) + penalty[:, None])[..., None]  # (B, w, S + 1)
        base = torch.where((spans <= limit[:, None])[..., None], base, -torch.inf)
        gained = gains[:, end, None] - gains[:, start:end]  # (B, w, R)
        if pooled:
            gained = gained.amax(2, keepdim=True) if gained.shape[2] else gained.new_zeros(1)
        if spoken:
            held = (spans >= acts.shortest) & (last[:, end, None] >= torch.arange(start, end, device=device))
            gained = gained + torch.where(held, acts.worth[:, None], 0.0)[..., None].to(gained.dtype)
        here = gains.new_full((B, S + 1), -torch.inf)
        if loop:
            here, at = (base + gained).max(1)
            begin[:, end] = start + at
        elif S:
            here[:, 1:], at = (base[:, :, :-1] + gained).max(1)
            begin[:, end, 1:] = (start + at).to(torch.int32)
        if idle:
            other, at = base.max(1)
            better = other > here  # of equals a step goes before background
            here = torch.where(better, other, here)
            begin[:, end] = torch.where(better, start + at, begin[:, end]).to(torch.int32)
            how[:, end] = torch.where(better, IDLE, STEP).to(torch.int8)
        settle(end, here)
    values = best[torch.arange(B, device=device), torch.tensor(task.lengths, device=device)]  # (B, S + 1)
    return list(values.double().cpu().numpy()), list(begin.cpu().numpy()), list(how.cpu().numpy())


def rows_in_order(worth: NDArray[np.float64]) -> list[int]:
    """The row of each segment, of (M, R) what each row is worth in each: rising; where there are more segments than
    rows, not falling."""
    segments, rows = worth.shape
    rising = segments <= rows
    best = worth[0].copy()
    back = np.zeros((segments, rows), np.int64)
    for i in range(1, segments):
        top = np.maximum.accumulate(best)
        first = np.concatenate([[True], best[1:] > top[:-1]])
        source = np.maximum.accumulate(np.where(first, np.arange(rows), 0))
        if rising:
            top, source = np.concatenate([[-np.inf], top[:-1]]), np.concatenate([[0], source[:-1]])
        back[i] = source
        best = top + worth[i]
    taken = [int(best.argmax())]
    for i in range(segments - 1, 0, -1):
        taken.append(int(back[i, taken[-1]]))
    return taken[::-1]
