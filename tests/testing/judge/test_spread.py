"""Results may differ by what the reference's own results do when its layers are perturbed, and by no more."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.types import DataType, Quantization, TensorInfo, smallest_float
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    ArgMinMax,
    ArgMinMaxFunction,
    Cast,
    Comparison,
    ComparisonOperation,
    Division,
    ElementwiseUnary,
    Floor,
    FullyConnected,
    Hardmax,
    LshProjection,
    LshProjectionType,
    Multiplication,
    Quantize,
    Reduce,
    ReduceOperation,
    Reshape,
    Subtraction,
    Transpose,
    UnaryOperation,
)
from interposer.testing.judge.spread import Stream
from interposer.testing.tolerances import Tolerances
from tests.testing.judge.graphs import Built, built, comparison, problems

F32, F16 = np.float32, np.float16


def product(made: Built, *numbers: float) -> object:
    """A value that was computed: each number times one."""
    return made.add(Multiplication(), made.input(np.array(numbers, F32)), made.constant(np.ones(1, F32)))


# --- what is exact ----------------------------------------------------------------------------------------------------


def test_what_is_only_moved_must_be_the_same_to_the_last_bit():
    built_network = built(lambda it: it.add(Transpose((1, 0)), it.input(np.array([[1.0, 2.0]], F32))))
    assert problems(built_network, np.array([[1.0], [2.0]], F32)) == ""
    assert problems(built_network, np.array([[1.0], [np.nextafter(F32(2), F32(3))]], F32)).startswith(
        "output 0: 1 of 2 elements"
    )


def test_quantized_results_of_quantized_inputs_are_compared_bit_for_bit():
    q = Quantization(0.5, 3)
    built_network = built(
        lambda it: it.add(
            Addition(), it.input(np.int8([4, 6]), q), it.input(np.int8([7, 1]), q), outputs=TensorInfo((2,), "int8", q)
        )
    )
    assert problems(built_network, np.int8([8, 4])) == ""
    assert problems(built_network, np.int8([8, 5])).startswith(
        "output 0: 1 of 2 elements differ, the first at [1]: 5 instead"
    )
    assert problems(built_network, np.int8([8, 5]), Tolerances(steps=1)) == ""
    assert problems(built_network, np.int8([8, 6]), Tolerances(steps=1)) != ""


def test_floats_that_come_in_are_quantized_bit_for_bit():
    """1.25 is half-way between two steps, and no arithmetic came before."""
    info = TensorInfo((2,), "int8", Quantization(0.5, 0))
    built_network = built(
        lambda it: it.add(Quantize(DataType.INT8), it.input(np.array([1.25, 2.0], F32)), outputs=info)
    )
    assert problems(built_network, np.int8([3, 4])) == ""
    assert problems(built_network, np.int8([2, 4])) != ""


def test_a_wrong_type_or_shape_is_named():
    built_network = built(lambda it: it.add(Floor(), it.input(np.ones((2, 2), F32))))
    assert problems(built_network, np.ones((2, 2))) == "output 0: its type is float64 instead of float32"
    assert problems(built_network, np.ones(4, F32)) == "output 0: its shape is [4] instead of [2, 2]"


# --- conditioning -----------------------------------------------------------------------------------------------------


def cancelling(it: Built) -> object:
    """(a - b) * 1000, where a and b are nearly the same and both were computed."""
    a, b = product(it, 1.0001, 3.0), product(it, 1.0, 1.0)
    return it.add(Multiplication(), it.add(Subtraction(), a, b), it.constant(np.full(1, 1000, F32)))


def test_what_is_left_when_numbers_cancel_out_may_differ_by_the_error_of_these():
    built_network = built(cancelling)
    [expected] = comparison(built_network).reference_values[built_network.network.graph.outputs[0].values[0]][:1]
    assert problems(built_network, np.array([expected + 0.05, 2000.0], F32)) == ""
    assert not comparison(built_network).is_near({0: np.array([expected + 0.05, 2000.0], F32)})


def test_a_difference_that_no_rounding_explains_is_found_beside_one_that_does():
    assert "the first at [1]" in problems(built(cancelling), np.array([0.1, 2100.0], F32))


def test_a_bias_that_is_left_out_is_found_before_a_normal_end():
    weights, bias = np.eye(3, dtype=F32), np.array([0.5, 0.0, 0.0], F32)

    def make(it: Built) -> object:
        sums = it.add(FullyConnected(), it.input(np.ones((1, 3), F32)), it.constant(weights), it.constant(bias))
        return it.add(Activation(ActivationFunction.TANH, 1.0, 1.0), sums)

    tanh = np.tanh([[1.5, 1.0, 1.0]]).astype(F32)
    assert problems(built(make), tanh) == ""
    assert problems(built(make), np.tanh([[1.0, 1.0, 1.0]]).astype(F32)) != ""


# --- jumps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("floor", "is_right"), [(2.0, True), (1.0, True), (3.0, False), (0.0, False)])
def test_an_element_near_a_jump_may_go_either_way(floor, is_right):
    built_network = built(lambda it: it.add(Floor(), product(it, 2.00001)))
    assert (problems(built_network, np.array([floor], F32)) == "") is is_right


def test_an_element_far_from_a_jump_may_not():
    built_network = built(lambda it: it.add(Floor(), product(it, 2.5)))
    assert problems(built_network, np.array([1.0], F32)) != ""


def test_what_follows_from_a_jump_may_go_either_way_too():
    def make(it: Built) -> object:
        steps = it.add(Floor(), product(it, 2.00001, 5.5))
        return it.add(Multiplication(), steps, it.constant(np.full(1, 100, F32)))

    assert problems(built(make), np.array([100.0, 500.0], F32)) == ""
    assert problems(built(make), np.array([100.0, 400.0], F32)) != ""


def test_numbers_that_were_computed_and_may_be_equal_compare_either_way():
    def make(it: Built) -> object:
        return it.add(Comparison(ComparisonOperation.EQUAL), product(it, 1.00001, 2.0), product(it, 1.0, 3.0))

    assert problems(built(make), np.array([True, False])) == ""
    assert problems(built(make), np.array([False, False])) == ""
    assert problems(built(make), np.array([False, True])) != ""


def test_the_place_of_the_largest_may_be_any_of_those_that_are_nearly_equal():
    built_network = built(lambda it: it.add(ArgMinMax(ArgMinMaxFunction.MAX, axis=0), product(it, 1.0, 2.99999, 3.0)))
    assert problems(built_network, np.array(1, np.int32)) == problems(built_network, np.array(2, np.int32)) == ""
    assert problems(built_network, np.array(0, np.int32)) != ""


def test_a_cast_of_what_was_computed_may_be_the_integer_on_either_side():
    built_network = built(lambda it: it.add(Cast(DataType.INT32), product(it, 6.99999)))
    assert problems(built_network, np.int32([6])) == problems(built_network, np.int32([7])) == ""
    assert problems(built_network, np.int32([5])) != ""


def test_quantized_values_of_what_was_computed_may_be_a_step_off_where_it_is_half_way():
    info = TensorInfo((2,), "int8", Quantization(1.0, 0))
    built_network = built(lambda it: it.add(Quantize(DataType.INT8), product(it, 2.50001, 4.0), outputs=info))
    assert problems(built_network, np.int8([2, 4])) == problems(built_network, np.int8([3, 4])) == ""
    assert problems(built_network, np.int8([3, 5])) != ""


# --- infinities and NaN -----------------------------------------------------------------------------------------------


def test_a_number_at_the_end_of_its_range_may_overflow():
    built_network = built(
        lambda it: it.add(Addition(), it.input(np.array([65000, 1], F16)), it.input(np.array([500, 1], F16)))
    )
    assert problems(built_network, np.array([np.inf, 2], F16)) == ""
    assert problems(built_network, np.array([65472, np.inf], F16)) != ""


def test_what_does_not_overflow_in_a_wider_type_may_stay_finite():
    """60,000 + 60,000 is infinite in float16; a backend may sum in float32 and round once at the end."""

    def make(it: Built) -> object:
        total = it.add(Addition(), it.input(np.array([60000], F16)), it.input(np.array([60000], F16)))
        return it.add(Multiplication(), total, it.constant(np.array([0.25], F16)))

    assert problems(built(make), np.array([30000], F16)) == ""
    assert problems(built(make), np.array([np.inf], F16)) == ""
    assert problems(built(make), np.array([-np.inf], F16)) != ""


def test_nan_is_allowed_only_where_the_reference_may_have_it():
    built_network = built(lambda it: it.add(ElementwiseUnary(UnaryOperation.SQRT), product(it, 0.0, 4.0)))
    assert problems(built_network, np.array([0.0, np.nan], F32)) != ""


def test_what_may_be_zero_may_be_a_pole():
    """1 / x, where x is what is left of numbers that cancel out."""

    def make(it: Built) -> object:
        zero = it.add(Subtraction(), product(it, 1.0), product(it, 0.99999))
        return it.add(Division(), it.constant(np.ones(1, F32)), zero)

    assert problems(built(make), np.array([np.inf], F32)) == ""
    assert problems(built(make), np.array([-3e4], F32)) == ""


def test_an_infinity_that_is_really_there_must_be_there():
    built_network = built(lambda it: it.add(Division(), it.input(np.ones(1, F32)), it.input(np.zeros(1, F32))))
    assert problems(built_network, np.array([np.inf], F32)) == ""
    assert problems(built_network, np.array([3e38], F32)) != ""


@pytest.mark.parametrize("dtype", [DataType.BFLOAT16, DataType.FLOAT16], ids=str)
def test_a_zero_that_was_rounded_when_it_was_stored_may_be_what_underflows(dtype):
    """A backend that fuses the layers before takes the square root of a product that is not stored."""
    built_network = built(lambda it: it.add(ElementwiseUnary(UnaryOperation.SQRT), it.input(np.zeros(2, dtype.numpy))))
    root = np.full(2, (smallest_float(dtype) / 2) ** 0.5 * 0.99).astype(dtype.numpy)
    assert problems(built_network, root, rounded_feeds=True) == ""
    assert problems(built_network, 4 * root, rounded_feeds=True) != ""
    assert problems(built_network, root) != ""


def test_numbers_of_half_a_type_may_stay_unrounded_but_for_casts():
    """What is left of a product less its rounded self is not 0 in a backend that computes both in float32."""
    f16, factors = np.float16, (np.float16(1.001), np.float16(1.003))

    def make(it: Built) -> object:
        computed = it.add(Multiplication(), *(it.input(np.full(3, one)) for one in factors))
        rounded = it.add(Cast(DataType.FLOAT16), it.add(Cast(DataType.FLOAT32), computed))
        return it.add(Subtraction(), computed, rounded)

    exact = float(factors[0]) * float(factors[1])
    assert problems(built(make), np.full(3, exact - float(f16(exact)), f16)) == ""


def test_the_element_that_hardmax_marks_is_1_whichever_of_two_near_ones_it_is():
    built_network = built(lambda it: it.add(Hardmax(axis=0), product(it, 2.0, 2.0)))
    assert problems(built_network, np.array([1.0, 0.0], F32)) == ""
    assert problems(built_network, np.array([0.0, 1.0], F32)) == ""
    assert problems(built_network, np.array([0.0, 1.0001], F32)) != ""


@pytest.mark.parametrize("kind", LshProjectionType, ids=lambda kind: kind.name)
def test_the_hash_of_a_computed_number_may_be_any(kind):
    seeds = np.float32([[0.1, 0.2], [0.3, 0.4]])
    largest = {LshProjectionType.DENSE: [1, 1, 1, 1], LshProjectionType.SPARSE: [3, 7]}.get(kind, [3, 3])
    least = {LshProjectionType.DENSE: [0, 0, 0, 0], LshProjectionType.SPARSE: [0, 4]}.get(kind, [0, 0])
    computed = built(lambda it: it.add(LshProjection(kind), it.constant(seeds), product(it, 1.1, 2.1)))
    given = built(lambda it: it.add(LshProjection(kind), it.constant(seeds), it.input(F32([1.1, 2.1]))))
    for hashed in (largest, least):
        assert problems(computed, np.int32(hashed)) == ""
    assert problems(computed, np.int32(largest) + 1) != ""
    assert sum(problems(given, np.int32(hashed)) == "" for hashed in (largest, least)) < 2


# --- the stream of signs ----------------------------------------------------------------------------------------------


def test_the_perturbations_are_the_same_in_every_process():
    assert Stream(5).bits((12,)).astype(int).tolist() == [1, 1, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1]
    assert np.abs(Stream(5).fractions((1000,))).max() < 1


def test_a_network_is_perturbed_alike_every_time():
    built_network = built(lambda it: it.add(Reshape((-1,)), product(it, 1.0, 2.0)))
    value = built_network.network.graph.outputs[0].values[0]
    first, again = (comparison(built_network).spread(value).perturbed for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


# --- operands ---------------------------------------------------------------------------------------------------------


def test_a_sum_may_be_off_by_rounding_errors_of_its_terms_and_by_no_more():
    terms = np.random.default_rng(1).normal(size=(64,)).astype(F32)
    terms[-1] = -np.sum(terms[:-1])
    network = built(lambda it: it.add(Reduce((0,), True, ReduceOperation.SUM), it.input(terms)))
    exact = np.sum(terms.astype(np.float64))
    for error, is_allowed in ((3e-7, True), (-3e-7, True), (3e-5, False), (-3e-5, False)):
        assert (problems(network, np.array([exact + error], F32)) == "") == is_allowed


def test_operands_of_layers_that_only_move_elements_are_not_perturbed():
    network = built(lambda it: it.add(Reshape((2,)), it.input(np.array([[1.0, 2.0]], F32))))
    assert problems(network, np.array([1.0, 2.0 + 2e-6], F32)) != ""
