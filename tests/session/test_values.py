"""Inputs that decide which layers a network has: given once, or taken from every call."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, TensorInfo
from interposer.core.errors import InvalidArgumentError, InvalidValueError, UnboundInputError, UnsupportedOperatorError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
from onnx import helper  # noqa: E402

from interposer.core.schema import Op  # noqa: E402
from interposer.kernels import evaluate  # noqa: E402
from tests.frontends.onnx.models import info, model  # noqa: E402

pytestmark = pytest.mark.needs_cpuref

X = np.arange(6, dtype=np.float32).reshape(2, 3)
NUMBERS = np.zeros(1, np.int64)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, **attributes)


def summed() -> bytes:
    """The sum along axes that are an input."""
    value = model([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], {"x": X, "axes": NUMBERS})
    return bytes(value.SerializeToString())


def loaded(content: bytes, **options: Any) -> ip.Model:
    return ip.load(content, ["CpuRef"], runtime=ip.Runtime(), **options)


def test_an_operand_that_is_an_input_is_taken_from_every_call() -> None:
    summing = loaded(summed())
    assert summing.state == {}
    assert list(summing.inputs) == ["x", "axes"]
    np.testing.assert_array_equal(summing.run([X, [0]])[0], X.sum(0))
    np.testing.assert_array_equal(summing({"axes": [1], "x": X}), X.sum(1))
    np.testing.assert_array_equal(summing.run([X, [0]])[0], X.sum(0))
    assert len(summing.runtime.loaded_networks) == 2


@pytest.mark.parametrize("backend", ["CpuRef", "CpuAcc"])
def test_arrays_of_the_same_values_use_the_same_network_again(backend: str, request: pytest.FixtureRequest) -> None:
    if backend == "CpuAcc":
        request.getfixturevalue("cpuacc")
    summing = ip.load(summed(), [backend, "CpuRef"], runtime=ip.Runtime())
    first, second = np.int64([0]), np.int64([1])
    for x in (X, X + 1):
        np.testing.assert_array_equal(summing.run([x, first])[0], x.sum(0))
        np.testing.assert_array_equal(summing.run({"axes": first.copy(), "x": x})[0], x.sum(0))
    out = np.zeros(3, np.float32)
    assert summing.run([X, first], [out])[0] is out
    np.testing.assert_array_equal(out, X.sum(0))
    assert len(summing.runtime.loaded_networks) == 1
    with pytest.raises(ip.errors.BindingError, match="axes"):
        summing.run([X, np.float32([0.5])])
    with pytest.raises(ip.errors.BindingError, match="'x'"):
        summing.run([X[:1], first])
    first[0] = 1
    for axes in (first, second, np.int64([0])):
        np.testing.assert_array_equal(summing.run([X, axes])[0], X.sum(int(axes[0])))
    assert len(summing.runtime.loaded_networks) == 2


def test_the_last_eight_values_are_kept() -> None:
    value = model([node("TopK", ["x", "k"], ["y", "z"])], {"x": np.zeros(20, np.float32), "k": NUMBERS}, ["y"])
    best = loaded(value.SerializeToString())
    for k in (*range(1, 12), 1):
        np.testing.assert_array_equal(best.run([np.arange(20, dtype=np.float32), [k]])[0], np.arange(19, 19 - k, -1))
    assert len(best.runtime.loaded_networks) == 8


def test_what_is_computed_from_inputs_is_followed_back_to_them() -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Mul", ["shape", "factor"], ["scaled"]),
        node("Concat", ["scaled", "one"], ["target"], axis=0),
        node("Expand", ["column", "target"], ["y"]),
    ]
    inputs = {"x": ("rows", 1), "factor": NUMBERS, "column": np.zeros((1, 1, 1), np.float32)}
    value = model(nodes, inputs, constants={"one": np.int64([1])})
    with pytest.raises(UnboundInputError) as caught:
        ip.frontends.onnx.load(value)
    assert (caught.value.inputs, caught.value.shapes) == (("factor",), True)
    outputs = loaded(value.SerializeToString()).run([np.zeros((2, 1), np.float32), [3], np.ones((1, 1, 1))])
    assert outputs[0].shape == (6, 3, 1)


def test_shapes_that_an_operator_must_know_are_taken_from_the_call_as_well() -> None:
    nodes = [node("Shape", ["x"], ["shape"]), node("Expand", ["one", "shape"], ["y"])]
    value = model(nodes, {"x": ("rows", "columns")}, constants={"one": np.ones((1, 1), np.float32)})
    filled = loaded(value.SerializeToString())
    assert filled.run([X])[0].tolist() == np.ones((2, 3)).tolist()
    assert filled.run([X.T])[0].shape == (3, 2)


@pytest.mark.parametrize("kind", ["ReduceMax", "NonZero"])  # NonZero's result has an unknown size
def test_a_small_file_cannot_make_loading_need_much_memory(kind: str) -> None:
    axes = ["places"] if kind == "NonZero" else ["axes"]
    nodes = [
        node("ConstantOfShape", ["n"], ["many"]),
        node(kind, ["many"], axes, **({"keepdims": 1} if kind == "ReduceMax" else {})),
        *([node("ReduceMax", ["places"], ["axes"], keepdims=0)] if kind == "NonZero" else []),
        node("ReduceSum", ["x", "axes"], ["y"]),
    ]
    value = model(nodes, {"x": X}, constants={"n": np.int64([1 << 40])})
    with pytest.raises(UnsupportedOperatorError, match="its operand 'axes' is computed from data"):
        loaded(value.SerializeToString())


def test_layers_that_compute_several_operands_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = []

    def noted(op: Op, *arguments: Any) -> Any:
        evaluated.append(type(op).__name__)
        return evaluate(op, *arguments)

    monkeypatch.setattr("interposer.frontends.folding.evaluate", noted)
    nodes = [
        node("Conv", ["image", "weights"], ["pixel"]),
        node("Cast", ["pixel"], ["whole"], to=onnx.TensorProto.INT64),
        node("Reshape", ["whole", "one"], ["axes"]),
        node("ReduceSum", ["x", "axes"], ["first"], keepdims=1),
        node("ReduceMax", ["first", "axes"], ["y"], keepdims=0),
    ]
    one = np.ones((1, 1, 1, 1), np.float32)
    value = model(nodes, {"x": X}, constants={"image": one, "weights": one, "one": np.int64([1])})
    np.testing.assert_array_equal(loaded(value.SerializeToString())(X), X.sum(1))
    assert sorted(evaluated) == ["Cast", "Convolution2d", "Reshape"]


def test_what_an_operator_behind_another_needs_is_learned_while_running() -> None:
    nodes = [node("ReduceSum", ["x", "a"], ["s"], keepdims=0), node("ReduceMax", ["s", "b"], ["y"], keepdims=0)]
    value = model(nodes, {"x": X, "a": NUMBERS, "b": NUMBERS})
    both = loaded(value.SerializeToString())
    assert both.run([X, [0], [0]])[0] == 7
    assert both.run([X, [1], [0]])[0] == 12


def test_explaining_needs_the_values_first() -> None:
    summing = loaded(summed())
    with pytest.raises(InvalidArgumentError) as caught:
        summing.explain()
    assert str(caught.value) == (
        "the values of 'axes' are not known yet; run the model once, or give load(..., values={...})"
    )
    summing.run([X, [0]])
    assert len(summing.explain().rows) == 1


def test_the_network_of_such_a_model_is_another_one_each_time() -> None:
    summing = loaded(summed())
    with pytest.raises(InvalidArgumentError, match="the network depends on the values of 'axes'; see optimized"):
        _ = summing.network
    assert repr(summing) == "<Model 'test': x: float32[2, 3], axes: int64[1] -> y: ?>"


def test_values_that_are_given_once_make_constants() -> None:
    summing = loaded(summed(), values={"axes": [1]})
    assert list(summing.inputs) == ["x"]
    assert summing.outputs["y"] == TensorInfo((2,))
    np.testing.assert_array_equal(summing(X), X.sum(1))
    assert len(ip.frontends.onnx.load(summed(), values={"axes": np.int64([0])}).graph.inputs) == 1


def test_a_number_stands_for_an_only_element() -> None:
    np.testing.assert_array_equal(loaded(summed(), values={"axes": 1})(X), X.sum(1))


def test_inputs_whose_values_are_needed_are_named() -> None:
    assert loaded(summed()).needed_values == ("axes",)
    assert loaded(summed(), values={"axes": [1]}).needed_values == ()


def test_a_sequence_is_given_no_value() -> None:
    value = model([node("SequenceLength", ["s"], ["y"])], {})
    value.graph.input.append(helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, [2]))
    with pytest.raises(InvalidArgumentError, match="values: 's' is sequence.*; only tensors can be given values"):
        loaded(value.SerializeToString(), values={"s": [X]})


def test_constants_are_read_once_for_all_variants() -> None:
    weights = np.ones((1000, 3), np.float32)
    nodes = [node("MatMul", ["w", "x"], ["m"]), node("ReduceSum", ["m", "axes"], ["y"])]
    value = model(nodes, {"x": np.ones((3, 2), np.float32), "axes": NUMBERS}, constants={"w": weights})
    created = ip.frontends.onnx.template(value.SerializeToString())
    first, second = (created.network(values={"axes": [axis]}) for axis in (0, 1))
    assert np.shares_memory(*(network.graph.layer("w").op.value for network in (first, second)))  # type: ignore[attr-defined]


def test_a_default_may_be_given_another_value() -> None:
    value = model([node("Add", ["x", "b"], ["y"])], {"x": X}, constants={"b": np.float32([10])})
    value.graph.input.append(info("b", (1,)))
    assert loaded(value.SerializeToString())(X)[0, 0] == 10
    assert loaded(value.SerializeToString(), values={"b": [20]})(X)[0, 0] == 20


def added() -> Network:
    network = Network("sum")
    a, b = (network.add_input_layer(number, TensorInfo((3,)), name=name) for number, name in enumerate("ab"))
    network.add_output_layer(0, network.add_addition_layer(a, b), name="y")
    return network


def test_inputs_of_a_network_are_bound_too() -> None:
    network = added()
    model = ip.load(network, ["CpuRef"], values={"b": [1, 2, 3]})
    np.testing.assert_array_equal(model([1, 1, 1]), [2, 3, 4])
    assert len(network.graph.inputs) == 2


@pytest.mark.parametrize("source", [summed(), added()], ids=["onnx", "network"])
def test_a_value_for_what_is_no_input_is_refused(source: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^values: the model has no input 'bb'.* \(it has: "):
        ip.load(source, ["CpuRef"], values={"bb": [1]})


@pytest.mark.parametrize(("given", "text"), [
    ([1, 2], "values: 'b' has shape [2]; expected [3]"),
    ("abc", "values: 'b' is <U3; expected float32"),
    ([1, [2]], "values: 'b' cannot be made into an array: "),
])  # fmt: skip
def test_values_that_an_input_cannot_have_are_refused(given: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(added(), ["CpuRef"], values={"b": given})
    assert str(caught.value).startswith(text)


def test_an_operand_that_expensive_layers_compute_is_taken_from_every_call() -> None:
    nodes = [
        node("Conv", ["image", "image"], ["sum"]),
        node("Cast", ["sum"], ["axis"], to=onnx.TensorProto.INT64),
        node("Reshape", ["axis", "one"], ["axes"]),
        node("ReduceSum", ["x", "axes"], ["y"], keepdims=0),
    ]
    inputs = {"x": X, "image": np.zeros((1, 1, 2, 2), np.float32)}
    summing = loaded(model(nodes, inputs, constants={"one": np.array([1])}).SerializeToString())
    assert summing.needed_values == ("image",)
    for axis in (0, 1):
        image = np.float32([[[[0, 0], [0, axis]]]])
        np.testing.assert_array_equal(summing.run([X, image])[0], X.sum(axis))
    with pytest.raises(InvalidValueError, match="^the network cannot be built for these values of 'image': "):
        summing.run([X, np.full((1, 1, 2, 2), 5, np.float32)])
    np.testing.assert_array_equal(summing.run([X, np.zeros((1, 1, 2, 2), np.float32)])[0], X.sum(0))


def test_calls_with_other_values_from_several_threads_do_not_mix() -> None:
    summing, wrong = loaded(summed()), []

    def work(axis: int) -> None:
        for _ in range(5):
            if not np.array_equal(summing.run([X, [axis]])[0], X.sum(axis)):
                wrong.append(axis)

    threads = [threading.Thread(target=work, args=(axis,)) for axis in (0, 1, -1, -2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
