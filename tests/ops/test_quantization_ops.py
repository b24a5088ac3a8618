"""Types and errors of operators that change how numbers are stored."""

import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ops import Bitcast, BlockDequantize, Cast, ConvertFp32ToBf16, Dequantize, FakeQuantization, Quantize

Q = Quantization(0.5, 3)


@pytest.mark.parametrize(
    ("op", "given", "expected"),
    [
        (Quantize(), TensorInfo((2,)), TensorInfo((2,), "uint8")),
        (Quantize(DataType.INT8), TensorInfo((2,), "uint8", Q), TensorInfo((2,), "int8")),
        (Dequantize(), TensorInfo((2,), "uint8", Q), TensorInfo((2,))),
        (Dequantize(DataType.FLOAT16), TensorInfo((2,), "uint8", Q), TensorInfo((2,), "float16")),
        (Cast(DataType.INT64), TensorInfo((2,), "uint8", Q), TensorInfo((2,), "int64")),
        (ConvertFp32ToBf16(), TensorInfo((2,)), TensorInfo((2,), "bfloat16")),
        (FakeQuantization(), TensorInfo((2,), "float16"), TensorInfo((2,), "float16")),
    ],
)
def test_the_type_of_the_result_is_that_of_the_operator(op, given, expected):
    assert op.violations(given) == []
    assert op.infer_infos(given) == (expected,)


@pytest.mark.parametrize(
    ("op", "given", "fault"),
    [
        (Quantize(), TensorInfo((2,), "int32"), "input is int32 and not quantized; expected float values"),
        (
            Dequantize(),
            TensorInfo((2,), "int8"),
            "input is int8 without scale and zero point; expected a quantized tensor",
        ),
        (FakeQuantization(1.0, 2.0), TensorInfo((2,)), "the range is 1 to 2; expected a range that contains zero"),
    ],
)
def test_inputs_that_cannot_be_meant_are_named(op, given, fault):
    assert op.violations(given) == [fault]


def test_integers_with_scales_for_blocks_have_no_other_scales():
    codes, scales = TensorInfo((2, 8), "int8", Q), TensorInfo((2, 2))
    assert BlockDequantize(4).violations(codes, scales, TensorInfo((2, 2), "int8", Q)) == [
        "input is quantized; expected integers without scale and zero point",
        "zero_point is quantized; expected integers without scale and zero point",
    ]


def test_a_tensor_cannot_be_quantized_to_floats():
    text = r"^Quantize: dtype is float32; expected one of int16, int2, int32, "
    with pytest.raises(InvalidArgumentError, match=text):
        Quantize(DataType.FLOAT32)


def test_bits_are_read_as_a_type_that_has_as_many():
    assert Bitcast(DataType.FLOAT32).infer_infos(TensorInfo((2, "n"), DataType.INT32)) == (TensorInfo((2, "n")),)
    assert Bitcast(DataType.INT64).violations(TensorInfo((2,))) == ["input is float32, of 32 bits, but int64 has 64"]
    assert Bitcast(DataType.STRING).violations(TensorInfo((2,))) == [
        "a string cannot be reinterpreted, as it has no fixed width"
    ]
