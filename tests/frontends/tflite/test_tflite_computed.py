"""Operators inside a branch or a loop, where shapes, bounds and counts are computed at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from interposer import load
from interposer.core.errors import ParseError
from interposer.frontends import tflite

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.build import code, encode, operator, tensor

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def in_a_branch(
    name: str, inputs: list[np.ndarray], result: dict[str, Any], options: Any = None, constant: np.ndarray | None = None
) -> bytes:
    """Return a file whose operator is in both branches of an IF, so that its inputs are computed at run time.

    A constant is one more input of the operator.
    """
    tensors = [tensor(f"i{k}", list(array.shape), array.dtype.name) for k, array in enumerate(inputs)]
    extra = [] if constant is None else [tensor("k", list(constant.shape), constant.dtype.name, buffer=1)]
    places, count = list(range(len(inputs))), len(inputs) + len(extra)
    more = {"builtin_options": options} if options else {}
    branch = {
        "tensors": [*tensors, *extra, result],
        "inputs": places,
        "outputs": [count],
        "operators": [operator(list(range(count)), [count], opcode_index=1, **more)],
    }
    choice = {"builtin_options": ("IfOptions", {"then_subgraph_index": 1, "else_subgraph_index": 2})}
    last = len(inputs)
    main = {
        "tensors": [*tensors, tensor("c", [], "bool"), result],
        "inputs": [*places, last],
        "outputs": [last + 1],
        "operators": [operator([last, *places], [last + 1], opcode_index=0, **choice)],
    }
    buffers = [{}, *([] if constant is None else [{"data": constant.tobytes()}])]
    codes = [code("IF"), code(name)]
    return encode({"version": 3, "operator_codes": codes, "buffers": buffers, "subgraphs": [main, branch, branch]})


def dynamic(rank: int, dtype: str = "float32") -> dict[str, Any]:
    return tensor("y", [1] * rank, dtype, shape_signature=[-1] * rank)


def result_of(data: bytes, inputs: list[np.ndarray]) -> np.ndarray:
    [value] = load(data, ["CpuRef"]).run([*inputs, np.bool_(True)])
    return value


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("SLICE", [X, np.int32([1, 0, 1]), np.int32([1, -1, 2])], X[1:2, :, 1:3]),
        ("RESHAPE", [X, np.int32([4, -1])], X.reshape(4, 6)),
        ("BROADCAST_TO", [X, np.int32([2, 2, 3, 4])], np.broadcast_to(X, (2, 2, 3, 4))),
        ("FILL", [np.int32([2, 3]), np.float32(1.5)], np.full((2, 3), 1.5, np.float32)),
        ("TILE", [X, np.int32([1, 2, 1])], np.tile(X, (1, 2, 1))),
        ("PAD", [X, np.int32([[0, 0], [1, 0], [0, 2]])], np.pad(X, [(0, 0), (1, 0), (0, 2)])),
        ("RANGE", [np.int32(2), np.int32(11), np.int32(3)], np.int32([2, 5, 8])),
        ("RANGE", [np.float32(1), np.float32(0), np.float32(-0.25)], np.float32([1, 0.75, 0.5, 0.25])),
    ],
)
def test_an_operator_takes_bounds_that_are_computed_at_run_time(name, inputs, expected):
    data = in_a_branch(name, inputs, dynamic(expected.ndim, expected.dtype.name))
    result = result_of(data, inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


BOUNDS = np.int32([1, -1, 3]), np.int32([2, -4, 1]), np.int32([1, -1, -1])


@pytest.mark.parametrize(
    ("bounds", "masks", "expected"),
    [
        (BOUNDS, {}, X[1:2, -1:-4:-1, 3:1:-1]),
        (BOUNDS, {"begin_mask": 6, "end_mask": 6}, X[1:2, ::-1, ::-1]),
        (BOUNDS, {"shrink_axis_mask": 2}, X[1:2, -1, 3:1:-1]),
        ((np.int32([-9, 0]), np.int32([-99, 2]), np.int32([-1, 1])), {}, X[-9:-99:-1, 0:2]),
        (BOUNDS, {"shrink_axis_mask": 7}, X[1, -1, 3]),
        (BOUNDS, {"ellipsis_mask": 2}, X[1:2, ..., 3:1:-1]),
        (BOUNDS, {"new_axis_mask": 2}, X[1:2, np.newaxis, 3:1:-1]),
        ((np.int32([0]), np.int32([1]), np.int32([1])), {"shrink_axis_mask": 1}, X[0]),
        ((np.int32([0, 1]), np.int32([1, 1]), np.int32([1, 2])), {"offset": True}, X[0:1, 1:2]),
    ],
)
def test_a_strided_slice_takes_bounds_that_are_computed_at_run_time(bounds, masks, expected):
    begin, end, strides = bounds
    options = ("StridedSliceOptions", masks)
    data = in_a_branch("STRIDED_SLICE", [X, begin, end], dynamic(expected.ndim), options, strides)
    np.testing.assert_array_equal(result_of(data, [X, begin, end]), expected)


def test_a_strided_slice_with_bounds_of_another_length_than_its_strides_is_refused():
    data = in_a_branch("STRIDED_SLICE", [X, np.int32([0, 0]), np.int32([1])], dynamic(3), None, np.int32([1]))
    with pytest.raises(ParseError) as caught:
        load(data, ["CpuRef"])
    assert str(caught.value) == (
        "subgraphs[1].operators[0] STRIDED_SLICE: begin is int32[2] and end int32[1]; "
        "expected 1 elements, one for each stride"
    )


@pytest.mark.parametrize(
    ("name", "options", "axis", "expected"),
    [
        ("EXPAND_DIMS", None, np.int32(1), X[:, np.newaxis]),
        ("SQUEEZE", ("SqueezeOptions", {"squeeze_dims": [0]}), None, X[0]),
    ],
)
def test_an_axis_is_inserted_or_removed_while_all_other_dimensions_are_unknown(name, options, axis, expected):
    x = X[:1] if name == "SQUEEZE" else X
    shape = tensor("x", list(x.shape), shape_signature=[1 if name == "SQUEEZE" else -1, -1, -1])
    tensors = [shape, *([] if axis is None else [tensor("k", [], "int32", buffer=1)]), dynamic(expected.ndim)]
    last = len(tensors) - 1
    more = {"builtin_options": options} if options else {}
    main = {
        "tensors": tensors,
        "inputs": [0],
        "outputs": [last],
        "operators": [operator(list(range(last)), [last], opcode_index=0, **more)],
    }
    buffers = [{}, {"data": np.int32(1).tobytes()}]
    data = encode({"version": 3, "operator_codes": [code(name)], "buffers": buffers, "subgraphs": [main]})
    network = tflite.load(data, dynamic=True)
    assert [layer.kind for layer in network if layer.kind not in {"Input", "Output"}] == ["StridedSlice"]
    np.testing.assert_array_equal(load(data, ["CpuRef"])(x), expected)


def packed(*texts: str) -> bytes:
    """Return texts as TFLite stores them."""
    encoded = [text.encode() for text in texts]
    starts = np.cumsum([4 * (len(texts) + 2), *map(len, encoded)], dtype=np.int32)
    return np.int32(len(texts)).tobytes() + starts.tobytes() + b"".join(encoded)


def labels(data: bytes) -> bytes:
    """Return a file that looks up a constant with three strings."""
    main = {
        "tensors": [tensor("i", [2], "int32"), tensor("k", [3], "string", buffer=1), tensor("y", [2], "string")],
        "inputs": [0],
        "outputs": [2],
        "operators": [operator([1, 0], [2], opcode_index=0, builtin_options=("GatherOptions", {}))],
    }
    buffers = [{}, {"data": data}]
    return encode({"version": 3, "operator_codes": [code("GATHER")], "buffers": buffers, "subgraphs": [main]})


def test_constant_strings_are_read():
    model = load(labels(packed("cat", "", "größer")), ["CpuRef"])
    assert model(np.int32([2, 1])).tolist() == ["größer", ""]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (packed("a", "b"), "operators[0] GATHER: tensor 'k' has 18 bytes for 3 strings"),
        (packed("a", "b", "c")[:-1], "operators[0] GATHER: tensor 'k' has strings outside of its bytes"),
        (b"\x03" + bytes(19), "operators[0] GATHER: tensor 'k' has strings outside of its bytes"),
    ],
)
def test_damaged_strings_are_refused(data, message):
    with pytest.raises(ParseError) as caught:
        load(labels(data), ["CpuRef"])
    assert str(caught.value) == f"the file is truncated or damaged: {message}"


def test_strings_that_are_not_utf8_are_refused():
    data = packed("a", "b", "c")[:-1] + b"\xff"
    with pytest.raises(ParseError) as caught:
        load(labels(data), ["CpuRef"])
    assert str(caught.value) == "operators[0] GATHER: tensor 'k' has a string that is not UTF-8: b'\\xff'"
