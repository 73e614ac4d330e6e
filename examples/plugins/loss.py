"""A loss of your own: a function of what the criterion sees that gives a scalar tensor.

    stepformer train --config run.toml --out runs/mine --plugin loss.py --set loss.weights.in_order=0.1
    stepformer train ... --set loss.options.in_order.margin=0.02

Or, in an installed package:  [project.entry-points."stepformer.losses"]  in_order = "my_package.loss:in_order"
"""

import torch

from stepformer.core.losses import LOSSES


@LOSSES.register("in_order")
def in_order(given):
    """Slots should look at the video in their own order: the next slot's centre of attention comes later.

    given.output: slots (B, K, D), frames (B, N, D), attention (B, K, N); given.phrases (B, L, D);
    given.phrase_mask (B, L) and given.video_mask (B, N) are True where there is something; given.options is the
    table [loss.options.in_order] of the config; what is put into given.log is written down beside the losses.
    """
    margin = given.options.get("margin", 0.0)
    mask = given.video_mask
    share = torch.arange(mask.shape[1], device=mask.device) / mask.sum(1, keepdim=True).clamp(min=1)  # (B, N)
    centre = (given.output.attention.float() * share[:, None]).sum(-1)  # (B, K) in shares of the video
    late = (centre[:, :-1] - centre[:, 1:] + margin).clamp(min=0)
    given.log["out_of_order"] = (late > 0).float().mean().detach()
    return late.mean()
