"""Functions of the model are put in place of the nodes that call them, and so are the standard's own."""

import numpy as np
import onnx
import pytest
from onnx import helper

import interposer as ip
from interposer.core.errors import InterposerError, ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.damage import damaged_variants
from tests.frontends.onnx.models import agree, model, needs_onnx, ours

X = np.float32([[-1, 2, -3]])
LOCAL = helper.make_opsetid("local", 1)


def node(kind, inputs, outputs, name=None, domain="local", **attributes):
    return helper.make_node(kind, inputs, outputs, name=name, domain=domain, **attributes)


def std(kind, inputs, outputs, name=None, **attributes):
    return node(kind, inputs, outputs, name, domain="", **attributes)


def function(name, inputs, outputs, nodes, attributes=(), defaults=(), opset=21, overload=""):
    imports = [helper.make_opsetid("", opset), LOCAL]
    created = helper.make_function("local", name, inputs, outputs, nodes, imports, list(attributes), list(defaults))
    created.overload = overload
    return created


def reference(name, of, kind):
    """The attribute `name` of a node in a function, which is the function's own attribute `of`."""
    return onnx.AttributeProto(name=name, ref_attr_name=of, type=kind)


def calling(nodes, functions, outputs=("y",), inputs=None):
    return model(nodes, inputs or {"x": X}, outputs, functions=functions, domains=[LOCAL])


def layers(given):
    return [layer.name for layer in load(given).graph if layer.op.executable]


DOUBLED = function("Doubled", ["a"], ["b"], [std("Add", ["a", "a"], ["b"], "add")])


def test_a_call_becomes_the_functions_nodes_named_after_both():
    value = calling([node("Doubled", ["x"], ["t"], "first"), node("Doubled", ["t"], ["y"])], [DOUBLED])
    np.testing.assert_array_equal(ours(value, X)[0], X * 4)
    assert layers(value) == ["first/add", "Doubled_0/add"]


def test_functions_call_functions():
    fourfold = function("Fourfold", ["x"], ["y"], [node("Doubled", ["x"], ["t"]), node("Doubled", ["t"], ["y"])])
    value = calling([node("Fourfold", ["x"], ["y"], "f")], [fourfold, DOUBLED])
    np.testing.assert_array_equal(ours(value, X)[0], X * 4)
    assert layers(value) == ["f/Doubled_0/add", "f/Doubled_1/add"]


def test_names_in_a_function_are_its_own():
    """Inside, `x`, `y` and `f/t` mean something else than outside."""
    inner = function("F", ["y"], ["x"], [std("Neg", ["y"], ["t"]), std("Exp", ["t"], ["x"])])
    nodes = [std("Relu", ["x"], ["t"]), std("Abs", ["t"], ["f/t"]), node("F", ["f/t"], ["z"], "f")]
    agree(calling([*nodes, std("Add", ["z", "f/t"], ["y"])], [inner]), X)


def test_attributes_are_handed_on_and_have_defaults():
    leaky = std("LeakyRelu", ["a"], ["t"])
    leaky.attribute.append(reference("alpha", "slope", onnx.AttributeProto.FLOAT))
    cast = std("Cast", ["t"], ["b"])
    cast.attribute.append(reference("to", "type", onnx.AttributeProto.INT))
    default = helper.make_attribute("type", onnx.TensorProto.FLOAT)
    both = function("Both", ["a"], ["b"], [leaky, cast], ["slope"], [default])
    outer = node("Both", ["a"], ["b"])
    outer.attribute.append(reference("slope", "s", onnx.AttributeProto.FLOAT))
    around = function("Around", ["a"], ["b"], [outer], ["s"])
    for call, slope, dtype in [
        (node("Both", ["x"], ["y"], slope=0.5), 0.5, np.float32),
        (node("Both", ["x"], ["y"], slope=0.5, type=onnx.TensorProto.DOUBLE), 0.5, np.float64),
        (node("Around", ["x"], ["y"], s=0.25), 0.25, np.float32),
        (node("Both", ["x"], ["y"]), 0.01, np.float32),
    ]:
        [y] = ours(calling([call], [both, around]), X)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, np.where(X < 0, X * slope, X), rtol=1e-6)


def test_overloads_are_told_apart():
    first = function("F", ["a"], ["b"], [std("Neg", ["a"], ["b"])], overload="one")
    second = function("F", ["a"], ["b"], [std("Exp", ["a"], ["b"])], overload="two")
    nodes = [node("F", ["x"], ["t"]), node("F", ["t"], ["y"])]
    nodes[0].overload, nodes[1].overload = "one", "two"
    np.testing.assert_allclose(ours(calling(nodes, [first, second]), X)[0], np.exp(-X), rtol=1e-6)


def test_a_function_has_its_own_operator_sets():
    """Softmax flattened its input before opset 13, and took the first axis that is not the batch's by default."""
    old = function("Old", ["a"], ["b"], [std("Softmax", ["a"], ["b"])], opset=12)
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    value = calling([node("Old", ["x"], ["t"]), std("Softmax", ["t"], ["y"])], [old], ["t", "y"], {"x": x})
    t, y = ours(value, x)
    np.testing.assert_allclose(t.reshape(2, -1).sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-6)


def test_optional_inputs_and_outputs_may_be_left_out():
    clip = function("Clip2", ["a", "low", "high"], ["b", "n"], [
        std("Clip", ["a", "low", "high"], ["b"]), std("Nonesuch", ["a"], ["n"]),
    ])  # fmt: skip
    value = calling([node("Clip2", ["x", "zero"], ["y"])], [clip], inputs={"x": X, "zero": np.array(0, np.float32)})
    np.testing.assert_array_equal(ours(value, X, np.array(0, np.float32))[0], np.maximum(X, 0))


def test_an_output_may_be_an_input():
    passing = function("Passing", ["a"], ["a", "b"], [std("Neg", ["a"], ["b"])])
    a, b = ours(calling([node("Passing", ["x"], ["p", "q"])], [passing], ["p", "q"]), X)
    np.testing.assert_array_equal(a, X)
    np.testing.assert_array_equal(b, -X)


def test_nodes_in_a_function_may_be_in_any_order():
    mixed = function("Mixed", ["a"], ["b"], [std("Exp", ["t"], ["b"]), std("Neg", ["a"], ["t"])])
    agree_with = np.exp(-X)
    np.testing.assert_allclose(ours(calling([node("Mixed", ["x"], ["y"])], [mixed]), X)[0], agree_with, rtol=1e-6)


def branch(name, nodes, result):
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=result)])


def choosing(then_nodes, else_nodes):
    """A function `F(c, a)` that takes `t` of one of two branches."""
    chosen = std(
        "If", ["c"], ["b"], "if", then_branch=branch("yes", then_nodes, "t"), else_branch=branch("no", else_nodes, "t")
    )
    return function("F", ["c", "a"], ["b"], [std("Neg", ["a"], ["n"]), chosen], ["slope"])


@pytest.mark.needs_cpuref
def test_graphs_in_a_function_see_its_values_and_attributes():
    """The branches take `n` from the function around them, and their own values have the names of others outside."""
    leaky = std("LeakyRelu", ["n"], ["x"])
    leaky.attribute.append(reference("alpha", "slope", onnx.AttributeProto.FLOAT))
    value = calling(
        [std("Abs", ["x"], ["n"]), node("F", ["c", "x"], ["t"], "f", slope=0.5), std("Add", ["n", "t"], ["y"])],
        [choosing([leaky, std("Identity", ["x"], ["t"])], [std("Exp", ["n"], ["t"])])],
        inputs={"c": np.array(True), "x": X},
    )
    choice = ip.load(value, ["CpuRef"])
    for condition in (True, False):
        expected = np.where(X > 0, -X * 0.5, -X) if condition else np.exp(-X)
        [y] = choice.run([np.array(condition), X])
        np.testing.assert_allclose(y, np.abs(X) + expected, rtol=1e-6)


def test_what_is_missing_in_graphs_in_a_function_is_listed():
    missing = choosing([std("Nonesuch", ["n"], ["t"])], [std("Another", ["n"], ["u"]), std("Exp", ["u"], ["t"])])
    value = calling([node("F", ["c", "x"], ["y"], "f")], [missing], inputs={"c": np.array(True), "x": X})
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(value)
    assert caught.value.operators == {"Nonesuch": 1, "Another": 1}


def test_all_that_is_missing_in_functions_is_listed_behind_other_missing_things_too():
    odd = function("Odd", ["a"], ["b"], [std("Nonesuch", ["a"], ["t"]), node("None", ["t"], ["b"], "n")])
    value = calling([node("Odd", ["x"], ["t"], "o"), node("Odd", ["t"], ["y"], "p")], [odd])
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(value)
    assert str(caught.value) == (
        "operators that are not supported:"
        "\n  - 2 x Nonesuch (opset 21; node 'o/Nonesuch_0', node 'p/Nonesuch_0')"
        "\n  - 2 x local.None (opset 1; node 'o/n', node 'p/n': map it with interposer.frontends.onnx.operator)"
    )


def recursive():
    return [
        function("F", ["a"], ["b"], [node("G", ["a"], ["b"], "g")]),
        function("G", ["a"], ["b"], [node("F", ["a"], ["b"], "f")]),
    ]


@pytest.mark.parametrize(
    ("functions", "text"),
    [
        (recursive(), "the function 'local.F' calls itself"),
        (
            [function("F", ["a"], ["b"], [std("Neg", ["c"], ["b"], "n")])],
            "node 'call' (F): the function 'local.F': node 'n' takes the value 'c', which is not defined",
        ),
        (
            [function("F", ["a"], ["b"], [std("Neg", ["a"], ["c"])])],
            "node 'call' (F): the function 'local.F': the output 'b' is not defined",
        ),
        (
            [function("F", ["a"], ["b"], [std("Neg", ["a"], ["b"]), std("Exp", ["a"], ["b"])])],
            "node 'call' (F): the function 'local.F': the value 'b' is defined twice",
        ),
        (
            [function("F", [], ["b"], [std("Constant", [], ["b"], value_float=1.0)])],
            "node 'call' (F): it has 1 inputs and 1 outputs, but the function 'local.F' has 0 and 1",
        ),
        ([DOUBLED, DOUBLED], "the function 'local.Doubled' is defined twice"),
        (
            [function("F", ["a"], ["b"], [std("Flatten", ["a"], ["b"], "flat", axis=5)])],
            "node 'call/flat' (Flatten): axis is 5, but the input has rank 2",
        ),
    ],
)
def test_what_is_wrong_with_a_function_is_told(functions, text):
    with pytest.raises(ParseError) as caught:
        load(calling([node("F", ["x"], ["y"], "call")], functions))
    assert str(caught.value) == text


def test_functions_that_call_each_other_without_end_in_sight_are_refused():
    functions = [function(f"F{i}", ["a"], ["b"], [node(f"F{i + 1}", ["a"], ["b"])]) for i in range(100)]
    functions.append(function("F100", ["a"], ["b"], [std("Neg", ["a"], ["b"])]))
    with pytest.raises(ParseError, match="its functions call each other more than 50 deep"):
        load(calling([node("F0", ["x"], ["y"])], functions))
    value = calling([node("F60", ["x"], ["y"])], functions)
    np.testing.assert_array_equal(ours(value, X)[0], -X)


def test_functions_that_grow_beyond_measure_are_refused():
    """Each calls the next one 8 times, which makes 8**12 nodes."""
    functions = [
        function(f"F{i}", ["a"], ["b"], [node(f"F{i + 1}", ["a"], [f"b{j}" if j else "b"]) for j in range(8)])
        for i in range(12)
    ]
    functions.append(function("F12", ["a"], ["b"], [std("Neg", ["a"], ["b"])]))
    for item in functions[:-1]:
        item.node.append(std("Sum", [f"b{j}" for j in range(1, 8)], ["c"]))
        item.output[0] = "c"
    with pytest.raises(ParseError, match="its functions make more than 1,048,576 nodes"):
        load(calling([node("F0", ["x"], ["y"])], functions))


@needs_onnx(22, "there is no FlexAttention")
def test_an_operator_that_is_not_known_is_replaced_by_the_standards_own_function():
    """FlexAttention's function depends on the node and the types of its inputs."""
    q, k, v = (np.random.default_rng(seed).standard_normal((1, 2, 3, 4)).astype(np.float32) for seed in range(3))
    attention = node("FlexAttention", ["q", "k", "v"], ["y"], "flex", domain="ai.onnx.preview")
    domains = [helper.make_opsetid("ai.onnx.preview", 1)]
    value = model([attention], {"q": q, "k": k, "v": v}, opset=24, domains=domains)
    scores = np.exp(q @ k.swapaxes(2, 3) / 2)
    expected = scores / scores.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(ours(value, q, k, v)[0], expected, rtol=1e-4)
    assert all(name.startswith("flex/") for name in layers(value))


@pytest.mark.needs_cpuref
def test_a_graph_of_a_node_that_the_standard_replaces_sees_what_is_around_the_node():
    item, b = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 3]) for name in ("one", "b"))
    body = helper.make_graph([std("Mul", ["one", "w"], ["b"])], "body", [item], [b])
    nodes = [
        std("Exp", ["x"], ["w"]),
        std("SequenceConstruct", ["x", "x"], ["s"]),
        std("SequenceMap", ["s"], ["m"], "map", body=body),
        std("ConcatFromSequence", ["m"], ["y"], axis=0),
    ]
    [y] = ip.load(model(nodes, {"x": X}), ["CpuRef"]).run([X])
    np.testing.assert_allclose(y, np.concatenate([X * np.exp(X)] * 2), rtol=1e-6)


def test_damaged_functions_are_taken_or_refused():
    fourfold = function("Fourfold", ["x"], ["y"], [node("Doubled", ["x"], ["t"]), node("Doubled", ["t"], ["y"])])
    data = calling([node("Fourfold", ["x"], ["y"], "f")], [fourfold, DOUBLED]).SerializeToString()
    for name, damaged in damaged_variants(data, 300, 5):
        try:
            load(damaged)
        except InterposerError as error:
            assert "cannot be converted" not in str(error), name


def test_a_name_that_is_no_text_is_shown_as_well_as_it_can_be():
    data = calling([node("Doubled", ["x"], ["y"])], [DOUBLED], ["y"]).SerializeToString()
    assert load(data.replace(b"\x12\x04test", b"\x12\x04te\xffs")).name == "te\ufffds"
