"""Conditionals and loops: as functions, as single nodes of TensorFlow 1, and with lists of tensors."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidValueError, ParseError, UnsupportedOperatorError
from interposer.frontends.tensorflow import load
from tests.frontends.tensorflow.graphs import Func, Shape, Type, const, function, graph, node, placeholder

X = np.float32([1, -2, 3])


def run(data, *inputs, **arguments):
    return ip.load(load(data, **arguments), ["CpuRef"]).run(list(inputs))


def branches():
    double = function("double", {"a": "float32"}, {"r": "sum:z:0"}, node("Add", "sum", "a", "a"))
    negative = function("negative", {"a": "float32"}, {"r": "neg:y:0"}, node("Neg", "neg", "a"))
    return [double, negative]


def test_a_condition_that_is_data_becomes_a_layer():
    data = graph(
        placeholder("c", (), "bool"),
        placeholder("x", (3,)),
        node("StatelessIf", "y", "c", "x", then_branch=Func("double"), else_branch=Func("negative")),
        functions=branches(),
    )
    assert [type(layer.op).__name__ for layer in load(data).graph].count("If") == 1
    assert run(data, np.array(True), X)[0].tolist() == [2, -4, 6]
    assert run(data, np.array(False), X)[0].tolist() == [-1, 2, -3]


def test_a_branch_that_does_not_fit_the_shapes_fails_only_when_it_is_taken():
    def times(name, rows):
        weights = const("w", np.ones((rows, 1), np.float32))
        product = node("MatMul", "p", "a", "w:output:0", T=Type("float32"))
        return function(name, {"a": "float32"}, {"r": "p:product:0"}, weights, product)

    data = graph(
        placeholder("c", (), "bool"),
        placeholder("x", (2, 3)),
        node("StatelessIf", "y", "c", "x", then_branch=Func("three"), else_branch=Func("five")),
        functions=[times("three", 3), times("five", 5)],
    )
    x = np.ones((2, 3), np.float32)
    assert run(data, np.array(True), x)[0].tolist() == [[3], [3]]
    with pytest.raises(InvalidValueError, match="region 'else': it cannot be computed for these inputs: "):
        run(data, np.array(False), x)


def test_a_condition_that_is_a_number_is_true_if_it_is_not_zero():
    data = graph(
        placeholder("c", (), "int32"),
        placeholder("x", (3,)),
        node("If", "y", "c", "x", then_branch=Func("double"), else_branch=Func("negative")),
        functions=branches(),
    )
    assert run(data, np.array(5, np.int32), X)[0].tolist() == [2, -4, 6]


def test_a_known_condition_selects_a_branch():
    data = graph(
        const("c", np.array(False)),
        placeholder("x", (3,)),
        node("If", "y", "c", "x", then_branch=Func("absent"), else_branch=Func("negative")),
        functions=branches(),
    )
    assert run(data, X)[0].tolist() == [-1, 2, -3]


def counting(*more):
    """Return functions of a loop that doubles a value ``n`` times; the factor is an argument that stays the same."""
    arguments = {"i": "int32", "n": "int32", "v": "float32", "by": "float32"}
    test = function("test", arguments, {"r": "less:z:0"}, node("Less", "less", "i", "n"), dtype="bool")
    body = function(
        "body",
        arguments,
        {"a": "next:z:0", "b": "n", "c": "product:z:0", "d": "same:output:0"},
        const("one", np.int32(1)),
        node("AddV2", "next", "i", "one:output:0"),
        node("Mul", "product", "v", "by"),
        node("Identity", "same", "by"),
        *more,
    )
    return [test, body]


def test_a_loop_runs_as_often_as_its_condition_says():
    data = graph(
        placeholder("n", (), "int32"),
        placeholder("x", (3,)),
        const("zero", np.int32(0)),
        const("two", np.float32(2)),
        node("StatelessWhile", "loop", "zero", "n", "x", "two", cond=Func("test"), body=Func("body")),
        node("Identity", "y", "loop:2"),
        functions=counting(),
    )
    network = load(data, outputs=["y"])
    [layer] = [layer for layer in network.graph if type(layer.op).__name__ == "While"]
    assert layer.op.num_carried == 2
    for count in (0, 1, 5):
        assert run(data, np.array(count, np.int32), X, outputs=["y"])[0].tolist() == (X * 2**count).tolist()


def test_missing_operators_in_functions_are_listed():
    data = graph(
        placeholder("n", (), "int32"),
        placeholder("x", (3,)),
        const("zero", np.int32(0)),
        const("two", np.float32(2)),
        node("While", "loop", "zero", "n", "x", "two", cond=Func("test"), body=Func("body")),
        node("Foo", "foo", "loop:2"),
        functions=[counting()[0], function("body", {"i": "int32", "n": "int32", "v": "float32", "by": "float32"},
                   {"a": "i", "b": "n", "c": "bar:z:0", "d": "by"}, node("Bar", "bar", "v"))],
    )  # fmt: skip
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(data)
    assert caught.value.operators == {"Bar": 1, "Foo": 1}


def old_loop(*, frame="while"):
    """Return the nodes of a loop of TensorFlow 1, which adds the counter to a value until it reaches ``n``."""
    return [
        const("zero", np.int32(0)),
        const("step", np.int32(1)),
        node("Enter", "i/Enter", "zero", frame_name=frame, is_constant=False),
        node("Enter", "v/Enter", "x", frame_name=frame, is_constant=False),
        node("Enter", "n/Enter", "n", frame_name=frame, is_constant=True),
        node("Merge", "i/Merge", "i/Enter", "i/Next"),
        node("Merge", "v/Merge", "v/Enter", "v/Next"),
        node("Less", "less", "i/Merge", "n/Enter"),
        node("LoopCond", "test", "less"),
        node("Switch", "i/Switch", "i/Merge", "test"),
        node("Switch", "v/Switch", "v/Merge", "test"),
        node("Identity", "i/Identity", "i/Switch:1"),
        node("Identity", "v/Identity", "v/Switch:1"),
        node("Enter", "step/Enter", "step", frame_name=frame, is_constant=True),
        node("Add", "add", "i/Identity", "step/Enter"),
        node("Cast", "cast", "add", DstT=Type("float32")),
        node("Add", "sum", "v/Identity", "cast"),
        node("NextIteration", "i/Next", "add"),
        node("NextIteration", "v/Next", "sum"),
        node("Exit", "i/Exit", "i/Switch"),
        node("Exit", "v/Exit", "v/Switch"),
    ]


def test_a_loop_of_single_nodes_becomes_a_layer():
    data = graph(placeholder("n", (), "int32"), placeholder("x", (3,)), *old_loop())
    for count in (0, 1, 4):
        number, value = run(data, np.array(count, np.int32), X, outputs=["i/Exit", "v/Exit"])
        assert number == count and value.tolist() == (X + sum(range(1, count + 1))).tolist()


def old_conditional(*then, **more):
    """Return nodes of TensorFlow 1 for a condition: ``then`` in one branch, and the input itself in the other."""
    return [
        placeholder("x", (None, 2)),
        placeholder("limit", (), "int32"),
        node("Shape", "shape", "x"),
        const("first", np.int32([0])), const("last", np.int32([1])),
        node("StridedSlice", "rows", "shape", "first", "last", "last", shrink_axis_mask=1),
        node("Greater", "is_long", "rows", "limit"),
        node("Switch", "pivot", "is_long", "is_long"),
        node("Identity", "in_then", "pivot:1"), node("Identity", "in_else", "pivot"),
        node("Switch", "branches", "x", "is_long"),
        *then,
        node("Merge", "y", "branches", "cut", **more),
    ]  # fmt: skip


CUT = (
    placeholder("places", (2,), "int32"),
    node("Identity", "inside", "places", "^in_then"),
    const("axis", np.int32(0)),
    node("GatherV2", "cut", "branches:1", "inside", "axis"),
)


PLACES = np.int32([3, 1])


def test_only_the_branch_that_is_taken_runs():
    data = graph(*old_conditional(*CUT))
    assert [type(layer.op).__name__ for layer in load(data, outputs=["y"]).graph].count("If") == 1
    long, short = np.arange(10, dtype=np.float32).reshape(5, 2), np.ones((2, 2), np.float32)
    for limit, x, expected in ((4, long, long[[3, 1]]), (4, short, short), (5, long, long)):
        result, index = run(data, x, np.array(limit, np.int32), PLACES, outputs=["y", "y:1"])
        assert (result.tolist(), int(index)) == (expected.tolist(), int(len(x) > limit))


def test_a_condition_inside_of_a_branch_runs_in_that_branch():
    inner = [
        *CUT[:-1],
        const("zero", np.float32(0)), const("both", np.int32([0, 1])),
        node("Sum", "total", "branches:1", "both"),
        node("Greater", "is_positive", "total", "zero"),
        node("Switch", "again", "branches:1", "is_positive"),
        node("GatherV2", "gathered", "again:1", "inside", "axis"),
        node("Neg", "negative", "again"),
        node("Merge", "cut", "negative", "gathered"),
    ]  # fmt: skip
    data = graph(*old_conditional(*inner))
    long, short = np.arange(10, dtype=np.float32).reshape(5, 2), np.ones((2, 2), np.float32)
    for x, expected in ((long, long[[3, 1]]), (-long, long), (short, short)):
        [result] = run(data, x, np.array(4, np.int32), PLACES, outputs=["y"])
        assert result.tolist() == expected.tolist()


def test_a_loop_in_a_branch_runs_in_that_branch():
    frame = "loop"
    loop = [
        const("zero", np.int32(0)), const("one", np.int32(1)), const("half", np.float32(0.5)),
        node("Identity", "start", "zero", "^in_then"),
        node("Enter", "i/Enter", "start", frame_name=frame), node("Enter", "v/Enter", "branches:1", frame_name=frame),
        node("Enter", "n/Enter", "limit", frame_name=frame, is_constant=True),
        node("Enter", "half/Enter", "half", frame_name=frame, is_constant=True),
        node("Enter", "one/Enter", "one", frame_name=frame, is_constant=True),
        node("Merge", "i/Merge", "i/Enter", "i/Next"), node("Merge", "v/Merge", "v/Enter", "v/Next"),
        node("Less", "less", "i/Merge", "n/Enter"), node("LoopCond", "test", "less"),
        node("Switch", "i/Switch", "i/Merge", "test"), node("Switch", "v/Switch", "v/Merge", "test"),
        node("Add", "i/add", "i/Switch:1", "one/Enter"), node("Mul", "v/mul", "v/Switch:1", "half/Enter"),
        node("NextIteration", "i/Next", "i/add"), node("NextIteration", "v/Next", "v/mul"),
        node("Exit", "i/Exit", "i/Switch"), node("Exit", "cut", "v/Switch"),
    ]  # fmt: skip
    data = graph(*old_conditional(*loop))
    for rows, factor in ((4, 0.125), (2, 1.0)):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        [result] = run(data, x, np.array(3, np.int32), outputs=["y"])
        assert result.tolist() == (x * factor).tolist()


@pytest.mark.parametrize("op", ["ExpandDims", "Squeeze"])
def test_axes_of_size_1_come_and_go_among_unknown_dimensions(op):
    shape = (None, None, 2) if op == "ExpandDims" else (None, 1, None, 2)
    nodes = {"ExpandDims": node(op, "y", "x", "axis"), "Squeeze": node(op, "y", "x", squeeze_dims=[1])}
    data = graph(placeholder("x", shape), const("axis", np.int32(1)), nodes[op])
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    given = x if op == "ExpandDims" else x[:, None]
    assert run(data, given)[0].tolist() == (x[:, None] if op == "ExpandDims" else x).tolist()


def test_a_loop_without_its_next_iteration_is_refused():
    nodes = [item for item in old_loop() if b"v/Next" not in item or b"NextIteration" not in item]
    with pytest.raises(ParseError) as caught:
        load(graph(placeholder("n", (), "int32"), placeholder("x", (3,)), *nodes), outputs=["v/Exit"])
    assert str(caught.value) == "node 'v/Merge' merges no next iteration of a loop"


@pytest.mark.parametrize("rows", [3, None])
def test_a_list_gets_the_shape_of_the_element_that_the_loop_writes(rows):
    arguments = {"i": "int32", "list": "float32", "source": "float32"}
    test = function(
        "test",
        arguments,
        {"r": "less:z:0"},
        const("n", np.int32(2)),
        node("Less", "less", "i", "n:output:0"),
        dtype="bool",
    )
    body = function(
        "body",
        arguments,
        {"a": "next:z:0", "b": "set:output_handle:0", "c": "source"},
        const("one", np.int32(1)),
        node("AddV2", "next", "i", "one:output:0"),
        node("TensorListGetItem", "get", "source", "i", "one:output:0", element_dtype=Type("float32")),
        node("Neg", "neg", "get:item:0"),
        node("TensorListSetItem", "set", "list", "i", "neg:y:0", element_dtype=Type("float32")),
    )
    data = graph(
        placeholder("x", (2, rows)),
        const("zero", np.int32(0)),
        const("size", np.int32(2)),
        const("shape", np.int32(-1)),
        node("TensorListFromTensor", "source", "x", "shape", element_dtype=Type("float32")),
        node("TensorListReserve", "list", "shape", "size", element_dtype=Type("float32")),
        node("While", "loop", "zero", "list", "source", cond=Func("test"), body=Func("body")),
        node("TensorListStack", "y", "loop:1", "shape", element_dtype=Type("float32")),
        functions=[test, body],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert run(data, x, outputs=["y"])[0].tolist() == (-x).tolist()


def test_a_loop_that_writes_elements_of_an_unknown_size_is_unrolled():
    arguments = {"i": "int32", "list": "float32", "source": "float32"}
    test = function(
        "test",
        arguments,
        {"r": "less:z:0"},
        const("n", np.int32(2)),
        node("Less", "less", "i", "n:output:0"),
        dtype="bool",
    )
    body = function(
        "body",
        arguments,
        {"a": "next:z:0", "b": "set:output_handle:0", "c": "source"},
        const("one", np.int32(1)),
        node("AddV2", "next", "i", "one:output:0"),
        node("TensorListGetItem", "get", "source", "i", "one:output:0", element_dtype=Type("float32")),
        node("Where", "where", "get:item:0"),
        node("TensorListSetItem", "set", "list", "i", "where:index:0", element_dtype=Type("int64")),
    )
    data = graph(
        placeholder("x", (2, 3)),
        const("zero", np.int32(0)),
        const("size", np.int32(2)),
        const("shape", np.int32(-1)),
        node("TensorListFromTensor", "source", "x", "shape", element_dtype=Type("float32")),
        node("TensorListReserve", "list", "shape", "size", element_dtype=Type("int64")),
        node("While", "loop", "zero", "list", "source", cond=Func("test"), body=Func("body")),
        node("TensorListStack", "y", "loop:1", "shape", element_dtype=Type("int64")),
        functions=[test, body],
    )
    x = np.float32([[0, 5, 0], [7, 0, 0]])
    assert run(data, x, outputs=["y"])[0].tolist() == [[[1]], [[0]]]


def test_a_list_that_is_not_written_in_order_is_refused():
    data = graph(
        placeholder("x", (2, 3)),
        const("size", np.int32(2)),
        node("TensorArrayV3", "array", "size", dtype=Type("float32"), element_shape=Shape(None)),
        const("order", np.int32([1, 0])),
        node("TensorArrayScatterV3", "y", "array", "order", "x", "array:1"),
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(data)
    assert "it writes to other elements than all in their order" in str(caught.value)


def test_a_list_grows_with_the_elements_that_are_written_to_it():
    data = graph(
        placeholder("x", (3,)),
        const("none", np.int32(0)), const("first", np.int32(0)), const("second", np.int32(1)),
        const("unknown", np.int32(-1)),
        node("TensorListReserve", "list", "unknown", "none", element_dtype=Type("float32")),
        node("Neg", "negative", "x"),
        node("TensorListSetItem", "one", "list", "first", "x", element_dtype=Type("float32")),
        node("TensorListSetItem", "two", "one", "second", "negative", element_dtype=Type("float32")),
        node("TensorListStack", "y", "two", "unknown", element_dtype=Type("float32")),
        node("TensorListLength", "length", "two"),
    )  # fmt: skip
    stacked, length = run(data, X, outputs=["y", "length"])
    assert (stacked.tolist(), int(length)) == ([X.tolist(), (-X).tolist()], 2)
