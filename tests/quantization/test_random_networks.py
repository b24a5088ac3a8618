"""Random float networks, quantized with each scheme: valid, explained layer by layer, and equal on both backends."""

from __future__ import annotations

import re

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidArgumentError
from interposer.quantization import SCHEMES, STORAGE, quantize
from interposer.testing.random_networks import random_network
from tests.parameters import one_in

pytestmark = pytest.mark.needs_cpuref
CASES = [(number, scheme) for number in range(24) for scheme in (*SCHEMES, *STORAGE)]


@pytest.mark.parametrize(("number", "scheme"), one_in(5, CASES))
def test_a_random_network_is_quantized_or_left_in_float_with_a_reason(number, scheme, cpuacc):
    random = random_network(1, number, kind="float")
    inputs = {layer.name: random.feeds[number_of_input] for number_of_input, layer in random.network.inputs.items()}
    try:
        quantized = quantize(random.network, [inputs], scheme=scheme)
    except InvalidArgumentError as error:
        assert re.search("calibration data must be finite|the network is quantized already", str(error))
        return
    quantized.validate()
    layers = {layer.name for layer in quantized.report.layers}
    assert layers <= {layer.name for layer in quantized}
    assert all(layer.reason != "" or layer.is_quantized for layer in quantized.report.layers)
    first, second = (ip.load(quantized, ids).run(inputs) for ids in (["CpuRef"], ["CpuAcc", "CpuRef"]))
    for a, b in zip(first, second, strict=True):
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            finite = np.isfinite(a)
            largest = float(np.abs(a[finite]).max(initial=0))
            np.testing.assert_allclose(a[finite], b[finite], atol=0.03 * largest + 1e-30, rtol=0)
