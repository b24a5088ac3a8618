"""What is wrong with a model is said at once: what, where, and what was expected."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import helper

from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import model, single

X = np.zeros((2, 3), np.float32)


def node(kind, inputs, outputs, name=None, **attributes):
    return helper.make_node(kind, inputs, outputs, name=name, **attributes)


def error(given):
    with pytest.raises(ParseError) as caught:
        load(given)
    return str(caught.value)


def test_all_operators_that_are_not_supported_are_listed_at_once():
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Nonesuch", ["a"], ["b"], "first"),
        node("Neg", ["b"], ["c"]),
        node("Nonesuch", ["c"], ["d"], "second"),
        node("FusedSpecialMatMul", ["x", "x"], ["e"], "fused", domain="com.microsoft"),
        node("Odd", ["x"], ["f"], "odd", domain="com.example"),
        node("Bernoulli", ["x"], ["h"]),
        node("Cast", ["h"], ["axes"], to=onnx.TensorProto.INT64),
        node("Reshape", ["axes", "flat"], ["list"]),
        node("ReduceSum", ["x", "list"], ["g"], "reduce"),
        node("Add", ["d", "g"], ["y"]),
    ]
    constants, domains = {"flat": np.array([-1])}, [helper.make_opsetid("com.microsoft", 1)]
    value = model(nodes, {"x": (2, 3)}, ["y", "e", "f"], constants, domains=domains)
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(value)
    assert str(caught.value) == (
        "operators that are not supported:"
        "\n  - 2 x Nonesuch (opset 21; node 'first', node 'second')"
        "\n  - 1 x ReduceSum (opset 21; node 'reduce': its operand 'axes' is computed from data)"
        "\n  - 1 x com.example.Odd (whose opset the model does not import; node 'odd')"
        "\n  - 1 x com.microsoft.FusedSpecialMatMul (opset 1; node 'fused': "
        "map it with interposer.frontends.onnx.operator)"
    )
    assert caught.value.operators == {
        "Nonesuch": 2,
        "ReduceSum": 1,
        "com.example.Odd": 1,
        "com.microsoft.FusedSpecialMatMul": 1,
    }


def test_a_path_stands_before_the_place(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(single("Nonesuch", X).SerializeToString())
    assert error(path).startswith(f"{path}: operators that are not supported:")
    path.write_bytes(single("Flatten", X, axis=5).SerializeToString())
    assert error(path) == f"{path}: node 'node' (Flatten): axis is 5, but the input has rank 2"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (b"", "the file is empty"),
        (b"\x08", "the file is truncated or damaged, or is no ONNX model (protobuf: "),
        (b"PK\x03\x04 some archive", "the file is truncated or damaged, or is no ONNX model"),
        (b"ir_version: eight", "the file is truncated or damaged, or is no ONNX model (textproto: "),
        (b"\x08\x07", "the file is truncated or damaged, or is no ONNX model: it has no graph"),
        (helper.make_model(helper.make_graph([], "g", [], []), opset_imports=[]), None),
    ],
)
def test_what_is_no_model_is_told(given, text):
    if text is None:
        del given.opset_import[:]
        text = "the file is truncated or damaged, or is no ONNX model: it imports no operator set"
    assert error(given).startswith(text)


def test_files_that_cannot_be_read_are_told(tmp_path):
    assert (
        error(tmp_path / "absent.onnx")
        == f"{tmp_path / 'absent.onnx'}: the file cannot be read: No such file or directory"
    )
    assert error(tmp_path) == f"{tmp_path}: the file cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("nodes", "outputs", "text"),
    [
        ([node("Relu", ["z"], ["y"], "r")], ["y"], "node 'r' takes the value 'z', which is not defined"),
        ([node("Relu", ["x"], ["y"])], ["z"], "the output 'z' is not defined"),
        ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], ["y"], "the value 'y' is defined twice"),
        ([node("Relu", ["x"], ["x"])], ["x"], "the value 'x' is defined twice"),
        (
            [node("Add", ["x", "b"], ["a"], "p"), node("Neg", ["a"], ["b"], "q"), node("Neg", ["x"], ["y"])],
            ["y"],
            "nodes depend on themselves: 'p', 'q'",
        ),
        ([], [], "the graph has no outputs"),
    ],
)
def test_graphs_that_are_none_are_told(nodes, outputs, text):
    assert error(model(nodes, {"x": (2, 3)}, outputs)) == text


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (single("Add", X), "node 'node' (Add): it has no input number 1"),
        (single("Concat", X, X), "node 'node' (Concat): it needs the attribute 'axis'"),
        (single("Concat", X, X, axis=1.0), "node 'node' (Concat): the attribute 'axis' is not an integer"),
        (single("Concat", X, X[:, :2], axis=0), "inputs[1] has shape [2, 2]; expected [2, 3] but for axis 0"),
        (single("MatMul", X, X), "a of shape [2, 3] has rows of 3 elements, but b takes 2"),
        (single("Add", X, np.zeros((2, 4), np.float32)), "the shapes do not broadcast: a [2, 3] and b [2, 4]"),
        (single("Reshape", X, np.array([4, -1])), "an input of shape [2, 3] cannot be reshaped to"),
        (single("Reshape", X, np.array([1] * 17)), "its shape has rank 17; ranks 0 to 16 are supported"),
        (single("Reshape", X, np.array([2, 3, 0])), "its shape [2, 3, 0] copies a dimension that the input of"),
        (single("Squeeze", X, np.array([0])), "axis 0 of its input of shape [2, 3] does not have size 1"),
        (single("Transpose", X, perm=[0, 0]), "permutation is (0, 0); expected every axis of the input"),
        (single("Slice", X, np.array([0]), np.array([1]), np.array([0]), np.array([0])), "one of its steps is 0"),
        (single("Slice", X, np.array([0.5]), np.array([1])), "its starts is float64[1]; expected a list of integers"),
        (single("Gather", X, np.array([2])), "index 2 is out of range for an axis of size 2"),
        (single("Expand", X, np.array([3, 3])), "its input of shape [2, 3] cannot be broadcast to [3, 3]"),
        (single("Pad", X, np.array([1, 1])), "it has 2 pads for 2 axes; expected two for each"),
        (single("Pad", X, np.array([1, 1, 1, 1]), mode="mirror"), "its mode is 'mirror'; expected one of constant, "),
        (single("Pad", X, np.array([-2, 0, -1, 0])), "leave nothing of the shape [2, 3]"),
        (single("Split", X, np.array([1, 1]), outputs=3), "it has 3 outputs, but 2 sizes"),
        (single("Conv", X, X), "its input has shape [2, 3] and its weights [2, 3]; expected one rank, 3 or more"),
        (single("Gemm", np.zeros((2, 3, 4), np.float32), X), "a has shape [2, 3, 4] and b [2, 3]; expected rank 2"),
        (single("Cast", X, to=99), "tensors of type 99 are not supported"),
        (single("QuantizeLinear", X, np.float32(np.nan), np.uint8(0)), "a scale must be positive and finite, not nan"),
    ],
)  # fmt: skip
def test_nodes_that_break_the_rules_are_told_with_their_place(given, text):
    result = error(given)
    assert result.startswith("node 'node' (")
    assert text in result


def test_an_operator_of_a_version_below_one_is_refused():
    value = single("Relu", X)
    value.opset_import[0].version = 0
    assert error(value) == (
        "operators that are not supported:\n  - 1 x Relu (opset 0, a version that does not exist; node 'node')"
    )


def test_an_opset_that_nobody_knows_yet_is_refused():
    newest = onnx.defs.onnx_opset_version()
    load(model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], opset=newest))
    assert error(model([node("Relu", ["x"], ["y"])], {"x": X}, ["y"], opset=newest + 1)) == (
        f"it imports opset {newest + 1}; the package onnx that is installed knows opsets up to {newest}"
    )


def test_without_onnx_it_is_said_what_to_install():
    code = """
import sys
sys.modules["onnx"] = None
from interposer.frontends.onnx import load
from interposer.core.errors import MissingDependencyError
try:
    load("net.onnx")
except MissingDependencyError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "reading ONNX files needs the package 'onnx': pip install 'interposer-nn[onnx]'\n"


def test_all_operators_that_are_missing_are_listed_wherever_they_are():
    def value(name, shape=None, dtype=1):
        return helper.make_tensor_value_info(name, dtype, shape)

    def node(kind, inputs, outputs, domain="", **attributes):
        return helper.make_node(kind, inputs, outputs, name=f"the {kind}", domain=domain, **attributes)

    training, microsoft = "ai.onnx.preview.training", "com.microsoft"
    first = [node("Mystery", ["x"], ["m"]), node("Abs", ["m"], ["t"])]
    second = [node("Snpe", ["x"], ["e"], microsoft)]
    branches = {
        "then_branch": helper.make_graph(first, "then", [], [value("t")]),
        "else_branch": helper.make_graph(second, "else", [], [value("e")]),
    }
    body = [
        node("Whatever", ["a"], ["w"], "odd"),
        node("Gradient", ["w"], ["b"], training, xs=["a"], y="w"),
    ]
    opsets = [helper.make_opsetid(*pair) for pair in (("", 17), ("odd", 1), (training, 1), (microsoft, 1), ("my", 1))]
    function = helper.make_function("my", "F", ["a"], ["b"], body, opsets[:3])
    nodes = [
        node("If", ["c"], ["i"], **branches),
        node("TorchEmbedding", ["i", "i"], ["q"], microsoft),
        node("F", ["q"], ["g"], "my"),
        node("Identity", ["x"], ["s"]),
        node("Unheard", ["x"], ["u"], "not.imported"),
        node("Sum", ["g", "s", "u"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2]), value("c", [], 9)], [value("y")])
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9)
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(model.SerializeToString())
    lines = [
        "operators that are not supported:",
        "1 x Mystery (opset 17; node 'the Mystery')",
        "1 x ai.onnx.preview.training.Gradient (opset 1; node 'the F/the Gradient': it computes derivatives; load the "
        "model for inference, without it)",
        "1 x com.microsoft.Snpe (opset 1; node 'the Snpe': it holds a network that was compiled for another engine; "
        "load the model from which it was made)",
        "1 x com.microsoft.TorchEmbedding (opset 1; node 'the TorchEmbedding': ONNX Runtime has it for GPUs only; "
        "optimize the model for the CPU)",
        "1 x not.imported.Unheard (whose opset the model does not import; node 'the Unheard')",
        "1 x odd.Whatever (opset 1; node 'the F/the Whatever': map it with interposer.frontends.onnx.operator)",
    ]
    assert str(caught.value) == "\n  - ".join(lines)


@pytest.mark.parametrize("axis", [3, -4])
def test_the_axis_of_unsqueeze_is_counted_in_the_result(axis):
    text = error(single("Unsqueeze", X, np.int64([axis])))
    assert text.endswith(f"axes is {axis}, but the result has rank 3; expected -3 to 2")
