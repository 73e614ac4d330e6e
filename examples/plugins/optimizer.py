"""An optimiser of your own: a function of the decoder and the [optim] section. The schedule sets its learning rate.

    stepformer train --config run.toml --out runs/mine --plugin optimizer.py --set optim.optimizer=sgd
    stepformer train ... --set optim.options.momentum=0.95

Or, in an installed package:  [project.entry-points."stepformer.optimizers"]  sgd = "my_package.optimizer:sgd"

A resumed run gets back the tensors that the optimiser keeps per parameter.
"""

import torch

from stepformer.core.training import OPTIMIZERS


@OPTIMIZERS.register("sgd")
def sgd(model, config):
    """No weight decay on biases and norms: what one parameter group per kind is for."""
    wide = [p for p in model.parameters() if p.ndim > 1]
    thin = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": wide, "weight_decay": config.weight_decay}, {"params": thin, "weight_decay": 0.0}]
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.options.get("momentum", 0.9))
