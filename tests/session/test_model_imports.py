"""Models that read and write memory of their users in place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import interposer as ip
from interposer import MemoryDescriptor, Network, Runtime, TensorInfo
from interposer.backend import KernelTable
from interposer.core.errors import BindingError, InvalidArgumentError, MemoryImportError
from interposer.core.types import Array, TensorShape
from interposer.ops import Addition
from interposer.session import Model
from interposer.session.shapes import as_template
from tests.devices import Device, Sums

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    with Runtime() as runtime:
        for backend in (Sums, Device):
            runtime.registry.register(backend.id, backend)
        yield runtime


def calculation(*shape: Any) -> Network:
    network = Network("calculation")
    a, b = (network.add_input_layer(number, TensorInfo(shape), name=name) for number, name in enumerate("ab"))
    both = network.add_layer(Addition(), a, b)
    network.add_output_layer(0, both, name="sum")
    network.add_output_layer(1, network.add_multiplication_layer(both, b), name="y")
    return network


@pytest.fixture
def model(runtime: Runtime) -> Model:
    return ip.load(calculation(2, 3), ["Sums"], runtime=runtime)


def test_calls_read_and_write_what_was_imported(model: Model) -> None:
    a, total, y = X.copy(), np.zeros_like(X), np.zeros_like(X)
    with model.import_inputs([a, X]) as inputs, model.import_outputs({"y": y, "sum": total}) as outputs:
        for _ in range(3):
            a += 1
            result = model.run(inputs, outputs)
            np.testing.assert_array_equal(total, a + X)
            np.testing.assert_array_equal(y, (a + X) * X)
            assert all(np.shares_memory(item, target) for item, target in zip(result, (total, y), strict=True))
        assert np.shares_memory(inputs.arrays["a"], a)
        assert repr(outputs) == "<ImportedTensors outputs y: float32[2, 3], sum: float32[2, 3]>"


def test_each_side_may_be_imported_alone(model: Model) -> None:
    total, y = np.zeros_like(X), np.zeros_like(X)
    inputs, outputs = model.import_inputs({"b": X, "a": X}), model.import_outputs([total, y])
    np.testing.assert_array_equal(model.run(inputs)[1], 2 * X * X)
    model.run([X + 1, X.tolist()], outputs)
    np.testing.assert_array_equal(total, 2 * X + 1)
    model.run(inputs, [total, y], deadline=600)
    np.testing.assert_array_equal(y, 2 * X * X)


def test_outputs_go_where_they_are_wanted(model: Model) -> None:
    total, y = np.zeros_like(X), bytearray(24)
    outputs = model.run([X, X], {"sum": total, "y": memoryview(y).cast("f", (2, 3))})
    assert outputs[0] is total
    np.testing.assert_array_equal(np.frombuffer(y, np.float32).reshape(2, 3), 2 * X * X)


def test_descriptors_are_memory_like_any_other(model: Model) -> None:
    fd = os.memfd_create("test")
    os.ftruncate(fd, 48)
    inputs = model.import_inputs([MemoryDescriptor(fd), MemoryDescriptor(fd, offset=24)])
    os.pwrite(fd, X.tobytes() * 2, 0)
    os.close(fd)
    np.testing.assert_array_equal(model.run(inputs)[0], 2 * X)


def test_a_descriptor_has_the_usual_shape_where_dimensions_are_open(runtime: Runtime) -> None:
    template = as_template(calculation("rows", 3), {"a": TensorShape((2, 3)), "b": TensorShape((2, 3))})
    model = ip.load(template, ["Sums"], runtime=runtime)
    fd = os.memfd_create("test")
    os.ftruncate(fd, 48)
    inputs = model.import_inputs([MemoryDescriptor(fd), MemoryDescriptor(fd, offset=24)])
    os.pwrite(fd, X.tobytes() * 2, 0)
    os.close(fd)
    np.testing.assert_array_equal(model.run(inputs)[0], 2 * X)


def test_open_shapes_become_those_of_the_import(runtime: Runtime) -> None:
    model = ip.load(calculation("rows", 3), ["Sums"], runtime=runtime)
    with pytest.raises(InvalidArgumentError, match="are not known yet"):
        model.import_outputs([X, X])
    inputs = model.import_inputs([X, X])
    outputs = model.import_outputs([np.zeros_like(X), np.zeros_like(X)])
    for rows in range(3, 15):
        model.run([np.ones((rows, 3), np.float32)] * 2)
    np.testing.assert_array_equal(model.run(inputs, outputs)[1], 2 * X * X)
    with pytest.raises(InvalidArgumentError, match="a descriptor does not define its sizes"):
        model.import_inputs([MemoryDescriptor(0), X])
    for item in (inputs, outputs):
        item.close()
    for rows in range(3, 15):
        model.run([np.ones((rows, 3), np.float32)] * 2)
    assert len(runtime.loaded_networks) == 8


def test_wrong_use_is_named(model: Model, runtime: Runtime) -> None:
    inputs, outputs = model.import_inputs([X, X]), model.import_outputs([X.copy(), X.copy()])
    other = ip.load(calculation(2, 3), ["Sums"], runtime=runtime)
    with pytest.raises(InvalidArgumentError, match="these inputs were imported by another model"):
        other.run(inputs)
    with pytest.raises(InvalidArgumentError, match="these are outputs, given for inputs"):
        model.run(outputs, inputs)
    with pytest.raises(BindingError, match="the model has no output 'sun'; did you mean 'sum'"):
        model.import_outputs({"sun": X})
    with pytest.raises(BindingError, match=r"1 outputs were given; the model has 2 \('sum', 'y'\)"):
        model.run([X, X], [X])
    with pytest.raises(BindingError, match="outputs are a list of arrays or a mapping by name, not ndarray"):
        model.run([X, X], X)
    with pytest.raises(MemoryImportError, match=r"input 1 \(b\) cannot be imported: it is float64; expected float32"):
        model.import_inputs([X, X.astype(np.float64)])
    with pytest.raises(BindingError, match="no array was given for 'b'"):
        model.import_inputs({"a": X})
    inputs.close()
    inputs.close()
    with pytest.raises(InvalidArgumentError, match="these inputs are closed; import them again"):
        model.run(inputs, outputs)
    model.close()
    with pytest.raises(InvalidArgumentError, match="the model 'calculation' is closed"):
        model.run([X, X], outputs)
    outputs.close()


broken = KernelTable()


@broken(Addition)
def fail(op: Addition, a: Array, b: Array) -> Array:
    raise RuntimeError("worn out")


class Broken(Sums):
    id: ClassVar = "Broken"
    kernels: ClassVar = broken


def test_imports_move_on_where_a_backend_failed(runtime: Runtime) -> None:
    runtime.registry.register("Broken", Broken)
    model = ip.load(calculation(2, 3), ["Broken", "Sums"], runtime=runtime, fallback=True)
    total, y = np.zeros_like(X), np.zeros_like(X)
    inputs, outputs = model.import_inputs([X, X]), model.import_outputs([total, y])
    for _ in range(2):
        y[:] = 0
        model.run(inputs, outputs)
        np.testing.assert_array_equal(y, 2 * X * X)
    assert len(model.events) == 1
    assert inputs.network_id == model.runtime.loaded_networks[-1]


def test_a_model_whose_layers_depend_on_values_takes_them_in_each_call(runtime: Runtime) -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "shape"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [6]), helper.make_tensor_value_info("shape", 7, [2])],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    model = ip.load(helper.make_model(graph), ["CpuRef"], runtime=runtime)
    with pytest.raises(
        InvalidArgumentError, match="the values of 'shape', which may change; give these inputs to each"
    ):
        model.import_inputs([np.zeros(6, np.float32), np.int64([2, 3])])
