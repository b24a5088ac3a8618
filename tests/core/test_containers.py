"""Sequences and optionals as infos, as they are stored, as text and as plain data."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.codec import info_from_plain, info_to_plain
from interposer.core.containers import as_given, as_stored, collected, refined
from interposer.core.errors import BindingError, InvalidArgumentError, ParseError
from interposer.core.types import DataType, Quantization, TensorInfo
from interposer.ir.graph import Graph
from interposer.ir.text import parse_graph, print_graph
from interposer.ops import Input

F32 = TensorInfo((None, 2))
dims = st.one_of(st.integers(0, 4), st.none(), st.sampled_from(["n", "a b"]))
tensors = st.builds(
    TensorInfo,
    st.one_of(st.just(...), st.lists(dims, max_size=3)),
    st.sampled_from([DataType.FLOAT32, DataType.STRING, DataType.BOOL]),
) | st.builds(TensorInfo, st.just(...), st.just("int8"), st.builds(Quantization, st.floats(0.5, 2), st.integers(-5, 5)))
sequences = st.builds(lambda n, e: TensorInfo((n,), "sequence", element=e), dims, tensors)
optionals = st.builds(
    lambda n, e: TensorInfo((n,), "optional", element=e),
    st.sampled_from([0, 1, None, "n"]),
    st.one_of(tensors, sequences),
)
infos = st.one_of(tensors, sequences, optionals)


def array(title, info, given):
    return np.asarray(given, info.dtype.numpy)


@given(infos)
def test_infos_are_read_back_from_text_and_from_plain_data(info):
    graph = Graph("test")
    graph.add(Input(0), name="x", outputs=[info]).output.info = info
    [layer] = parse_graph(print_graph(graph))
    assert layer.output.info == layer.output.declared == info
    assert info_from_plain(info_to_plain(info)) == info


def test_an_info_says_what_is_known_of_every_element():
    info = TensorInfo((3,), "sequence", element=F32)
    assert str(info) == "sequence[3] of float32[?, 2]"
    assert eval(repr(info).replace("?", "None"), {"TensorInfo": TensorInfo, "DataType": DataType}) == info
    assert info.with_shape((None,)).element == info.with_constant(None).element == F32
    assert info != TensorInfo((3,), "sequence", element=TensorInfo((2, 2)))
    assert TensorInfo((3,), "sequence", element=TensorInfo((2, 2))).num_bytes == 3 * (128 + 16)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"shape": (2,), "dtype": "sequence"}, "the element of a sequence must be a TensorInfo, not None"),
        ({"shape": (2,), "element": F32}, f"a tensor of type float32 has no element, but {F32!r} was given"),
        ({"shape": (2, 2), "dtype": "sequence", "element": F32}, "a sequence has rank 1, not the shape [2, 2]"),
        ({"shape": ..., "dtype": "sequence", "element": F32}, "a sequence has rank 1, not the shape [...]"),
        ({"shape": (2,), "dtype": "optional", "element": F32}, "an optional holds at most one element, not 2"),
        (
            {"shape": (1,), "dtype": "sequence", "element": TensorInfo((1,), "sequence", element=F32)},
            "a sequence cannot hold elements of type sequence",
        ),
    ],
    ids=["no element", "of a tensor", "rank", "no rank", "two", "sequences"],
)  # fmt: skip
def test_an_info_that_cannot_be_is_refused(arguments, fault):
    with pytest.raises(InvalidArgumentError) as caught:
        TensorInfo(**arguments)
    assert str(caught.value) == fault


@pytest.mark.parametrize(
    "text",
    ["sequence[2]", "sequence[2] of", "float32[2] of float32[]", "optional[3] of int8[]", "sequence[..] of int8[]"],
)
def test_text_that_describes_no_info_is_refused(text):
    with pytest.raises(ParseError):
        parse_graph(f"graph {{\n  %x = Input : {text}\n}}")


def test_elements_may_not_be_nested_without_end():
    with pytest.raises(ParseError, match="more than 32 levels are nested"):
        parse_graph("graph {\n  %x = Input : " + "sequence[1] of " * 5000 + "int8[]\n}")


def test_what_is_true_of_two_sequences_is_what_is_true_of_their_elements():
    two = TensorInfo((2,), "sequence", element=TensorInfo((1, 2)))
    assert str(two.joined(TensorInfo((3,), "sequence", element=TensorInfo((4, 2))))) == "sequence[?] of float32[?, 2]"
    assert str(two.joined(TensorInfo((0,), "sequence", element=TensorInfo(...)))) == "sequence[?] of float32[1, 2]"
    with pytest.raises(InvalidArgumentError, match="have no common info$"):
        two.joined(TensorInfo((2,), "sequence", element=TensorInfo((1, 2), "int8")))


def test_what_is_stored_is_given_back():
    info = TensorInfo((None,), "optional", element=TensorInfo((None,), "sequence", element=TensorInfo(...)))
    for value in (None, [], [[1.0], 2.0]):
        stored = as_stored("x", info, value, array)
        assert (stored.ndim, stored.dtype) == (1, object)
        result = as_given(info, stored)
        assert result is None if value is None else [element.tolist() for element in result] == value


def test_more_is_known_of_elements_that_are_there():
    info = TensorInfo((None,), "sequence", element=TensorInfo(...))
    stored = collected([np.float32([1, 2]), np.float32([3])])
    assert str(refined(info, stored)) == "sequence[2] of float32[?]"
    assert str(refined(info, collected([]))) == "sequence[0] of float32[...]"


def test_a_list_of_another_length_is_refused():
    info = TensorInfo((1,), "sequence", element=F32)
    with pytest.raises(BindingError, match=r"^x has 2 elements; expected sequence\[1\] of float32\[\?, 2\]$"):
        as_stored("x", info, [[[1, 2]], [[3, 4]]], array)
