"""A decoder of your own: a torch module from frame vectors to slots. The trainer, checkpoints and inference take it.

    stepformer train --config run.toml --out runs/mine --plugin decoder.py --set model.decoder=windows
    stepformer discover video.mp4 --model runs/mine --plugin decoder.py       # a checkpoint names its decoder

Or, in an installed package:  [project.entry-points."stepformer.decoders"]  windows = "my_package.decoder:Windows"
"""

import torch
from torch import nn

from stepformer.core.model import DECODERS, Slots


class Windows(nn.Module):
    """K windows over the share of the video, learned, and a linear map: the least that can be trained.

    It is given the ModelConfig, keeps it as `config`, and reads what it likes of it; [model.options] is its own.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.centre = nn.Parameter((torch.arange(config.slots) + 0.5) / config.slots)  # (K,)
        self.width = nn.Parameter(torch.full((config.slots,), float(config.options.get("width", 1.0)) / config.slots))
        self.out = nn.Linear(config.feature_dim, config.feature_dim)
        nn.init.eye_(self.out.weight)

    def forward(self, video, mask=None, attention=False):
        """video (B, N, D), mask (B, N) True where there is a frame -> slots (B, K, D), frames (B, N, D), (B, K, N)."""
        mask = torch.ones(video.shape[:2], dtype=torch.bool, device=video.device) if mask is None else mask
        share = (torch.arange(video.shape[1], device=video.device) + 0.5) / mask.sum(1, keepdim=True).clamp(min=1)
        far = (share[:, None] - self.centre[:, None]) / self.width.abs().clamp(min=1e-3)[:, None]  # (B, K, N)
        look = (-0.5 * far.square()).masked_fill(~mask[:, None], -1e9).softmax(-1).to(video.dtype)
        return Slots(self.out(look @ video), video, look)


DECODERS.register("windows", Windows)
