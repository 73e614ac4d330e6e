"""Differentiable weak sequence alignment (Shen, Wang and Elhamifar, CVPR 2021) as one torch function.

Visual prototypes i = 1..M and narration prototypes j = 1..N, both in order of time. Every visual prototype is given
either a narration prototype or one of the N + 1 *empty slots* that stand before, between and after them, because
not every step is spoken; narration that nothing was given to costs nothing, because not all speech is about steps.
Columns are empty, 1, empty, 2, ..., N, empty. The order is kept: the next prototype's column is the same one or a
later one where it is empty, a later one where it is narration, since a narration prototype is taken at most once.

The loss is the soft minimum, -γ log Σ exp(-cost / γ), of the total cost over all such alignments. Row by row

    D[1, c] = C[1, c]        D[i, c] = C[i, c] + softmin over allowed c' of D[i - 1, c']

where the soft minimum over all columns up to c is a running logsumexp, so that there is no loop over cells, and
autograd gives its gradient: the probability with which an alignment drawn from the Gibbs distribution uses the cell.
"""

from __future__ import annotations

import torch
from torch import Tensor


def with_empty_slots(costs: Tensor, empty_cost: float) -> Tensor:
    """costs (M, N) -> (M, 2N + 1) with a column of ``empty_cost`` before, between and after the given ones."""
    m, n = costs.shape
    out = costs.new_full((m, 2 * n + 1), empty_cost)
    columns = torch.arange(n, device=costs.device) * 2 + 1
    return out.index_copy(1, columns, costs)


def soft_alignment_cost(expanded: Tensor, gamma: float) -> Tensor:
    """Soft minimum of the total cost over all weak alignments: expanded (M, 2N + 1) costs -> a number.

    Even columns are empty slots, odd ones narration.
    """
    columns = expanded.shape[1]
    narration = torch.arange(columns, device=expanded.device) % 2 == 1
    nothing = expanded.new_full((1,), -torch.inf)
    scores = -expanded[0] / gamma  # minus the totals so far, over γ
    for row in expanded[1:]:
        upto = torch.logcumsumexp(scores, 0)  # over columns <= c
        before = torch.cat([nothing, upto[:-1]])  # over columns < c
        scores = torch.where(narration, before, upto) - row / gamma
    return -gamma * torch.logsumexp(scores, 0)


def dwsa_loss(
    visual: Tensor, narration: Tensor, gamma: float = 1e-3, empty_cost: float = 1.0, normalize: bool = True
) -> Tensor:
    """The loss between prototypes in time order, (M, D) and (N, D): cosine distances aligned weakly.

    normalize: costs of each visual prototype pass through a softmax over its columns, as in the paper, so that each
    competes for its narration.
    """
    visual = torch.nn.functional.normalize(visual, dim=-1)
    narration = torch.nn.functional.normalize(narration, dim=-1)
    costs = with_empty_slots(1 - visual @ narration.T, empty_cost)
    if normalize:
        costs = costs.softmax(-1)
    return soft_alignment_cost(costs, gamma)
