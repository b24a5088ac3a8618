"""Operators that run other subgraphs: files made here, from a few lines for each subgraph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer import load
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends import tflite
from tests.frontends.tflite.build import code, encode, operator, tensor
from tests.frontends.tflite.cases.stablehlo import doubling
from tests.frontends.tflite.one_operator import T, one_operator

CODES = [
    "IF", "WHILE", "CALL", "CALL_ONCE", "ADD", "MUL", "LESS", "CONCATENATION", "RESHAPE", "CUMSUM", "DELEGATE", "SUB",
    "STABLEHLO_CASE",
]  # fmt: skip


def subgraph(tensors: list[dict[str, Any]], inputs: list[int], outputs: list[int], *operators: Any) -> dict[str, Any]:
    """Operators are triples of name, inputs and outputs, followed by options if there are any."""
    created = []
    for name, taken, value, *options in operators:
        field = "builtin_options_2" if name.startswith("STABLEHLO") else "builtin_options"
        more = {field: options[0]} if options else {}
        created.append(operator(taken, value, opcode_index=CODES.index(name), **more))
    return {"tensors": tensors, "inputs": inputs, "outputs": outputs, "operators": created}


def file(*subgraphs: dict[str, Any], constants: tuple[np.ndarray, ...] = ()) -> bytes:
    """Return a file; constant number k is in buffer k + 1."""
    buffers = [{}, *({"data": array.tobytes()} for array in constants)]
    codes = [code(name) for name in CODES]
    return encode({"version": 3, "operator_codes": codes, "buffers": buffers, "subgraphs": list(subgraphs)})


def choice(condition: dict[str, Any], inputs: list[int]) -> dict[str, Any]:
    options = ("IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})
    tensors = [condition, tensor("x", [2]), tensor("y", [2])]
    return subgraph(tensors, inputs, [2], ("IF", [0, 1], [2], options))


def binary(name: str) -> dict[str, Any]:
    options = (f"{name.title()}Options", {})
    return subgraph([tensor("a", [2]), tensor("b", [2])], [0], [1], (name, [0, 0], [1], options))


X = np.float32([3, 4])


def test_if_runs_one_of_two_subgraphs():
    data = file(choice(tensor("c", [1], "bool"), [0, 1]), binary("ADD"), binary("MUL"))
    model = load(data, ["CpuRef"])
    assert model.run([[True], X])[0].tolist() == [6, 8]
    assert model.run([[False], X])[0].tolist() == [9, 16]
    assert [layer.kind for layer in model.network] == ["Input", "Input", "If", "Output"]


@pytest.mark.parametrize(("flag", "expected"), [(True, [6, 8]), (False, [9, 16])])
def test_a_branch_that_is_known_is_taken_in_place(flag, expected):
    condition = tensor("c", [1], "bool", buffer=1)
    data = file(choice(condition, [1]), binary("ADD"), binary("MUL"), constants=(np.array([flag]),))
    model = load(data, ["CpuRef"])
    assert model.run([X])[0].tolist() == expected
    assert "If" not in [layer.kind for layer in model.network]


def case(count: int, index: dict[str, Any], inputs: list[int]) -> list[dict[str, Any]]:
    """Return a subgraph that selects one of `count` operators, and the subgraphs with these."""
    options = ("StablehloCaseOptions", {"branch_subgraph_indices": list(range(1, count + 1))})
    tensors = [index, tensor("x", [2]), tensor("y", [2])]
    names = ["ADD", "MUL", "SUB", "ADD", "MUL"][:count]
    return [subgraph(tensors, inputs, [2], ("STABLEHLO_CASE", [0, 1], [2], options)), *map(binary, names)]


@pytest.mark.parametrize(("index", "expected"), [(0, [6, 8]), (1, [9, 16]), (2, [0, 0]), (9, [0, 0]), (-1, [0, 0])])
def test_case_runs_the_subgraph_with_the_number_or_the_last_one(index, expected):
    model = load(file(*case(3, tensor("i", [], "int32"), [0, 1])), ["CpuRef"])
    assert model.run([np.int32(index), X])[0].tolist() == expected
    known = file(*case(3, tensor("i", [], "int32", buffer=1), [1]), constants=(np.int32(index),))
    assert load(known, ["CpuRef"]).run([X])[0].tolist() == expected


def test_case_of_one_branch_runs_it_and_case_of_many_is_nested():
    single = load(file(*case(1, tensor("i", [], "int32"), [0, 1])), ["CpuRef"])
    assert single.run([np.int32(7), X])[0].tolist() == [6, 8]
    several = load(file(*case(5, tensor("i", [1], "int32"), [0, 1])), ["CpuRef"])
    assert [several.run([np.int32([i]), X])[0][0] for i in range(5)] == [6, 9, 0, 6, 9]


def test_case_without_branches_is_refused():
    with pytest.raises(ParseError, match="it has 0 branches and an index of int32; expected 1 to 64 branches"):
        tflite.load(file(*case(0, tensor("i", [], "int32"), [0, 1])))


def counting(body: dict[str, Any]) -> bytes:
    """Return a file that computes (i, x) = body(i, x) while i < 10."""
    tensors = [tensor(name, shape, kind) for name, shape, kind in (
        ("i", [], "int32"), ("x", [2], "float32"), ("j", [], "int32"), ("y", [2], "float32"))]  # fmt: skip
    options = ("WhileOptions", {"cond_subgraph_index": 1, "body_subgraph_index": 2})
    main = subgraph(tensors, [0, 1], [2, 3], ("WHILE", [0, 1], [2, 3], options))
    tensors = [
        tensor("i", [], "int32"),
        tensor("x", [2]),
        tensor("ten", [], "int32", buffer=1),
        tensor("c", [], "bool"),
    ]
    condition = subgraph(tensors, [0, 1], [3], ("LESS", [0, 2], [3]))
    return file(main, condition, body, constants=(np.int32(10), np.int32(3)))


def test_while_runs_as_long_as_its_condition_holds():
    tensors = [
        tensor("i", [], "int32"), tensor("x", [2]), tensor("three", [], "int32", buffer=2),
        tensor("j", [], "int32"), tensor("y", [2]),
    ]  # fmt: skip
    steps = ("ADD", [0, 2], [3], ("AddOptions", {})), ("ADD", [1, 1], [4], ("AddOptions", {}))
    model = load(counting(subgraph(tensors, [0, 1], [3, 4], *steps)), ["CpuRef"])
    i, x = model.run([np.int32(0), X])
    assert (i, x.tolist()) == (12, [48, 64])
    i, x = model.run([np.int32(10), X])
    assert (i, x.tolist()) == (10, [3, 4])


def test_a_loop_of_stablehlo_runs_as_long_as_its_condition_holds():
    loop = doubling()
    assert [int(result) for result in load(loop.file(), ["CpuRef"]).run(loop.feeds())] == [24, 20]


def test_a_custom_call_is_refused_with_its_name():
    options = ("StablehloCustomCallOptions", {"call_target_name": "mhlo.topk"})
    data = one_operator("STABLEHLO_CUSTOM_CALL", [T((2,))], [T((2,))], options)
    with pytest.raises(UnsupportedOperatorError) as caught:
        tflite.load(data)
    assert (
        str(caught.value) == "operators that are not supported:\n  - 1 x STABLEHLO_CUSTOM_CALL mhlo.topk (operators[0])"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("CONCAT_EMBEDDINGS", "no version of TensorFlow Lite computes it"),
        ("DELEGATE", "it stands for operators that a delegate replaced, which are not in the file"),
    ],
)
def test_an_operator_without_a_definition_is_refused_with_a_reason(name, reason):
    with pytest.raises(UnsupportedOperatorError) as caught:
        tflite.load(one_operator(name, [T((2,))], [T((2,))]))
    assert str(caught.value) == f"operators that are not supported:\n  - 1 x {name} (operators[0]: {reason})"


def test_a_value_that_grows_has_an_extent_that_is_not_known():
    tensors = [
        tensor("i", [], "int32"), tensor("x", [2], shape_signature=[-1]), tensor("three", [], "int32", buffer=2),
        tensor("j", [], "int32"), tensor("y", [2], shape_signature=[-1]),
    ]  # fmt: skip
    grown = ("CONCATENATION", [1, 1], [4], ("ConcatenationOptions", {"axis": 0}))
    body = subgraph(tensors, [0, 1], [3, 4], ("ADD", [0, 2], [3], ("AddOptions", {})), grown)
    model = load(counting(body), ["CpuRef"])
    assert model.run([np.int32(6), X])[1].tolist() == [3, 4] * 4
    assert model.run([np.int32(99), X])[1].tolist() == [3, 4]


def test_a_called_subgraph_stands_in_place_of_its_operator():
    main = subgraph(
        [tensor("x", [2]), tensor("y", [2])], [0], [1],
        ("CALL_ONCE", [], [], ("CallOnceOptions", {"init_subgraph_index": 2})),
        ("CALL", [0], [1], ("CallOptions", {"subgraph": 1})),
    )  # fmt: skip
    model = load(file(main, binary("MUL"), subgraph([], [], [])), ["CpuRef"])
    assert model.run([X])[0].tolist() == [9, 16]


def test_operators_of_other_subgraphs_are_listed_where_they_are_not_known():
    main = choice(tensor("c", [1], "bool"), [0, 1])
    with pytest.raises(UnsupportedOperatorError, match="1 x DELEGATE"):
        tflite.load(file(main, binary("ADD"), subgraph([tensor("a", [2])], [0], [0], ("DELEGATE", [], []))))


def test_a_subgraph_with_other_inputs_than_it_is_given_is_refused():
    main = choice(tensor("c", [1], "bool"), [0, 1])
    integers = subgraph([tensor("a", [2], "int32")], [0], [0])
    with pytest.raises(ParseError) as caught:
        tflite.load(file(main, binary("ADD"), integers))
    assert str(caught.value) == "operators[0] IF: subgraph 2 takes int32[2], but gets float32[2]"
    with pytest.raises(ParseError) as caught:
        tflite.load(file(main, binary("ADD"), subgraph([], [], [])))
    assert str(caught.value) == "operators[0] IF: subgraph 2 has 0 inputs; expected 1"


def test_branches_with_different_results_are_refused():
    main = choice(tensor("c", [1], "bool"), [0, 1])
    with pytest.raises(ParseError) as caught:
        tflite.load(file(main, binary("ADD"), subgraph([tensor("a", [2])], [0], [0, 0])))
    assert str(caught.value) == (
        "operators[0] IF: region 'else' has outputs with the binding ids 0, 1; expected only 0"
    )


def test_an_operator_without_options_names_no_subgraph():
    main = subgraph([tensor("x", [2]), tensor("y", [2])], [0], [1], ("CALL", [0], [1]))
    with pytest.raises(ParseError) as caught:
        tflite.load(file(main))
    assert str(caught.value) == "operators[0] CALL: it has no options, and so names no subgraph"


def test_subgraphs_that_call_each_other_too_often_are_refused():
    def twice(number: int) -> dict[str, Any]:
        options = ("CallOptions", {"subgraph": number})
        tensors = [tensor(name, [2]) for name in "xyz"]
        return subgraph(tensors, [0], [2], ("CALL", [0], [1], options), ("CALL", [1], [2], options))

    called = [twice(number) for number in range(1, 40)]
    branches = [choice(tensor("c", [], "bool"), [0, 1]), *(twice(number) for number in range(2, 40))]
    for subgraphs in (called, branches):
        with pytest.raises(ParseError, match="the subgraphs make more than 65,536 operators"):
            tflite.load(file(*subgraphs, binary("ADD")))
