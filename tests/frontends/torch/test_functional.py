"""Programs that write in place, switch gradients or have operators without a converter, before they are read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from interposer.frontends import torch as frontend  # noqa: E402 - it imports PyTorch
from interposer.frontends.torch.functional import functional  # noqa: E402
from interposer.frontends.torch.graph import is_functional, missing_operators  # noqa: E402

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]


class Module(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.function = torch.nn.Linear(4, 4), function

    def forward(self, x: Any) -> Any:
        return self.function(self.layer, x)


def views(layer: Any, x: Any) -> Any:
    y = layer(x)
    row, shaped = y[0], y.reshape(2, -1)
    y.add_(x)
    return row, shaped, y


def dropped(layer: Any, x: Any) -> Any:
    y = layer(x)
    z = torch.nn.functional.dropout(y, 0.5, False)
    z.mul_(2)
    return y, z


def dropped_with_views(layer: Any, x: Any) -> Any:
    y = layer(x)
    z = torch.nn.functional.dropout(y, 0.5, False)
    z[1:].mul_(2)
    return y, z, torch.nn.functional.dropout(x, 0.0, True)


def chained(layer: Any, x: Any) -> Any:
    y = layer(x).add_(x).relu_()
    before = y * 1
    y.mul_(3).clamp_(max=2)
    return before, y, y + x


def of_other_types(layer: Any, x: Any) -> Any:
    counts = (x * 4).to(torch.int32) + 0
    counts.mul_(3)
    halves = (x + 1).to(torch.float16) * 1
    halves.add_(layer(x)[0])
    return counts, halves, (x > 0).logical_not_()


def same_twice(layer: Any, x: Any) -> Any:
    y = layer(x)
    y.add_(y)
    return y, y


def of_arguments(_: Any, x: Any) -> Any:
    y = x.view(-1)
    y.add_(1)
    return x * 2, y.sum()


def without_gradients(layer: Any, x: Any) -> Any:
    with torch.no_grad():
        y = layer(x)
        y.add_(1)
        total, mean = y.sum(), y.mean()
    return y + x, total, mean, x


def nested_regions(layer: Any, x: Any) -> Any:
    with torch.no_grad():
        y = layer(x)
        with torch.enable_grad():
            z = layer(y)
        return z.detach() * y, z


def constants(layer: Any, x: Any) -> Any:
    return layer(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor(2)


def expanded(layer: Any, x: Any) -> Any:
    return torch.nn.functional.unfold(layer(x)[None, None], 2), torch.cdist(x, x), torch.multiply(x, 2)


@pytest.mark.parametrize(
    "function",
    [
        views, dropped, dropped_with_views, chained, of_other_types, same_twice, of_arguments, without_gradients,
        nested_regions, constants, expanded,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_programs_agree_with_eager(function: Callable[..., Any]) -> None:
    module, x = Module(function).eval(), torch.linspace(-1, 1, 16).reshape(4, 4)
    program = torch.export.export(module, (x,))
    expected = [item.detach().clone() for item in module(x.clone())]
    before = str(program.graph)
    ready = functional(program)
    assert is_functional(ready.graph_module)
    assert not missing_operators(ready.graph_module)
    assert str(program.graph) == before
    results = ip.load(frontend.load(program), ["CpuRef"]).run([x.numpy()])[-len(expected) :]
    for result, item in zip(results, expected, strict=True):
        assert (result.shape, result.dtype) == (tuple(item.shape), item.numpy().dtype)
        np.testing.assert_allclose(result, item, rtol=1e-3 if result.dtype == np.float16 else 1e-4, atol=1e-4)


def test_open_sizes_stay_open() -> None:
    module, x = Module(chained).eval(), torch.randn(3, 4)
    rows = torch.export.Dim("rows", min=2, max=9)
    model = ip.load(
        torch.export.export(
            module,
            (x,),
            dynamic_shapes={
                "x": {0: rows},
            },
        ),
        ["CpuRef"],
    )
    for count in (3, 5):
        other = torch.randn(count, 4)
        for result, item in zip(model(other), module(other), strict=True):
            torch.testing.assert_close(result, item.detach())
