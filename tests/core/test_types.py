"""Data types, dimensions, shapes, quantization and tensor infos."""

import copy
import math
import pickle
from operator import ge, gt, le, lt

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import (
    ANY_TYPE,
    FLOATS,
    INTEGERS,
    MAX_RANK,
    STORED_FLOATS,
    UNKNOWN,
    DataLayout,
    DataType,
    Dim,
    Quantization,
    TensorInfo,
    TensorShape,
    differ,
)

DIMENSIONS = st.one_of(st.integers(0, 9), st.none(), st.sampled_from(["batch", "width"]))
SHAPES = st.lists(DIMENSIONS, max_size=MAX_RANK).map(TensorShape)


def refused(call, *args, **kwargs):
    with pytest.raises(InvalidArgumentError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# --- data types -------------------------------------------------------------------------------------------------------


def test_arm_nns_names_are_aliases_of_the_storage_types():
    assert DataType.QAsymmU8 is DataType.UINT8
    assert DataType.QSymmS16 is DataType.INT16
    assert DataType.Signed32 is DataType.INT32
    assert DataType.Boolean is DataType.BOOL


@pytest.mark.parametrize("data_type", sorted(ANY_TYPE, key=str), ids=str)
def test_a_data_type_is_found_by_its_numpy_dtype_its_name_and_its_value(data_type):
    assert DataType.of(data_type.numpy) is data_type
    assert DataType.of(data_type.name) is data_type
    assert DataType.of(str(data_type)) is data_type
    assert DataType.of(data_type.name.lower()) is data_type


@pytest.mark.parametrize(("python_type", "data_type"), [
    (float, DataType.FLOAT64), (bool, DataType.BOOL), (str, DataType.STRING), (np.uint8, DataType.UINT8),
    (np.dtype(">i4"), DataType.INT32), (ml_dtypes.bfloat16, DataType.BFLOAT16), (np.dtype("U7"), DataType.STRING),
    ("FLOAT32", DataType.FLOAT32), ("QSymmS8", DataType.INT8),
])  # fmt: skip
def test_types_of_python_and_numpy_have_a_data_type(python_type, data_type):
    assert DataType.of(python_type) is data_type


def test_an_unknown_data_type_is_refused_with_the_nearest_name():
    assert refused(DataType.of, "float23") == "unknown data type 'float23'; did you mean 'float32'?"
    assert refused(DataType.of, np.complex64) == "unknown data type 'complex64'"
    assert refused(DataType.of, None) == "a data type is a DataType, its name or a NumPy dtype, not None"
    assert refused(DataType.of, 3.5) == "a data type is a DataType, its name or a NumPy dtype, not 3.5"


@pytest.mark.parametrize(("data_type", "bits", "itemsize"), [
    (DataType.BOOL, 8, 1), (DataType.INT4, 4, 1), (DataType.UINT16, 16, 2), (DataType.BFLOAT16, 16, 2),
    (DataType.FLOAT8_E4M3FN, 8, 1), (DataType.FLOAT64, 64, 8), (DataType.STRING, 0, 8),
])  # fmt: skip
def test_bits_are_those_of_a_packed_buffer_and_itemsize_those_of_the_array(data_type, bits, itemsize):
    assert (data_type.bits, data_type.itemsize) == (bits, itemsize)


def test_every_type_is_a_float_an_integer_bool_or_string():
    assert FLOATS | STORED_FLOATS | INTEGERS | {DataType.BOOL, DataType.STRING} == ANY_TYPE
    assert not FLOATS & INTEGERS


@pytest.mark.parametrize("layout", DataLayout)
def test_a_layout_knows_where_its_axes_are(layout):
    axes = layout.axes()
    assert [layout.value[axis] for axis in axes] == ["H", "W", "C"]
    assert layout.channels_last == (axes.channels == layout.rank - 1)


# --- sizes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [
    UNKNOWN + 1, 1 + UNKNOWN, UNKNOWN - 1, 1 - UNKNOWN, UNKNOWN * 2, 2 * UNKNOWN, UNKNOWN // 2, 7 // UNKNOWN,
    -(-UNKNOWN // 2), UNKNOWN / 2, 7 / UNKNOWN, UNKNOWN**2, 2**UNKNOWN, abs(UNKNOWN), math.ceil(UNKNOWN / 2),
    math.floor(UNKNOWN), round(UNKNOWN), sum((UNKNOWN, 1, 2)), divmod(UNKNOWN, 2)[0], Dim("batch") + 0,
])  # fmt: skip
def test_arithmetic_with_an_unknown_extent_gives_an_unknown_extent(result):
    assert result is UNKNOWN


def test_an_unknown_extent_orders_with_nothing_and_divides_by_everything():
    assert not any(compare(*pair) for compare in (lt, gt, le, ge) for pair in ((UNKNOWN, 1), (1, UNKNOWN)))
    assert UNKNOWN % 3 == 0
    assert 3 % UNKNOWN == 0
    assert UNKNOWN != -1


def test_an_unknown_extent_is_the_same_as_another_of_its_name_only():
    assert Dim("batch") is Dim("batch")
    assert Dim("batch") != Dim("width")
    assert Dim() is UNKNOWN
    assert copy.deepcopy(Dim("batch")) is Dim("batch")


def test_extents_differ_only_where_both_are_known():
    assert differ(2, 3)
    assert not differ(2, 2)
    assert not differ(2, UNKNOWN)
    assert not differ(Dim("a"), Dim("b"))


# --- shapes -----------------------------------------------------------------------------------------------------------


def test_a_shape_prints_what_it_does_not_know():
    shape = TensorShape((1, None, "width", 3))
    assert str(shape) == "[1, ?, width, 3]"
    assert repr(shape) == "TensorShape(1, ?, width, 3)"


def test_a_scalar_has_rank_0_and_one_element():
    assert TensorShape().rank == 0
    assert TensorShape().num_elements == 1
    assert str(TensorShape()) == "[]"


def test_the_number_of_elements_is_unknown_where_an_extent_is():
    assert TensorShape((2, None)).num_elements is UNKNOWN
    assert TensorShape((2, 3)).num_elements == 6


@given(SHAPES)
def test_shapes_survive_copying_and_pickling(shape):
    assert pickle.loads(pickle.dumps(shape)) == shape
    assert copy.deepcopy(shape) == shape
    assert TensorShape(shape) is shape


@given(SHAPES, SHAPES)
def test_two_shapes_accept_each_other_or_neither_does(a, b):
    assert a.accepts(b) == b.accepts(a)
    assert a.accepts(a)


@pytest.mark.parametrize(("dims", "message"), [
    ((1, -2), "a dimension must not be negative, but -2 was given; None means unknown"),
    ((1.5,), "a dimension must be an integer, a name or None, not 1.5"),
    ((True,), "a dimension must be an integer, a name or None, not True"),
    (np.zeros((2, 2), int), "a dimension must be an integer, a name or None, not array([0, 0])"),
    (7, "a shape must be a sequence of dimensions, not 7"),
    ("abc", "a shape must be a sequence of dimensions, not 'abc'"),
    (None, "a shape must be a sequence of dimensions, not None"),
    ((1,) * 17, "a tensor has rank 17; ranks 0 to 16 are supported"),
])  # fmt: skip
def test_what_is_no_shape_is_refused(dims, message):
    assert refused(TensorShape, dims) == message


def test_extents_may_come_from_numpy():
    assert TensorShape(np.array([2, 3])) == (2, 3)
    assert all(type(dim) is int for dim in TensorShape(np.array([2, 3])))


# --- quantization -----------------------------------------------------------------------------------------------------


def test_one_zero_point_holds_for_all_scales():
    q = Quantization([0.5, 0.25], 3, axis=1)
    assert q.zero_points == (3, 3)
    assert q.per_axis
    assert str(q) == "q(axis 1, 2 scales)"


def test_scales_and_zero_points_may_come_from_numpy():
    assert Quantization(np.float32(0.5), np.int32(3)) == Quantization(0.5, 3)
    assert Quantization(np.array(0.5), np.array(3)) == Quantization(0.5, 3)
    assert Quantization(np.array([0.5, 1]), np.array([3, 4]), np.int64(0)) == Quantization((0.5, 1.0), (3, 4), 0)


@pytest.mark.parametrize(("arguments", "message"), [
    (([],), "a quantization needs at least one scale"),
    ((0.0,), "a scale must be positive and finite, not 0.0"),
    ((math.nan,), "a scale must be positive and finite, not nan"),
    (([1.0, 2.0],), "2 scales were given without the axis that they belong to"),
    (([1.0, 2.0], [0, 0, 0], 1), "2 scales but 3 zero points were given"),
    ((1.0, 0, 16), "the quantized axis must be 0 to 15, not 16"),
    ((1.0, 0, 0.5), "the quantized axis must be an integer, not 0.5"),
    (("1",), "a scale must be a number, not '1'"),
    ((None,), "a scale must be a number, not None"),
    ((1.0, 0, [1]), "the quantized axis must be an integer, not [1]"),
    ((1.0, True), "a zero point must be an integer, not True"),
    ((1.0, 0.5), "a zero point must be an integer, not 0.5"),
    ((1.0, [math.nan]), "a zero point must be an integer, not nan"),
])  # fmt: skip
def test_what_is_no_quantization_is_refused(arguments, message):
    assert refused(Quantization, *arguments) == message


def test_a_quantization_is_a_value():
    q = Quantization([0.5, 0.25], [3, 4], axis=1)
    assert pickle.loads(pickle.dumps(q)) == q
    assert len({q, Quantization([0.5, 0.25], [3, 4], axis=1), Quantization(0.5, 3)}) == 2
    assert repr(q) == "Quantization([0.5, 0.25], [3, 4], axis=1)"
    with pytest.raises(AttributeError, match="Quantization is immutable; cannot set 'axis'"):
        q.axis = 2


def test_quantizations_and_infos_that_were_hashed_are_still_equal_pickled_and_immutable():
    q = Quantization([0.5, 0.25], [3, 4], axis=1)
    hashed = TensorInfo((1, 2), "int8", q)
    number = hash(hashed)
    again = TensorInfo((1, 2), "int8", Quantization([0.5, 0.25], [3, 4], axis=1))
    assert (hashed, number) == (again, hash(again))
    assert pickle.loads(pickle.dumps(hashed)) == copy.deepcopy(hashed) == again
    assert hash(pickle.loads(pickle.dumps(q))) == hash(q)
    assert hash(hashed.with_quantization(None)) == hash(TensorInfo((1, 2), "int8"))
    with pytest.raises(AttributeError, match="Quantization is immutable"):
        q.scales = (1.0, 2.0)


# --- infos ------------------------------------------------------------------------------------------------------------


def test_an_info_prints_type_shape_and_quantization():
    assert str(TensorInfo((1, None), "int8", Quantization(1 / 3, -1))) == "int8[1, ?] q(0.333333, -1)"
    assert repr(TensorInfo((2,), "int8", Quantization(0.5))) == "TensorInfo((2,), DataType.INT8, Quantization(0.5, 0))"


def test_the_constant_takes_no_part_in_equality():
    known = TensorInfo.of(np.array([1, 2], "int64"))
    assert known == TensorInfo((2,), "int64")
    assert hash(known) == hash(TensorInfo((2,), "int64"))


def test_bytes_and_elements_are_counted_where_all_extents_are_known():
    info = TensorInfo((2, 3), DataType.INT16)
    assert (info.num_elements, info.num_bytes) == (6, 12)
    assert TensorInfo((2, None)).num_bytes is UNKNOWN


def test_another_shape_keeps_the_scales_only_where_they_fit_and_never_the_constant():
    info = TensorInfo((2, 3), "int8", Quantization([1.0, 2.0], axis=0), np.zeros((2, 3), "int8"))
    assert info.with_shape((2, 5)).quantization == info.quantization
    assert info.with_shape((5, 2)).quantization is None
    assert info.with_shape((2, 5)).constant is None
    assert info.with_quantization(None).constant is info.constant


def test_another_type_has_no_scales():
    info = TensorInfo((2,), "int8", Quantization(0.5))
    assert info.with_dtype(DataType.FLOAT32) == TensorInfo((2,))
    assert info.with_dtype(DataType.INT8) == info


@pytest.mark.parametrize(("arguments", "message"), [
    (((2,), "float32", Quantization(1.0)), "a tensor of type float32 cannot be quantized"),
    (((2,), "uint8", Quantization(1.0, -1)), "a zero point of uint8 must be 0 to 255, not -1"),
    (((2,), "int4", Quantization(1.0, 8)), "a zero point of int4 must be -8 to 7, not 8"),
    (((2,), "int8", Quantization([1.0, 2.0], axis=1)), "the quantized axis is 1, but the shape [2] has rank 1"),
    (((3,), "int8", Quantization([1.0, 2.0], axis=0)), "2 scales along axis 0 of shape [3]"),
    (((3,), "int8", 0.5), "the quantization must be a Quantization, not 0.5"),
    (((3,), "int8", None, np.zeros(2, "int8")), "the constant is int8[2], but the tensor int8[3]"),
    (((2,), "int8", None, np.zeros(2, "int16")), "the constant is int16[2], but the tensor int8[2]"),
    (((2,), "int8", None, [1, 2]), "the constant must be an array, not [1, 2]"),
])  # fmt: skip
def test_what_no_tensor_can_be_is_refused(arguments, message):
    assert refused(TensorInfo, *arguments) == message


def test_the_info_of_an_array_has_its_shape_and_type_and_a_quantization_that_fits():
    array = np.zeros((2, 3), "int8")
    q = Quantization([1.0, 2.0], axis=0)
    assert TensorInfo.of(array, q) == TensorInfo((2, 3), "int8", q)
    assert TensorInfo.of(array).constant is array
    assert refused(TensorInfo.of, array, Quantization(1.0, 128)) == "a zero point of int8 must be -128 to 127, not 128"
    assert refused(TensorInfo.of, np.zeros(2), q) == "a tensor of type float64 cannot be quantized"


def test_scales_fit_an_axis_of_unknown_extent():
    assert TensorInfo((None,), "int8", Quantization([1.0, 2.0], axis=0)).quantization is not None


def test_an_info_survives_pickling_with_its_constant():
    info = TensorInfo.of(np.array([1, 2], "int64"))
    loaded = pickle.loads(pickle.dumps(info))
    assert loaded == info
    assert loaded.constant.tolist() == [1, 2]


def test_an_info_says_how_to_change_it():
    with pytest.raises(AttributeError) as caught:
        TensorInfo((2,)).shape = (3,)
    assert str(caught.value) == "TensorInfo is immutable; cannot set 'shape', use with_shape(...)"


def of_arrays(scales, zero_points, axis=0):
    return Quantization.of_arrays(np.array(scales, np.float32), np.array(zero_points, np.int8), axis)


def test_a_quantization_of_arrays_is_the_one_of_their_numbers():
    made, listed = of_arrays([0.5, 2], [3, -4], 1), Quantization([0.5, 2.0], [3, -4], 1)
    assert made == listed
    assert hash(made) == hash(listed)
    assert (made.scale, made.zero_point, made.count) == (0.5, 3, 2)
    assert (made.scales, made.zero_points) == (listed.scales, listed.zero_points)
    assert {type(number) for number in (*made.scales, made.scale)} == {float}
    assert {type(number) for number in (*made.zero_points, made.zero_point)} == {int}
    assert [array.tolist() for array in listed.arrays] == [array.tolist() for array in made.arrays]
    assert pickle.loads(pickle.dumps(made)) == listed
    assert repr(made) == repr(listed)


@pytest.mark.parametrize(
    "other",
    [
        of_arrays([0.5, 2], [3, -4], 0), of_arrays([0.5, 3], [3, -4], 1), of_arrays([0.5, 2], [3, -5], 1),
        of_arrays([0.5, 2, 2], [3, -4, -4], 1), Quantization(0.5, 3), Quantization([0.5, 2], [3, 4], 1),
    ],
)  # fmt: skip
def test_quantizations_of_arrays_differ_if_a_number_or_the_axis_does(other):
    assert of_arrays([0.5, 2], [3, -4], 1) != other


def test_the_scales_of_a_quantization_follow_an_axis_that_moves():
    assert of_arrays([0.5, 2], [3, -4], 1).along(3) == Quantization([0.5, 2], [3, -4], 3)
    assert Quantization([0.5, 2], [3, -4], 1).along(0) == of_arrays([0.5, 2], [3, -4], 0)


def test_the_arrays_of_a_quantization_cannot_be_changed():
    for quantization in (of_arrays([0.5, 2], [3, -4]), Quantization([0.5, 2], [3, -4], 0)):
        for array in quantization.arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


@pytest.mark.parametrize(
    ("scales", "zero_points", "axis"),
    [
        ([1, 0], [0, 0], 0), ([1, math.nan], [0, 0], 0), ([math.inf, 1], [0, 0], 0), ([-1, 1], [0, 0], 0),
        ([], [], 0), ([1, 2], [0, 0], None), ([1, 2], [0, 0], MAX_RANK), ([1, 2], [0, 0, 0], 0),
    ],
)  # fmt: skip
def test_arrays_that_are_no_quantization_are_refused_as_their_numbers_are(scales, zero_points, axis):
    with pytest.raises(InvalidArgumentError) as of_numbers:
        Quantization([float(scale) for scale in scales], zero_points, axis)
    with pytest.raises(InvalidArgumentError) as caught:
        of_arrays(scales, zero_points, axis)
    assert str(caught.value) == str(of_numbers.value)
