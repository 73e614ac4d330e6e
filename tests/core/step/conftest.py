"""Where there is no GPU, plain torch stands in for the kernels of a step."""

import sys

import pytest
import torch

import stepformer.core


@pytest.fixture
def plain_kernels(monkeypatch):
    if torch.cuda.is_available():
        return
    from tests.core.step import plain

    for name in ("stack_kernels", "context_kernels"):
        monkeypatch.setitem(sys.modules, f"stepformer.core.{name}", plain)
        monkeypatch.setattr(stepformer.core, name, plain, raising=False)
