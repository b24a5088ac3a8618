"""Shapes of unknown rank, and what is true of two shapes."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import UnknownRankError
from interposer.core.shape import UNKNOWN, UNRANKED, TensorShape
from interposer.core.types import TensorInfo
from interposer.ops import Activation, Addition, Concat, Convolution2d, Shape, Transpose

dims = st.one_of(st.integers(0, 4), st.none(), st.sampled_from(["n", "m"]))
shapes = st.one_of(st.just(UNRANKED), st.lists(dims, max_size=4).map(TensorShape))


def test_there_is_one_shape_of_unknown_rank():
    assert TensorShape(...) is UNRANKED
    assert pickle.loads(pickle.dumps(UNRANKED)) is UNRANKED
    assert copy.deepcopy(UNRANKED) is UNRANKED
    assert str(UNRANKED) == "[...]"
    assert TensorShape(()) != UNRANKED
    assert TensorShape(()) != UNRANKED
    assert len({UNRANKED, TensorShape(()), UNRANKED}) == 2


def test_it_is_neither_concrete_nor_of_a_known_size():
    assert not UNRANKED.is_ranked
    assert not UNRANKED.is_concrete
    assert UNRANKED.num_elements is UNKNOWN


@pytest.mark.parametrize(
    "ask",
    [len, list, tuple, bool, lambda s: s.rank, lambda s: s[0], lambda s: 1 in s, lambda s: s + (1,), lambda s: (*s, 1),
     lambda s: s.count(1), sorted],
    ids=range(11),
)  # fmt: skip
def test_nobody_can_take_it_for_a_scalar(ask):
    with pytest.raises(UnknownRankError, match="^the rank of a tensor is not known before running$"):
        ask(UNRANKED)


@given(shapes, shapes)
def test_what_is_joined_accepts_both_and_says_nothing_that_only_one_says(a, b):
    joined = a.joined(b)
    assert joined == b.joined(a)
    assert joined.accepts(a)
    assert joined.accepts(b)
    assert joined.joined(a) == joined


@given(shapes, shapes)
def test_what_is_merged_knows_what_both_know(a, b):
    if a.accepts(b):
        merged = a.merged(b)
        assert a.accepts(merged)
        assert b.accepts(merged)


# --- operators --------------------------------------------------------------------------------------------------------

ANY = TensorInfo(...)


@pytest.mark.parametrize(
    ("op", "operands", "wanted"),
    [
        (Activation(), [ANY], "float32[...]"),
        (Addition(), [ANY, TensorInfo((2, 3))], "float32[...]"),
        (Addition(), [ANY, ANY], "float32[...]"),
        (Transpose((1, 0)), [ANY], "float32[?, ?]"),
        (Shape(), [ANY], "int32[?]"),
        (Convolution2d(), [ANY, TensorInfo((8, 3, 3, 4))], "float32[?, 8, ?, ?]"),
        (Concat(axis=0), [ANY, ANY, ANY], "float32[...]"),
        (Concat(axis=0), [ANY, TensorInfo((2, 3))], "float32[?, 3]"),
    ],
    ids=lambda value: value.op_name() if hasattr(value, "op_name") else "",
)
def test_operators_say_what_is_true_for_every_rank(op, operands, wanted):
    assert op.violations(*operands) == []
    assert str(op.infer_infos(*operands)[0]) == wanted


def test_an_operator_that_is_wrong_for_every_rank_is_refused():
    [error] = Transpose((1, 1)).violations(ANY)
    assert error.startswith("permutation is (1, 1)")
