"""Operands that are computed from the inputs of each call: a value that a layer cannot use is the caller's error."""

from __future__ import annotations

import asyncio
import logging
import pickle
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidOperandError, InvalidValueError, ParseError
from interposer.serving.batching import Batcher
from interposer.serving.statistics import Timing

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import TensorProto, helper  # noqa: E402

from tests.frontends.onnx.models import model  # noqa: E402
from tests.serving.running import running, serving  # noqa: E402

pytestmark = pytest.mark.needs_cpuref
F32 = np.float32
LINE = np.arange(12, dtype=F32).reshape(3, 4)
IMAGE = np.arange(20, dtype=F32).reshape(1, 1, 4, 5)
BOXES = np.array([[[0, 0, 1, 1], [0, 0, 2, 2], [3, 3, 4, 4]]], F32)
SCORES = np.array([[[0.9, 0.8, 0.7]]], F32)
ANY = object()

# operator, operands, the index of the computed one, an invalid value, what the error says of it: the name of the
# operand (in ONNX and in our operator, if they differ), the position, the value and what is allowed; attributes
CASES: list[tuple[Any, ...]] = [
    ("ReduceSum", [LINE, [1]], 1, [2], "axes", (0,), 2, (-2, 1), {}),
    ("ReduceMax", [LINE, [0, 1]], 1, [0, -3], "axes", (1,), -3, (-2, 1), {}),
    ("ReduceMean", [LINE, [0, 1]], 1, [1, 1], "axes", None, [1, 1], None, {}),
    ("Squeeze", [LINE[None], [0]], 1, [3], "axes", (0,), 3, (-3, 2), {}),
    ("Squeeze", [LINE[None], [0]], 1, [1], "axes", (0,), 1, None, {}),
    ("Unsqueeze", [LINE, [0]], 1, [-4], "axes", (0,), -4, (-3, 2), {}),
    ("CumSum", [LINE, 0], 1, 2, "axis", (), 2, (-2, 1), {}),
    ("Slice", [LINE, [0], [2], [1], [1]], 3, [5], "axes", (0,), 5, (-2, 1), {}),
    ("Slice", [LINE, [0], [2], [1], [1]], 4, [0], "steps", (0,), 0, None, {}),
    ("Pad", [LINE, [1, 1, 1, 1]], 1, [-9, 0, 0, 0], "pads", None, ANY, None, {}),
    ("Pad", [LINE, [1, 1, 1, 1]], 1, [9, 0, 0, 0], "pads", None, ANY, None, {"mode": "reflect"}),
    ("Pad", [LINE, [1, 1], F32(0), [0]], 3, [2], "axes", (0,), 2, (-2, 1), {}),
    ("Split", [LINE, [1, 3]], 1, [-1, 5], "split|sizes", (0,), -1, (0, None), {"axis": 1}),
    ("Split", [LINE, [1, 3]], 1, [1, 2], "split|sizes", None, [1, 2], None, {"axis": 1}),
    ("Resize", [IMAGE, None, None, [1, 1, 8, 10]], 3, [1, 1, -8, 10], "sizes", (2,), -8, (0, None), {}),
    ("Resize", [IMAGE, None, F32([1, 1, 2, 2])], 2, F32([1, 1, -2, 2]), "scales", (2,), -2, (0, 2**31), {}),
    ("Resize", [IMAGE, None, F32([1, 1, 2, 2])], 2, F32([1, 1, 2, np.nan]), "scales", (3,), ANY, (0, 2**31), {}),
    ("Reshape", [LINE, [4, 3]], 1, [5, 3], "shape", None, [5, 3], None, {}),
    ("Reshape", [LINE, [4, 3]], 1, [-2, 3], "shape", (0,), -2, (-1, None), {}),
    ("Expand", [LINE, [2, 3, 4]], 1, [2, -1, 4], "shape", (1,), -1, (0, None), {}),
    ("Tile", [LINE, [2, 1]], 1, [-1, 1], "repeats|multiples", (0,), -1, (0, None), {}),
    ("TopK", [LINE, [2]], 1, [5], "k", (0,), 5, (0, 4), {}),
    ("TopK", [LINE, [2]], 1, [-1], "k", (0,), -1, (0, None), {}),
    ("Range", [0, 5, 1], 2, 0, "delta", ANY, 0, None, {}),
    ("OneHot", [np.array([0, 2]), [3], F32([0, 1])], 1, [-1], "depth|dims", (0,), -1, (0, None), {}),
    ("ConstantOfShape", [[2, 3]], 0, [-1, 3], "dims", (0,), -1, (0, None), {}),
    ("NonMaxSuppression", [BOXES, SCORES, 3, F32(0.5), F32(0)], 3, F32(1.5), "iou_threshold", (), 1.5, (0, 1), {}),
    ("CenterCropPad", [LINE, [2, 2]], 1, [2, -1], "shape", (1,), -1, (0, None), {}),
    ("Col2Im", [np.ones((1, 4, 9), F32), [4, 4], [2, 2]], 2, [0, 2], "block_shape", (0,), 0, (1, None), {}),
    ("DFT", [np.ones((1, 8, 1), F32), 6, 1], 1, 0, "dft_length", (), 0, (1, None), {}),
    ("DFT", [np.ones((1, 8, 1), F32), 6, 1], 2, 5, "axis", (), 5, (-3, 2), {}),
    ("HannWindow", [10], 0, -1, "size", (), -1, (0, None), {}),
    ("STFT", [np.ones((1, 16, 1), F32), 4, np.ones(8, F32)], 1, 0, "frame_step", (), 0, (1, None), {}),
    ("Gather", [LINE, [0, 1]], 1, [0, 3], "indices", (1,), 3, (-3, 2), {}),
    ("GatherND", [LINE, [[0, 1]]], 1, [[0, 4]], "indices", (0, 1), 4, (-4, 3), {}),
    ("ReverseSequence", [LINE, [1, 2, 3, 1]], 1, [1, 2, 9, 1], "lengths", (2,), 9, (0, 3),
     {"time_axis": 0, "batch_axis": 1}),
]  # fmt: skip
IDS = [f"{op}-{operand}-{number}" for number, (op, _, _, _, operand, *_) in enumerate(CASES)]
OUTPUTS = {"TopK": ["y", "z"], "Split": ["y", "z"]}


def passed_on(array: np.ndarray, way: str) -> list[onnx.NodeProto]:
    """Return nodes that compute ``operand`` from the input ``given``, with the same elements."""
    if way == "input":
        return []
    flat = helper.make_node("Reshape", ["given", "vector"], ["flat"])
    restored = helper.make_node("Reshape", ["same", "shape"], ["operand"])
    if way == "rearranged":
        return [flat, helper.make_node("Gather", ["flat", "all"], ["same"]), restored]
    there = helper.make_node("Cast", ["flat"], ["floats"], to=TensorProto.DOUBLE)
    image = helper.make_node("Reshape", ["floats", "image"], ["pixels"])
    product = helper.make_node("Conv", ["pixels", "one"], ["products"])
    back = helper.make_node("Cast", ["products"], ["same"], to=helper.np_dtype_to_tensor_dtype(array.dtype))
    return [flat, there, image, product, back, restored]


def network_of(case: tuple[Any, ...], way: str) -> tuple[bytes, dict[str, np.ndarray], np.ndarray]:
    """Return a model in which an operand is computed in this way, good inputs, and an invalid value for `given`."""
    op, operands, index, bad, *_, attributes = case
    arrays = [None if operand is None else np.asarray(operand) for operand in operands]
    names = ["" if array is None else f"x{number}" for number, array in enumerate(arrays)]
    names[index] = "given" if way == "input" else "operand"
    given = arrays[index]
    constants = {
        "vector": np.array([-1]), "image": np.array([1, 1, 1, -1]), "one": np.ones((1, 1, 1, 1)),
        "shape": np.array(given.shape, np.int64), "all": np.arange(given.size),
    }  # fmt: skip
    constants |= {name: array for name, array in zip(names[1:], arrays[1:], strict=True) if name.startswith("x")}
    feeds = {"given": given, **({names[0]: arrays[0]} if index else {})}
    outputs = OUTPUTS.get(op, ["y"])
    nodes = [*passed_on(given, way), helper.make_node(op, names, outputs, name="node", **attributes)]
    content = model(nodes, feeds, outputs, constants, 20).SerializeToString()
    return content, feeds, np.asarray(bad, given.dtype)


@pytest.mark.parametrize("way", ["input", "rearranged", "convolved"])
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_a_value_that_a_layer_cannot_use_is_the_callers_error(
    case: tuple[Any, ...], way: str, caplog: pytest.LogCaptureFixture
) -> None:
    operand, position, value, allowed = case[4:8]
    content, feeds, bad = network_of(case, way)
    model = ip.load(content)
    expected = model.run(feeds)
    caplog.clear()
    for call in (model.run, lambda inputs: model.submit(inputs).result()):
        with caplog.at_level(logging.INFO, "interposer"), pytest.raises(InvalidValueError) as caught:
            call({**feeds, "given": bad})
        error = caught.value
        assert error.layer.split("/")[0] == "node"
        assert error.operand in operand.split("|")
        assert error.tensor
        assert position is ANY or error.position == position
        assert value is ANY or error.value == value
        assert error.allowed == allowed
        for found, array in zip(model.run(feeds), expected, strict=True):
            np.testing.assert_array_equal(found, array)
    assert model.events == ()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("way", ["input", "convolved"])
def test_the_server_refuses_the_request_alone(way: str) -> None:
    cases = {f"net{number}": case for number, case in enumerate(CASES) if np.isfinite(case[3]).all()}
    networks = {name: network_of(case, way) for name, case in cases.items()}
    with running(serving({name: ip.load(content) for name, (content, _, _) in networks.items()})) as server:
        for name, (_, feeds, bad) in networks.items():
            path = f"/v2/models/{name}/infer"
            first = server.client.post(path, body_of(feeds))
            refused = server.client.post(path, body_of({**feeds, "given": bad}))
            again = server.client.post(path, body_of(feeds))
            assert (first.status, refused.status, again.status) == (200, 400, 200), refused.body
            assert "'node" in refused.json["error"]
            assert again.json["outputs"] == first.json["outputs"]


def body_of(feeds: dict[str, np.ndarray]) -> dict[str, Any]:
    types = {"float32": "FP32", "int64": "INT64"}
    tensors = [
        {"name": name, "datatype": types[str(array.dtype)], "shape": array.shape, "data": array.ravel().tolist()}
        for name, array in feeds.items()
    ]
    return {"inputs": tensors}


def reversing(rows: int) -> bytes:
    """Return a model that reverses the first elements of each row, as many as its largest element says."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[1], keepdims=0),
        helper.make_node("Cast", ["most"], ["lengths"], to=TensorProto.INT64),
        helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=1, batch_axis=0, name="node"),
    ]
    return bytes(model(nodes, {"x": np.zeros((rows, 4), F32)}, opset=17).SerializeToString())


def test_of_a_batch_only_the_request_with_the_invalid_value_fails() -> None:
    variants = {rows: ip.load(reversing(rows), ["CpuRef"]) for rows in (1, 2, 4)}
    runner = Batcher(variants.pop(1), variants, 0.05)
    rows = [F32([[0, 1, 2, 9 if number % 5 == 0 else 3]]) for number in range(13)]

    async def main() -> list[Any]:
        requests = (runner.run({"x": row}, ["y"], 30, {}, Timing()) for row in rows)
        return await asyncio.gather(*requests, return_exceptions=True)

    for row, result in zip(rows, asyncio.run(main()), strict=True):
        if row.max() == 9:
            assert isinstance(result, InvalidValueError)
            assert (result.layer, result.value, result.allowed) == ("node", 9, (0, 4))
        else:
            np.testing.assert_array_equal(result[0], [[2, 1, 0, 3]])


def test_constants_of_the_file_are_the_files_error() -> None:
    wrong = model([helper.make_node("ReduceSum", ["x", "a"], ["y"])], {"x": LINE}, constants={"a": np.array([2])})
    with pytest.raises(ParseError) as caught:
        ip.load(wrong.SerializeToString())
    assert not isinstance(caught.value, InvalidOperandError)


def test_values_that_are_given_once_are_named_by_the_error_of_loading() -> None:
    value = model([helper.make_node("ReduceSum", ["x", "a"], ["y"])], {"x": LINE, "a": np.array([0])})
    with pytest.raises(InvalidOperandError) as caught:
        ip.load(value.SerializeToString(), values={"a": [7]})
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value)), caught.value.at("net.onnx")):
        refusal = error.refusal
        assert (refusal.operand, refusal.tensor, refusal.position, refusal.value) == ("axes", "a", (0,), 7)


def test_a_layer_before_the_operand_is_named_if_it_cannot_use_a_value() -> None:
    nodes = [
        helper.make_node("Conv", ["image", "image"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["whole", "one"], ["index"]),
        helper.make_node("Gather", ["axes of", "index"], ["axes"], name="pick"),
        helper.make_node("ReduceSum", ["x", "axes"], ["y"], keepdims=0, name="node"),
    ]
    constants = {"one": np.array([1]), "axes of": np.array([1, 0])}
    value = model(nodes, {"x": LINE, "image": np.zeros((1, 1, 1, 1), F32)}, constants=constants)
    summing = ip.load(value.SerializeToString())
    for _ in range(2):
        np.testing.assert_array_equal(summing.run([LINE, np.ones((1, 1, 1, 1), F32)])[0], LINE.sum(0))
        with pytest.raises(InvalidValueError, match="index 4 is out of range for an axis of size 2") as caught:
            summing.run([LINE, F32([[[[2]]]])])
        error = caught.value
        assert (error.layer, error.operand, error.position) == ("pick", "indices", (0,))
        assert (error.value, error.tensor) == (4, "Reshape_0")


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_branch_that_cannot_use_a_value_fails_only_if_it_is_taken(is_taken: bool) -> None:
    result = [helper.make_empty_tensor_value_info("z")]
    then = helper.make_graph([helper.make_node("ReduceSum", ["x", "a"], ["z"], name="node")], "then", [], result)
    other = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["z"])], "else", [], result)
    branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    value = model([branch], {"x": LINE, "a": np.array([0]), "c": np.array(True)})
    summing = ip.load(value.SerializeToString())
    np.testing.assert_array_equal(summing.run([LINE, np.array([0]), np.array(True)])[0], LINE.sum(0, keepdims=True))
    if is_taken:
        with pytest.raises(InvalidValueError, match="axes is 5"):
            summing.run([LINE, np.array([5]), np.array(True)])
    else:
        np.testing.assert_array_equal(summing.run([LINE, np.array([5]), np.array(False)])[0], [[LINE.sum()]])
    np.testing.assert_array_equal(summing.run([LINE, np.array([1]), np.array(True)])[0], LINE.sum(1, keepdims=True))
