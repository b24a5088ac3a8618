"""Quantized models: what is computed in integers, and what by way of float values."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.core.types import Quantization
from interposer.frontends.onnx import load
from interposer.writers.onnx import write
from tests.frontends.onnx.models import agree, model, needs_onnx, onnx_type, ours, single, theirs

RNG = np.random.default_rng(10)
X = RNG.uniform(-3, 3, (2, 3, 4)).astype(np.float32)


def kinds(given):
    return [layer.kind for layer in load(given) if layer.kind not in {"Input", "Output", "Constant"}]


@pytest.mark.parametrize(("dtype", "point"), [(np.uint8, 100), (np.int8, -5), (np.int16, 7), (np.uint16, 30000)])
def test_real_numbers_become_integers_rounded_to_even(dtype, point):
    x = np.float32([-1e9, -0.75, -0.25, 0.25, 0.75, 1.25, 1e9])
    value = single("QuantizeLinear", x, np.float32(0.5), dtype(point))
    agree(value, x)
    [layer] = [layer for layer in load(value) if layer.kind == "Quantize"]
    assert layer.output.known.quantization == Quantization(0.5, point)


def test_every_channel_may_have_its_own_scale():
    scale, point = np.float32([0.1, 0.2, 0.3]), np.uint8([0, 128, 7])
    agree(single("QuantizeLinear", X, scale, point, axis=1), X)
    codes = RNG.integers(0, 256, (2, 3, 4)).astype(np.uint8)
    agree(single("DequantizeLinear", codes, scale, point, axis=-2), codes)


def test_an_input_that_is_dequantized_is_quantized():
    codes = np.arange(6, dtype=np.uint8)
    value = single("DequantizeLinear", codes, np.float32(0.5), np.uint8(3))
    agree(value, codes)
    network = load(value)
    assert network.inputs[0].output.known.quantization == Quantization(0.5, 3)
    assert kinds(value) == ["Dequantize"]


def test_an_input_that_cannot_be_quantized_as_claimed_is_refused_at_the_node():
    value = single("DequantizeLinear", np.zeros(3, np.int8), np.float32(0.5), np.uint8(200))
    with pytest.raises(ParseError, match="^node 'node' .*its zero point is uint8, but it takes int8$"):
        load(value)


def test_scales_that_do_not_fit_a_constant_are_refused_at_the_node():
    value = model(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"], name="node", axis=0)],
        {}, ["y"], {"w": np.zeros((3, 4), np.uint8), "s": np.ones(5, np.float32)},
    )  # fmt: skip
    with pytest.raises(ParseError, match=r"^node 'node' .*: 5 scales along axis 0 of shape \[3, 4\]$"):
        load(value)


def test_an_input_with_two_meanings_is_plain_integers():
    codes = np.arange(6, dtype=np.uint8)
    nodes = [helper.make_node("DequantizeLinear", ["x", f"s{i}"], [f"y{i}"]) for i in range(2)]
    value = model(nodes, {"x": codes}, ["y0", "y1"], {"s0": np.float32(0.5), "s1": np.float32(2.0)})
    agree(value, codes)
    assert load(value).inputs[0].output.known.quantization is None
    assert "Dequantize" not in kinds(value)


def test_stored_weights_stay_stored():
    codes = RNG.integers(-128, 128, (4, 5)).astype(np.int8)
    node = helper.make_node("DequantizeLinear", ["w", "scale"], ["real"], axis=1)
    product = helper.make_node("MatMul", ["x", "real"], ["y"])
    x, scale = RNG.uniform(-1, 1, (2, 4)).astype(np.float32), RNG.uniform(0.1, 1, 5).astype(np.float32)
    value = model([node, product], {"x": x}, constants={"w": codes, "scale": scale})
    agree(value, x, atol=1e-4)
    assert kinds(value)[0] == "Dequantize"


def test_weights_and_scales_are_found_by_their_names():
    weights, scale, point = RNG.integers(-9, 9, (4, 5)).astype(np.int8), np.float32(0.5), np.int8(2)
    node = helper.make_node("DequantizeLinear", ["w", "scale", "point"], ["real"])
    product = helper.make_node("MatMul", ["x", "real"], ["y"])
    x = RNG.uniform(-1, 1, (2, 4)).astype(np.float32)
    network = load(model([node, product], {"x": x}, constants={"w": weights, "scale": scale, "point": point}))
    assert [layer.kind for layer in network].count("Constant") == 1
    for name, array in {"w": weights, "scale": scale, "point": point}.items():
        np.testing.assert_array_equal(network.graph.folded[name].constant, array)


def test_one_initializer_may_be_a_scale_and_an_operand():
    x, scale = np.arange(6, dtype=np.uint8), np.float32(0.5)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "scale"], ["real"]),
        helper.make_node("Add", ["real", "scale"], ["y"]),
    ]
    value = model(nodes, {"x": x}, constants={"scale": scale})
    agree(value, x)
    assert "scale" not in load(value).graph.folded


def test_integers_without_a_known_scale_are_converted_by_arithmetic():
    codes = np.arange(-3, 5, dtype=np.int32)
    add = helper.make_node("Add", ["x", "x"], ["sum"])
    node = helper.make_node("DequantizeLinear", ["sum", "scale", "point"], ["y"])
    value = model([add, node], {"x": codes}, constants={"scale": np.float32(0.5), "point": np.int32(2)})
    agree(value, codes)
    assert "Dequantize" not in kinds(value)


def test_arithmetic_on_stored_integers_is_on_integers():
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "point"], ["codes"]),
        helper.make_node("Add", ["codes", "codes"], ["sum"]),
        helper.make_node("Transpose", ["codes"], ["moved"]),
        helper.make_node("DequantizeLinear", ["moved", "scale", "point"], ["real"]),
    ]
    constants = {"scale": np.float32(0.1), "point": np.uint8(20)}
    x = np.float32([[0.5, 1.0, -0.5]])
    value = model(nodes, {"x": x}, ["sum", "real"], constants)
    agree(value, x)
    assert kinds(value) == ["Quantize", "Cast", "Cast", "Addition", "Transpose", "Dequantize"]


def quantized_convolution(point=3, weights_type=np.int8, per_channel=True, declared=True):
    x = RNG.integers(0, 256, (1, 4, 5, 6)).astype(np.uint8)
    w = RNG.integers(0, 100, (6, 4, 3, 3)).astype(weights_type)
    scale = RNG.uniform(0.01, 0.02, 6).astype(np.float32) if per_channel else np.float32(0.015)
    constants = {
        "xs": np.float32(0.05), "xz": np.uint8(point), "w": w, "ws": scale, "wz": np.zeros(scale.shape, weights_type),
        "ys": np.float32(4.0), "yz": np.uint8(20), "b": RNG.integers(-999, 999, 6).astype(np.int32),
    }  # fmt: skip
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"]
    first = [] if declared else [helper.make_node("Add", ["x", "one"], ["more"])]
    names[0] = "x" if declared else "more"
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1, 1, 1, 1], strides=[2, 1])
    return model([*first, node], {"x": x}, constants=constants | {"one": np.uint8(1)}), x


@pytest.mark.parametrize(("weights_type", "per_channel"), [(np.int8, True), (np.uint8, False)])
def test_a_quantized_convolution_is_computed_in_integers(weights_type, per_channel):
    value, x = quantized_convolution(weights_type=weights_type, per_channel=per_channel)
    assert kinds(value) == ["Convolution2d"]
    difference = ours(value, x)[0].astype(int) - theirs(value, x)[0]
    assert np.abs(difference).max() <= 1  # rounding differs, as TFLite's goes twice


def test_a_quantized_convolution_of_plain_integers_goes_by_way_of_real_numbers():
    value, x = quantized_convolution(declared=False)
    assert "Quantize" in kinds(value)
    difference = ours(value, x)[0].astype(int) - theirs(value, x)[0]
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("rank", [2, 3])
def test_a_quantized_product_of_matrices(rank):
    a = RNG.integers(0, 256, (2, 3, 4)[3 - rank :]).astype(np.uint8)
    b = RNG.integers(0, 256, (4, 5)).astype(np.uint8)
    scales = [np.float32(0.01), np.uint8(100)]
    value = single("QLinearMatMul", a, *scales, b, np.float32(0.02), np.uint8(50), np.float32(0.1), np.uint8(128))
    assert kinds(value) == ["FullyConnected"]
    difference = ours(value, a)[0].astype(int) - theirs(value, a)[0]
    assert np.abs(difference).max() <= 1


def test_integer_products_and_convolutions_keep_all_bits():
    a, b = RNG.integers(0, 256, (3, 300)).astype(np.uint8), RNG.integers(-128, 128, (300, 4)).astype(np.int8)
    agree(single("MatMulInteger", a, b, np.uint8(12), np.int8(3)), a)
    x, w = RNG.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8), RNG.integers(0, 256, (3, 2, 3, 3)).astype(np.uint8)
    agree(single("ConvInteger", x, w, np.uint8(7), np.uint8(9), pads=[1, 1, 1, 1]), x)


def test_quantization_by_the_range_of_the_data():
    x = np.float32([0, 2, -3, -2.5, 1.34, 0.5])
    agree(single("DynamicQuantizeLinear", x, outputs=3, opset=21), x)


def test_equal_quantizations_are_joined_and_others_are_joined_as_integers():
    for scale in (0.5, 0.25):
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "s0", "z"], ["a"]),
            helper.make_node("QuantizeLinear", ["x", "s1", "z"], ["b"]),
            helper.make_node("Concat", ["a", "b"], ["y"], axis=0),
        ]
        constants = {"s0": np.float32(0.5), "s1": np.float32(scale), "z": np.uint8(9)}
        x = np.float32([1, 2, 3])
        value = model(nodes, {"x": x}, constants=constants)
        agree(value, x)
        assert ("Cast" in kinds(value)) == (scale != 0.5)


@pytest.mark.parametrize("to", ["FLOAT8E4M3FN", "FLOAT8E5M2", "BFLOAT16", "FLOAT16", "INT4", "UINT4"])
def test_casts_to_narrow_types(to):
    x = np.float32([0.3, -7.6, 5.2, 500.0, -6e4, 3.0])
    value = single("Cast", x, to=getattr(TensorProto, to))
    [result], [expected] = ours(value, x), theirs(value, x)
    if isinstance(expected, np.ndarray) and to not in {"INT4", "UINT4"}:
        np.testing.assert_allclose(result.astype(np.float32), expected.astype(np.float32))
    assert result.dtype.name.lower() == expected.dtype.name.lower()


@pytest.mark.parametrize(
    ("mode", "saturate", "expected"),
    [
        ("up", 1, [2.0**-127, 1, 2, 2, 4, 2.0**127, 2.0**127, np.nan]),
        ("down", 1, [2.0**-127, 1, 1, 1, 2, 2.0**127, 2.0**127, np.nan]),
        ("nearest", 1, [2.0**-127, 1, 1, 2, 4, 2.0**127, 2.0**127, np.nan]),
        ("nearest", 0, [np.nan, 1, 1, 2, 4, np.nan, np.nan, np.nan]),
    ],
)
def test_casts_to_powers_of_two_round_as_they_are_told(mode, saturate, expected):
    x = np.float32([0, 1, 1.25, 1.5, 3, 3e38, np.inf, np.nan])
    value = single("Cast", x, opset=24, to=TensorProto.FLOAT8E8M0, round_mode=mode, saturate=saturate)
    [result] = ours(value, x)
    assert result.dtype.name == "float8_e8m0fnu"
    np.testing.assert_array_equal(result.astype(np.float64), expected)


def test_a_rounding_that_nobody_knows_is_refused():
    value = single("Cast", np.float32([1]), opset=24, to=TensorProto.FLOAT8E8M0, round_mode="sideways")
    with pytest.raises(ParseError, match="its round_mode is 'sideways'; expected up, down, nearest"):
        load(value)


SMALL = ("INT4", "UINT4", "INT2", "UINT2", "FLOAT8E4M3FN", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "FLOAT6E3M2", "FLOAT16")


@pytest.mark.parametrize("source", SMALL)
@pytest.mark.parametrize("target", [*SMALL, "INT8", "BOOL", "FLOAT"])
def test_small_types_are_cast_to_each_other(source, target):
    types = [helper.tensor_dtype_to_np_dtype(onnx_type(name)) for name in (source, target)]
    x = np.float32([0, 1, -2, 1, 3]).astype(np.int8 if "INT" in source else np.float32).astype(types[0])
    [result] = ours(single("Cast", x, opset=25, to=onnx_type(target)), x)
    real = x.astype(np.float32)
    expected = real != 0 if target == "BOOL" else real.astype(np.int64 if "INT" in target else np.float32)
    assert result.dtype == types[1]
    np.testing.assert_array_equal(result.astype(np.float32), expected.astype(types[1]).astype(np.float32))


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "UINT2", "FLOAT4E2M1", "FLOAT6E2M3", "FLOAT8E4M3FN"])
def test_real_numbers_are_quantized_to_small_types_and_back(kind):
    x = np.linspace(-9, 9, 36, dtype=np.float32).reshape(3, 12)
    scale = np.float32([[0.5, 1.5], [1, 2], [4, 0.25]])
    blocks = {"axis": 1, "block_size": 6}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=onnx_type(kind), **blocks),
        helper.make_node("DequantizeLinear", ["q", "scale"], ["y"], **blocks),
    ]
    agree(model(nodes, {"x": x}, ["y"], {"scale": scale}, opset=25), x)


@pytest.mark.parametrize(("saturate", "expected"), [(1, 448.0), (0, np.nan)])
def test_what_is_too_large_for_float8_is_cut_off_or_no_number(saturate, expected):
    zero = np.zeros((), helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN))
    x = np.float32([1, 1e6])
    [result] = ours(single("QuantizeLinear", x, np.float32(1), zero, saturate=saturate), x)
    np.testing.assert_array_equal(result.astype(np.float32), [1, expected])


@needs_onnx(23, "the reference evaluator does not know precision")
def test_the_quotient_is_rounded_as_precision_says():
    x, scale = np.float32([2049, 1.0005]), np.float32(2)
    exact = single("QuantizeLinear", x, scale, np.int16(0), opset=23)
    rounded = single("QuantizeLinear", x, scale, np.int16(0), opset=23, precision=TensorProto.FLOAT16)
    assert kinds(exact) == ["Quantize"]
    assert ours(exact, np.float32([4099, 5]))[0].tolist() == [2050, 2]
    assert ours(rounded, np.float32([4099, 5]))[0].tolist() == [2050, 2]
    agree(rounded, np.float32([4101, 5.0]))


def test_the_scale_may_be_a_power_of_two_of_its_own_type():
    codes = np.float32([[1, -2, 0.5, 6]]).astype(helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT4E2M1))
    scale = np.float32([[0.25, 8]]).astype(helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E8M0))
    attributes = {"axis": 1, "block_size": 2, "output_dtype": TensorProto.FLOAT}
    value = single("DequantizeLinear", codes, scale, opset=24, **attributes)
    assert ours(value, codes)[0].tolist() == [[0.25, -0.5, 4, 48]]


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_scales_that_are_computed_are_reckoned_with(axis):
    x = np.float32([[1, -2, 3], [40, 50, 600]])
    shape = () if axis is None else (x.shape[axis],)
    scale = np.float32([0.5, 0.25, 2])[: shape[0] if shape else 1].reshape(shape)
    zero = np.full(shape, 7, np.uint8)
    attributes = {} if axis is None else {"axis": axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"], **attributes),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["y"], **attributes),
    ]
    agree(model(nodes, {"x": x, "scale": scale, "zero": zero}, ["codes", "y"]), x, scale, zero)


def test_every_block_has_its_own_scale():
    import ml_dtypes

    codes = np.array([[1, -8, 7, 2, 3], [0, -1, 3, 4, 5]]).astype(ml_dtypes.int4)
    scale = np.float32([[0.5, 2, 10], [1, 4, 20]])
    value = single("DequantizeLinear", codes, scale, axis=1, block_size=2)
    blocks = np.repeat(scale, 2, axis=1)[:, :5]
    np.testing.assert_array_equal(ours(value, codes)[0], codes.astype(np.float32) * blocks)


def test_scales_for_blocks_have_the_rank_of_the_tensor():
    value = single("DequantizeLinear", np.int8([[1, 2]]), np.float32([1, 2]), axis=1, block_size=1)
    with pytest.raises(ParseError, match=r"its scale has shape \[2\], its input \[1, 2\] and blocks of 1"):
        load(value)


def test_blocks_are_as_many_as_the_tensor_has():
    value = single("DequantizeLinear", np.int8([[1, 2, 3]] * 2), np.float32([[1], [1]]), axis=1, block_size=2)
    with pytest.raises(ParseError, match=r"its scale has shape \[2, 1\], its input \[2, 3\] and blocks of 2"):
        load(value)


def test_channels_of_zeros_may_have_a_scale_of_zero():
    codes, scale, zero = np.int8([[1, 2], [3, 4]]), np.float32([0, 0.5]), np.int8([0, 1])
    nodes = [helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["y"], axis=1)]
    value = model(nodes, {"codes": codes}, ["y"])
    value.graph.initializer.extend([numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(zero, "zero")])
    assert ours(value, codes)[0].tolist() == [[0, 0.5], [0, 1.5]]


def test_a_scale_that_is_no_number_is_refused():
    value = single("DequantizeLinear", np.int8([1]), np.float32(np.nan))
    with pytest.raises(ParseError, match="a scale must be positive and finite, not nan"):
        load(value)


def test_the_quotient_is_a_real_number():
    value = single("QuantizeLinear", np.float32([1]), np.float32(2), np.int8(0), opset=23, precision=TensorProto.INT64)
    with pytest.raises(ParseError, match="its precision is int64; expected a type of float values"):
        load(value)


def test_truth_cannot_be_quantized_to():
    value = single("QuantizeLinear", np.float32([1]), np.float32(1), np.array(True))
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(value)
    assert caught.value.notes == {"QuantizeLinear": "opset 21; node 'node': it quantizes to bool"}


def test_four_bit_weights_are_unpacked():
    import ml_dtypes

    codes = np.array([[1, -8, 7], [0, -1, 3]]).astype(ml_dtypes.int4)
    value = single("Identity", np.float32([1.0]))
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"])
    value.graph.node[0].CopyFrom(node)
    value.graph.initializer.extend([numpy_helper.from_array(codes, "w"), numpy_helper.from_array(np.float32(0.5), "s")])
    assert ours(value, np.float32([1.0]))[0].tolist() == [[0.5, -4, 3.5], [0, -0.5, 1.5]]


def test_many_weights_of_few_bits_stay_stored():
    import ml_dtypes

    shape = (3, 1 << 22)
    node = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["real"], axis=1, block_size=1 << 20),
        helper.make_node("Add", ["real", "x"], ["y"]),
    ]
    constants = {"w": np.zeros(shape, ml_dtypes.int4), "s": np.ones((3, 4), np.float32)}
    network = load(model(node, {"x": np.zeros(1, np.float32)}, constants=constants))
    held = sum(layer.op.value.nbytes for layer in network if layer.kind == "Constant" and layer.output.uses)
    assert held < 3 * (1 << 22) * 5


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16"])
def test_blocks_of_constants_are_read_as_they_are_stored_and_written_again(dtype, scale, axis):
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    numbers = np.random.default_rng(1)
    low = 0 if dtype.startswith("u") else -8
    codes = numbers.integers(low, low + 16, (6, 8)).astype(kind)
    shape = (3, 8) if axis == 0 else (6, 4)
    scales = numbers.uniform(0.5, 2, shape).astype(getattr(ml_dtypes, scale, None) or scale)
    points = numbers.integers(low, low + 16, shape).astype(kind)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis, block_size=2),
        helper.make_node("Mul", ["d", "x"], ["y"]),
    ]
    feed = np.ones((1, 1), scales.dtype)
    written = model(nodes, {"x": feed}, ["y"], constants={"w": codes, "s": scales, "z": points})
    network = load(written)
    again = load(write(network))
    for each in (network, again):
        [blocks] = [layer for layer in each if layer.kind == "BlockDequantize"]
        assert (blocks.op.block_size, blocks.op.axis, str(blocks.op.dtype)) == (2, axis, scale)
        for value, expected in zip(blocks.values, (codes, scales, points), strict=True):
            assert value.constant.dtype == expected.dtype
            np.testing.assert_array_equal(value.constant, expected)
