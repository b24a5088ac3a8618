import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op
from interposer.core.types import Quantization, TensorInfo
from interposer.ops.elementwise import (
    Addition,
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseBinary,
    ElementwiseUnary,
    LogicalBinary,
    Maximum,
    Minimum,
    Multiplication,
    Prelu,
    Subtraction,
    UnaryOperation,
    Where,
)


def info(*shape, dtype="float32", quantization=None):
    return TensorInfo(shape, dtype, quantization)


@pytest.mark.parametrize(
    ("operation", "named"),
    [
        (BinaryOperation.ADD, Addition()),
        (BinaryOperation.SUB, Subtraction()),
        (BinaryOperation.MUL, Multiplication()),
        (BinaryOperation.DIV, Division()),
        (BinaryOperation.MAXIMUM, Maximum()),
        (BinaryOperation.MINIMUM, Minimum()),
    ],
)
def test_an_operation_with_a_name_of_its_own_is_kept_under_that_name(operation, named):
    assert ElementwiseBinary(operation).canonical() == named
    assert named.canonical() is named


def test_an_operation_without_a_name_of_its_own_is_kept_as_it_is():
    power = ElementwiseBinary(BinaryOperation.POWER)
    assert power.canonical() is power


def test_a_named_operator_takes_no_other_operation():
    with pytest.raises(InvalidArgumentError) as error:
        Addition(operation=BinaryOperation.SUB)
    assert str(error.value) == "Addition: operation is BinaryOperation.SUB; expected one of BinaryOperation.ADD"


@pytest.mark.parametrize("op", [Addition(), Comparison(), Prelu()])
def test_operands_broadcast_from_the_last_axis_on(op):
    [inferred] = op.infer_infos(info(5, 1, 3), info(4, 1))
    assert inferred.shape == (5, 4, 3)


def test_what_is_not_known_yet_stays_unknown_or_follows_the_other_operand():
    [inferred] = Addition().infer_infos(info(None, "n", 3), info(7, 1, None))
    assert str(inferred.shape) == "[7, n, 3]"


def test_shapes_that_do_not_broadcast_are_named():
    [error] = Addition().violations(info(2, 3), info(2, 2))
    assert error == (
        "the shapes do not broadcast: a [2, 3] and b [2, 2]; from the last axis on, dimensions must agree or be 1"
    )


def test_operands_of_different_types_are_named():
    [error] = Addition().violations(info(2), info(2, dtype="float16"))
    assert error == "b is float16; expected float32, the type of a"


def test_an_exponent_may_have_another_type_and_the_power_has_that_of_the_base():
    op = ElementwiseBinary(BinaryOperation.POWER)
    base, exponent = info(2), info(2, dtype="int64")
    assert op.violations(base, exponent) == []
    assert op.infer_infos(base, exponent) == (info(2),)


def test_a_comparison_gives_truth_values_whatever_it_compares():
    quantization = Quantization(0.5, 3)
    operand = info(2, dtype="uint8", quantization=quantization)
    assert Comparison(ComparisonOperation.LESS).infer_infos(operand, operand) == (info(2, dtype="bool"),)


@pytest.mark.parametrize("operation", [UnaryOperation.IS_NAN, UnaryOperation.IS_INF, UnaryOperation.IS_NEGATIVE_INF])
def test_a_predicate_gives_truth_values(operation):
    assert ElementwiseUnary(operation).infer_infos(info(2, 3)) == (info(2, 3, dtype="bool"),)


def test_only_truth_values_can_be_negated():
    [error] = ElementwiseUnary(UnaryOperation.LOGICAL_NOT).violations(info(2))
    assert error == "input is float32; expected bool for LOGICAL_NOT"


def test_only_truth_values_can_be_joined():
    errors = LogicalBinary().violations(info(2), info(2, dtype="int32"))
    assert errors == ["a is float32; expected one of bool", "b is int32; expected one of bool"]


def test_a_choice_broadcasts_all_three_operands_and_has_the_type_of_the_second():
    [inferred] = Where().infer_infos(info(3, 1, dtype="bool"), info(4, dtype="int64"), info(2, 1, 1, dtype="int64"))
    assert inferred == info(2, 3, 4, dtype="int64")


def test_scales_for_every_channel_are_dropped_where_the_axis_moves():
    quantization = Quantization([0.5, 0.25], 0, axis=0)
    [inferred] = Addition().infer_infos(info(2, dtype="int8", quantization=quantization), info(3, 1, dtype="int8"))
    assert inferred == info(3, 2, dtype="int8")


extents = st.lists(st.sampled_from([1, 2, 3]), max_size=4)


@given(extents, extents)
def test_broadcasting_does_not_depend_on_the_order_of_operands(a, b):
    first, second = TensorInfo(a), TensorInfo(b)
    assert bool(Addition().violations(first, second)) == bool(Addition().violations(second, first))
    if not Addition().violations(first, second):
        assert Addition().infer_infos(first, second) == Addition().infer_infos(second, first)


@given(st.sampled_from(BinaryOperation))
def test_every_binary_operation_is_written_and_read_back(operation):
    op = ElementwiseBinary(operation)
    assert Op.from_plain(op.to_plain()) == op


def test_the_result_of_a_unary_operation_is_like_its_input():
    given_info = info(2, dtype="int8", quantization=Quantization(0.5, 1))
    assert ElementwiseUnary(UnaryOperation.NEG).infer_infos(given_info) == (given_info,)
