"""Arguments of the wrong kind for public methods: an error of ours for every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InterposerError

pytestmark = pytest.mark.needs_cpuref
X = np.ones(4, np.float32)
WRONG: list[Any] = ["a", 1.5, object(), [1], [None], {"x": 1}, b"x", np.ones(3), [X, X], {0: [[1], [1, 2]]}]


@pytest.fixture(scope="module")
def model() -> ip.Model:
    network = ip.Network("twice")
    x = network.add_input_layer(0, ip.TensorInfo((4,)), name="x")
    network.add_output_layer(0, network.add_addition_layer(x, x), name="y")
    return ip.load(network, "CpuRef", runtime=ip.Runtime())


CALLS: dict[str, Callable[[ip.Model, int, Any], object]] = {
    "run": lambda model, number, wrong: model.run(wrong),
    "outputs": lambda model, number, wrong: model.run([X], wrong),
    "bind": lambda model, number, wrong: model.bind([X], wrong),
    "import": lambda model, number, wrong: model.import_inputs(wrong),
    "enqueue": lambda model, number, wrong: model.runtime.enqueue_workload(number, wrong),
    "numbers": lambda model, number, wrong: model.runtime.enqueue_workload(number, {0: X}, imported_inputs=wrong),
    "submit": lambda model, number, wrong: model.runtime.submit(number, wrong).result(),
    "arrays": lambda model, number, wrong: model.runtime.imported_arrays(number, "input", wrong),
    "reasons": lambda model, number, wrong: model.runtime.copy_reasons(number, [wrong]),
    "registry": lambda model, number, wrong: model.runtime.registry.get(wrong),
    "placement": lambda model, number, wrong: ip.OptimizerOptions(placement=wrong),
    "protected": lambda model, number, wrong: ip.CreationOptions(protected_mode=wrong),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: type(wrong).__name__)
def test_what_cannot_be_meant_is_an_error_of_ours(
    model: ip.Model, call: Callable[[ip.Model, int, Any], object], wrong: Any
) -> None:
    [number] = model.runtime.loaded_networks
    with pytest.raises(InterposerError):
        call(model, number, wrong)


@pytest.mark.parametrize("wrong", ["a", [1], 0, float("nan")])
def test_a_budget_is_a_number_of_seconds(model: ip.Model, wrong: Any) -> None:
    with pytest.raises(InterposerError, match="^budget_seconds must be more than 0, and finite"):
        model.explain(measure=True, budget_seconds=wrong)
