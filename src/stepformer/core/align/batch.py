"""Alignment of a padded batch of torch tensors, on the device they are on."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stepformer.core.align import torch_batch
from stepformer.core.align.inputs import Matching, check_matching, nan_error
from stepformer.errors import MissingError, UsageError

Backend = Literal["auto", "torch", "numba", "triton"]
_BACKENDS = ("auto", "torch", "numba", "triton")
_broken: set[str] = set()  # backends that failed to build here; "auto" does not try them again


@overload
def drop_dtw_batch(
    costs: NDArray[Any], column_drop: Any, row_drop: Any = None, lengths: Any = None,
    matching: Matching = "many_to_one", contiguous: bool = True, *, row_lengths: Any = None, return_cost: bool = False,
    check: bool = True, backend: Backend = "auto",
) -> Any: ...  # fmt: skip
@overload
def drop_dtw_batch(
    costs: Tensor, column_drop: Any, row_drop: Any = None, lengths: Any = None, matching: Matching = "many_to_one",
    contiguous: bool = True, *, row_lengths: Any = None, return_cost: Literal[False] = False, check: bool = True,
    backend: Backend = "auto",
) -> Tensor: ...  # fmt: skip
@overload
def drop_dtw_batch(
    costs: Tensor, column_drop: Any, row_drop: Any = None, lengths: Any = None, matching: Matching = "many_to_one",
    contiguous: bool = True, *, row_lengths: Any = None, return_cost: Literal[True], check: bool = True,
    backend: Backend = "auto",
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def drop_dtw_batch(
    costs: Any,
    column_drop: Any,
    row_drop: Any = None,
    lengths: Any = None,
    matching: Matching = "many_to_one",
    contiguous: bool = True,
    *,
    row_lengths: Any = None,
    return_cost: bool = False,
    check: bool = True,
    backend: Backend = "auto",
) -> Any:
    """:func:`drop_dtw` for each item of a batch: (B, K, N) costs to (B, K, N) bool on the same device.

    ``costs``        (B, K, N) tensor of any float type, or a NumPy array: then arrays come back. No gradient flows
                     through an alignment, and a RuntimeWarning says so where one is asked for: soft_drop_dtw has one
    ``column_drop``  a number, (B,), (B, N) or anything that broadcasts to (B, N); None = columns may not be dropped
    ``row_drop``     a number, (B,), (B, K) or anything that broadcasts to (B, K); None = rows may not be dropped
    ``lengths``      (B,) how many columns of each item count; None = all. What lies past them may be anything, NaN too,
                     and is False in the result
    ``row_lengths``  (B,) how many rows of each item count; None = all
    ``return_cost``  also give the costs, (B,) float64; an infeasible item has cost ``inf`` and no match
    ``check``        look for NaN and for lengths out of range, and raise. This waits for the device, so training
                     says ``check=False``: then nothing waits, NaN counts as ``inf``, and lengths must be right
    ``backend``      "auto": on CUDA Triton where it works, on the CPU numba where it is installed, plain torch
                     otherwise; or one of these by name. All give the same result

    To drop on both sides at one similarity threshold, give ``-similarity``, ``row_drop=0.0`` and
    ``column_drop=percentile_drop(similarity)`` (see :mod:`stepformer.core.align.drops`).
    """
    one_to_one = check_matching(matching)
    if backend not in _BACKENDS:
        raise UsageError(f"backend is one of {', '.join(_BACKENDS)}, not {backend!r}")
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in (costs, column_drop, row_drop)):
        warnings.warn(
            "drop_dtw_batch has no gradient: use soft_drop_dtw for one, or give it detached costs",
            RuntimeWarning,
            stacklevel=2,
        )
    arrays = isinstance(costs, np.ndarray)
    c = _batch(torch.from_numpy(np.ascontiguousarray(costs)) if arrays else costs)
    B, K, N = c.shape
    u = drop_costs(column_drop, (B, N), c, "column_drop").detach()
    v = drop_costs(row_drop, (B, K), c, "row_drop").detach()
    columns = element_counts(lengths, B, N, c.device, "lengths", check)
    rows = element_counts(row_lengths, B, K, c.device, "row_lengths", check)
    if check:
        check_nan(c, u, v, columns, rows)
    matrix, cost = _dispatch(c, u, v, rows, columns, one_to_one, contiguous, backend)
    found: Any = (matrix.numpy(), cost.numpy()) if arrays else (matrix, cost)
    return found if return_cost else found[0]


def order_agnostic_batch(
    costs: Tensor, column_drop: Any, lengths: Any = None, *, row_lengths: Any = None, check: bool = True
) -> Tensor:
    """Each column to its cheapest row, whatever the order, or dropped where dropping is cheaper: (B, K, N) bool.

    For the ablation that gives up the order. Arguments as in :func:`drop_dtw_batch`; a row without columns costs
    nothing; of equally cheap rows the first is taken, and a match goes before a drop. An item with a column that may
    neither be matched nor dropped has no match.
    """
    c = _batch(costs)
    B, K, N = c.shape
    u = drop_costs(column_drop, (B, N), c, "column_drop").detach()
    columns = element_counts(lengths, B, N, costs.device, "lengths", check)
    rows = element_counts(row_lengths, B, K, costs.device, "row_lengths", check)
    if check:
        check_nan(c, u, c.new_zeros(B, K), columns, rows)
    row_counts = torch.arange(K, device=c.device) < rows[:, None]  # (B, K)
    column_counts = torch.arange(N, device=c.device) < columns[:, None]  # (B, N)
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


def columns_of(matrix: Tensor) -> Tensor:
    """(..., K, N) bool matches to (..., N) int64: the row of each column, -1 = dropped."""
    if matrix.shape[-2] == 0:
        return torch.full(matrix.shape[:-2] + matrix.shape[-1:], -1, dtype=torch.int64, device=matrix.device)
    row = torch.arange(matrix.shape[-2], device=matrix.device)[:, None]
    return torch.where(matrix, row, -1).amax(dim=-2)


def _batch(costs: Tensor) -> Tensor:
    """(B, K, N) costs in the type that sums are made in."""
    if not isinstance(costs, Tensor) or costs.ndim != 3:
        got = tuple(costs.shape) if isinstance(costs, Tensor) else type(costs).__name__
        raise UsageError(f"costs must be a tensor of three axes, batch, rows and columns; got {got}")
    if costs.is_complex():
        raise UsageError("costs must be real numbers; these are complex")
    return costs.detach().to(torch_batch.sum_dtype(costs.device))


def drop_costs(value: Any, shape: tuple[int, int], like: Tensor, name: str) -> Tensor:
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


def element_counts(value: Any, B: int, limit: int, device: torch.device, name: str, check: bool) -> Tensor:
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


def check_nan(c: Tensor, u: Tensor, v: Tensor, columns: Tensor, rows: Tensor) -> None:
    """Raises NonFiniteError with the first position that counts and is NaN. Waits for the device."""
    if not bool((c.sum() + u.sum() + v.sum()).isnan()):  # one pass that makes no array; inf - inf is looked at below
        return
    row_counts = torch.arange(c.shape[1], device=c.device) < rows[:, None]  # (B, K)
    column_counts = torch.arange(c.shape[2], device=c.device) < columns[:, None]  # (B, N)
    bad = [
        ("costs", ("item", "row", "column"), c.isnan() & row_counts[:, :, None] & column_counts[:, None]),
        ("column_drop", ("item", "column"), u.isnan() & column_counts),
        ("row_drop", ("item", "row"), v.isnan() & row_counts),
    ]
    if not bool(torch.stack([where.any() for _, _, where in bad]).any()):
        return
    for name, axes, where in bad:
        positions = where.nonzero().tolist()
        if positions:
            raise nan_error(name, axes, tuple(positions[0]), len(positions))


def _dispatch(
    c: Tensor, u: Tensor, v: Tensor, rows: Tensor, columns: Tensor, one_to_one: bool, contiguous: bool, backend: Backend
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if backend == "triton" or (backend == "auto" and _has("triton") and c.device.type == "cuda"):
        try:
            from stepformer.core.align import triton_kernel

            found: tuple[Tensor, Tensor] = triton_kernel.align_batch(c, u, v, rows, columns, one_to_one, contiguous)
            return found
        except Exception as error:
            if backend == "triton":
                raise
            # Triton needs a C compiler and a driver it knows; the result is the same without it, only later
            _broken.add("triton")
            warnings.warn(f"alignment runs in plain torch, Triton failed: {error}", RuntimeWarning, stacklevel=3)
    if backend == "numba" or (backend == "auto" and c.device.type == "cpu" and _has("numba")):
        return _with_numba(c, u, v, rows, columns, one_to_one, contiguous)
    return torch_batch.align_batch(c, u, v, rows, columns, one_to_one, contiguous)


def _has(package: str) -> bool:
    return package not in _broken and importlib.util.find_spec(package) is not None


def _with_numba(
    c: Tensor, u: Tensor, v: Tensor, rows: Tensor, columns: Tensor, one_to_one: bool, contiguous: bool
) -> tuple[Tensor, Tensor]:
    if c.device.type != "cpu":
        raise UsageError(f"the numba backend aligns CPU tensors; these are on {c.device}")
    try:
        from stepformer.core.align import cpu
    except ImportError as error:
        raise MissingError("the numba backend needs numba; install it, or take backend='torch'") from error
    matrix, cost = cpu.align_batch(
        c.contiguous().numpy(), u.contiguous().numpy(), v.contiguous().numpy(), rows.numpy(), columns.numpy(),
        one_to_one, contiguous,
    )  # fmt: skip
    return torch.from_numpy(matrix), torch.from_numpy(cost)
