"""The traits of operators, the roles of their operands, and how their results are quantized."""

import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.schema import Op, attribute, op, operand, result
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import DataType
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Convolution2d,
    Gather,
    Input,
    Maximum,
    Mean,
    Pooling2d,
    PoolingAlgorithm,
    Resize,
    ResizeMethod,
    ScatterNd,
    Subtraction,
    Transpose,
    Where,
)


@op(register=False, traits=Trait.MOVES)
class Roll(Op):
    """Shift elements."""

    input = operand()
    starts = operand(role=Role.SIZES, optional=True)
    others = operand(role=Role.INDICES, variadic=True, optional=True)
    output = result(like="input")
    shift: int = attribute(default=1)


@op(register=False)
class TwiceRolled(Roll):
    """Shift elements twice."""


def test_traits_are_declared_with_the_operator_and_inherited():
    assert Roll().traits == TwiceRolled().traits == Trait.MOVES
    assert Trait.MOVES in Transpose((1, 0)).traits
    assert Where().traits == Trait.MOVES | Trait.POINTWISE


def test_an_operator_has_no_traits_by_default():
    assert Mean().traits == Trait.NONE


@pytest.mark.parametrize(
    ("with_trait", "without", "trait"),
    [
        (Pooling2d(PoolingAlgorithm.MAX), Pooling2d(PoolingAlgorithm.AVERAGE), Trait.CHOOSES),
        (Activation(ActivationFunction.RELU), Activation(ActivationFunction.ELU), Trait.CHOOSES),
        (Addition(), Subtraction(), Trait.COMMUTATIVE),
        (Maximum(), Addition(), Trait.CHOOSES),
        (Resize(2, 2, ResizeMethod.NEAREST_NEIGHBOR), Resize(2, 2, ResizeMethod.BILINEAR), Trait.MOVES),
    ],
)
def test_traits_may_depend_on_the_attributes(with_trait, without, trait):
    assert trait in with_trait.traits
    assert trait not in without.traits


def test_a_class_may_have_the_traits_that_it_declares_or_computes():
    assert Roll.may_have(Trait.MOVES | Trait.CHOOSES)
    assert not Roll.may_have(Trait.CHOOSES)
    assert Pooling2d.may_have(Trait.CHOOSES)


def test_operands_have_roles():
    assert Gather().inputs_of(Role.INDICES, 2) == (1,)
    assert Convolution2d().inputs_of(Role.DATA, 3) == (0,)
    assert [Convolution2d().role(index) for index in range(3)] == [Role.DATA, Role.WEIGHTS, Role.BIAS]
    assert [Roll().role(index) for index in range(4)] == [Role.DATA, Role.SIZES, Role.INDICES, Role.INDICES]


def test_an_operator_without_operands_has_no_inputs_of_any_role():
    assert Input().inputs_of(Role.DATA, 3) == ()


def test_a_role_may_depend_on_the_attributes():
    assert ScatterNd().role(0) is Role.DATA
    assert ScatterNd(input_enabled=False).role(0) is Role.SIZES


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (Roll(), ResultQuantization.SAME),
        (Maximum(), ResultQuantization.SAME),
        (Mean(), ResultQuantization.OBSERVED),
        (Activation(ActivationFunction.SIGMOID), ResultQuantization.PRESCRIBED),
        (Activation(ActivationFunction.SQRT), "SQRT loses too much precision in integers"),
        (ScatterNd(input_enabled=False), ResultQuantization.SAME),
    ],
)
def test_an_operator_says_how_its_results_are_quantized(operator, expected):
    assert operator.result_quantization(DataType.INT8) == expected


def test_an_operator_without_a_declaration_has_no_form_in_integers():
    @op(register=False)
    class Spin(Op):
        """Rotate."""

        input = operand()
        output = result(like="input")

    assert Spin().result_quantization(DataType.INT8) == "Spin has no form in integers"


def test_a_random_operator_must_not_be_pure():
    with pytest.raises(InvalidArgumentError) as caught:

        @op(register=False, traits=Trait.RANDOM)
        class Noise(Op):
            """Draw."""

            output = result()

    assert str(caught.value) == "Noise: an operator with random results needs pure=False"


def test_only_operators_that_move_elements_fill():
    with pytest.raises(InvalidArgumentError) as caught:

        @op(register=False, traits=Trait.FILLS)
        class Frame(Op):
            """Fill."""

            output = result()

    assert str(caught.value) == "Frame: the trait FILLS is for operators with the trait MOVES"
