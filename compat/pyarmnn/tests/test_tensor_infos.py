"""`TensorShape`, `TensorInfo` and `PermutationVector`."""

import math
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarmnn as ann
import pytest


def test_a_shape_is_created_from_a_tuple():
    shape = ann.TensorShape((4, 2, 3))
    assert [shape[0], shape[1], shape[2]] == list(shape) == [4, 2, 3]
    assert (shape.GetNumDimensions(), shape.GetNumElements()) == (3, 24)


def test_a_shape_may_have_one_dimension():
    assert ann.TensorShape((7,)).GetNumElements() == 7


@pytest.mark.parametrize(
    ("element", "size"),
    [
        (2.7, 2),
        (-0.5, 0),
        (True, 1),
        (np.bool_(True), 1),
        (np.int64(4), 4),
        (np.float32(5.5), 5),
        (np.array(3), 3),
        (Fraction(7, 2), 3),
        (Decimal("3.5"), 3),
        ("2", 2),
        (" 3 ", 3),
        ("1_0", 10),
        (np.str_("7"), 7),
        (b"4", 4),
        ("4294967295", 4294967295),
    ],
)
def test_a_size_is_what_int_makes_of_the_element(element, size):
    assert list(ann.TensorShape((1, element))) == [1, size]


@pytest.mark.parametrize("element", ["", "a", "0x10", "2.5", None, 1j, [], math.nan, math.inf])
def test_a_shape_and_a_permutation_refuse_elements_that_are_no_numbers(element):
    for kind in ann.TensorShape, ann.PermutationVector:
        with pytest.raises(TypeError, match="^All elements must be numbers$"):
            kind((0, element))


@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        ((), RuntimeError, "Tensor numDimensions must be greater than 0"),
        ((1,) * 6, RuntimeError, "Tensor numDimensions must be less than or equal to MaxNumOfTensorDimensions"),
        ([1, 2], TypeError, "Argument is not a tuple"),
        (3, TypeError, "Argument is not a tuple"),
        ((1, "-1"), OverflowError, "-1 cannot be an unsigned integer of 32 bits"),
        ((1, 1e10), OverflowError, "10000000000 cannot be an unsigned integer of 32 bits"),
        ((-1, 2), OverflowError, "-1 cannot be an unsigned integer of 32 bits"),
        ((1 << 32,), OverflowError, "4294967296 cannot be an unsigned integer of 32 bits"),
    ],
)
def test_a_shape_refuses_other_arguments(argument, error, text):
    with pytest.raises(error, match=f"^{re.escape(text)}$"):
        ann.TensorShape(argument)


def test_a_shape_takes_one_argument():
    with pytest.raises(TypeError):
        ann.TensorShape(1, 2, 3)
    with pytest.raises(TypeError):
        ann.TensorShape()


def test_elements_of_a_shape_are_assigned():
    shape = ann.TensorShape((1, 2))
    shape[1] = 9
    assert str(shape) == "TensorShape{Shape(1, 9), NumDimensions: 2, NumElements: 9}"


def test_an_index_beyond_the_dimensions_is_a_value_error():
    shape = ann.TensorShape((1, 2))
    text = re.escape("Invalid dimension index: 2 (number of dimensions is 2)")
    with pytest.raises(ValueError, match=text):
        shape[2]
    with pytest.raises(ValueError, match=text):
        shape[2] = 1


@pytest.mark.parametrize(("index", "error"), [(-1, OverflowError), ("a", TypeError), (1.5, TypeError)])
def test_an_index_of_a_shape_must_be_an_unsigned_integer(index, error):
    text = "in method 'TensorShape___getitem__', argument 2 of type 'unsigned int'"
    with pytest.raises(error, match=f"^{text}$"):
        ann.TensorShape((1, 2))[index]


def test_an_info_has_shape_type_and_quantization():
    info = ann.TensorInfo(ann.TensorShape((3, 2)), ann.DataType_QAsymmU8, 0.5, 7)
    assert (info.GetDataType(), info.GetNumDimensions(), info.GetNumElements(), info.GetNumBytes()) == (2, 2, 6, 6)
    assert (info.GetQuantizationScale(), info.GetQuantizationOffset(), info.IsQuantized()) == (0.5, 7, True)


def test_the_text_of_an_info_has_its_fields():
    info = ann.TensorInfo(ann.TensorShape((3, 2)), ann.DataType_QAsymmU8, 0.5)
    assert str(info) == (
        "TensorInfo{DataType: 2, IsQuantized: 1, QuantizationScale: 0.500000, QuantizationOffset: 0, "
        "NumDimensions: 2, NumElements: 6}"
    )


def test_scales_are_0_for_a_new_info_and_1_for_an_empty_one():
    assert ann.TensorInfo(ann.TensorShape((1,)), ann.DataType_Float32).GetQuantizationScale() == 0
    assert ann.TensorInfo().GetQuantizationScale() == 1


def test_a_copied_info_is_independent():
    info = ann.TensorInfo(ann.TensorShape((3, 2)), ann.DataType_Float32)
    copied = ann.TensorInfo(info)
    copied.SetShape(ann.TensorShape((9,)))
    copied.SetDataType(ann.DataType_Signed32)
    copied.SetQuantizationScale(0.25)
    copied.SetQuantizationOffset(4)
    assert str(info).endswith("NumDimensions: 2, NumElements: 6}")
    assert (info.GetDataType(), info.GetQuantizationScale(), info.GetQuantizationOffset()) == (1, 0, 0)


def test_the_shape_of_an_info_can_be_changed_in_place():
    info = ann.TensorInfo(ann.TensorShape((3, 2)), ann.DataType_Float32)
    info.GetShape()[0] = 5
    assert info.GetNumElements() == 10


@pytest.mark.parametrize("arguments", [(3,), ((1, 2), 1), (ann.TensorShape((1,)),), (ann.TensorShape((1,)), 1.0)])
def test_an_info_refuses_other_arguments_with_the_prototypes(arguments):
    with pytest.raises(TypeError) as caught:
        ann.TensorInfo(*arguments)
    assert str(caught.value).splitlines()[:3] == [
        "Wrong number or type of arguments for overloaded function 'new_TensorInfo'.",
        "  Possible C/C++ prototypes are:",
        "    armnn::TensorInfo::TensorInfo()",
    ]


@pytest.mark.parametrize(
    ("dtype", "others", "is_match"),
    [(2, (2, 0.5, 1), True), (2, (2, 0.25, 1), False), (2, (2, 0.5, 2), False), (1, (1, 0.25, 9), True)]
    + [(1, (3, 0.5, 1), False)],
)
def test_infos_match_by_type_and_quantization(dtype, others, is_match):
    shape = ann.TensorShape((1,))
    assert ann.TensorInfo(shape, dtype, 0.5, 1).IsTypeSpaceMatch(ann.TensorInfo(shape, *others)) is is_match


def test_a_permutation_has_elements_a_size_and_an_inverse():
    permutation = ann.PermutationVector((0, 2, 3, 1))
    assert [permutation[index] for index in range(permutation.GetSize())] == list(permutation) == [0, 2, 3, 1]
    assert permutation.IsInverse(ann.PermutationVector((0, 3, 1, 2)))
    assert not permutation.IsInverse(permutation)
    assert not permutation.IsInverse(ann.PermutationVector((1, 0)))


def test_permutations_are_equal_by_their_elements():
    assert ann.PermutationVector((1, 0)) == ann.PermutationVector((1, 0))
    assert ann.PermutationVector((1, 0)) != ann.PermutationVector((0, 1))


@pytest.mark.parametrize(
    ("argument", "error", "text"),
    [
        ((0, 0), RuntimeError, "Two or more source dimensions are mapped to the same output dimension"),
        ((0, 5), RuntimeError, "Dimension mapping at index 1 is invalid: 5 is outside of the valid range [0,1]"),
        ((0, 1, 2, 3, 4, 5), RuntimeError, "The number of mappings (6) cannot be greater than"),
        ([0, 1], TypeError, "Argument is not a tuple"),
        (("0", "0"), RuntimeError, "Two or more source dimensions are mapped to the same output dimension"),
    ],
)
def test_a_permutation_refuses_other_arguments(argument, error, text):
    with pytest.raises(error, match=re.escape(text)):
        ann.PermutationVector(argument)
