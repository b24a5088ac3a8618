"""`quantize` and `dequantize`, and the functions that they use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarmnn as ann
import pyarmnn._generated.pyarmnn as generated
import pytest

TYPES = ["uint8", "int8", "int16", "int32"]


@pytest.mark.parametrize("verb", ["Quantize", "Dequantize"])
@pytest.mark.parametrize("dtype", TYPES)
def test_there_is_a_function_for_each_type(verb: str, dtype: str):
    assert callable(getattr(generated, f"{verb}_{dtype}_t"))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_quantized_value_is_an_int_in_the_range_of_its_type(dtype: str):
    for value in (3.3, -1e30, 1e30, float("inf")):
        quantized = ann.quantize(value, 0.02, 3, dtype)
        assert isinstance(quantized, int)
        assert np.iinfo(dtype).min <= quantized <= np.iinfo(dtype).max


@pytest.mark.parametrize(
    ("value", "scale", "offset", "dtype", "expected"),
    [
        (1.5, 0.02, 128, "uint8", 203), (1.5, 0.02, 128, "int8", 127), (1.5, 0.02, 3, "int16", 78),
        (0.025, 0.05, 0, "uint8", 1), (0.075, 0.05, 0, "int8", 2), (-0.025, 0.05, 0, "int8", -1),
        (1, 1, 3, "uint8", 4), (1e9, 0.5, 3, "int32", 2_000_000_000), (np.float32(1.5), 0.02, 3, "int32", 78),
        (0.5, 1.0, np.int32(0), "int8", 1), (np.array([1.5]), 0.1, 0, "uint8", 15),
    ],
)  # fmt: skip
def test_a_value_is_rounded_to_the_nearest_with_ties_away_from_zero(
    value: Any, scale: Any, offset: Any, dtype: str, expected: int
):
    assert ann.quantize(value, scale, offset, dtype) == expected


@pytest.mark.parametrize("dtype", TYPES)
def test_a_dequantized_value_is_a_float(dtype: str):
    dequantized = ann.dequantize(7, 0.5, 3, dtype)
    assert isinstance(dequantized, float)
    assert dequantized == 2.0


@pytest.mark.parametrize("value", [np.uint8(5), np.int8(5), np.int16(5), np.int32(5), np.float32(5)])
def test_a_scalar_of_numpy_can_be_dequantized(value: Any):
    assert ann.dequantize(value, 0.1, 2, "uint8") == pytest.approx(0.3)
    assert ann.dequantize(value, np.float32(0.1), np.int64(2), "int8") == pytest.approx(0.3)


@pytest.mark.parametrize("dtype", ["uint16", "int64", "float32", None, np.uint8])
def test_another_type_is_refused_with_the_known_ones(dtype: Any):
    with pytest.raises(ValueError) as caught:
        ann.quantize(1.5, 0.02, 128, dtype)
    assert str(caught.value) == (
        f"Unexpected target datatype {dtype} given.\n"
        "                         Armnn currently supports quantization to ['uint8', 'int8', 'int16', 'int32'] values."
    )
    with pytest.raises(ValueError) as caught:
        ann.dequantize(1, 0.02, 128, dtype)
    assert str(caught.value) == (
        f"Unexpected value datatype {dtype} given.\n                         "
        "Armnn currently supports dequantization from ['uint8', 'int8', 'int16', 'int32'] values."
    )


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("uint8", -1),
        ("uint8", 256),
        ("int8", -129),
        ("int8", 128),
        ("int16", 32768),
        ("int32", 2**31),
        ("uint8", 300.5),
    ],
)
def test_a_value_outside_the_range_of_its_type_is_refused(dtype: str, value: Any):
    with pytest.raises(ValueError) as caught:
        ann.dequantize(value, 0.1, 0, dtype)
    assert str(caught.value) == f"Value is not within range of the given datatype {dtype}"


@pytest.mark.parametrize(
    ("arguments", "position", "c_type"),
    [(("1", 0.1, 0), 1, "float"), ((1.0, "0.1", 0), 2, "float"), ((1.0, 0.1, 3.5), 3, "int32_t")],
)
def test_an_argument_of_a_wrong_type_is_named(arguments: Any, position: int, c_type: str):
    with pytest.raises(TypeError) as caught:
        generated.Quantize_uint8_t(*arguments)
    assert str(caught.value) == f"in method 'Quantize_uint8_t', argument {position} of type '{c_type}'"


def test_a_quantized_value_that_is_no_integer_is_refused():
    with pytest.raises(TypeError) as caught:
        generated.Dequantize_int16_t(1.5, 0.1, 0)
    assert str(caught.value) == "in method 'Dequantize_int16_t', argument 1 of type 'short'"
    with pytest.raises(OverflowError) as overflow:
        generated.Dequantize_int8_t(128, 0.1, 0)
    assert str(overflow.value) == "in method 'Dequantize_int8_t', argument 1 of type 'signed char'"


def test_a_scale_of_zero_and_a_value_that_is_no_number_are_refused():
    with pytest.raises(ValueError) as caught:
        ann.quantize(1.5, 0, 0, "uint8")
    assert str(caught.value) == "The quantization scale is 0; it must be a number other than 0."
    with pytest.raises(ValueError) as caught:
        ann.quantize(float("nan"), 0.1, 0, "uint8")
    assert str(caught.value) == "The value is not a number (NaN), which no quantized value can stand for."
