"""Alignment of a padded batch of torch tensors, on the device they are on, and drop costs from similarities.

A *threshold* is a similarity, and a *drop cost* is its negative, for match costs that are negative similarities: with
``drop_dtw(-similarity, percentile_drop(similarity), row_drop=0.0)`` a column is matched only to a row whose similarity
with it reaches the threshold. Where both sides may be dropped, a pair that is not matched pays two drop costs. To drop
on both sides *at one threshold*, as the released code does, charge it to the columns and nothing to the rows: that is
the same problem, up to a constant, as match costs ``threshold - similarity`` with all drops free.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Literal, TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from stepformer.core.align import torch_batch
from stepformer.core.align.single import Costs, Matching, as_costs, check_matching, nan_error, raise_if_nan
from stepformer.core.align.torch_batch import Problem
from stepformer.errors import MissingError, UsageError

Backend = Literal["auto", "torch", "numba", "triton"]
Batch = TypeVar("Batch", Tensor, NDArray[Any])
_BACKENDS = ("auto", "torch", "numba", "triton")
_ROUNDING = 1e-9  # guards floor(keep * n) against products like 0.29 * 100 = 28.999999999999996
_broken: set[str] = set()  # backends that failed to build here; "auto" does not try them again


@overload
def drop_dtw_batch(
    costs: Batch, column_drop: Costs | None, row_drop: Costs | None = None, lengths: Costs | None = None,
    matching: Matching = "many_to_one", contiguous: bool = True, *, row_lengths: Costs | None = None,
    return_cost: Literal[False] = False, check: bool = True, backend: Backend = "auto",
) -> Batch: ...  # fmt: skip


@overload
def drop_dtw_batch(
    costs: Batch, column_drop: Costs | None, row_drop: Costs | None = None, lengths: Costs | None = None,
    matching: Matching = "many_to_one", contiguous: bool = True, *, row_lengths: Costs | None = None,
    return_cost: Literal[True], check: bool = True, backend: Backend = "auto",
) -> tuple[Batch, Batch]: ...  # fmt: skip


def drop_dtw_batch(
    costs: Tensor | NDArray[Any],
    column_drop: Costs | None,
    row_drop: Costs | None = None,
    lengths: Costs | None = None,
    matching: Matching = "many_to_one",
    contiguous: bool = True,
    *,
    row_lengths: Costs | None = None,
    return_cost: bool = False,
    check: bool = True,
    backend: Backend = "auto",
) -> Tensor | NDArray[Any] | tuple[Tensor | NDArray[Any], Tensor | NDArray[Any]]:
    """:func:`drop_dtw` for each item of a batch: (B, K, N) costs to (B, K, N) bool on the same device.

    To drop on both sides at one similarity threshold, give ``-similarity``, ``row_drop=0.0`` and
    ``column_drop=percentile_drop(similarity)``.

    Args:
        costs: (B, K, N) tensor of any float type, or a NumPy array: then arrays come back. No gradient flows through an
            alignment, and a RuntimeWarning says so where one is asked for: :func:`soft_drop_dtw` has one.
        column_drop: A number, (B,), (B, N) or anything that broadcasts to (B, N); None = columns may not be dropped.
        row_drop: A number, (B,), (B, K) or anything that broadcasts to (B, K); None = rows may not be dropped.
        lengths: (B,) how many columns of each item count; None = all. What lies past them may be anything, NaN too, and
            is False in the result.
        matching: As in :func:`drop_dtw`.
        contiguous: As in :func:`drop_dtw`.
        row_lengths: (B,) how many rows of each item count; None = all.
        return_cost: Also give the costs, (B,) float64; an infeasible item has cost ``inf`` and no match.
        check: Look for NaN and for lengths out of range, and raise. This waits for the device, so training says
            ``check=False``: then nothing waits, NaN counts as ``inf``, and lengths must be right.
        backend: "auto": on CUDA Triton where it works, on the CPU numba where it is installed, plain torch otherwise;
            or one of these by name. All give the same result. On the CPU torch's number of threads holds for numba too,
            which uses one thread for a batch of less than 2^20 cells.

    Raises:
        NonFiniteError: a cost is NaN; the message says where.
        UsageError: shapes, lengths or options that do not fit.

    Examples:
        >>> costs = torch.tensor([[[0.1, 0.2, 0.9], [0.9, 0.8, 0.1]]])
        >>> drop_dtw_batch(costs, column_drop=0.5, lengths=torch.tensor([2]), row_drop=0.5).int().tolist()
        [[[1, 1, 0], [0, 0, 0]]]
    """
    one_to_one = check_matching(matching)
    if backend not in _BACKENDS:
        raise UsageError(f"backend must be one of {', '.join(_BACKENDS)}, not {backend!r}")
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (costs, column_drop, row_drop)):
        warnings.warn(
            "drop_dtw_batch has no gradient: use soft_drop_dtw for one, or give it detached costs",
            RuntimeWarning,
            stacklevel=2,
        )
    given = torch.from_numpy(np.ascontiguousarray(costs)) if isinstance(costs, np.ndarray) else costs
    c, u, v, rows, columns = checked(given, column_drop, row_drop, lengths, row_lengths, check, look=False)
    problem = Problem(c.detach(), u.detach(), v.detach(), rows, columns)
    matrix, cost = _dispatch(problem, one_to_one, contiguous, check, backend)
    made = (matrix.numpy(), cost.numpy()) if isinstance(costs, np.ndarray) else (matrix, cost)
    return made if return_cost else made[0]


def order_agnostic_batch(
    costs: Tensor,
    column_drop: Costs | None,
    lengths: Costs | None = None,
    *,
    row_lengths: Costs | None = None,
    check: bool = True,
) -> Tensor:
    """Each column to its cheapest row, whatever the order, or dropped where dropping is cheaper: (B, K, N) bool.

    For the ablation that gives up the order. Arguments as in :func:`drop_dtw_batch`; a row without columns costs
    nothing; of equally cheap rows the first is taken, and a match goes before a drop. An item with a column that may
    neither be matched nor dropped has no match.

    Examples:
        >>> costs = torch.tensor([[[0.9, 0.1, 0.9], [0.1, 0.9, 0.9]]])
        >>> order_agnostic_batch(costs, column_drop=0.5).int().tolist()     # the third column is dropped
        [[[0, 1, 0], [1, 0, 0]]]
    """
    c, u, _, rows, columns = (x.detach() for x in checked(costs, column_drop, 0.0, lengths, row_lengths, check))
    K = c.shape[1]
    row_counts, column_counts = counted(rows, K), counted(columns, c.shape[2])
    c = c.masked_fill(~row_counts[:, :, None] | c.isnan(), torch.inf)
    u = u.masked_fill(u.isnan(), torch.inf)
    options = torch.cat([c, u[:, None]], dim=1)  # (B, K + 1, N)
    value = options.amin(dim=1)
    # the first of equals, on every device: argmin does not promise which it takes
    order = torch.arange(K + 1, device=c.device)[None, :, None]
    best = torch.where(options == value[:, None], order, K + 1).amin(dim=1)  # (B, N)
    feasible = ((value < torch.inf) | ~column_counts).all(dim=1)  # (B,)
    chosen = column_counts & feasible[:, None]
    return (order[:, :K] == best[:, None]) & chosen[:, None]


@overload
def percentile_drop(
    similarity: Tensor, keep: float = 0.8, *, top_per_row: int | None = None, lengths: Costs | None = None,
    row_lengths: Costs | None = None,
) -> Tensor: ...  # fmt: skip


@overload
def percentile_drop(similarity: ArrayLike, keep: float = 0.8, *, top_per_row: int | None = None) -> float: ...


def percentile_drop(
    similarity: Costs,
    keep: float = 0.8,
    *,
    top_per_row: int | None = None,
    lengths: Costs | None = None,
    row_lengths: Costs | None = None,
) -> Tensor | float:
    """The drop cost at the similarity threshold which ``keep`` of the similarities reach.

    Of the n similarities of an item, the threshold is the k-th largest, k = max(1, floor(keep · n)): a percentile of
    the match costs, as Drop-DTW defines it, taken as an order statistic without interpolation. The drop cost is minus
    the threshold. An item without similarities has drop cost 0: there is nothing to match anyway. NaN in a list or
    array is an error that says where; in a tensor it stays NaN, for the alignment to report.

    Args:
        similarity: (K, N) list or array: gives a float. (K, N) tensor: a tensor of no axes. (B, K, N) tensor: (B,), one
            threshold per item, on the same device and in the same type, without waiting for the device.
        keep: The share of the similarities that reach the threshold, in (0, 1].
        top_per_row: Take only each row's largest similarities, up to this number, before the threshold is taken; 12
            with keep=0.8 is what the released code does in training.
        lengths: (B,) how many columns of each item count (tensors only).
        row_lengths: (B,) how many rows of each item count (tensors only).

    Examples:
        >>> percentile_drop([[0.9, 0.1], [0.2, 0.8]], keep=0.5)     # two of four similarities reach 0.8
        -0.8
    """
    if not 0.0 < keep <= 1.0:
        raise UsageError(f"keep is the share of similarities above the threshold, in (0, 1]; got {keep}")
    if top_per_row is not None and top_per_row < 1:
        raise UsageError(f"top_per_row must be at least 1; got {top_per_row}")
    if not isinstance(similarity, Tensor):
        if lengths is not None or row_lengths is not None:
            raise UsageError("lengths belong to a batch, which must be a tensor")
        one = as_costs(similarity, "similarity")
        raise_if_nan(one, "similarity", ("row", "column"))
        return float(percentile_drop(torch.from_numpy(one), keep, top_per_row=top_per_row))
    if similarity.ndim == 2:
        if lengths is not None or row_lengths is not None:
            raise UsageError("lengths belong to a batch, a tensor of three axes; cut a single one instead")
        return percentile_drop(similarity[None], keep, top_per_row=top_per_row)[0]
    if similarity.ndim != 3:
        raise UsageError(
            f"similarity must have two axes, or three with a batch; the shape is {tuple(similarity.shape)}"
        )
    values = similarity.detach()
    if not values.is_floating_point():
        values = values.double()  # whole numbers have no -inf to put past the lengths
    B, K, N = values.shape
    device = values.device
    at_hand = device.type == "cpu"  # the range is looked at only where that waits for no device
    n_columns = element_counts(lengths, B, N, device, "lengths", at_hand)
    n_rows = element_counts(row_lengths, B, K, device, "row_lengths", at_hand)
    inside = counted(n_rows, K)[:, :, None] & counted(n_columns, N)[:, None]
    values = values.masked_fill(~inside, -torch.inf)  # sorts behind everything that counts
    if top_per_row is not None and top_per_row < N:
        values = values.topk(top_per_row, dim=2).values
        n_columns = n_columns.clamp(max=top_per_row)
    count = n_rows * n_columns  # (B,)
    if values[0:1].numel() == 0 or B == 0:
        return values.new_zeros(B)
    k = (keep * count.double() + _ROUNDING).floor().long().clamp(min=1)
    threshold = values.flatten(1).sort(dim=1, descending=True).values.gather(1, k[:, None] - 1)[:, 0]
    return torch.where(count > 0, -threshold, 0.0)


def checked(
    costs: Tensor, column_drop: Costs | None, row_drop: Costs | None, lengths: Costs | None,
    row_lengths: Costs | None, check: bool, look: bool = True,
) -> Problem:  # fmt: skip
    """Costs (B, K, N) and drop costs (B, N), (B, K) in the type that sums are made in, with their gradients, and how
    many rows and columns of each item count, (B,). ``look``: for NaN too, if ``check``."""
    if not isinstance(costs, Tensor) or costs.ndim != 3 or costs.is_complex():
        got = f"{costs.dtype} {tuple(costs.shape)}" if isinstance(costs, Tensor) else type(costs).__name__
        raise UsageError(f"costs must be a tensor of three axes, batch, rows and columns, of real numbers; got {got}")
    c = costs.to(torch_batch.sum_dtype(costs.device))
    B, K, N = c.shape
    u, v = drop_costs(column_drop, (B, N), c, "column_drop"), drop_costs(row_drop, (B, K), c, "row_drop")
    columns = element_counts(lengths, B, N, c.device, "lengths", check)
    rows = element_counts(row_lengths, B, K, c.device, "row_lengths", check)
    if check and look:
        check_nan(c, u, v, rows, columns)
    return Problem(c, u, v, rows, columns)


def counted(number: Tensor, size: int) -> Tensor:
    """Which of ``size`` elements count, (B, size), of how many do, (B,)."""
    return torch.arange(size, device=number.device) < number[:, None]


def drop_costs(value: Costs | None, shape: tuple[int, int], like: Tensor, name: str) -> Tensor:
    """A drop cost as (B, N) or (B, K), with its gradient; None is ``inf``."""
    if value is None:
        return like.new_full(shape, torch.inf)
    if isinstance(value, int | float):
        return like.new_full(shape, value)  # filled on the device: copying a number there would wait for it
    try:
        drop = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{name} must be numbers in a rectangular array: {error}") from error
    if drop.ndim == 1 and drop.shape[0] == shape[0]:
        drop = drop[:, None]
    elif drop.ndim == 1:
        raise UsageError(
            f"{name} of one axis must have one number for each of the {shape[0]} items; its shape is "
            f"{tuple(drop.shape)} (for one per element, the same in all items, give {name}[None])"
        )
    try:
        return drop.expand(shape)
    except RuntimeError as error:
        raise UsageError(
            f"{name} must be a number, {shape[:1]} or {shape}; its shape is {tuple(drop.shape)}"
        ) from error


def element_counts(value: Costs | None, B: int, limit: int, device: torch.device, name: str, check: bool) -> Tensor:
    """How many elements of each item count, (B,) int64."""
    if value is None:
        return torch.full((B,), limit, dtype=torch.int64, device=device)
    lengths = torch.as_tensor(value, device=device)
    if lengths.is_floating_point() and lengths.numel():
        raise UsageError(f"{name} must be whole numbers; they are {str(lengths.dtype).removeprefix('torch.')}")
    lengths = lengths.to(torch.int64)
    if lengths.shape != (B,):
        raise UsageError(f"{name} must have one number for each of the {B} items; its shape is {tuple(lengths.shape)}")
    if check and B and bool(((lengths < 0) | (lengths > limit)).any()):
        raise UsageError(f"{name} must lie between 0 and {limit}; they are {lengths.tolist()}")
    return lengths


def check_nan(c: Tensor, u: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> None:
    """Raises NonFiniteError with the first position that counts and is NaN. Waits for the device."""
    if not bool((c.sum() + u.sum() + v.sum()).isnan()):  # one pass that makes no array; inf - inf is looked at below
        return
    row_counts, column_counts = counted(rows, c.shape[1]), counted(columns, c.shape[2])
    for name, axes, where in (
        ("costs", ("item", "row", "column"), c.isnan() & row_counts[:, :, None] & column_counts[:, None]),
        ("column_drop", ("item", "column"), u.isnan() & column_counts),
        ("row_drop", ("item", "row"), v.isnan() & row_counts),
    ):
        if positions := where.nonzero().tolist():
            raise nan_error(name, axes, tuple(positions[0]), len(positions))


def _dispatch(
    given: Problem, one_to_one: bool, contiguous: bool, check: bool, backend: Backend
) -> tuple[Tensor, Tensor]:
    device = given.costs.device
    compiled = backend == "numba" or (backend == "auto" and device.type == "cpu" and _has("numba"))
    if check and not compiled:
        check_nan(*given)
    if backend == "triton" or (backend == "auto" and _has("triton") and device.type == "cuda"):
        try:
            from stepformer.core.align import triton_kernel

            found: tuple[Tensor, Tensor] = triton_kernel.align_batch(given, one_to_one, contiguous)
            return found
        except Exception as error:
            if backend == "triton":
                raise
            # Triton needs a C compiler and a driver it knows; the result is the same without it, only later
            _broken.add("triton")
            warnings.warn(f"alignment runs in plain torch, Triton failed: {error}", RuntimeWarning, stacklevel=3)
    if compiled:
        if device.type != "cpu":
            raise UsageError(f"the numba backend aligns CPU tensors; these are on {device}")
        try:
            from stepformer.core.align import cpu
        except ImportError as error:
            raise MissingError("the numba backend needs numba; install it, or use backend='torch'") from error
        # NumPy's copies: torch would wake its threads for them, which then spin beside those of the kernel
        c, u, v, rows, columns = (np.ascontiguousarray(x.numpy()) for x in given)
        matrix, cost = cpu.align_batch(c, u, v, rows, columns, one_to_one, contiguous, torch.get_num_threads())
        if not np.isnan(cost).any():
            return torch.from_numpy(matrix), torch.from_numpy(cost)
        if check:  # the kernel has looked at every number already
            check_nan(*given)
    return torch_batch.align_batch(given, one_to_one, contiguous)


def _has(package: str) -> bool:
    return package not in _broken and importlib.util.find_spec(package) is not None
