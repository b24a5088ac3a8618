"""Layers that releases of Arm NN after 20.08 added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarmnn as ann
import pytest

Arrays = Sequence[np.ndarray[Any, Any]]
TYPES = {
    "float32": ann.DataType_Float32, "float16": ann.DataType_Float16, "int32": ann.DataType_Signed32,
    "bool": ann.DataType_Boolean,
}  # fmt: skip


def info(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    return ann.TensorInfo(ann.TensorShape(shape or (1,)), TYPES[dtype])


def run(
    add: Callable[[Any], Any], inputs: Arrays, shapes: Sequence[tuple[int, ...]], dtype: str = "float32",
    constants: Arrays = (),
) -> list[np.ndarray[Any, Any]]:  # fmt: skip
    """Run a network of one layer: its inputs are arrays, followed by constants; `shapes` are those of its outputs."""
    network = ann.INetwork()
    layer = add(network)
    for slot, array in enumerate(inputs):
        source = network.AddInputLayer(slot)
        source.GetOutputSlot(0).Connect(layer.GetInputSlot(slot))
        source.GetOutputSlot(0).SetTensorInfo(info(array.shape, array.dtype.name))
    for slot, array in enumerate(constants, len(inputs)):
        described = info(array.shape, array.dtype.name)
        source = network.AddConstantLayer(ann.ConstTensor(described, array))
        source.GetOutputSlot(0).Connect(layer.GetInputSlot(slot))
        source.GetOutputSlot(0).SetTensorInfo(described)
    for slot, shape in enumerate(shapes):
        output_layer = network.AddOutputLayer(slot)
        layer.GetOutputSlot(slot).Connect(output_layer.GetInputSlot(0))
        layer.GetOutputSlot(slot).SetTensorInfo(info(shape, dtype))
    return optimized_and_run(network, inputs, shapes, dtype)


def optimized_and_run(network: Any, inputs: Arrays, shapes: Sequence[tuple[int, ...]], dtype: str) -> Any:
    runtime = ann.IRuntime(ann.CreationOptions())
    preferred, spec = [ann.BackendId("CpuRef")], runtime.GetDeviceSpec()
    optimized, _ = ann.Optimize(network, preferred, spec, ann.OptimizerOptions())
    number, _ = runtime.LoadNetwork(optimized)
    sources = [(place, info(array.shape, array.dtype.name)) for place, array in enumerate(inputs)]
    targets = ann.make_output_tensors([(place, info(shape, dtype)) for place, shape in enumerate(shapes)])
    runtime.EnqueueWorkload(number, ann.make_input_tensors(sources, [array.copy() for array in inputs]), targets)
    return ann.workload_tensors_to_ndarray(targets)


def described(descriptor: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        setattr(descriptor, name, value)
    return descriptor


X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 10
Y = np.flip(X, 2).copy() + 3


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ann.ReduceOperation_Sum, np.sum), (ann.ReduceOperation_Max, np.max), (ann.ReduceOperation_Mean, np.mean),
        (ann.ReduceOperation_Min, np.min), (ann.ReduceOperation_Prod, np.prod),
    ],
)  # fmt: skip
def test_reduce_reduces_the_axes_of_its_descriptor(operation: int, expected: Any):
    descriptor = described(ann.ReduceDescriptor(), m_vAxis=[1], m_KeepDims=True, m_ReduceOperation=operation)
    [output] = run(lambda network: network.AddReduceLayer(descriptor, "reduce"), [X], [(2, 1, 4)])
    np.testing.assert_allclose(output, expected(X, axis=1, keepdims=True), rtol=1e-6)


def test_cast_converts_to_the_type_of_its_output():
    [output] = run(lambda network: network.AddCastLayer("cast"), [X + np.float32(0.5)], [X.shape], "int32")
    np.testing.assert_array_equal(output, (X + 0.5).astype(np.int32))


def test_shape_returns_the_sizes():
    [output] = run(lambda network: network.AddShapeLayer(), [X], [(3,)], "int32")
    assert output.tolist() == [2, 3, 4]


def test_channel_shuffle_interleaves_groups():
    descriptor = ann.ChannelShuffleDescriptor(2, 2)
    [output] = run(lambda network: network.AddChannelShuffleLayer(descriptor), [X], [X.shape])
    np.testing.assert_array_equal(output, X[:, :, [0, 2, 1, 3]])


def test_a_convolution_of_volumes_has_weights_and_biases_as_inputs():
    volume, weights = np.ones((1, 2, 2, 2, 1), np.float32), np.full((2, 2, 2, 1, 1), 0.5, np.float32)
    descriptor = described(ann.Convolution3dDescriptor(), m_BiasEnabled=True)
    [output] = run(
        lambda network: network.AddConvolution3dLayer(descriptor, "convolution"),
        [volume], [(1, 1, 1, 1, 1)], constants=[weights, np.float32([3])],
    )  # fmt: skip
    assert output.ravel().tolist() == [7.0]


def constant(array: np.ndarray[Any, Any]) -> Any:
    declared = info(array.shape)
    declared.SetConstant()
    return ann.ConstTensor(declared, array)


def windowed(descriptor: Any) -> Any:
    return described(descriptor, m_DataLayout=ann.DataLayout_NHWC, m_StrideX=1, m_StrideY=1, m_BiasEnabled=True)


IMAGE = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2)
FILTERS = np.linspace(-1, 1, 54, dtype=np.float32).reshape(3, 3, 3, 2)
COLUMNS = np.linspace(-1, 1, 36, dtype=np.float32).reshape(1, 3, 3, 4)


@pytest.mark.parametrize(
    ("method", "descriptor", "image", "weights", "stored", "shape"),
    [
        ("AddConvolution2dLayer", windowed(ann.Convolution2dDescriptor()), IMAGE, FILTERS, FILTERS, (1, 2, 2, 3)),
        (
            "AddDepthwiseConvolution2dLayer", windowed(ann.DepthwiseConvolution2dDescriptor()), IMAGE, COLUMNS,
            np.ascontiguousarray(COLUMNS.reshape(3, 3, 2, 2).transpose(3, 2, 0, 1)), (1, 2, 2, 4),
        ),
        (
            "AddFullyConnectedLayer", described(ann.FullyConnectedDescriptor(), m_BiasEnabled=True), X[0],
            Y[0].T.copy(), Y[0].T.copy(), (3, 3),
        ),
    ],
)  # fmt: skip
def test_weights_and_biases_may_be_inputs(
    method: str, descriptor: Any, image: Any, weights: Any, stored: Any, shape: tuple[int, ...]
):
    biases = np.linspace(1, 2, shape[-1], dtype=np.float32)
    [as_inputs] = run(
        lambda network: getattr(network, method)(descriptor, "layer"), [image], [shape], constants=[weights, biases]
    )
    [as_constants] = run(
        lambda network: getattr(network, method)(descriptor, constant(stored), constant(biases), "layer"),
        [image], [shape],
    )  # fmt: skip
    np.testing.assert_array_equal(as_inputs, as_constants)


def test_a_layer_has_one_name():
    with pytest.raises(TypeError, match="INetwork_AddConvolution2dLayer"):
        ann.INetwork().AddConvolution2dLayer(windowed(ann.Convolution2dDescriptor()), "a", name="b")


def model_options(*values: tuple[str, Any]) -> Any:
    options = ann.OptimizerOptions()
    backend = ann.BackendOptions(ann.BackendId("CpuAcc"))
    for value in values:
        backend.AddOption(ann.BackendOption(*value))
    options.m_ModelOptions = [backend]
    return options


def test_options_of_backends_reach_the_backend(monkeypatch):
    monkeypatch.delenv("INTERPOSER_DISABLED_BACKENDS", raising=False)
    [backend] = model_options(("NumberOfThreads", 2), ("FastMathEnabled", True)).m_ModelOptions
    assert (str(backend.GetBackendId()), backend.GetOptionCount(), len(backend)) == ("CpuAcc", 2, 2)
    assert [option.GetName() for option in ann.BackendOptions(backend)] == ["NumberOfThreads", "FastMathEnabled"]
    spec, preferred = ann.IRuntime(ann.CreationOptions()).GetDeviceSpec(), [ann.BackendId("CpuAcc")]
    if "CpuAcc" not in map(str, spec.GetSupportedBackends()):
        pytest.skip("CpuAcc was not built")
    network = ann.INetwork()
    source, target = network.AddInputLayer(0), network.AddOutputLayer(0)
    layer = network.AddFloorLayer()
    source.GetOutputSlot(0).Connect(layer.GetInputSlot(0))
    layer.GetOutputSlot(0).Connect(target.GetInputSlot(0))
    for slot in (source.GetOutputSlot(0), layer.GetOutputSlot(0)):
        slot.SetTensorInfo(info((2,)))
    ann.Optimize(network, preferred, spec, model_options(("NumberOfThreads", 2)))
    with pytest.raises(RuntimeError, match="NumberOfThreads"):
        ann.Optimize(network, preferred, spec, model_options(("NumberOfThreads", "many")))


def test_options_of_backends_have_plain_values():
    with pytest.raises(TypeError, match=r"BackendOption::BackendOption\(std::string,bool\)"):
        ann.BackendOption("NumberOfThreads", [2])


def test_an_info_can_be_declared_constant():
    declared = info((2, 3))
    assert not declared.IsConstant()
    declared.SetConstant()
    assert ann.TensorInfo(declared).IsConstant()


def test_pooling_of_volumes_takes_windows():
    volume = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 2, 2)
    fields = {"m_PoolWidth": 2, "m_PoolHeight": 2, "m_PoolDepth": 2, "m_StrideX": 1, "m_StrideY": 1, "m_StrideZ": 1}
    descriptor = described(ann.Pooling3dDescriptor(), m_PoolType=ann.PoolingAlgorithm_Average, **fields)
    [output] = run(lambda network: network.AddPooling3dLayer(descriptor), [volume], [(1, 1, 1, 1, 1)])
    assert output.ravel().tolist() == [3.5]


def test_gather_nd_reads_slices_at_indices():
    indices = np.int32([[1, 2], [0, 0]])
    [output] = run(lambda network: network.AddGatherNdLayer(), [X, indices], [(2, 4)])
    np.testing.assert_array_equal(output, X[[1, 0], [2, 0]])


def test_batch_mat_mul_multiplies_the_last_dimensions():
    descriptor = described(ann.BatchMatMulDescriptor(), m_TransposeY=True)
    [output] = run(lambda network: network.AddBatchMatMulLayer(descriptor), [X, Y], [(2, 3, 3)])
    np.testing.assert_allclose(output, X @ Y.transpose(0, 2, 1), rtol=1e-6)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ann.BinaryOperation_Add, np.add), (ann.BinaryOperation_Div, np.divide), (ann.BinaryOperation_Sub, np.subtract),
        (ann.BinaryOperation_Maximum, np.maximum), (ann.BinaryOperation_Minimum, np.minimum),
        (ann.BinaryOperation_Mul, np.multiply), (ann.BinaryOperation_SqDiff, lambda x, y: (x - y) ** 2),
    ],
)  # fmt: skip
def test_elementwise_binary_broadcasts(operation: int, expected: Any):
    row = np.float32([1, -2, 3, 4])
    descriptor = ann.ElementwiseBinaryDescriptor(operation)
    [output] = run(lambda network: network.AddElementwiseBinaryLayer(descriptor), [X, row], [X.shape])
    np.testing.assert_allclose(output, expected(X, row), rtol=1e-6)


def test_tile_repeats_dimensions():
    descriptor = ann.TileDescriptor([1, 2, 1])
    [output] = run(lambda network: network.AddTileLayer(descriptor), [X], [(2, 6, 4)])
    np.testing.assert_array_equal(output, np.tile(X, (1, 2, 1)))


def test_reverse_reverses_the_axes_of_its_second_input():
    add = lambda network: network.AddReverseV2Layer("reverse")  # noqa: E731 - as all others
    [output] = run(add, [X], [X.shape], constants=[np.int32([2])])
    np.testing.assert_array_equal(output, X[:, :, ::-1])


def test_transpose_maps_the_result_to_the_input():
    descriptor = ann.TransposeDescriptor(ann.PermutationVector((2, 0, 1)))
    [output] = run(lambda network: network.AddTransposeLayer(descriptor), [X], [(4, 2, 3)])
    np.testing.assert_array_equal(output, X.transpose(2, 0, 1))


def test_scatter_nd_changes_elements_at_indices():
    inputs = [np.zeros(5, np.float32), np.int32([[1], [3]]), np.float32([7, 9])]
    [output] = run(lambda network: network.AddScatterNdLayer(ann.ScatterNdDescriptor()), inputs, [(5,)])
    assert output.tolist() == [0, 7, 0, 9, 0]


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (ann.UnaryOperation_Abs, np.abs), (ann.UnaryOperation_Neg, np.negative), (ann.UnaryOperation_Sin, np.sin),
        (ann.UnaryOperation_Ceil, np.ceil), (ann.UnaryOperation_Exp, np.exp),
    ],
)  # fmt: skip
def test_elementwise_unary_has_later_functions(operation: int, expected: Any):
    x = X / np.float32(8)
    descriptor = described(ann.ElementwiseUnaryDescriptor(), m_Operation=operation)
    [output] = run(lambda network: network.AddElementwiseUnaryLayer(descriptor), [x], [x.shape])
    np.testing.assert_allclose(output, expected(x), rtol=1e-5)


def lstm_parameters(width: int, units: int) -> tuple[Any, dict[str, np.ndarray[Any, Any]]]:
    """Return the parameters of an LSTM layer without an input gate, and their arrays."""
    params, arrays = ann.LstmInputParams(), {}
    random = np.random.RandomState(1)
    for gate in ("Forget", "Cell", "Output"):
        arrays |= {f"m_InputTo{gate}Weights": (units, width), f"m_RecurrentTo{gate}Weights": (units, units)}
    arrays |= {"m_ForgetGateBias": (units,), "m_CellBias": (units,), "m_OutputGateBias": (units,)}
    values = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in arrays.items()}
    for name, array in values.items():
        setattr(params, name, ann.ConstTensor(info(array.shape), array.copy()))
    return params, values


def test_a_sequence_lstm_returns_its_states_and_the_sequence():
    params, w = lstm_parameters(3, 2)
    x = np.random.RandomState(2).uniform(-1, 1, (1, 4, 3)).astype(np.float32)
    zeros = np.zeros((1, 2), np.float32)
    descriptor = described(ann.UnidirectionalSequenceLstmDescriptor(), m_ActivationFunc=4)
    add = lambda network: network.AddUnidirectionalSequenceLstmLayer(descriptor, params, "lstm")  # noqa: E731
    state, cell, sequence = run(add, [x, zeros, zeros], [(1, 2), (1, 2), (1, 4, 2)])
    h, c, expected = zeros, zeros, []
    for step in range(4):
        gates = {}
        for gate, bias in (("Forget", "ForgetGate"), ("Cell", "Cell"), ("Output", "OutputGate")):
            products = x[:, step] @ w[f"m_InputTo{gate}Weights"].T + h @ w[f"m_RecurrentTo{gate}Weights"].T
            gates[gate] = products + w[f"m_{bias}Bias"]
        forget, out = 1 / (1 + np.exp(-gates["Forget"])), 1 / (1 + np.exp(-gates["Output"]))
        c = forget * c + (1 - forget) * np.tanh(gates["Cell"])
        h = out * np.tanh(c)
        expected.append(h)
    np.testing.assert_allclose(sequence, np.stack(expected, 1), atol=1e-5)
    np.testing.assert_allclose(state, h, atol=1e-5)
    np.testing.assert_allclose(cell, c, atol=1e-5)


def test_a_descriptor_of_another_layer_is_refused():
    with pytest.raises(TypeError, match="'INetwork_AddReduceLayer'"):
        ann.INetwork().AddReduceLayer(ann.MeanDescriptor())


@pytest.mark.parametrize(
    "name", [name for name in dir(ann) if name.endswith("Descriptor") and name != "ConcatDescriptor"]
)
def test_descriptors_with_default_values_are_equal(name: str):
    assert getattr(ann, name)() == getattr(ann, name)()
