"""Clamps that are merged, and maximum and minimum that are a bounded ReLU."""

import pytest

from interposer.optimizer.rewrites.clamps import CLAMPS
from tests.optimizer.rewriting import assert_becomes, assert_stays


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Maximum %x, %low", "Minimum %a, %high"),
        ("Maximum %low, %x", "Minimum %high, %a"),
        ("Minimum %x, %high", "Maximum %a, %low"),
    ],
)
def test_a_maximum_and_a_minimum_with_numbers_are_a_bounded_relu(first, second):
    assert_becomes(
        f"""
        graph {{
          %x = Input : float32[2, 3]
          %low = Constant(value=float32[]{{-1}})
          %high = Constant(value=float32[1]{{6}})
          %a = {first}
          %b = {second}
          Output %b as "y"
        }}
        """,
        """
        %b = Activation(function=BOUNDED_RELU, a=6.0, b=-1.0) %x replacing "a", "b"
        Output %b as "y"
        """,
        *CLAMPS,
    )


def test_quantized_bounds_count_as_the_numbers_that_they_stand_for():
    assert_becomes(
        """
        graph {
          %x = Input : uint8[2, 3] q(0.5, 100)
          %low = Constant(value=uint8[]{96}, quantization=q(0.5, 100))
          %high = Constant(value=uint8[]{112}, quantization=q(0.5, 100))
          %a = Maximum %x, %low : _ declared uint8[2, 3] q(0.5, 100)
          %b = Minimum %a, %high : _ declared uint8[2, 3] q(0.5, 100)
          Output %b as "y"
        }
        """,
        """
        %b = Activation(function=BOUNDED_RELU, a=6.0, b=-2.0) %x replacing "a", "b"
        Output %b as "y"
        """,
        *CLAMPS,
    )


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("float32[2, 3]", "float32[]{7}", "float32[]{6}"),
        ("float32[3]", "float32[3]{1, 2, 3}", "float32[]{6}"),
        ("float32[3]", "float32[1, 1]{1}", "float32[]{6}"),
        ("float32[3]", "float32[]{nan}", "float32[]{6}"),
        ("int32[3]", "int32[]{1}", "int32[]{6}"),
    ],
    ids=["bounds that cross", "more than one bound", "a bound that adds an axis", "not a number", "integers"],
)
def test_other_limits_stay(kind, low, high):
    assert_stays(
        f"""
        graph {{
          %x = Input : {kind}
          %low = Constant(value={low})
          %high = Constant(value={high})
          %a = Maximum %x, %low
          %b = Minimum %a, %high
          Output %b as "y"
        }}
        """,
        *CLAMPS,
    )


def test_a_bound_with_a_quantization_of_its_own_stays():
    assert_stays(
        """
        graph {
          %x = Input : uint8[3] q(0.5, 100)
          %low = Constant(value=uint8[]{96}, quantization=q(0.25, 100))
          %high = Constant(value=uint8[]{112}, quantization=q(0.5, 100))
          %a = Maximum %x, %low : _ declared uint8[3] q(0.5, 100)
          %b = Minimum %a, %high : _ declared uint8[3] q(0.5, 100)
          Output %b as "y"
        }
        """,
        *CLAMPS,
    )


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ("function=BOUNDED_RELU, a=6.0", "function=RELU", "%a = Activation(function=BOUNDED_RELU, a=6.0) %x"),
        ("function=RELU", "function=RELU", "%a = Activation(function=RELU) %x"),
        ("function=RELU", "function=BOUNDED_RELU, a=6.0", "%b = Activation(function=BOUNDED_RELU, a=6.0) %x"),
        (
            "function=BOUNDED_RELU, a=1.0, b=-1.0",
            "function=BOUNDED_RELU, a=6.0, b=0.5",
            "%b = Activation(function=BOUNDED_RELU, a=1.0, b=0.5) %x",
        ),
        (
            "function=BOUNDED_RELU, a=-3.0, b=-5.0",
            "function=RELU",
            "%b = Activation(function=BOUNDED_RELU, a=0.0) %x",
        ),
    ],
)
@pytest.mark.parametrize("kind", ["float32[2, 30]", "int8[2, 30] q(0.3, -20)"])
def test_a_clamp_after_a_clamp_is_one(kind, first, second, joined):
    assert_becomes(
        f"""
        graph {{
          %x = Input : {kind}
          %a = Activation({first}) %x
          %b = Activation({second}) %a
          Output %b as "y"
        }}
        """,
        f"""
        {joined} replacing "a", "b"
        Output %{joined[1]} as "y"
        """,
        *CLAMPS,
    )


def test_clamps_between_other_quantizations_stay_unless_the_second_does_nothing():
    text = """
        graph {{
          %x = Input : int8[20] q(0.3, -20)
          %a = Activation(function=RELU) %x : _ declared int8[20] q(0.25, -128)
          %b = Activation(function={second}) %a : _ declared int8[20] q(0.25, -128)
          Output %b as "y"
        }}
        """
    assert_stays(text.format(second="BOUNDED_RELU, a=6.0"), *CLAMPS)
    assert_becomes(
        text.format(second="RELU"),
        """
        %a = Activation(function=RELU) %x replacing "a", "b"
        Output %a as "y"
        """,
        *CLAMPS,
    )


def test_another_activation_stays():
    assert_stays(
        """
        graph {
          %x = Input : float32[20]
          %a = Activation(function=TANH, a=1.0, b=1.0) %x
          %b = Activation(function=RELU) %a
          Output %b as "y"
        }
        """,
        *CLAMPS,
    )
