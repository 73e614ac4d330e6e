"""Plain torch stands in for the kernels of a step where tensors are not on a GPU."""

import sys

import pytest

import stepformer.core


@pytest.fixture
def plain_kernels(monkeypatch, request):
    if "on_a_gpu" in request.node.name:
        return
    from tests.core.step import plain

    monkeypatch.setitem(sys.modules, "stepformer.core.stack_kernels", plain)
    monkeypatch.setattr(stepformer.core, "stack_kernels", plain, raising=False)
