"""What the front end makes of a document as such, and what it says of damaged ones."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interposer.core.errors import InterposerError, InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.core.types import DataType, Quantization
from interposer.frontends import nnapi
from tests.frontends.nnapi.models import compute, counting, ints, omitted, one_operation, quant8, scalar, tensor

ADD = one_operation("ADD", [tensor([2, 3]), tensor([2, 3]), scalar(0)], [tensor([2, 3])])


def two_operations() -> dict[str, Any]:
    """exp(a + b), with its operations in the wrong order."""
    document = copy.deepcopy(ADD)
    document["operands"][3]["lifetime"] = "TEMPORARY_VARIABLE"
    document["operands"].append({"name": "y", "type": "TENSOR_FLOAT32", "dims": [2, 3], "lifetime": "SUBGRAPH_OUTPUT"})
    document["operations"].insert(0, {"op": "EXP", "in": [3], "out": [4]})
    document["outputs"] = [4]
    return document


def test_inputs_and_outputs_are_called_as_the_operands_and_bound_by_their_places():
    network = nnapi.build(ADD)
    assert {number: layer.name for number, layer in network.inputs.items()} == {0: "i0", 1: "i1"}
    assert {number: layer.name for number, layer in network.outputs.items()} == {0: "o0"}


def test_a_network_is_called_after_its_test():
    assert nnapi.build(ADD).name == "nnapi"
    assert nnapi.build({**ADD, "test": "add", "spec": "adds"}).name == "add"


def test_operations_may_stand_in_any_order():
    [result] = compute(two_operations(), np.zeros(6), np.ones(6))
    np.testing.assert_allclose(result, np.full((2, 3), np.e), rtol=1e-6)


def test_layers_tell_where_they_come_from():
    [layer] = [layer for layer in nnapi.build(ADD) if layer.kind == "Addition"]
    assert (layer.name, layer.source) == ("ADD", "nnapi, operations[0] ADD")


def test_nothing_is_bound_to_the_place_of_an_omitted_input():
    left_out = tensor([2], "TENSOR_INT32", data=[])
    document = one_operation("SQUEEZE", [left_out, tensor([1, 3])], [tensor([3])])
    document["operations"][0]["in"] = [1, 0]
    assert list(nnapi.build(document).inputs) == [1]


def test_an_operand_without_value_is_left_out():
    document = one_operation("TRANSPOSE", [tensor([2, 3]), omitted("TENSOR_INT32")], [tensor([3, 2])])
    [result] = compute(document, counting(2, 3))
    np.testing.assert_array_equal(result, counting(2, 3).T)


def test_a_missing_operand_that_must_be_there_is_named():
    document = one_operation("ADD", [tensor([2]), omitted(), scalar(0)], [tensor([2])])
    with pytest.raises(ParseError) as error:
        nnapi.build(document)
    assert str(error.value) == "operations[0] ADD: input 1 is missing"


@pytest.mark.parametrize(
    ("type", "dtype", "more"),
    [
        ("TENSOR_FLOAT32", DataType.FLOAT32, {}),
        ("TENSOR_FLOAT16", DataType.FLOAT16, {}),
        ("TENSOR_INT32", DataType.INT32, {}),
        ("TENSOR_BOOL8", DataType.BOOL, {}),
        ("TENSOR_QUANT8_ASYMM", DataType.UINT8, {"scale": 0.5, "zero_point": 128}),
        ("TENSOR_QUANT8_ASYMM_SIGNED", DataType.INT8, {"scale": 0.5, "zero_point": -3}),
        ("TENSOR_QUANT8_SYMM", DataType.INT8, {"scale": 0.5}),
        ("TENSOR_QUANT16_SYMM", DataType.INT16, {"scale": 0.5}),
        ("TENSOR_QUANT16_ASYMM", DataType.UINT16, {"scale": 0.125, "zero_point": 7}),
    ],
)
def test_every_type_of_tensor_is_stored_as_it_should_be(type, dtype, more):
    document = one_operation("RESHAPE", [tensor([2, 3], type, **more), ints(6)], [tensor([6], type, **more)])
    info = nnapi.build(document).inputs[0].output.known
    expected = Quantization(more["scale"], more.get("zero_point", 0)) if more else None
    assert (info.dtype, info.quantization) == (dtype, expected)


def test_scales_of_channels_belong_to_their_axis():
    more = {"channel_scales": [0.5, 0.25], "channel_dim": 1}
    weights = tensor([3, 2], "TENSOR_QUANT8_SYMM_PER_CHANNEL", **more)
    document = one_operation("DEQUANTIZE", [weights], [tensor([3, 2])])
    [result] = compute(document, np.full((3, 2), 4))
    np.testing.assert_array_equal(result, [[2, 1]] * 3)


def test_an_extent_of_0_is_not_known():
    document = one_operation("ADD", [tensor([0, 3]), tensor([1, 3]), scalar(0)], [tensor([0, 3])])
    network = nnapi.build(document)
    assert str(network.inputs[0].output.known) == "float32[?, 3]"
    assert str(nnapi.build(document, shapes={"i0": [5, 3]}).outputs[0].values[0].known) == "float32[5, 3]"


def test_a_shape_that_an_input_cannot_have_is_refused():
    with pytest.raises(InvalidArgumentError) as caught:
        nnapi.build(ADD, shapes={"i0": [3, 2, 1]})
    assert str(caught.value) == "shapes: 'i0' has the shape [2, 3]; [3, 2, 1] was given, which has another rank"
    with pytest.raises(InvalidArgumentError, match=r"the network has no input 'in0'; did you mean 'i0'\?"):
        nnapi.build(ADD, shapes={"in0": [3, 2]})


def test_a_dimension_that_the_document_fixes_can_be_resized():
    network = nnapi.build(ADD, shapes={"i0": [4, 3], "i1": [4, 3]})
    assert network.outputs[0].values[0].known.shape == (4, 3)


def test_a_tensor_without_dims_has_a_rank_that_follows():
    document = one_operation("ADD", [tensor([2, 3]), tensor([3]), scalar(0)], [tensor([])])
    assert str(nnapi.build(document).outputs[0].values[0].known) == "float32[2, 3]"


def test_all_unknown_operators_are_listed_with_their_counts():
    document = two_operations()
    document["operations"][0]["op"] = document["operations"][1]["op"] = "NONSENSE"
    with pytest.raises(UnsupportedOperatorError) as error:
        nnapi.build(document)
    assert error.value.operators == {"NONSENSE": 2}


def test_a_file_holds_the_same(tmp_path):
    (tmp_path / "add.json").write_text(json.dumps(ADD))
    assert str(nnapi.load(tmp_path / "add.json")) == str(nnapi.build(ADD))
    assert str(nnapi.load(json.dumps(ADD).encode())) == str(nnapi.build(ADD))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "the file is truncated or damaged, or is no JSON: "),
        (b"\xff\xfe\xfd", "the file is truncated or damaged, or is no JSON: "),
        (b"[" * 100_000, "the file is nested too deeply"),
        (b"[1]", "the document is [1]; expected a mapping"),
    ],
)
def test_a_file_that_holds_no_document_is_refused(data, said):
    with pytest.raises(ParseError) as error:
        nnapi.load(data)
    assert str(error.value).startswith(said)


def test_an_error_in_a_file_names_the_file(tmp_path):
    with pytest.raises(ParseError, match=r"none\.json: the file cannot be read: No such file"):
        nnapi.load(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(ParseError, match=r"bad\.json: document: 'operands' is missing"):
        nnapi.load(tmp_path / "bad.json")


CONSTANT = one_operation("ADD", [tensor([2]), tensor([2], value=[1.0, 2.0]), scalar(0)], [tensor([2])])
CODES = one_operation("ADD", [quant8([2], 0.5, 0), quant8([2], 0.5, 0, [1, 2]), scalar(0)], [quant8([2], 0.5, 0)])

DAMAGE: list[tuple[dict[str, Any], tuple[Any, ...], Any, str]] = [
    (ADD, ("operands",), None, "document: 'operands' is missing"),
    (ADD, ("operations",), {}, "document: 'operations' is {}; expected a list"),
    (ADD, ("inputs",), "01", "inputs: 'inputs' is '01'; expected a list"),
    (ADD, ("inputs",), [0, 1.0], "inputs: 'inputs' has the entry 1.0; expected an integer"),
    (ADD, ("inputs",), [0, 7], "inputs: 'inputs' has the index 7, but there are 4 operands"),
    (ADD, ("inputs",), [0, 0], "inputs: [0, 0] names an operand twice"),
    (ADD, ("inputs",), [0], "inputs: operands[1] has the lifetime SUBGRAPH_INPUT and is missing"),
    (ADD, ("inputs",), [0, 2], "inputs: operands[2] has the lifetime CONSTANT_COPY; expected SUBGRAPH_INPUT"),
    (ADD, ("outputs",), [], "outputs: operands[3] has the lifetime SUBGRAPH_OUTPUT and is missing"),
    (ADD, ("operands", 1), 5, "operands[1]: it is 5; expected a mapping"),
    (ADD, ("operands", 1, "name"), 5, "operands[1]: 'name' is 5; expected a text"),
    (ADD, ("operands", 1, "type"), None, "operands[1]: 'type' is missing"),
    (ADD, ("operands", 1, "type"), "TENSOR_FLOAT23",
     "operands[1]: the type 'TENSOR_FLOAT23' is not known; did you mean 'TENSOR_FLOAT32'?"),
    (ADD, ("operands", 1, "type"), "FLOAT32",
     "operands[1]: a FLOAT32 has dims [2, 3]; expected none, or the type TENSOR_FLOAT32"),
    (ADD, ("operands", 1, "lifetime"), "GRAPH_INPUT",
     "operands[1]: the lifetime 'GRAPH_INPUT' is not known; did you mean 'SUBGRAPH_INPUT'?"),
    (ADD, ("operands", 1, "dims"), [2, -3],
     "operands[1]: 'dims' is [2, -3]; a dimension must not be negative, and 0 means unknown"),
    (ADD, ("operands", 1, "dims"), [1] * 17, "operands[1]: a tensor has rank 17; ranks 0 to 16 are supported"),
    (ADD, ("operands", 1, "dims"), [2, True], "operands[1]: 'dims' has the entry True; expected an integer"),
    (ADD, ("operands", 1, "data"), [1.0], "operands[1]: 'data' has 1 values; dims [2, 3] take 6"),
    (ADD, ("operands", 2, "data"), None, "operands[2]: a constant has no 'data'"),
    (CONSTANT, ("operands", 1, "data"), [1.0], "operands[1]: 'data' has 1 values; dims [2] take 2"),
    (CONSTANT, ("operands", 1, "data"), ["a", "b"],
     "operands[1]: 'data' is ['a', 'b']; expected a list of float32 values"),
    (CONSTANT, ("operands", 1, "data"), [1.0, [2.0]], "operands[1]: 'data' cannot be made into an array: "),
    (CONSTANT, ("operands", 1, "data"), [1.0, -1e39], "operands[1]: 'data' has -1e+39, which is too large for float32"),
    (CODES, ("operands", 1, "data"), [1, 256], "operands[1]: 'data' has values that are no uint8"),
    (CODES, ("operands", 1, "data"), [1, 2.0], "operands[1]: 'data' is [1, 2.0]; expected a list of uint8 values"),
    (CODES, ("operands", 1, "data"), [1, 10**30],
     "operands[1]: 'data' is [1, 1000000000000000000000000000000]; expected a list of uint8 values"),
    (CODES, ("operands", 1, "scale"), 0, "operands[1]: a scale must be positive and finite, not 0.0"),
    (CODES, ("operands", 1, "scale"), "1", "operands[1]: 'scale' is '1'; expected a number"),
    (CODES, ("operands", 0, "zero_point"), 256, "operands[0]: a zero point of uint8 must be 0 to 255, not 256"),
    (CODES, ("operands", 0, "zero_point"), 0.5, "operands[0]: 'zero_point' is 0.5; expected an integer"),
    (ADD, ("operations", 0), [], "operations[0]: it is []; expected a mapping"),
    (ADD, ("operations", 0, "op"), 3, "operations[0]: 'op' is 3; expected a text"),
    (ADD, ("operations", 0, "in"), [0, 1, -1], "operations[0] ADD: 'in' has the index -1, but there are 4 operands"),
    (ADD, ("operations", 0, "in"), [0, 1], "operations[0] ADD: it has 2 inputs; expected 3"),
    (ADD, ("operations", 0, "in"), [0, 1, 3], "operations: operations depend on themselves: operations[0] ADD <- "),
    (ADD, ("operations", 0, "out"), [0],
     "operations[0] ADD: it writes operands[0], whose lifetime is SUBGRAPH_INPUT"),
    (ADD, ("operations", 0, "out"), [3, 3], "operations[0] ADD: it writes operands[3], as operations[0] ADD does"),
    (ADD, ("operations", 0, "out"), [], "outputs: operands[3] is written by no operation"),
    (ADD, ("operands", 3, "dims"), [3, 2],
     "operations[0] ADD: its output 0 has shape [3, 2] in the document, but it gives [2, 3]"),
    (ADD, ("operands", 3, "type"), "TENSOR_INT32",
     "operations[0] ADD: its output 0 is TENSOR_INT32, but it gives float32"),
    (ADD, ("operands", 2, "data"), [9], "operations[0] ADD: the fused activation 9 is not known; expected 0 to 3"),
    (ADD, ("operands", 2, "type"), "BOOL",
     "operations[0] ADD: the fused activation (input 2) is BOOL; expected integers"),
    (ADD, ("operands", 2), tensor([2], "TENSOR_INT32", value=[0, 0]),
     "operations[0] ADD: the fused activation (input 2) has 2 elements; expected one"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "place", "value", "said"), DAMAGE)
def test_damage_is_refused_with_its_place(document, place, value, said):
    document = copy.deepcopy(document)
    part = document
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    with pytest.raises(ParseError) as error:
        nnapi.build(document)
    assert str(error.value).startswith(said)


def test_what_nothing_writes_is_not_read():
    document = two_operations()
    document["operations"].pop()
    with pytest.raises(ParseError) as error:
        nnapi.build(document)
    assert str(error.value) == "operations[0] EXP: it reads operands[3], which nothing writes"


def test_a_parameter_must_be_a_constant():
    flag = {"type": "INT32", "dims": [], "lifetime": "SUBGRAPH_INPUT"}
    with pytest.raises(ParseError, match=r"the fused activation \(input 2\) is computed while running; only constants"):
        nnapi.build(one_operation("ADD", [tensor([2]), tensor([2]), flag], [tensor([2])]))


def test_a_scalar_is_no_tensor():
    with pytest.raises(ParseError, match=r"input 1 is the scalar FLOAT32; expected a tensor"):
        nnapi.build(one_operation("ADD", [tensor([2]), scalar(1.0), scalar(0)], [tensor([2])]))


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something stands in nested data."""
    items = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    return [result for key, value in items for result in [(*path, key), *places(value, (*path, key))]]


SUBJECTS = [ADD, CONSTANT, CODES, two_operations()]
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.just(10**40), st.floats(), st.text(max_size=3),
    st.lists(st.integers(-2, 5), max_size=4), st.builds(dict), st.builds(lambda: [{}]), st.builds(lambda: [None]),
)  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(SUBJECTS), st.data())
def test_whatever_is_damaged_no_error_but_ours_comes_out(document, data):
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(document)))
        part = document
        for step in place[:-1]:
            part = part[step]
        if isinstance(part, dict) and data.draw(st.booleans()):
            del part[place[-1]]
        else:
            part[place[-1]] = data.draw(JUNK)
    with contextlib.suppress(InterposerError):
        nnapi.build(document)
