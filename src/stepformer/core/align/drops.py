"""Drop costs from similarities.

A *threshold* is a similarity, and a *drop cost* is its negative, for match costs that are negative similarities: with
``drop_dtw(-similarity, percentile_drop(similarity), row_drop=0.0)`` a column is matched only to a row whose similarity
with it reaches the threshold.

Where both sides may be dropped, a pair that is not matched pays two drop costs, so what the threshold means depends on
how it is divided between them. To drop on both sides *at one threshold*, as the released code does, charge it to
the columns and nothing to the rows: ``column_drop=percentile_drop(similarity), row_drop=0.0``. That is the same
problem, up to a constant, as match costs ``threshold - similarity`` with all drops free: a matched pair must reach the
threshold. With the drop cost on *both* sides a pair would have to reach twice the threshold (one-to-one), or a row
would have to make up for one more threshold in all (many-to-one).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from stepformer.core.align.inputs import as_costs, raise_if_nan
from stepformer.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

# guards floor(keep * n) against products like 0.29 * 100 = 28.999999999999996
_ROUNDING = 1e-9


def percentile_drop(
    similarity: Any,
    keep: float = 0.8,
    *,
    top_per_row: int | None = None,
    lengths: Any = None,
    row_lengths: Any = None,
) -> Any:
    """The drop cost at the similarity threshold which ``keep`` of the similarities reach.

    Of the n similarities of an item, the threshold is the k-th largest, k = max(1, floor(keep · n)): a percentile of
    the match costs, as Drop-DTW defines it, taken as an order statistic without interpolation. The drop cost is minus
    the threshold. ``keep`` in (0, 1]. An item without similarities has drop cost 0: there is nothing to match anyway.

    ``similarity``   (K, N) list or array: gives a float. (K, N) tensor: a tensor of no axes. (B, K, N) tensor: (B,),
                     one threshold per item, on the same device and in the same type, without waiting for the device
    ``top_per_row``  take only each row's so many largest similarities (all, if it has fewer) before the threshold
                     is taken; 12 with keep=0.8 is what the released code does in training
    ``lengths``, ``row_lengths``  (B,) how many columns and rows of each item count (tensors only)

    NaN in a list or array is an error that says where; in a tensor it stays NaN, for the alignment to report.
    """
    if not 0.0 < keep <= 1.0:
        raise UsageError(f"keep is the share of similarities above the threshold, in (0, 1]; got {keep}")
    if top_per_row is not None and top_per_row < 1:
        raise UsageError(f"top_per_row must be at least 1; got {top_per_row}")
    if hasattr(similarity, "detach"):
        return _percentile_drop_torch(similarity, keep, top_per_row, lengths, row_lengths)
    if lengths is not None or row_lengths is not None:
        raise UsageError("lengths belong to a batch, which must be a tensor")
    values = as_costs(similarity, "similarity")
    raise_if_nan(values, "similarity", ("row", "column"))
    values = np.sort(values, axis=1)
    if top_per_row is not None:
        values = values[:, max(values.shape[1] - top_per_row, 0) :]
    if values.size == 0:
        return 0.0
    k = max(1, math.floor(keep * values.size + _ROUNDING))
    return -float(np.sort(values, axis=None)[-k])


def _percentile_drop_torch(
    similarity: Tensor, keep: float, top_per_row: int | None, lengths: Any, row_lengths: Any
) -> Tensor:
    import torch

    from stepformer.core.align.batch import element_counts

    if similarity.ndim == 2:
        if lengths is not None or row_lengths is not None:
            raise UsageError("lengths belong to a batch, a tensor of three axes; cut a single one instead")
        return _percentile_drop_torch(similarity[None], keep, top_per_row, None, None)[0]
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
    outside = (torch.arange(K, device=device) >= n_rows[:, None])[:, :, None] | (
        torch.arange(N, device=device) >= n_columns[:, None]
    )[:, None]
    values = values.masked_fill(outside, -torch.inf)  # sorts behind everything that counts
    if top_per_row is not None and top_per_row < N:
        values = values.topk(top_per_row, dim=2).values
        n_columns = n_columns.clamp(max=top_per_row)
    count = n_rows * n_columns  # (B,)
    if values[0:1].numel() == 0 or B == 0:
        return values.new_zeros(B)
    k = (keep * count.double() + _ROUNDING).floor().long().clamp(min=1)
    threshold = values.flatten(1).sort(dim=1, descending=True).values.gather(1, k[:, None] - 1)[:, 0]
    return torch.where(count > 0, -threshold, 0.0)
