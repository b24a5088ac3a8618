"""Programs that write in place, switch gradients or have operators without a converter, before they are read."""

import sys
from collections.abc import Callable
from functools import partial
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


def calls_of(name: str, function: Callable[[], Any]) -> int:
    """Return how often a Python function of this name is called while `function` runs."""
    calls = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_name == name

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def repeated(steps: int) -> Any:
    def function(layer: Any, x: Any) -> Any:
        for _ in range(steps):
            x = torch.nn.functional.glu(torch.cat([layer(x), x], 1))
        return x

    return torch.export.export(Module(function).eval(), (torch.ones(3, 4),))


def test_pytorch_traces_an_operator_once_for_all_steps_of_a_loop() -> None:
    counts = [calls_of("make_fx", partial(functional, repeated(steps))) for steps in (2, 6)]
    assert counts == [1, 1]


def test_operators_of_different_shapes_are_traced_each() -> None:
    def function(layer: Any, x: Any) -> Any:
        y = torch.nn.functional.glu(layer(x))
        return y, torch.nn.functional.glu(y), torch.nn.functional.glu(x, 0), torch.nn.functional.glu(x.double())

    module = Module(function).eval()
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    program = torch.export.export(module, (x,))
    for result, expected in zip(ip.load(program, ["CpuRef"]).run([x.numpy()]), module(x), strict=True):
        np.testing.assert_allclose(result, expected.detach(), rtol=1e-5, atol=1e-6)


class Cells(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
    """A cell for each step of a sequence."""

    def __init__(self, cell: Any) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Any) -> Any:
        state, outputs = None, []
        for step in x.unbind(-1):
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, -1), state


CELLS = {
    "LSTM": partial(torch.nn.LSTMCell, 3, 5),
    "LSTM without biases": partial(torch.nn.LSTMCell, 3, 5, bias=False),
    "GRU": partial(torch.nn.GRUCell, 3, 5),
    "GRU without biases": partial(torch.nn.GRUCell, 3, 5, bias=False),
    "tanh": partial(torch.nn.RNNCell, 3, 5),
    "relu": partial(torch.nn.RNNCell, 3, 5, nonlinearity="relu", bias=False),
}


@pytest.mark.parametrize("title", CELLS)
@pytest.mark.parametrize("shape", [(4, 3, 6), (3, 6)], ids=["batch", "one sequence"])
def test_recurrent_cells_agree_with_eager(title: str, shape: tuple[int, ...]) -> None:
    torch.manual_seed(3)
    module = Cells(CELLS[title]()).eval()
    open_batch = {0: torch.export.Dim.DYNAMIC} if len(shape) == 3 else {}
    x = torch.randn(shape)
    program = torch.export.export(module, (x,), dynamic_shapes=(open_batch,))
    for input in (x, torch.randn(7, *shape[1:])) if open_batch else (x,):
        expected = torch.utils._pytree.tree_leaves(module(input))
        for backends in (["CpuRef"], ["CpuAcc", "CpuRef"]):
            results = ip.load(program, backends).run([input.numpy()])
            for result, tensor in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, tensor.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("title", CELLS)
def test_pytorch_does_not_decompose_a_program_of_recurrent_cells(title: str) -> None:
    program = torch.export.export(
        Cells(CELLS[title]()).eval(), (torch.ones(2, 3, 4),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    assert calls_of("run_decompositions", partial(functional, program)) == 0


def test_the_steps_of_a_cell_share_its_weights() -> None:
    module = Cells(torch.nn.LSTMCell(3, 5)).eval()
    network = frontend.load(torch.export.export(module, (torch.ones(2, 3, 8),)))
    matrices = [layer for layer in network if layer.kind == "Constant" and layer.output.known.shape == (20, 5)]
    assert len(matrices) == 1
