"""Attention over caches that are longer than their contents gives on CpuAcc what the reference gives."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, TensorInfo
from interposer.ops import Attention
from tests.backends.cpuacc.single import reference_results
from tests.parameters import one_in

pytestmark = [pytest.mark.usefixtures("shared_cpuacc"), pytest.mark.needs_cpuref]

FORMS = {
    "causal": {"is_causal": True},
    "any order": {},
    "window": {"is_causal": True, "left_window_size": 5},
    "window after": {"left_window_size": 3, "right_window_size": 2},
    "window of one": {"left_window_size": 0, "right_window_size": 0},
    "capped": {"is_causal": True, "softcap": 2.0},
}
MASKS = {"none": None, "numbers": (2, 1, 1, 90), "short": (1, 4, 1, 20), "one column": (2, 1, 1, 1), "one number": ()}


def results_of(network: ip.Network, operands: list[Array], threads: int) -> list[Array]:
    options = {"CpuAcc": {"NumberOfThreads": threads}}
    with ip.load(network, ["CpuAcc"], options=ip.OptimizerOptions(model_options=options)) as model:
        return [np.array(item) for item in model.run(operands)]


def attention(op: Attention, shapes: list[tuple[int, ...]], mask: TensorInfo | None) -> ip.Network:
    network = ip.Network("attention")
    inputs = [network.add_input_layer(n, TensorInfo(shape), name=f"x{n}") for n, shape in enumerate(shapes)]
    lengths = network.add_input_layer(3, TensorInfo((2,), "int32"), name="lengths")
    shown = network.add_input_layer(4, mask, name="mask") if mask is not None else None
    network.add_output_layer(0, network.add_layer(op, *inputs, shown, None, None, lengths))
    return network


@pytest.mark.parametrize(("queries", "form", "mask"), one_in(5, list(product([1, 3, 13], FORMS, MASKS))))
def test_keys_beyond_the_valid_ones_change_nothing(queries: int, form: str, mask: str) -> None:
    rng = np.random.default_rng(queries)
    shapes = [(2, 4, queries, 20), (2, 2, 90, 20), (2, 2, 90, 12)]
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    shape = MASKS[mask]
    info = None if shape is None else TensorInfo(shape)
    for lengths in ([90, 1], [17, 64], [0, 33], [-5, 90]):
        for x, bad in zip(operands[1:], (np.nan, np.inf), strict=True):
            for sample, length in enumerate(lengths):
                x[sample, :, max(0, length) :] = bad
        network = attention(Attention(**FORMS[form]), shapes, info)
        given = [*operands, np.int32(lengths), *([rng.standard_normal(shape).astype(np.float32)] if info else [])]
        [expected] = reference_results(network, given)
        for threads in (1, 2):
            [result] = results_of(network, given, threads)
            np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)
        operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
