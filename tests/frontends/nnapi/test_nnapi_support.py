"""Which operations of a document are supported, and rules of single operators that a driver checks."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
import pytest

from interposer import Runtime
from interposer.backend import Backend, KernelTable
from interposer.core.errors import ParseError, UnknownBackendError, UnsupportedOperatorError
from interposer.core.types import MAX_RANK, Array
from interposer.frontends import nnapi
from interposer.ops import ElementwiseUnary, UnaryOperation
from tests.frontends.nnapi.models import compute, ints, one_operation, scalar, tensor

pytestmark = pytest.mark.needs_cpuref

X = tensor([2, 3])
ADD = one_operation("ADD", [X, X, scalar(0)], [X])


def chain(*names: str) -> dict[str, Any]:
    """Return a document of unary operations, each on the result of the one before."""
    document = one_operation(names[0], [X], [X])
    for number, name in enumerate(names[1:], 1):
        document["operands"][number]["lifetime"] = "TEMPORARY_VARIABLE"
        document["operands"].append({**X, "lifetime": "SUBGRAPH_OUTPUT"})
        document["operations"].append({"op": name, "in": [number], "out": [number + 1]})
    document["outputs"] = [len(names)]
    return document


def test_every_operation_is_supported_by_the_reference_backend():
    [answer] = nnapi.supported(ADD, ["CpuRef"])
    assert answer
    assert (answer.name, answer.where, answer.backends) == ("ADD", "operations[0] ADD", ("CpuRef",))
    assert (dict(answer.reasons), answer.problem) == ({}, "")


def test_an_operation_that_is_not_known_does_not_fail_the_others():
    answers = nnapi.supported(chain("EXP", "VENDOR_EXTENSION", "SQRT"), ["CpuRef"])
    assert [bool(answer) for answer in answers] == [True, False, True]
    assert answers[1].problem == "the operation VENDOR_EXTENSION is not known"


def test_an_invalid_operation_says_why():
    document = copy.deepcopy(ADD)
    document["operands"][3]["dims"] = [3, 2]
    [answer] = nnapi.supported(document, ["CpuRef"])
    assert not answer
    assert answer.problem == "its output 0 has shape [3, 2] in the document, but it gives [2, 3]"


kernel = KernelTable()


@kernel(ElementwiseUnary, when=lambda op, info: None if op.operation is UnaryOperation.EXP else f"no {op.operation}")
def exponential(op: ElementwiseUnary, x: Array) -> Array:
    return np.exp(x)


class Exponential(Backend):
    """A backend of one operator."""

    id: ClassVar = "Exponential"
    kernels: ClassVar = kernel


def test_each_backend_answers_for_itself():
    with Runtime() as runtime:
        runtime.registry.register("Exponential", Exponential)
        answers = nnapi.supported(chain("EXP", "SQRT"), ["Exponential", "CpuRef"], device_spec=runtime.device_spec)
        alone = nnapi.supported(chain("EXP", "SQRT"), ["Exponential"], device_spec=runtime.device_spec)
    assert [answer.backends for answer in answers] == [("Exponential", "CpuRef"), ("CpuRef",)]
    assert dict(answers[1].reasons) == {"Exponential": "ElementwiseUnary: no UnaryOperation.SQRT"}
    assert [bool(answer) for answer in alone] == [True, False]


def test_an_unknown_backend_and_a_damaged_document_are_errors():
    with pytest.raises(UnknownBackendError):
        nnapi.supported(ADD, ["Npu"])
    with pytest.raises(ParseError):
        nnapi.supported({"operands": 3}, ["CpuRef"])


def test_operations_that_are_not_known_are_listed_with_their_places():
    with pytest.raises(UnsupportedOperatorError) as caught:
        nnapi.build(chain("EXP", "MAGIC", "SQRT", "MAGIC"))
    assert str(caught.value) == "operators that are not supported:\n  - 2 x MAGIC (operations[1], operations[3])"


def test_operations_that_are_misspelt_are_listed_with_what_is_known():
    with pytest.raises(UnsupportedOperatorError) as caught:
        nnapi.build(chain("SQRTT"))
    message = "operators that are not supported:\n  - 1 x SQRTT (operations[0]: did you mean 'SQRT'?)"
    assert str(caught.value) == message


def strided(begin: int, end: int, stride: int, masks: tuple[int, int] = (0, 0)) -> dict[str, Any]:
    inputs = [tensor([6]), ints(begin), ints(end), ints(stride), *map(scalar, masks), scalar(1)]
    return one_operation("STRIDED_SLICE", inputs, [tensor([1])])


@pytest.mark.parametrize(("bounds", "expected"), [((1, 2, 1), 1), ((-1, 6, 1), 5), ((4, 9, 2), 4), ((-2, -1, 1), 4)])
def test_a_shrunk_axis_selects_one_element(bounds, expected):
    [result] = compute(strided(*bounds), np.arange(6))
    assert result.tolist() == [expected]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 3, 1), "axis 0 is shrunk, but 2 elements are selected; expected exactly one"),
        ((2, 2, 1), "axis 0 is shrunk, but 0 elements are selected; expected exactly one"),
        ((1, 2, 1, (0, 1)), "axis 0 is shrunk, but 5 elements are selected; expected exactly one"),
        ((1, 0, -1), "axis 0 is shrunk with the stride -1; expected a positive one"),
    ],
)
def test_a_shrunk_axis_that_does_not_select_one_element_is_invalid(arguments, message):
    with pytest.raises(ParseError) as caught:
        nnapi.build(strided(*arguments))
    assert str(caught.value) == f"operations[0] STRIDED_SLICE: {message}"


@pytest.mark.parametrize("dims", [ints(2, 2), tensor([2], "TENSOR_INT32")])
def test_fill_takes_a_value_that_is_computed_at_run_time(dims):
    value = {"type": "FLOAT32", "dims": [], "lifetime": "SUBGRAPH_INPUT"}
    sizes = [2, 2] if "data" in dims else [0, 0]
    document = one_operation("FILL", [dims, value], [tensor(sizes)])
    arrays = [np.float32(4)] if "data" in dims else [np.int32([2, 2]), np.float32(4)]
    [result] = compute(document, *arrays)
    assert result.tolist() == [[4, 4], [4, 4]]


@pytest.mark.parametrize("rank", [MAX_RANK + 1, 1000])
@pytest.mark.parametrize("data", [{}, {"lifetime": "CONSTANT_COPY", "data": [1.0]}])
def test_more_dimensions_than_are_supported_are_refused(rank, data):
    document = one_operation("EXP", [{**tensor([1] * rank), **data}], [tensor([1] * rank)])
    with pytest.raises(ParseError) as caught:
        nnapi.build(document)
    assert str(caught.value) == f"operands[0]: a tensor has rank {rank}; ranks 0 to {MAX_RANK} are supported"


@pytest.mark.parametrize("rank", [MAX_RANK + 1, MAX_RANK + 2])
@pytest.mark.parametrize("data", [None, [1.5] * 2])
def test_an_operand_of_too_many_dimensions_affects_only_the_operations_that_use_it(rank, data):
    dims = [2] + [1] * (rank - 1)
    large = {"type": "TENSOR_FLOAT32", "dims": dims, "lifetime": "SUBGRAPH_INPUT"}
    if data is not None:
        large |= {"lifetime": "CONSTANT_COPY", "data": data}
    small = {"type": "TENSOR_FLOAT32", "dims": [2]}
    document = {
        "operands": [
            {**small, "lifetime": "SUBGRAPH_INPUT"}, {**small, "lifetime": "SUBGRAPH_OUTPUT"},
            large, {**large, "lifetime": "TEMPORARY_VARIABLE", "data": None},
            {**small, "lifetime": "CONSTANT_COPY", "type": "TENSOR_INT32", "dims": [1], "data": [2]},
            {**small, "lifetime": "TEMPORARY_VARIABLE"}, {**small, "lifetime": "SUBGRAPH_OUTPUT"},
        ],
        "operations": [
            {"op": "EXP", "in": [0], "out": [1]}, {"op": "EXP", "in": [2], "out": [3]},
            {"op": "RESHAPE", "in": [3, 4], "out": [5]}, {"op": "EXP", "in": [5], "out": [6]},
        ],
        "inputs": [0, 2] if data is None else [0],
        "outputs": [1, 6],
    }  # fmt: skip
    answers = nnapi.supported(document, ["CpuRef"])
    assert [bool(answer) for answer in answers] == [True, False, False, True]
    assert answers[1].problem == f"operands[2] has rank {rank}; ranks 0 to {MAX_RANK} are supported"
    assert answers[2].problem == f"operands[3] has rank {rank}; ranks 0 to {MAX_RANK} are supported"
