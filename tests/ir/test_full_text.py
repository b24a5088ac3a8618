"""`Network.text` and `Network.parse`: every constant in full, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import DataType, Network, Quantization
from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.ir.equality import same_graph

NUMBERS = [item for item in DataType if item is not DataType.STRING and not item.is_collection]


def holding(array: Any, quantization: Quantization | None = None) -> Network:
    network = Network("held")
    constant = network.add_constant_layer(array, quantization, name="weights")
    network.add_output_layer(0, constant, name="y")
    return network


def every_bit(dtype: DataType, size: int) -> Any:
    """Return elements of random bits, including NaNs of every kind."""
    kind, random = dtype.numpy, np.random.default_rng(size)
    if dtype.bits < 8 and dtype.is_integer:
        return random.integers(0, 2, size).astype(kind)
    raw = random.integers(0, 256, size * kind.itemsize, dtype=np.uint8)
    return (raw & (1 if dtype is DataType.BOOL else (1 << min(dtype.bits, 8)) - 1)).view(kind)


def weights(network: Network) -> Any:
    return network.graph.layer("weights").op.value


@pytest.mark.parametrize("size", [0, 1, 7, 33, 1000])
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_constants_of_every_type_come_back_bit_for_bit(dtype: DataType, size: int) -> None:
    array = every_bit(dtype, size)
    result = Network.parse(holding(array).text())
    assert weights(result).dtype == array.dtype
    assert weights(result).tobytes() == array.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (4, 5, 6)])
def test_shapes_come_back(shape: tuple[int, ...]) -> None:
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    np.testing.assert_array_equal(weights(Network.parse(holding(array).text())), array)


def test_texts_and_scales_come_back() -> None:
    names = np.array(["a", 'say "hi"', "two\nlines", "", "é"], object)
    assert weights(Network.parse(holding(names).text())).tolist() == names.tolist()
    scales = Quantization([0.1, 1 / 3], [0, 0], axis=0)
    network = holding(np.int8([[1, -128], [127, 0]]), scales)
    result = Network.parse(network.text())
    assert same_graph(result.graph, network.graph)
    assert result.graph.layer("weights").output.known.quantization == scales


@pytest.mark.needs_cpuref
def test_a_network_that_was_read_back_gives_the_same_bits() -> None:
    network = Network("dense")
    random = np.random.default_rng(0)
    x = network.add_input_layer(0, ip.TensorInfo(("n", 16)), name="x")
    w = network.add_constant_layer(random.normal(size=(16, 33)).astype(np.float32), name="w")
    network.add_output_layer(0, network.add_fully_connected_layer(x, w, name="dense"), name="y")
    text = network.text()
    assert network.text() == text
    array = random.normal(size=(3, 16)).astype(np.float32)
    expected = ip.load(network, ["CpuRef"])(array)
    np.testing.assert_array_equal(ip.load(Network.parse(text), ["CpuRef"])(array), expected)
    np.testing.assert_array_equal(ip.load(text.encode(), ["CpuRef"])(array), expected)


def test_text_with_elided_constants_cannot_be_read_back() -> None:
    text = holding(np.zeros(100, np.float32)).text(elide=16)
    assert len(text) < 200
    with pytest.raises(ParseError):
        Network.parse(text)
    with pytest.raises(InvalidArgumentError, match="the text form must be a text, not 3"):
        Network.parse(3)  # type: ignore[arg-type]
