"""Modules of PyTorch that the tests of this folder export and compile."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn


class Nested(nn.Module):
    """Takes nested and keyword arguments, and returns a dictionary with a size and None."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, options, *, scale, mask=None):  # type: ignore[no-untyped-def] # as modules are written
        """Return the scaled result of the layer."""
        y = self.layer(x) * scale + options["shift"][0]
        return {"y": y if mask is None else y.masked_fill(mask, 0.0), "rows": x.shape[0], "none": None}


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the input times the number of calls."""
        self.calls.add_(1)
        return x * self.calls


class Cache(nn.Module):
    """Writes to views of a buffer, and returns views of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("slots", torch.zeros(4, 3))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Write the input to a row, and return the buffer, a view of it and a transposed one."""
        view = self.slots[1:3]
        view[:, 0] += x
        self.slots.t()[1].mul_(2).add_(1)
        return self.slots, view, self.slots.t()


class WritesToInput(nn.Module):
    """Changes its argument in place, through a view of it."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the sum of the changed argument."""
        x[0].mul_(3)
        x.view(-1)[-1:].zero_()
        return x.sum()


class Branching(nn.Module):
    """Takes one of two branches, which depends on data."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the input plus or minus one."""
        return x + 1 if x.sum().item() > 0 else x - 1


class Pair(nn.Module):
    """Adds two tensors that have the same number of rows."""

    def forward(self, x, y):  # type: ignore[no-untyped-def]
        """Return the sum."""
        return x + y


def twins(module: Any) -> tuple[Any, Any]:
    """Return a module in evaluation mode without gradients, and a copy of it."""
    module = module.eval().requires_grad_(False)
    return module, copy.deepcopy(module)


def check_same(found: Any, expected: Any) -> None:
    """Assert that two results have the same structure, types and values."""
    a, spec_a = torch.utils._pytree.tree_flatten(found)
    b, spec_b = torch.utils._pytree.tree_flatten(expected)
    assert spec_a == spec_b
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y) or isinstance(y, nn.Parameter)
        if isinstance(y, torch.Tensor):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-5)
        else:
            assert x == y


def check_both(function: Any, module: Any, *args: Any, **kwargs: Any) -> None:
    """Assert that a function does to its arguments, and returns, what a module does."""
    others, named = copy.deepcopy((args, kwargs))
    check_same(function(*args, **kwargs), module(*others, **named))
    check_same((list(args), kwargs), (list(others), named))
