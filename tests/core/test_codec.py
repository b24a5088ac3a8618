"""How attributes' values are checked, compared, written as plain data and read back."""

import json
import math
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from interposer.core.codec import array_from_plain, array_to_plain, codec_of, info_from_plain, info_to_plain
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import ANY_TYPE, Array, DataType, Quantization, TensorInfo


class Colour(Enum):
    RED = 1
    BLUE = 2


FLOATS = st.floats(width=64)
VALUES = {
    bool: st.booleans(),
    int: st.integers(),
    float: FLOATS,
    str: st.text(),
    Colour: st.sampled_from(Colour),
    DataType: st.sampled_from(sorted(ANY_TYPE, key=str)),
    Quantization: st.builds(Quantization, st.floats(0.1, 9), st.integers(-9, 9)),
    int | None: st.none() | st.integers(),
    tuple[float, ...]: st.lists(FLOATS).map(tuple),
    tuple[int, int]: st.tuples(st.integers(), st.integers()),
    tuple[tuple[int, int], ...]: st.lists(st.tuples(st.integers(), st.integers())).map(tuple),
    Array: hnp.arrays(st.sampled_from(["?", "i1", "u8", "f2", ">f4"]), hnp.array_shapes(min_dims=0, min_side=0)),
}  # fmt: skip


@pytest.mark.parametrize("hint", VALUES, ids=str)
@given(data=st.data())
def test_what_is_written_as_json_is_read_back_as_the_same(hint, data):
    codec, value = codec_of(hint), codec_of(hint).coerce(data.draw(VALUES[hint]))
    again = codec.coerce(codec.from_plain(json.loads(json.dumps(codec.to_plain(value)))))
    assert codec.equal(again, value)
    assert codec.hash(again) == codec.hash(value)


@pytest.mark.parametrize(("hint", "value"), [
    (int, 1.0), (int, True), (int, "1"), (float, "1"), (float, 10**400), (float, True), (bool, 1), (str, 1),
    (Colour, "RED"), (Colour, 1), (Quantization, 0.5), (int | None, "1"), (tuple[int, ...], 1), (tuple[str, ...], "ab"),
    (tuple[int, int], (1, 2, 3)), (tuple[int, ...], (1, "2")), (Array, [[1], [1, 2]]), (Array, [None]),
    (Array, np.zeros(2, complex)), (Array, np.array([b"\xff"], object)),
], ids=str)  # fmt: skip
def test_a_value_of_another_type_is_refused(hint, value):
    with pytest.raises((TypeError, ValueError)):
        codec_of(hint).coerce(value)


@pytest.mark.parametrize(("hint", "value", "stored"), [
    (int, np.int64(3), 3), (float, 3, 3.0), (float, np.float32(0.5), 0.5), (bool, np.bool_(True), True),
    (tuple[int, ...], [1, np.int8(2)], (1, 2)), (tuple[int, ...], np.array([1, 2]), (1, 2)), (int, np.array(3), 3),
])  # fmt: skip
def test_values_of_numpy_become_plain_ones(hint, value, stored):
    coerced = codec_of(hint).coerce(value)
    assert coerced == stored
    assert type(coerced) is type(stored)


class Index:
    """An integer of another package, such as a symbolic size."""

    def __index__(self):
        return 3


def test_anything_with_an_index_is_an_integer():
    assert codec_of(int).coerce(Index()) == 3
    assert codec_of(int | None).coerce(Index()) == 3
    assert codec_of(tuple[int, ...]).coerce([Index(), np.uint8(2)]) == (3, 2)


def test_the_types_that_an_attribute_cannot_have_are_refused():
    for hint in (dict, int | str, tuple[int, str], list[int]):
        with pytest.raises(InvalidArgumentError, match="an attribute cannot be annotated with"):
            codec_of(hint)


@pytest.mark.parametrize("hint", [float, tuple[float, ...], float | None])
def test_nan_is_the_same_as_nan_and_zero_is_not_minus_zero(hint):
    codec, wrap = codec_of(hint), (lambda x: (x,)) if "tuple" in str(hint) else float
    assert codec.equal(wrap(math.nan), wrap(float("nan")))
    assert codec.hash(wrap(math.nan)) == codec.hash(wrap(float("nan")))
    assert not codec.equal(wrap(0.0), wrap(-0.0))


def test_an_opaque_object_is_itself_only_and_written_as_nothing():
    codec = codec_of(Any)
    blob = np.zeros(3)
    assert codec.equal(blob, blob)
    assert not codec.equal(blob, np.zeros(3))
    assert codec.equal("a", "a")
    assert codec.hash([]) == codec.hash([])
    assert codec.to_plain(blob) is None


def test_a_bare_word_names_a_member_of_an_enum_at_any_depth():
    assert codec_of(Colour).named("BLUE") is Colour.BLUE
    assert codec_of(tuple[Colour, ...] | None).named("RED") is Colour.RED
    assert codec_of(DataType).named("uint8") is codec_of(DataType).named("UINT8") is DataType.UINT8
    with pytest.raises(KeyError):
        codec_of(int).named("BLUE")


# --- arrays -----------------------------------------------------------------------------------------------------------


def test_an_array_is_shared_but_cannot_be_written_through_the_attribute():
    given_array = np.zeros(3)
    stored = codec_of(Array).coerce(given_array)
    assert np.shares_memory(stored, given_array)
    assert given_array.flags.writeable
    assert not stored.flags.writeable


def test_arrays_are_the_same_when_their_bits_are():
    codec = codec_of(Array)
    assert codec.equal(np.array([math.nan]), np.array([math.nan]))
    assert not codec.equal(np.array([0.0]), np.array([-0.0]))
    assert not codec.equal(np.zeros(2, "int8"), np.zeros(2, "uint8"))
    assert not codec.equal(np.zeros((2, 1)), np.zeros((1, 2)))
    assert codec.equal(np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T))


def test_the_order_of_bytes_in_memory_makes_no_difference():
    codec = codec_of(Array)
    big, little = codec.coerce(np.array([1, 2], ">i4")), codec.coerce(np.array([1, 2], "<i4"))
    assert codec.equal(big, little)
    assert array_to_plain(np.array([1, 2], ">i4")) == array_to_plain(np.array([1, 2], "<i4"))


@pytest.mark.parametrize("given_array", [["a", "ü"], [b"a", "ü".encode()], np.array(["a", "ü"], object)], ids=str)
def test_texts_of_every_kind_become_the_same_array(given_array):
    stored = codec_of(Array).coerce(given_array)
    assert DataType.of(stored.dtype) is DataType.STRING
    assert stored.tolist() == ["a", "ü"]
    assert array_from_plain(json.loads(json.dumps(array_to_plain(stored)))).tolist() == ["a", "ü"]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4, ml_dtypes.uint4])
def test_small_types_are_written_and_read_back(dtype):
    array = np.array([1, 2, 3]).astype(dtype)
    again = array_from_plain(array_to_plain(array))
    assert again.dtype == array.dtype
    assert again.tolist() == [1, 2, 3]


@pytest.mark.parametrize("plain", [
    {"dtype": "int8", "shape": [3], "base64": "AAA="},
    {"dtype": "int8", "shape": [-1], "base64": "AAA="},
    {"dtype": "int8", "shape": [1.5], "base64": "AAA="},
    {"dtype": "int8", "shape": [2], "base64": "A?=="},
    {"dtype": "int16", "shape": [2], "base64": "AAAA"},
    {"dtype": "int8", "shape": [10**30], "base64": ""},
    {"dtype": "int7", "shape": [0], "base64": ""},
    {"dtype": "int8", "shape": [2], "data": [1]},
    {"dtype": "int8", "shape": [1], "data": ["x"]},
    {"dtype": "int8", "shape": None, "data": []},
    {"dtype": "int8", "shape": [0]},
    {},
], ids=str)  # fmt: skip
def test_a_damaged_array_is_refused(plain):
    with pytest.raises((TypeError, ValueError, KeyError)):
        array_from_plain(plain)


# --- infos ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("info", [
    TensorInfo(), TensorInfo((1, None, "batch"), "bool"), TensorInfo((2,), "uint8", Quantization(0.1, 3)),
    TensorInfo((2, 1), "int8", Quantization((0.1, 0.2), axis=0)),
], ids=str)  # fmt: skip
def test_infos_are_written_and_read_back(info):
    assert info_from_plain(json.loads(json.dumps(info_to_plain(info)))) == info
