"""Operations that run other models of the document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer import load
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends import nnapi

Record = dict[str, Any]


def operand(type: str, dims: list[int], lifetime: str, *data: Any) -> Record:
    return {"type": type, "dims": dims, "lifetime": lifetime, **({"data": list(data)} if data else {})}


def model(inputs: list[Record], constants: list[Record], outputs: list[Record], *operations: Any) -> Record:
    """Operations are triples of name, inputs and outputs; operands are counted through the three lists."""
    first = len(inputs) + len(constants)
    return {
        "operands": [*inputs, *constants, *outputs],
        "operations": [{"op": name, "in": taken, "out": value} for name, taken, value in operations],
        "inputs": list(range(len(inputs))),
        "outputs": [first + k for k, output in enumerate(outputs) if output["lifetime"] == "SUBGRAPH_OUTPUT"],
    }


def tensor(lifetime: str, type: str = "TENSOR_FLOAT32", dims: tuple[int, ...] = (2,), *data: Any) -> Record:
    return operand(type, list(dims), f"SUBGRAPH_{lifetime}" if lifetime in ("INPUT", "OUTPUT") else lifetime, *data)


NONE = operand("INT32", [], "CONSTANT_COPY", 0)


def named(number: int) -> Record:
    return operand("SUBGRAPH", [], "SUBGRAPH", number)


def branch(name: str) -> Record:
    return model([tensor("INPUT")], [NONE], [tensor("OUTPUT")], (name, [0, 0, 1], [2]))


def choice(condition: Record, *referenced: Record) -> Record:
    value = [condition] if condition["lifetime"] == "SUBGRAPH_INPUT" else []
    rest = [] if value else [condition]
    inputs, constants = [*value, tensor("INPUT")], [*rest, named(0), named(1)]
    places = [0, 2, 3, 1] if value else [1, 2, 3, 0]
    return model(inputs, constants, [tensor("OUTPUT")], ("IF", places, [4])) | {"referenced": list(referenced)}


OPEN = tensor("INPUT", "TENSOR_BOOL8", (1,))
X = np.float32([3, 4])


def test_if_runs_one_of_two_models():
    result = load(choice(OPEN, branch("ADD"), branch("MUL")), ["CpuRef"])
    assert result.run([[True], X])[0].tolist() == [6, 8]
    assert result.run([[False], X])[0].tolist() == [9, 16]


def test_a_branch_that_is_known_is_taken_in_place():
    condition = operand("TENSOR_BOOL8", [1], "CONSTANT_COPY", False)
    network = nnapi.build(choice(condition, branch("ADD"), branch("MUL")))
    assert "If" not in [layer.kind for layer in network]
    assert load(network, ["CpuRef"]).run([X])[0].tolist() == [9, 16]


def powers() -> Record:
    """While i < limit: (i, x, y) = (i + 1, x * factor, x); the limit and the factor are only taken in."""
    numbers = tensor("INPUT", "TENSOR_INT32", (1,))
    inputs = [numbers, tensor("INPUT"), tensor("INPUT"), numbers, tensor("INPUT")]
    truth = tensor("OUTPUT", "TENSOR_BOOL8", (1,))
    condition = model(inputs, [], [truth], ("LESS", [0, 3], [5]))
    item = operand("TENSOR_INT32", [1], "CONSTANT_COPY", 1)
    value = [tensor("OUTPUT", "TENSOR_INT32", (1,)), tensor("OUTPUT"), tensor("OUTPUT")]
    steps = ("ADD", [0, 5, 6], [7]), ("MUL", [1, 4, 6], [8]), ("ADD", [1, 1, 6], [9])
    body = model(inputs, [item, NONE], value, *steps)
    main = model(inputs, [named(0), named(1)], value[:2], ("WHILE", [5, 6, 0, 1, 2, 3, 4], [7, 8]))
    return main | {"referenced": [condition, body]}


def test_while_carries_what_its_body_gives_and_gives_the_first_of_it():
    result = load(powers(), ["CpuRef"])
    i, x = result.run([np.int32([0]), X, X, np.int32([3]), np.float32([2, 10])])
    assert (i.tolist(), x.tolist()) == ([3], [24, 4000])
    i, x = result.run([np.int32([5]), X, X, np.int32([3]), np.float32([2, 10])])
    assert (i.tolist(), x.tolist()) == ([5], [3, 4])


def refusal(document: Record) -> str:
    with pytest.raises(ParseError) as caught:
        nnapi.build(document)
    return str(caught.value)


def test_what_cannot_be_run_is_refused_with_its_place():
    wrong = model([], [tensor("CONSTANT_COPY", "TENSOR_FLOAT32", (2,), 1, 2), NONE], [tensor("OUTPUT")],
                  ("ADD", [0, 0, 1], [2]))  # fmt: skip
    integers = model([tensor("INPUT", "TENSOR_INT32")], [NONE], [tensor("OUTPUT", "TENSOR_INT32")],
                     ("ADD", [0, 0, 1], [2]))  # fmt: skip
    assert refusal(choice(OPEN, branch("ADD"), wrong)) == "operations[0] IF: model 1 has 0 inputs; expected 1"
    assert refusal(choice(OPEN, branch("ADD"), integers)) == (
        "operations[0] IF: model 1 takes TENSOR_INT32 [2], but gets float32[2]"
    )
    assert refusal(choice(OPEN, branch("ADD"))) == "referenced: an operand names model 1 of 1"
    assert refusal(choice(OPEN, choice(OPEN, branch("ADD")), branch("MUL"))) == "referenced: model 0 runs itself"
    assert refusal(choice(OPEN, {"operands": 3}, branch("MUL"))) == (
        "referenced[0], document: 'operands' is 3; expected a list"
    )


def test_operators_of_referenced_models_are_listed_where_they_are_not_known():
    with pytest.raises(UnsupportedOperatorError, match="1 x NONSENSE"):
        nnapi.build(choice(OPEN, branch("ADD"), branch("NONSENSE")))
