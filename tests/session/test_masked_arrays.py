"""Arrays of `numpy.ma`: elements that are masked have no value, so that they are refused and never read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InterposerError

pytestmark = pytest.mark.needs_cpuref
NETWORK = b"""graph "twice" {
  %x = Input : float32[4]
  %sum = Addition %x, %x
  Output %sum as "y"
}"""
X = np.float32([1, 2, 3, 4])
MASKED = np.ma.masked_array(X, mask=[0, 1, 0, 1])
REFUSAL = "an array of numpy.ma with 2 of 4 elements masked, and masks are not read; pass array.filled"


@pytest.fixture(scope="module")
def model() -> ip.Model:
    return ip.load(NETWORK, "CpuRef", runtime=ip.Runtime())


CALLS: dict[str, Callable[[ip.Model], object]] = {
    "call": lambda model: model(MASKED),
    "run": lambda model: model.run({"x": MASKED}),
    "submit": lambda model: model.submit([MASKED]).result(),
    "bind": lambda model: model.bind([MASKED]),
    "outputs": lambda model: model.run([X], [MASKED]),
    "enqueue": lambda model: model.runtime.enqueue_workload(model.runtime.loaded_networks[0], {0: MASKED}),
    "values": lambda model: ip.load(NETWORK, "CpuRef", values={"x": MASKED}),
    "samples": lambda model: ip.quantize(NETWORK, [MASKED]),
    "state": lambda model: ip.Network("state").add_state("s", ip.TensorInfo((4,)), MASKED),
    "compute": lambda model: ip.compute(ip.ops.Addition(), MASKED, X),
    "constant": lambda model: ip.Network("constant").add_constant_layer(MASKED),
    "info": lambda model: ip.TensorInfo.of(MASKED),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_masked_elements_are_refused(model: ip.Model, call: Callable[[ip.Model], object]) -> None:
    model(X)
    with pytest.raises(InterposerError, match=REFUSAL):
        call(model)
    np.testing.assert_array_equal(model(X), X + X)


@pytest.mark.parametrize("array", [np.ma.masked_array(X), np.rec.array(X).view(np.ndarray), np.memmap], ids=str)
def test_an_array_of_a_subclass_is_read_as_a_plain_one(model: ip.Model, array: Any, tmp_path: Any) -> None:
    if array is np.memmap:
        array = np.memmap(tmp_path / "x", np.float32, "w+", shape=(4,))
        array[...] = X
    outputs = model.run([array])
    assert [type(output) for output in outputs] == [np.ndarray]
    np.testing.assert_array_equal(outputs[0], X + X)
