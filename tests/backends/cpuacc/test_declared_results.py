"""Results of CpuAcc whose number follows from the data, where the network declares another number."""

from __future__ import annotations

import numpy as np
import pytest

import interposer as ip
from interposer import DataType, Network, TensorInfo
from interposer.core.errors import InvalidValueError
from interposer.ops import Compress, NonZero

pytestmark = pytest.mark.usefixtures("shared_cpuacc")


def non_zero(count: int) -> Network:
    network = Network("places")
    x = network.add_input_layer(0, TensorInfo((8, 8)), name="x")
    places = network.add_layer(NonZero(), x, outputs=[TensorInfo((2, count), DataType.INT64)])
    network.add_output_layer(0, places, name="y")
    return network


def compress(count: int) -> Network:
    network = Network("rows")
    x = network.add_input_layer(0, TensorInfo((8, 8)), name="x")
    condition = network.add_input_layer(1, TensorInfo((8,), DataType.BOOL), name="condition")
    rows = network.add_layer(Compress(axis=0), x, condition, outputs=[TensorInfo((count, 8))])
    network.add_output_layer(0, rows, name="y")
    return network


@pytest.mark.parametrize("count", [3, 65])
def test_places_of_nonzero_elements_have_to_be_as_many_as_declared(count: int) -> None:
    with ip.load(non_zero(count), ["CpuAcc"]) as model:
        with pytest.raises(InvalidValueError, match="the number of results differs from that of the declared shape"):
            model.run([np.ones((8, 8), np.float32)])
        x = np.zeros((8, 8), np.float32)
        x.flat[:count] = 1
        if count <= x.size:
            np.testing.assert_array_equal(model.run([x])[0], np.nonzero(x))


@pytest.mark.parametrize("count", [2, 8])
def test_rows_that_are_chosen_have_to_be_as_many_as_declared(count: int) -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    with ip.load(compress(count), ["CpuAcc"]) as model:
        with pytest.raises(InvalidValueError, match="the number of results differs from that of the declared shape"):
            model.run([x, np.arange(8) < 5])
        np.testing.assert_array_equal(model.run([x, np.arange(8) < count])[0], x[:count])
