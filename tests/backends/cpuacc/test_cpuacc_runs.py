"""CpuAcc on whole networks: real models, odd and empty shapes, memory that lies anyhow, forks, threads, preferences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import Quantization, TensorInfo
from interposer.core.types import DataLayout
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    BatchMatMul,
    Concat,
    Convolution2d,
    DepthwiseConvolution2d,
    FullyConnected,
    LayerNormalization,
    Multiplication,
    Pooling2d,
    RmsNormalization,
    Softmax,
)
from interposer.testing.oracle import reference_outputs
from tests.models.test_tflite_models import CASES, FLOATS, MODELS, QUANTIZED
from tests.native import install_plugin

NHWC = DataLayout.NHWC
RANDOM = np.random.default_rng(20261121)

pytestmark = pytest.mark.usefixtures("cpuacc")


@pytest.fixture
def runtime():
    with ip.Runtime() as runtime:
        yield runtime


def codes(*shape):
    return RANDOM.integers(-128, 128, shape).astype(np.int8)


def network_of(op, x, *constants, outputs=None):
    network = ip.Network("one layer")
    entered = network.add_input_layer(0, x, name="x")
    layer = network.add_layer(
        op, entered, *(network.add_constant_layer(*constant) for constant in constants), outputs=outputs
    )
    network.add_output_layer(0, layer, name="y")
    return network


def run(runtime, network, x, backends=("CpuAcc",)):
    optimized = ip.optimize(network, backends, runtime.device_spec)
    number = runtime.load_network(optimized)
    result = runtime.enqueue_workload(number, {0: x})[0]
    runtime.unload_network(number)
    return result


def assert_near(found, wanted):
    if wanted.dtype.kind == "f":
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max(initial=0))
    else:
        np.testing.assert_array_equal(found, wanted)


# --- real models ------------------------------------------------------------------------------------------------------


def outputs_and_golden(name, case):
    model = ip.load(MODELS / f"{name}.tflite", backends=["CpuAcc", "CpuRef"])
    with np.load(MODELS / f"{name}.golden.npz") as golden:
        result = model.run([golden[f"case{case}_input{i}"] for i in range(len(model.inputs))])
        expected = [golden[f"case{case}_output{i}_reference"] for i in range(len(model.outputs))]
    return model, list(zip(result, expected, strict=True))


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no real models in {MODELS.parent.name}/{MODELS.name}")
@pytest.mark.parametrize("name", QUANTIZED)
def test_a_quantized_model_gives_what_tflite_gives_bit_for_bit_on_cpuacc(name):
    for case in CASES:
        for result, expected in outputs_and_golden(name, case)[1]:
            np.testing.assert_array_equal(result, expected, strict=True)


@pytest.mark.skipif(not MODELS.is_dir(), reason=f"no real models in {MODELS.parent.name}/{MODELS.name}")
@pytest.mark.parametrize("name", FLOATS)
def test_a_float_model_agrees_with_tflite_on_cpuacc(name):
    for case in CASES:
        for result, expected in outputs_and_golden(name, case)[1]:
            np.testing.assert_allclose(result, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


# --- odd and empty shapes ---------------------------------------------------------------------------------------------

ODD = [1, 3, 7, 17, 31]


@pytest.mark.parametrize("channels", ODD)
@pytest.mark.parametrize("size", [1, 5, 13])
def test_a_convolution_of_odd_sizes_in_float32(runtime, size, channels):
    weights = RANDOM.standard_normal((channels + 2, 3, 3, channels), np.float32)
    op = Convolution2d(stride_x=2, pad_left=1, pad_right=1, pad_top=1, pad_bottom=1, data_layout=NHWC)
    network = network_of(op, TensorInfo((2, size, size + 1, channels)), (weights,))
    x = RANDOM.standard_normal((2, size, size + 1, channels), np.float32)
    assert_near(run(runtime, network, x), reference_outputs(network.graph, {0: x})[0])


@pytest.mark.parametrize("channels", ODD)
def test_a_depthwise_convolution_of_odd_sizes_in_int8(runtime, channels):
    scales = Quantization(list(RANDOM.uniform(0.001, 0.1, channels)), axis=3)
    info = TensorInfo((1, 7, 5, channels), "int8", Quantization(0.05, 3))
    op = DepthwiseConvolution2d(pad_left=1, pad_top=1, data_layout=NHWC)
    result = TensorInfo((1, 6, 4, channels), "int8", Quantization(0.2, -7))
    network = network_of(op, info, (codes(1, 3, 3, channels), scales), outputs=[result])
    x = codes(1, 7, 5, channels)
    assert_near(run(runtime, network, x), reference_outputs(network.graph, {0: x})[0])


@pytest.mark.parametrize("width", ODD)
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_a_fully_connected_layer_of_odd_sizes_in_int8(runtime, rows, width):
    info = TensorInfo((rows, width), "int8", Quantization(0.04, -9))
    result = TensorInfo((rows, width + 6), "int8", Quantization(0.3, 5))
    op = FullyConnected(transpose_weight_matrix=True)
    network = network_of(op, info, (codes(width + 6, width), Quantization(0.02)), outputs=[result])
    x = codes(rows, width)
    assert_near(run(runtime, network, x), reference_outputs(network.graph, {0: x})[0])


EMPTY = {
    "relu": (Activation(function=ActivationFunction.RELU), (0, 3), []),
    "softmax": (Softmax(), (3, 0), []),
    "convolution": (Convolution2d(data_layout=NHWC), (0, 4, 4, 2), [(np.ones((3, 2, 2, 2), np.float32),)]),
    "pooling": (Pooling2d(pool_width=2, pool_height=2, data_layout=NHWC), (0, 4, 4, 2), []),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_are_no_trouble(runtime, name):
    op, shape, constants = EMPTY[name]
    network = network_of(op, TensorInfo(shape), *constants)
    result = run(runtime, network, np.zeros(shape, np.float32), ["CpuAcc", "CpuRef"])
    assert result.size == 0


# --- memory that lies anyhow ------------------------------------------------------------------------------------------


def displaced(array, offset):
    """The same numbers at an address that is no multiple of anything."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    view = np.ndarray(array.shape, array.dtype, memory.data, -memory.ctypes.data % 64 + offset)
    view[...] = array
    return view


@pytest.mark.parametrize("offset", [1, 4, 20, 63])
def test_buffers_of_the_user_may_lie_anywhere(runtime, offset):
    network = network_of(Addition(), TensorInfo((5, 7)), (RANDOM.standard_normal((5, 7), np.float32),))
    x, y = (displaced(RANDOM.standard_normal((5, 7), np.float32), offset) for _ in range(2))
    number = runtime.load_network(ip.optimize(network, ["CpuAcc"], runtime.device_spec))
    runtime.enqueue_workload(number, {0: x}, {0: y})
    assert_near(y, reference_outputs(network.graph, {0: x})[0])


# --- processes, threads, preferences ----------------------------------------------------------------------------------

FORKING = """
import os, numpy as np, interposer as ip
network = ip.Network()
x = network.add_input_layer(0, ip.TensorInfo((1, 48, 48, 32)))
weights = network.add_constant_layer(np.random.default_rng(2).standard_normal((64, 3, 3, 32), np.float32))
network.add_output_layer(0, network.add_convolution2d_layer(x, weights, data_layout=ip.DataLayout.NHWC))
runtime = ip.Runtime()
options = ip.OptimizerOptions(model_options={"CpuAcc": {"NumberOfThreads": 2}})
number = runtime.load_network(ip.optimize(network, ["CpuAcc"], runtime.device_spec, options))
x = np.random.default_rng(1).standard_normal((1, 48, 48, 32), np.float32)
before = runtime.enqueue_workload(number, {0: x})[0]
child = os.fork()
if child == 0:
    same = np.array_equal(runtime.enqueue_workload(number, {0: x})[0], before)
    os._exit(0 if same else 3)
same = np.array_equal(runtime.enqueue_workload(number, {0: x})[0], before)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), same)
"""


def test_it_runs_in_the_child_of_a_fork_as_before():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout == "0 True\n", done.stderr


def test_it_is_preferred_to_the_reference(runtime):
    assert runtime.device_spec.supported_backends[-2:] == ("CpuAcc", "CpuRef")
    model = ip.load(network_of(EMPTY["relu"][0], TensorInfo((2, 3))), runtime=runtime)
    assert model.explain().counts()["CpuAcc"] == 1


def test_it_can_be_left_out():
    with ip.Runtime(ip.CreationOptions(disabled_backends=["CpuAcc"])) as runtime:
        assert runtime.registry.reason_absent("CpuAcc") == "it is disabled"
        assert runtime.dynamic_backends() == ()


def test_it_runs_in_a_process_of_its_own():
    with ip.Runtime(ip.CreationOptions(isolate=["CpuAcc"])) as runtime:
        network = network_of(EMPTY["relu"][0], TensorInfo((2, 3)))
        x = np.float32([[1, -2, 3], [3, 2, -1]])
        assert_near(run(runtime, network, x), reference_outputs(network.graph, {0: x})[0])


@pytest.mark.parametrize("isolate", [(), "CpuAcc"])
def test_a_misspelt_option_for_a_runtime_does_not_move_the_model_to_the_reference(isolate):
    with pytest.raises(ip.errors.OptionError, match="^backend 'CpuAcc' has no option 'NumThread'; did you mean 'Num"):
        ip.Runtime(ip.CreationOptions(backend_options={"CpuAcc": {"NumThread": 2}}, isolate=isolate))


def test_it_is_available_where_another_backend_is_isolated(monkeypatch, tmp_path):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("INTERPOSER_ISOLATE", "Other")
    with ip.Runtime() as runtime:
        assert runtime.registry.reason_absent("CpuAcc") is None
    assert not (tmp_path / "probed").exists()


def test_a_copy_of_its_file_is_tried_without_loading_the_packages_own_file_beside_it(monkeypatch, tmp_path):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    own = Path(ip.__file__).parent / "native" / "Interposer_CpuAcc_backend.so"
    install_plugin(own, tmp_path / "copies", own.name)
    options = ip.CreationOptions(dynamic_backends_path=tmp_path / "copies", disabled_backends="CpuAcc")
    with ip.Runtime(options) as runtime:
        [record] = runtime.dynamic_backends()
        assert (record.reason, record.state.value, record.id) == ("", "loaded", "CpuAcc")


def test_the_file_of_the_package_is_one_of_its_records(runtime):
    [record] = [dynamic_backend for dynamic_backend in runtime.dynamic_backends() if dynamic_backend.id == "CpuAcc"]
    assert (record.file_name, record.state.value) == ("Interposer_CpuAcc_backend.so", "loaded")
    assert os.path.dirname(record.path) == str(Path(ip.__file__).parent / "native")


# --- operands that share memory ---------------------------------------------------------------------------------------


def assert_equal_to_the_reference(network, x):
    [result] = ip.load(network, backends=["CpuAcc", "CpuRef"]).run([x])
    np.testing.assert_allclose(result, reference_outputs(network.graph, {0: x})[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("quantization", [None, Quantization(0.5, 3)], ids=["float32", "int8"])
def test_an_operand_that_lies_in_the_memory_of_the_other_is_not_overwritten_while_it_is_broadcast(quantization):
    network = ip.Network("shared")
    info = TensorInfo((1, 40), "int8" if quantization else "float32", quantization)
    row = network.add_layer(Activation(ActivationFunction.RELU), network.add_input_layer(0, info))
    rows = network.add_layer(Concat(axis=0), row, row, row)
    product = network.add_layer(Multiplication(), rows, row, outputs=TensorInfo((3, 40), info.dtype, quantization))
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.ABS), product))
    assert_equal_to_the_reference(network, np.arange(40).reshape(1, 40).astype(info.dtype.numpy))


@pytest.mark.parametrize("op", [RmsNormalization(), LayerNormalization()], ids=lambda op: type(op).__name__)
def test_a_row_may_be_normalized_with_itself_as_gamma(op):
    network = ip.Network("shared")
    row = network.add_layer(
        Activation(ActivationFunction.RELU), network.add_input_layer(0, TensorInfo((1, 40), "float32"))
    )
    normalized = network.add_layer(op, row, row)
    network.add_output_layer(0, network.add_layer(Activation(ActivationFunction.ABS), normalized))
    assert_equal_to_the_reference(network, np.linspace(-1, 3, 40, dtype=np.float32)[None])


@pytest.mark.parametrize("op", [FullyConnected(), BatchMatMul()], ids=lambda op: type(op).__name__)
def test_a_product_of_one_column_takes_a_scalar_as_its_bias(op):
    network = ip.Network("scalar")
    weights, bias = (network.add_constant_layer(values) for values in (np.float32([[2], [3]]), np.float32(0.5)))
    product = network.add_layer(op, network.add_input_layer(0, TensorInfo((4, 2), "float32")), weights)
    network.add_output_layer(0, network.add_layer(Addition(), product, bias))
    assert_equal_to_the_reference(network, np.arange(8, dtype=np.float32).reshape(4, 2))
