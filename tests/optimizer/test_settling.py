"""Layers whose attributes are tensors: they run as they are, and become plain layers where the tensors are known."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidNetworkError
from interposer.core.types import DataType, Dim, TensorInfo
from interposer.ops import (
    Concat,
    DynamicBroadcastTo,
    DynamicReshape,
    DynamicSlice,
    DynamicTopK,
    Fill,
    NonZero,
    Shape,
    Slice,
)

pytestmark = pytest.mark.needs_cpuref


def kinds(model):
    return [layer.kind for layer in model.optimized.graph if layer.backend and layer.kind not in {"Input", "Output"}]


def flattening():
    """Rows of a tensor of unknown dimensions, laid end to end: the shape is computed from that of the input."""
    network = ip.Network()
    x = network.add_input_layer(0, TensorInfo((Dim("n"), 3, Dim("m"))), name="x")
    shape = network.add_layer(Shape(DataType.INT64), x)
    first = network.add_layer(Slice((0,), (1,)), shape)
    rest = network.add_constant_layer(np.int64([-1]))
    target = network.add_layer(Concat(axis=0), first, rest)
    network.add_output_layer(0, network.add_layer(DynamicReshape(), x, target, name="flat"))
    return network


def test_a_shape_computed_from_a_shape_is_known_when_the_input_is():
    model = ip.load(flattening())
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    [result] = model.run([x])
    np.testing.assert_array_equal(result, x.reshape(2, 12))
    assert kinds(model) == ["Reshape"]
    assert model.optimized.graph.layer("flat").kind == "Reshape"


def test_what_follows_from_a_settled_layer_is_settled_in_the_same_round():
    network = flattening()
    flat = network.graph.layer("flat").output
    shape = network.add_layer(Shape(DataType.INT64), flat)
    ones = network.add_layer(Fill(value=1.0), shape)
    wide = network.add_layer(DynamicBroadcastTo(), ones, network.add_constant_layer(np.int64([5, 1, 1])))
    network.add_output_layer(1, wide)
    model = ip.load(network, shapes={"x": (2, 3, 4)})
    assert set(kinds(model)) == {"Reshape"}, str(model.optimized)
    assert model.run([np.zeros((2, 3, 4))])[1].shape == (5, 2, 12)


def test_a_slice_between_constants_without_steps_is_settled():
    network = ip.Network()
    x = network.add_input_layer(0, TensorInfo((5,)))
    bounds = [network.add_constant_layer(np.int64([number])) for number in (1, 4)]
    network.add_output_layer(0, network.add_layer(DynamicSlice((0,)), x, *bounds))
    model = ip.load(network)
    assert model.run([np.arange(5, dtype=np.float32)])[0].tolist() == [1, 2, 3]
    assert not any(kind.startswith("Dynamic") for kind in kinds(model))


def test_extents_that_do_not_fit_are_told_when_they_are_known():
    network = ip.Network("broken")
    x = network.add_input_layer(0, TensorInfo((Dim("n"),)), name="x")
    shape = network.add_constant_layer(np.int64([2, 3]))
    network.add_output_layer(0, network.add_layer(DynamicReshape(), x, shape, name="laid"))
    with pytest.raises(InvalidNetworkError, match=r"layer 'laid' \(DynamicReshape\): an input of shape \[5\]"):
        ip.load(network).run([np.zeros(5)])


def test_what_depends_on_data_runs_as_it_is():
    network = ip.Network()
    x = network.add_input_layer(0, TensorInfo((6,)), name="x")
    places = network.add_layer(NonZero(), x)
    count = network.add_layer(Slice((1,), (1,)), network.add_layer(Shape(DataType.INT64), places))
    zero = network.add_constant_layer(np.int64([0]))
    network.add_output_layer(0, network.add_layer(DynamicSlice((0,)), x, zero, count))
    top = network.add_layer(DynamicTopK(), x, count)
    network.add_output_layer(1, top.outputs[0])
    model = ip.load(network)
    for x in ([0, 3, 0, 1, 0, 2], [1, 1, 1, 1, 1, 2], [0, 0, 0, 0, 0, 0]):
        array, count = np.float32(x), np.count_nonzero(x)
        head, best = model.run([array])
        np.testing.assert_array_equal(head, array[:count])
        np.testing.assert_array_equal(best, np.sort(array)[::-1][:count])
