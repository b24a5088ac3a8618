"""Weights that change after a program was loaded or a module was compiled: no result has the old ones."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

import interposer as ip
from interposer.session.torch import clear_fallbacks, fallbacks, interposer
from interposer.session.torch.watching import Watch
from tests.parameters import one_in
from tests.session.torch.modules import check_both, check_same, torch, twins

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]


def layers() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def multiply(module: Any) -> None:
    module[0].weight.mul_(2)


def assign_data(module: Any) -> None:
    module[0].weight.data = torch.ones(8, 4)


def write_data(module: Any) -> None:
    module[2].bias.data.fill_(5)


def write_array(module: Any) -> None:
    module[2].bias.numpy()[:] = 3


def load_weights(module: Any) -> None:
    module.load_state_dict({name: tensor + 1 for name, tensor in module.state_dict().items()})


def write_to_a_view(module: Any) -> None:
    module[0].weight.t()[1:3].zero_()


def replace(module: Any) -> None:
    module[0].weight = torch.nn.Parameter(torch.full((8, 4), 0.5), requires_grad=False)


IN_PLACE = [multiply, assign_data, write_data, write_array, load_weights, write_to_a_view]


@pytest.mark.parametrize("change", one_in(3, IN_PLACE))
def test_a_loaded_program_has_the_weights_that_the_module_has_now(change: Callable[[Any], None]) -> None:
    module, other = twins(layers())
    model = ip.load(torch.export.export(module, (torch.ones(2, 4),)))
    check_both(model, other, torch.randn(2, 4))
    for each in (module, other):
        change(each)
    x = torch.randn(2, 4)
    check_both(model, other, x)
    torch.testing.assert_close(torch.from_numpy(model.run([x])[0]), other(x))


def test_bound_runs_have_the_weights_that_the_module_has_now() -> None:
    module, other = twins(layers())
    x = torch.randn(2, 4)
    model = ip.load(torch.export.export(module, (x,)))
    with model.bind([x]) as bound:
        torch.testing.assert_close(torch.from_numpy(bound()[0]), other(x))
        for each in (module, other):
            multiply(each)
        for _ in range(2):
            torch.testing.assert_close(torch.from_numpy(bound()[0]), other(x))


def test_each_change_of_a_small_tensor_is_noticed() -> None:
    module, other = twins(torch.nn.Linear(15, 17))
    x = torch.ones(1, 15)
    model = ip.load(torch.export.export(module, (x,)))
    for index in (0, 9, 16):
        for each in (module, other):
            each.bias.numpy()[index] += 5
        check_both(model, other, x)


def test_refresh_reads_changes_that_pytorch_does_not_count() -> None:
    module, other = twins(torch.nn.Linear(64, 64))
    model = ip.load(torch.export.export(module, (torch.ones(1, 64),)))
    model(torch.ones(1, 64))
    for each in (module, other):
        each.weight.numpy()[1, 1] = 100
    model.refresh()
    check_both(model, other, torch.ones(1, 64))


def test_equal_weights_of_two_modules_are_not_shared() -> None:
    module, other = twins(torch.nn.Linear(128, 128))
    models = [ip.load(torch.export.export(item, (torch.ones(1, 128),))) for item in (module, other)]
    for model in models:
        model(torch.ones(1, 128))
    module.weight.zero_()
    check_both(models[1], other, torch.ones(1, 128))
    check_both(models[0], module, torch.ones(1, 128))


def test_states_survive_a_change_of_weights() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return x * self.weight * self.calls

    module, other = twins(Counting())
    model = ip.load(torch.export.export(module, (torch.ones(2),)))
    check_both(model, other, torch.ones(2))
    for each in (module, other):
        each.weight.mul_(3)
    check_both(model, other, torch.ones(2))


@pytest.mark.parametrize("change", one_in(3, [*IN_PLACE, replace]))
def test_a_compiled_module_has_the_weights_that_it_has_now(change: Callable[[Any], None]) -> None:
    torch._dynamo.reset()
    clear_fallbacks()
    module, other = twins(layers())
    function = torch.compile(module, backend=interposer)
    check_both(function, other, torch.randn(2, 4))
    for _ in range(5):  # a weight that changes often becomes an input
        for each in (module, other):
            change(each)
        check_both(function, other, torch.randn(2, 4))
    assert not fallbacks()


def test_a_compiled_module_has_the_weights_after_a_step_of_training() -> None:
    torch._dynamo.reset()
    module = layers()
    function = torch.compile(module, backend=interposer)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(4):
        x = torch.randn(2, 4)
        with torch.no_grad():
            check_same(function(x), copy.deepcopy(module)(x))
        optimizer.zero_grad()
        module(x).square().sum().backward()
        optimizer.step()


def test_changes_are_noticed_in_tensors_of_all_kinds() -> None:
    tensors = [
        torch.randn(4, 4).t(), torch.randn(3, dtype=torch.bfloat16), torch.tensor(3), torch.zeros(0),
        torch.full((2,), float("nan")), torch.randn(3, dtype=torch.complex64), torch.tensor([True]),
    ]  # fmt: skip
    for tensor in tensors:
        watch = Watch(tensors)
        assert not watch.has_changed()
        tensor.add_(1) if tensor.dtype is not torch.bool else tensor.logical_not_()
        assert watch.has_changed()


@pytest.mark.parametrize("transposed", [False, True])
def test_each_change_of_a_tensor_of_inference_mode_is_noticed(transposed: bool) -> None:
    with torch.inference_mode():
        tensor = torch.randn(40, 64)
        tensor = tensor.t() if transposed else tensor
        for place in ((3, 7), (0, 1), (39, 39)):
            watch = Watch([tensor])
            assert not watch.has_changed()
            tensor[place] += 1
            assert watch.has_changed()


def test_a_call_that_begins_after_a_change_has_the_new_weights_in_every_thread() -> None:
    module = torch.nn.Linear(4, 1).eval()
    x, results, changed, ended = torch.zeros(1, 4), [], [0.0], threading.Event()
    with torch.no_grad():
        module.bias.zero_()
        model = ip.load(torch.export.export(module, (x,)))

    def call() -> None:
        while not ended.is_set():
            least = changed[0]
            results.append((least, model(x).item()))

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    with torch.no_grad():
        for number in range(1, 60):
            module.bias.fill_(number)
            changed[0] = float(number)
            ended.wait(0.003)
    ended.set()
    for thread in threads:
        thread.join()
    assert results
    assert [pair for pair in results if pair[1] < pair[0]] == []
