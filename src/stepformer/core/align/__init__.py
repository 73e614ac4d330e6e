"""The Drop-DTW family: ordered alignment of two sequences in which elements of either side may be dropped.

Rows are steps or slots, columns are frames or phrases. :func:`drop_dtw` aligns one pair and gives an
:class:`Alignment`; :func:`drop_dtw_batch` aligns a padded batch of torch tensors on the device they are on;
:func:`soft_drop_dtw` gives such a batch's costs with a gradient. The exact problem that is solved, what infinite costs
mean and how ties are broken is written in :mod:`stepformer.core.align.reference`, which is also the slow, obvious
implementation; the compiled CPU kernel, the batched torch version and the Triton kernel do the same float64 additions
and comparisons and so return the very same paths.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepformer.base.lazy import lazy

if TYPE_CHECKING:
    from stepformer.core.align.batch import drop_dtw_batch, order_agnostic_batch, percentile_drop
    from stepformer.core.align.single import Alignment, drop_dtw
    from stepformer.core.align.soft import soft_drop_dtw
    from stepformer.core.align.torch_batch import columns_of

__getattr__, __dir__ = lazy(__name__, {
    "batch": "drop_dtw_batch order_agnostic_batch percentile_drop",
    "single": "Alignment drop_dtw",
    "soft": "soft_drop_dtw",
    "torch_batch": "columns_of",
})  # fmt: skip

__all__ = [
    "Alignment", "columns_of", "drop_dtw", "drop_dtw_batch", "order_agnostic_batch", "percentile_drop", "soft_drop_dtw",
]  # fmt: skip
