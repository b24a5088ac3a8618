"""The kit's check of declared traits: all operators of the package pass, and wrong declarations fail."""

import numpy as np
import pytest

from interposer.core.schema import Op, attribute, op, operand, registered_ops, result
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import Array, DataType, TensorInfo
from interposer.kernels.reference import kernel
from interposer.testing import Sample, given, of, samples_of, trait_errors

OPERATORS = [op for op in registered_ops().values() if op.__module__.startswith("interposer.")]
FEW = 12


def some(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """About twelve samples of an operator, evenly spread."""
    return samples[:: max(1, len(samples) // FEW)]


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.op_name())
def test_the_declarations_of_every_operator_hold_on_some_samples(operator):
    assert trait_errors(some(samples_of(operator))) == []


@pytest.mark.slow
def test_the_declarations_of_every_operator_hold_on_all_samples():
    assert trait_errors(sample for operator in OPERATORS for sample in samples_of(operator)) == []


# --- wrong declarations -----------------------------------------------------------------------------------------------


def declared(compute, **options) -> type[Op]:
    """An operator with two operands of one shape, the second one optional, whose kernel is `compute`."""

    @op(register=False, **options)
    class Planted(Op):
        """Compute."""

        a = operand()
        b = operand(optional=True)
        output = result(like="a")
        amount: int = attribute(default=1)

    @kernel(Planted)
    def planted(op: Planted, a: Array, b: Array | None) -> Array:
        return np.asarray(compute(a) if b is None else compute(a, b)).astype(a.dtype)

    return Planted


def errors(operator: type[Op], operands: int = 1) -> list[str]:
    sample = Sample(operator(), [given((3, 5))] * operands, name="planted")
    return [error.removeprefix("Planted-planted: ") for error in trait_errors([sample])]


WRONG = [
    (Trait.MOVES, np.negative, "it has the trait MOVES, but elements of output are not those of the data"),
    (Trait.MOVES, np.sort, "it has the trait MOVES, but elements of output are not those of the data"),
    (
        Trait.MOVES,
        lambda a: np.where(np.arange(5) > 0, a, 0),
        "it does not have the trait FILLS, but output has elements that are in no operand",
    ),
    (Trait.CHOOSES, np.abs, "it has the trait CHOOSES, but elements of output are not those of the data"),
    (
        Trait.CHOOSES,
        lambda a: np.where(a**2 > 5, a, 0),
        "it has the trait CHOOSES, but does not commute with increasing functions",
    ),
    (Trait.POINTWISE, lambda a: a[::-1], "it has the trait POINTWISE, but an element depends on other positions"),
    (Trait.POINTWISE, lambda a: a - a.mean(), "it has the trait POINTWISE, but an element depends on other positions"),
    (Trait.CONVERTS, lambda a: a + 1, "it has the trait CONVERTS, but the result has other numbers than the operand"),
    (Trait.EXACT, np.sin, "it has the trait EXACT, but output has elements that were computed"),
]  # fmt: skip


@pytest.mark.parametrize(("trait", "compute", "expected"), WRONG)
def test_a_wrong_trait_is_found(trait, compute, expected):
    [error] = errors(declared(compute, traits=trait))
    assert error.startswith(expected)
    assert errors(declared(compute)) == []


def test_operands_that_cannot_be_swapped_are_found():
    assert errors(declared(np.subtract, traits=Trait.COMMUTATIVE), 2) == [
        "it has the trait COMMUTATIVE, but gives another result if the operands are swapped"
    ]
    assert errors(declared(np.add, traits=Trait.COMMUTATIVE), 2) == []


def test_right_traits_of_several_operands_pass():
    assert errors(declared(np.maximum, traits=Trait.COMMUTATIVE | Trait.POINTWISE | Trait.CHOOSES), 2) == []
    assert errors(declared(lambda a: np.roll(a, 1), traits=Trait.MOVES)) == []


def test_a_wrong_operand_in_place_is_found():
    softmax = declared(lambda a: np.exp(a) / np.exp(a).sum())
    softmax.in_place = ("a",)
    assert errors(softmax) == ["in_place names 'a', but an element of it affects other elements of the result"]
    double = declared(lambda a: 2 * a)
    double.in_place = ("a",)
    assert errors(double) == []


def test_random_results_need_the_trait():
    generator = np.random.default_rng(0)
    noise = declared(lambda a: generator.random(a.shape))
    assert errors(noise) == ["it is pure, but gives other results on the same operands"]
    drawn = Sample(noise(), [given((3, 5))], name="planted", statistical=True)
    assert trait_errors([drawn]) == ["Planted-planted: it does not have the trait RANDOM, but its results are random"]


def test_an_operand_with_a_role_that_its_type_contradicts_is_found():
    @op(register=False)
    class Chosen(Op):
        """Choose."""

        a = operand()
        places = operand(role=Role.INDICES)
        output = result(like="a")

    sample = Sample(Chosen(), [given((3,)), given((3,))])
    assert trait_errors([sample])[0] == "Chosen: places has the role INDICES, but is float32"


def test_indices_that_are_declared_as_data_are_found():
    @op(register=False, traits=Trait.MOVES)
    class Picked(Op):
        """Pick."""

        a = operand()
        places = operand()
        output = result(like="a")

    @kernel(Picked)
    def picked(op: Picked, a: Array, places: Array) -> Array:
        return a[places % len(a)]

    sample = Sample(Picked(), [given((4,)), of([2, 0, 1, 3], DataType.INT32)], name="planted")
    assert trait_errors([sample]) != []


def test_a_prescribed_quantization_must_be_inferred():
    planted = declared(np.tanh, quantized=ResultQuantization.PRESCRIBED)

    def infer(self, a: TensorInfo, b: TensorInfo | None) -> TensorInfo:
        return a.with_constant(None).with_quantization(None)

    planted.infer = infer
    assert errors(planted) == ["its results have a PRESCRIBED quantization, but `infer` returns none"]


def test_an_operator_without_a_reference_kernel_is_found():
    @op(register=False)
    class Unknown(Op):
        """Compute."""

        a = operand()
        output = result(like="a")

    assert trait_errors([Sample(Unknown(), [given((2,))])]) == ["Unknown: it has no reference kernel"]


@pytest.mark.parametrize("shape", [(), (0, 2), (1,)])
def test_operands_with_few_elements_pass(shape):
    planted = declared(lambda a: a, traits=Trait.MOVES | Trait.POINTWISE | Trait.CONVERTS | Trait.CHOOSES)
    assert trait_errors([Sample(planted(), [given(shape)])]) == []
