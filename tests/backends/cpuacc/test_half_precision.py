"""CpuAcc on tensors of float16 and bfloat16: stored so, computed in float32."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Array, DataLayout, DataType, TensorInfo
from interposer.ops import (
    ActivationFunction,
    Addition,
    ArgMinMaxFunction,
    BinaryOperation,
    Bitcast,
    ComparisonOperation,
    OneHot,
    Pad,
    Slice,
    Softmax,
    UnaryOperation,
)
from tests import warm
from tests.instruction_sets import needs_instruction_set

pytestmark = [pytest.mark.usefixtures("cpuacc"), pytest.mark.needs_cpuref]

ROOT = Path(__file__).parents[3]
STEPS = {DataType.FLOAT16: 2.0**-10, DataType.BFLOAT16: 2.0**-7}


def weights(dtype: DataType, *shape: int) -> Array:
    return (np.random.default_rng(2).standard_normal(shape) / 8).astype(dtype.numpy)


def convolutional(dtype: DataType) -> ip.Network:
    """A convolution, a clamp, a number that is cast to fewer bits and back, and two outputs, one in float32."""
    network = ip.Network("half")
    x = network.add_input_layer(0, TensorInfo((2, 3, 9, 8), dtype), name="x")
    y = network.add_convolution2d_layer(
        x, network.add_constant_layer(weights(dtype, 20, 3, 3, 3)), network.add_constant_layer(weights(dtype, 20)),
        stride_x=1, stride_y=1, data_layout=DataLayout.NCHW,
    )  # fmt: skip
    y = network.add_activation_layer(y, function=ActivationFunction.RELU)
    wide = network.add_cast_layer(y, dtype=DataType.FLOAT32)
    narrow = network.add_cast_layer(network.add_multiplication_layer(wide, wide), dtype=dtype)
    network.add_output_layer(0, network.add_addition_layer(narrow, y), name="sum")
    network.add_output_layer(1, network.add_cast_layer(narrow, dtype=DataType.FLOAT32), name="rounded")
    return network


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_a_network_of_few_bits_is_taken_whole_and_within_a_step_of_the_reference(dtype: DataType) -> None:
    array = np.random.default_rng(4).standard_normal((2, 3, 9, 8)).astype(dtype.numpy)
    model = ip.load(convolutional(dtype), ["CpuAcc"])

    result, expected = model.run([array]), ip.load(convolutional(dtype), ["CpuRef"]).run([array])

    for mine, theirs in zip(result, expected, strict=True):
        assert mine.dtype == theirs.dtype
        exact = np.asarray(theirs, np.float32)
        np.testing.assert_allclose(
            np.asarray(mine, np.float32), exact, rtol=0, atol=4 * STEPS[dtype] * np.abs(exact).max()
        )
    rounded = np.asarray(result[1])
    assert (rounded == rounded.astype(dtype.numpy).astype(np.float32)).all()


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_what_jumps_sees_rounded_operands(dtype: DataType) -> None:
    network = ip.Network("jumps")
    x, y = (network.add_input_layer(number, TensorInfo((64,), dtype)) for number in range(2))
    product = network.add_multiplication_layer(x, y)  # a whole number, or just beside one before it is rounded
    network.add_output_layer(0, network.add_elementwise_unary_layer(product, operation=UnaryOperation.FLOOR))
    network.add_output_layer(1, network.add_elementwise_binary_layer(product, y, operation=BinaryOperation.MOD))
    network.add_output_layer(
        2, network.add_comparison_layer(product, y, operation=ComparisonOperation.GREATER_OR_EQUAL)
    )
    network.add_output_layer(3, network.add_cast_layer(product, dtype=DataType.INT32))
    network.add_output_layer(4, network.add_arg_min_max_layer(product, function=ArgMinMaxFunction.MAX, axis=0))
    random = np.random.default_rng(6)
    third = (random.integers(1, 9, 64) / 3).astype(dtype.numpy)
    value = [third, (random.integers(1, 9, 64) / third.astype(np.float32)).astype(dtype.numpy)]

    result = ip.load(network, ["CpuAcc"]).run(value)
    expected = ip.load(network, ["CpuRef"], options=ip.OptimizerOptions(rewrite=False)).run(value)

    for mine, theirs in zip(result, expected, strict=True):
        assert (np.asarray(mine, np.float32) == np.asarray(theirs, np.float32)).all()


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_a_cast_to_float32_gives_numbers_that_were_rounded(dtype: DataType) -> None:
    network = ip.Network("casts")
    x = network.add_input_layer(0, TensorInfo((64,), dtype))
    network.add_output_layer(0, network.add_cast_layer(network.add_multiplication_layer(x, x), dtype=DataType.FLOAT32))
    array = np.random.default_rng(6).standard_normal(64).astype(dtype.numpy)

    [result] = ip.load(network, ["CpuAcc"]).run([array])

    assert (np.asarray(result) == np.asarray(array * array, np.float32)).all()


@pytest.mark.parametrize("rewrite", [True, False])
@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_a_quantization_reads_numbers_that_were_rounded(dtype: DataType, rewrite: bool) -> None:
    network = ip.Network("requantized")
    x = network.add_input_layer(0, TensorInfo((256,), "int8", ip.Quantization(0.004136029630899429, -128)))
    real = network.add_layer(ip.ops.Dequantize(dtype=dtype), x)
    info = TensorInfo((256,), "int8", ip.Quantization(0.006138775497674942, -124))
    network.add_output_layer(0, network.add_layer(ip.ops.Quantize(DataType.INT8), real, outputs=[info]))
    options = ip.OptimizerOptions(rewrite=rewrite)
    value = [np.arange(-128, 128).astype(np.int8)]

    [result] = ip.load(network, ["CpuAcc", "CpuRef"], options=options).run(value)

    [expected] = ip.load(network, ["CpuRef"], options=options).run(value)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_numbers_are_rounded_to_the_nearest_on_every_instruction_set(isa: str) -> None:
    needs_instruction_set(isa)
    settings = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "INTERPOSER_CPUACC_ISA": isa,
    }
    words = [*warm.python(), "-m", "tests.backends.cpuacc.halves"]

    done = subprocess.run(words, capture_output=True, text=True, check=False, env=settings, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_a_constant_is_dequantized_to_few_bits_without_another_backend(dtype: DataType) -> None:
    def network() -> ip.Network:
        built = ip.Network("dequantized")
        x = built.add_input_layer(0, TensorInfo((3, 9), dtype), name="x")
        codes = np.random.default_rng(3).integers(-128, 128, (9, 5)).astype(np.int8)
        stored = built.add_constant_layer(codes, ip.Quantization(0.05, 3))
        weights = built.add_dequantize_layer(stored, dtype=dtype)
        built.add_output_layer(0, built.add_batch_mat_mul_layer(x, weights), name="product")
        built.add_output_layer(1, built.add_activation_layer(weights, function=ActivationFunction.RELU), name="clamped")
        return built

    array = np.random.default_rng(4).standard_normal((3, 9)).astype(dtype.numpy)
    result, expected = (ip.load(network(), [backend]).run([array]) for backend in ("CpuAcc", "CpuRef"))
    for mine, theirs in zip(result, expected, strict=True):
        exact = np.asarray(theirs, np.float32)
        np.testing.assert_allclose(
            np.asarray(mine, np.float32), exact, rtol=0, atol=4 * STEPS[dtype] * np.abs(exact).max()
        )


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_conversions_of_types_are_casts(dtype: DataType) -> None:
    name = {DataType.FLOAT16: "fp16", DataType.BFLOAT16: "bf16"}[dtype]
    network = ip.Network("conversions")
    x = network.add_input_layer(0, TensorInfo((6,)), name="x")
    narrow = getattr(network, f"add_convert_fp32_to_{name}_layer")(x)
    wide = getattr(network, f"add_convert_{name}_to_fp32_layer")(narrow)
    network.add_output_layer(0, network.add_addition_layer(wide, wide), name="twice")
    array = np.array([1.0, 257.0, 2049.0, 2051.0, 1e-9, -0.1], np.float32)
    [result] = ip.load(network, ["CpuAcc"]).run([array])
    assert (np.asarray(result) == 2 * array.astype(dtype.numpy).astype(np.float32)).all()


@pytest.mark.parametrize(("dtype", "bits"), [(DataType.FLOAT16, 11), (DataType.BFLOAT16, 8)])
@pytest.mark.parametrize("layer", ["one-hot", "border"])
def test_numbers_of_layers_are_rounded_to_their_type_once(dtype: DataType, bits: int, layer: str) -> None:
    number = 1 + 2.0**-bits + 2.0**-40  # in float32, it is in the middle between two numbers of the type
    network = ip.Network("numbers")
    x = network.add_input_layer(0, TensorInfo((3, 4), dtype), name="x")
    if layer == "border":
        padded = network.add_layer(Pad(((1, 1), (0, 0)), pad_value=number), x).output
        y = network.add_layer(Slice((0, 0), (3, 4)), padded).output
    else:
        indices = network.add_input_layer(1, TensorInfo((3,), "int64"), name="indices")
        y = network.add_layer(OneHot(4, on_value=number, off_value=-number, dtype=dtype), indices).output
    total = network.add_layer(Addition(), y, network.add_layer(Softmax(), x).output).output
    network.add_output_layer(0, total, name="y")
    operands: list[Array] = [np.array([[500, 0, 0, 0]] * 3).astype(dtype.numpy)]
    operands += [np.array([0, 1, 5])] if layer == "one-hot" else []
    results = [ip.load(network, [backend]).run(operands)[0] for backend in ("CpuAcc", "CpuRef")]
    np.testing.assert_array_equal(results[0].astype(np.float64), results[1].astype(np.float64))


@pytest.mark.parametrize("dtype", STEPS, ids=str)
def test_bits_are_read_and_written_without_a_conversion(dtype: DataType) -> None:
    network = ip.Network("bits")
    x = network.add_input_layer(0, TensorInfo((2**16,), dtype), name="x")
    codes = network.add_input_layer(1, TensorInfo((2**16,), DataType.INT16), name="codes")
    read = network.add_layer(Bitcast(dtype=DataType.INT16), x)
    written = network.add_layer(Bitcast(dtype=dtype), codes)
    network.add_output_layer(0, read, name="bits of x")
    network.add_output_layer(1, written, name="codes as numbers")
    network.add_output_layer(2, network.add_layer(Softmax(), written), name="softmax")
    network.add_output_layer(3, network.add_layer(Bitcast(dtype=DataType.INT16), written), name="codes again")
    doubled = network.add_layer(Addition(), x, x)
    network.add_output_layer(4, network.add_layer(Bitcast(dtype=DataType.INT16), doubled), name="bits of 2 x")
    every = np.arange(-(2**15), 2**15, dtype=np.int16)
    results = ip.load(network, ["CpuAcc"]).run([every.view(dtype.numpy), every])
    for position in (0, 1, 3):
        np.testing.assert_array_equal(np.asarray(results[position]).view(np.int16), every)
    with np.errstate(all="ignore"):
        twice = np.asarray(every.view(dtype.numpy).astype(np.float32) * 2).astype(dtype.numpy)
    numbers = ~np.isnan(twice.astype(np.float32))
    np.testing.assert_array_equal(np.asarray(results[4])[numbers], twice.view(np.int16)[numbers])
