"""Plain torch stands in for the kernels of a step where tensors are not on a GPU."""

import sys

import pytest

import stepformer.core


@pytest.fixture
def plain_kernels(monkeypatch, request):
    if "on_a_gpu" in request.node.name:
        return
    from tests.core.step import plain

    for name in ("stack_kernels", "context_kernels"):
        monkeypatch.setitem(sys.modules, f"stepformer.core.{name}", plain)
        monkeypatch.setattr(stepformer.core, name, plain, raising=False)
