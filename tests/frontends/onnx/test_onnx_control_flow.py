"""If, Loop and Scan: in place where it is known what runs, as layers with regions where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from interposer import Model, load
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load as load_onnx

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def info(name: str, shape: list[Any] | None = None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, [] if shape is None else shape)


def node(op: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """Names with blanks between them; a dash is an input that is left out."""
    value = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(op, value, outputs.split(), **attributes)


def graph(nodes: list[Any], inputs: list[Any], outputs: list[Any], **arrays: Any) -> onnx.GraphProto:
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    return helper.make_graph(nodes, "graph", inputs, outputs, initializers)


def model(made: onnx.GraphProto, opset: int = 17, **more: Any) -> onnx.ModelProto:
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], **more)


def loaded(made: onnx.GraphProto, opset: int = 17) -> Model:
    return load(load_onnx(model(made, opset)), ["CpuRef"])


def kinds(made: Model) -> list[str]:
    return [layer.kind for layer in made.network if layer.kind not in ("Input", "Output", "Constant")]


# --- If ---------------------------------------------------------------------------------------------------------------


def choice(*nodes: Any, **arrays: Any) -> onnx.GraphProto:
    then = graph([node("Mul", "x factor", "doubled")], [], [info("doubled", [3])])
    other = graph([node("Sub", "x one", "less")], [], [info("less", [3])], one=np.float32(1))
    value = [info("x", [3])] if "c" in arrays or nodes else [info("x", [3]), info("c", [], BOOL)]
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    return graph([*nodes, chosen], value, [info("y", [3])], factor=np.float32(2), **arrays)


X = np.float32([1, 2, 3])


def test_if_runs_the_branch_that_the_condition_chooses_with_what_it_captures():
    result = loaded(choice())
    assert kinds(result) == ["If"]
    assert result.run([X, True])[0].tolist() == [2, 4, 6]
    assert result.run([X, False])[0].tolist() == [0, 1, 2]
    assert [len(region.inputs) for region in result.network.graph.layer("If_0").regions] == [1, 1]


@pytest.mark.parametrize(("flag", "expected"), [(True, [2, 4, 6]), (False, [0, 1, 2])])
def test_a_condition_that_is_known_leaves_only_its_branch(flag, expected):
    result = loaded(choice(c=np.array(flag)))
    assert kinds(result) == ["Multiplication" if flag else "Subtraction"]
    assert result.run([X])[0].tolist() == expected


def test_a_condition_that_follows_from_shapes_is_known():
    steps = [
        node("Size", "x", "size"), node("Constant", "", "three", value_int=3), node("Equal", "size three", "c"),
    ]  # fmt: skip
    assert kinds(loaded(choice(*steps))) == ["Multiplication"]


def test_branches_of_different_ranks_give_what_is_only_known_while_running():
    then = graph([node("Identity", "x", "a")], [], [info("a", [3])])
    other = graph([node("Unsqueeze", "x axes", "b")], [], [info("b", [1, 3])], axes=np.int64([0]))
    total = node("ReduceSum", "x", "total", keepdims=0)
    steps = [total, node("Greater", "total zero", "c"), node("If", "c", "y", then_branch=then, else_branch=other)]
    result = loaded(graph(steps, [info("x", [3])], [info("y", None)], zero=np.float32(0)))
    assert result.run([X])[0].shape == (3,)
    assert result.run([-X])[0].shape == (1, 3)


def test_a_graph_in_a_graph_captures_from_both_around_it():
    inner = graph([node("Add", "x y", "s"), node("Add", "s z", "r")], [], [info("r", [3])])
    other = graph([node("Identity", "y", "k")], [], [info("k", [3])])
    then = graph(
        [node("Mul", "x x", "y"), node("If", "d", "m", then_branch=inner, else_branch=other)], [], [info("m", [3])]
    )
    plain = graph([node("Identity", "x", "n")], [], [info("n", [3])])
    steps = [node("Neg", "x", "z"), node("If", "c", "out", then_branch=then, else_branch=plain)]
    flags = [info("c", [], BOOL), info("d", [], BOOL)]
    result = loaded(graph(steps, [info("x", [3]), *flags], [info("out", [3])]))
    assert result.run([X, True, True])[0].tolist() == [1, 4, 9]
    assert result.run([X, True, False])[0].tolist() == [1, 4, 9]
    assert result.run([X, False, True])[0].tolist() == [1, 2, 3]


# --- Loop -------------------------------------------------------------------------------------------------------------


def counted(
    body_nodes: list[Any], outputs: list[Any], *, given: bool, count: int = 4, **arrays: Any
) -> onnx.GraphProto:
    """A loop over x, `count` times: known, or an input of the model."""
    inputs = [info("i", [], INT64), info("go", [], BOOL), info("v", [3])]
    body = graph([*body_nodes, node("Identity", "go", "on")], inputs, [info("on", [], BOOL), *outputs], **arrays)
    results = [f"y{index}" for index in range(len(outputs))]
    loop = node("Loop", "count - x", " ".join(results), body=body)
    settled = {} if given else {"count": np.int64(count)}
    free = [info("count", [], INT64)] if given else []
    shapes = [["n"], ["m", 3], [None]]
    return graph([loop], [*free, info("x", [3])], [info(name, shapes[k]) for k, name in enumerate(results)], **settled)


SUMS = [
    node("Cast", "i", "f", to=FLOAT),
    node("Add", "v f", "w"),
    node("Add", "w step", "u"),
]
STEP = {"step": np.float32([10, 0, 0])}


@pytest.mark.parametrize("given", [True, False])
def test_a_loop_carries_and_collects(given):
    result = loaded(counted(SUMS, [info("u", [3]), info("w", [3])], given=given, **STEP))
    assert ("Loop" in kinds(result)) == given
    last, seen = result.run([np.int64(4), X] if given else [X])
    assert last.tolist() == [47, 8, 9]
    assert seen.tolist() == [[1, 2, 3], [12, 3, 4], [24, 5, 6], [37, 8, 9]]


def test_a_loop_may_run_no_iteration_at_all():
    result = loaded(counted(SUMS, [info("u", [3]), info("w", [3])], given=True, **STEP))
    last, seen = result.run([np.int64(0), X])
    assert (last.tolist(), seen.shape) == ([1, 2, 3], (0, 3))
    result = loaded(counted(SUMS, [info("u", [3]), info("w", [3])], given=False, count=0, **STEP))
    last, seen = result.run([X])
    assert (last.tolist(), seen.shape) == ([1, 2, 3], (0, 3))


def test_a_loop_of_very_many_iterations_stays_a_loop():
    result = loaded(counted(SUMS, [info("u", [3])], given=False, count=1000, **STEP))
    assert kinds(result) == ["Loop"]
    assert result.run([X])[0].tolist() == [1 + 499500 + 10000, 2 + 499500, 3 + 499500]


def test_a_loop_whose_own_condition_is_computed_stays_a_loop():
    body = graph(
        [node("Add", "v v", "u"), node("ReduceMax", "u", "top", keepdims=0), node("Less", "top limit", "on")],
        [info("i", [], INT64), info("go", [], BOOL), info("v", [3])],
        [info("on", [], BOOL), info("u", [3])],
        limit=np.float32(20),
    )
    created = graph([node("Loop", "- c x", "y", body=body)], [info("x", [3])], [info("y", [3])], c=np.array(True))
    result = loaded(created)
    assert kinds(result) == ["Loop"]
    assert result.run([X])[0].tolist() == [8, 16, 24]


def test_a_carried_value_may_grow_whatever_the_file_says_of_its_shape():
    steps = [node("Shape", "v", "s"), node("Cast", "s", "f", to=FLOAT), node("Concat", "v f", "u", axis=0)]
    result = loaded(counted(steps, [info("u", [3])], given=True))
    assert result.run([np.int64(3), X])[0].tolist() == [1, 2, 3, 3, 4, 5]
    assert result.run([np.int64(0), X])[0].tolist() == [1, 2, 3]


def test_what_follows_from_the_iteration_is_known_where_a_loop_is_unrolled():
    steps = [
        node("Unsqueeze", "i zero", "n"),
        node("Slice", "v zero n", "part"),
        node("ReduceSum", "part", "sum", keepdims=0),
        node("Add", "v sum", "u"),
    ]
    result = loaded(counted(steps, [info("u", [3])], given=False, count=3, zero=np.int64([0])))
    assert "Loop" not in kinds(result)
    assert result.run([X])[0].tolist() == [7, 8, 9]


def test_loops_nest_and_capture():
    inner = graph(
        [node("Mul", "i j", "p"), node("Add", "p offset", "q"), node("Identity", "go2", "on2")],
        [info("j", [], INT64), info("go2", [], BOOL)],
        [info("on2", [], BOOL), info("q", [], INT64)],
    )
    body = graph(
        [node("Loop", "columns -", "row", body=inner), node("Identity", "go", "on")],
        [info("i", [], INT64), info("go", [], BOOL)],
        [info("on", [], BOOL), info("row", [None], INT64)],
    )
    inputs = [info(name, [], INT64) for name in ("rows", "columns", "offset")]
    result = loaded(graph([node("Loop", "rows -", "y", body=body)], inputs, [info("y", [None, None], INT64)]))
    assert result.run([np.int64(3), np.int64(4), np.int64(1)])[0].tolist() == [[1, 1, 1, 1], [1, 2, 3, 4], [1, 3, 5, 7]]


# --- Scan -------------------------------------------------------------------------------------------------------------


def cumulated(length: int | str, **attributes: Any) -> onnx.GraphProto:
    body = graph([node("Add", "s p", "t"), node("Identity", "t", "u")], [info("s", [2]), info("p", [2])],
                 [info("t", [2]), info("u", [2])])  # fmt: skip
    scan = node("Scan", "start x", "last sums", body=body, num_scan_inputs=1, **attributes)
    return graph([scan], [info("start", [2]), info("x", [length, 2])], [info("last", [2]), info("sums", [length, 2])])


@pytest.mark.parametrize("length", [3, 2000, "n"])
def test_scan_goes_along_an_axis(length):
    result = loaded(cumulated(length))
    x = np.ones((3 if length == "n" else length, 2), np.float32)
    last, sums = result.run([np.float32([0, 5]), x])
    assert last.tolist() == [len(x), len(x) + 5]
    np.testing.assert_array_equal(sums, np.cumsum(x, 0) + np.float32([0, 5]))
    assert ("Scan" in kinds(result)) == (length != 3)


@pytest.mark.parametrize("length", [3, "n"])
def test_scan_can_go_backwards(length):
    result = loaded(cumulated(length, scan_input_directions=[1], scan_output_directions=[1], scan_output_axes=[-1]))
    x = np.float32([[1, 10], [2, 20], [3, 30]])
    last, sums = result.run([np.zeros(2, np.float32), x])
    assert (last.tolist(), sums.tolist()) == ([6, 60], [[6, 5, 3], [60, 50, 30]])


def test_the_scan_of_opset_8_runs_every_batch():
    body = graph([node("Add", "s p", "t"), node("Identity", "t", "u")], [info("s", [2]), info("p", [2])],
                 [info("t", [2]), info("u", [2])])  # fmt: skip
    scan = node("Scan", "- start x", "last sums", body=body, num_scan_inputs=1)
    created = graph(
        [scan], [info("start", [2, 2]), info("x", [2, 3, 2])], [info("last", [2, 2]), info("sums", [2, 3, 2])]
    )
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    last, sums = loaded(created, opset=8).run([np.zeros((2, 2), np.float32), x])
    np.testing.assert_array_equal(sums, np.cumsum(x, 1))
    np.testing.assert_array_equal(last, x.sum(1))


# --- what is refused --------------------------------------------------------------------------------------------------


def refusal(made: onnx.GraphProto, opset: int = 17) -> str:
    with pytest.raises(ParseError) as caught:
        load_onnx(model(made, opset))
    return str(caught.value)


def test_operators_inside_of_graphs_are_listed_where_they_are_not_supported():
    then = graph([node("Nonsense", "x", "a")], [], [info("a", [3])])
    other = graph([node("Identity", "x", "b")], [], [info("b", [3])])
    created = graph(
        [node("If", "c", "y", then_branch=then, else_branch=other), node("Rubbish", "y", "z")],
        [info("x", [3]), info("c", [], BOOL)],
        [info("z", [3])],
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_onnx(model(created))
    assert caught.value.operators == {"Nonsense": 1, "Rubbish": 1}


def test_operators_whose_names_are_no_text_are_listed_too():
    created = graph([node("Nonsense", "x", "y"), node("Rubbish", "y", "z")], [info("x", [3])], [info("z", [3])])
    with pytest.raises(UnsupportedOperatorError) as caught:
        load_onnx(model(created).SerializeToString().replace(b"Nonsense", b"\xff\xfensense"))
    assert len(caught.value.operators) == 2


def test_a_graph_with_the_wrong_number_of_inputs_or_outputs_is_refused():
    other = graph([node("Identity", "x", "b")], [], [info("b", [3])])
    extra = graph([node("Identity", "x", "b")], [info("k")], [info("b", [3])])
    chosen = node("If", "c", "y z", then_branch=other, else_branch=other)
    inputs = [info("x", [3]), info("c", [], BOOL)]
    assert refusal(graph([chosen], inputs, [info("y"), info("z")])) == (
        "node 'If_0' (If): its graph 'graph' has 1 outputs; expected 2"
    )
    chosen = node("If", "c", "y", then_branch=extra, else_branch=other)
    assert refusal(graph([chosen], inputs, [info("y")])) == (
        "node 'If_0' (If): its graph 'graph' has 1 inputs; expected 0"
    )
    body = graph([node("Identity", "go", "on")], [info("i", [], INT64), info("go", [], BOOL)], [info("on", [], BOOL)])
    looped = node("Loop", "n - x", "y", body=body)
    assert refusal(graph([looped], [info("n", [], INT64), info("x", [3])], [info("y")])) == (
        "node 'Loop_0' (Loop): its graph 'graph' has 2 inputs; expected 3"
    )


def test_a_body_that_changes_a_type_is_refused():
    steps = [node("Cast", "v", "u", to=INT64)]
    assert refusal(counted(steps, [info("u", [3], INT64)], given=True)) == (
        "node 'Loop_0' (Loop): carried value 0 is float32[3] before an iteration, but int64[3] after it"
    )


@pytest.mark.parametrize(
    ("count", "flag", "text"),
    [
        (np.float32(2), np.array(True), "trip_count is float32; expected one of int64"),
        (np.int64(2), np.float32(1), "condition is float32; expected one of bool"),
    ],
)
def test_counts_and_conditions_of_other_types_are_refused_known_or_not(count, flag, text):
    value = [info("i", [], INT64), info("go", [], BOOL), info("v", [3])]
    body = graph([], value, [info("go", [], BOOL), info("x", [3])])
    created = graph([node("Loop", "n c x", "y", body=body)], [info("x", [3])], [info("y", [3])], n=count, c=flag)
    assert text in refusal(created)


def test_a_known_condition_of_an_if_must_be_a_bool_too():
    branch = graph([], [], [info("x", [3])])
    chosen = node("If", "c", "y", then_branch=branch, else_branch=branch)
    created = graph([chosen], [info("x", [3])], [info("y", [3])], c=np.float32(1))
    assert "condition is float32; expected one of bool" in refusal(created)


def test_a_name_that_nobody_defines_is_refused():
    then = graph([node("Identity", "nobody", "a")], [], [info("a", [3])])
    chosen = node("If", "c", "y", then_branch=then, else_branch=then)
    assert "'nobody', which is not defined" in refusal(graph([chosen], [info("c", [], BOOL)], [info("y")]))


def nested(levels: int) -> onnx.GraphProto:
    """Return a graph of Ifs in each other's branches, of which the innermost doubles x."""
    inner, name = [node("Add", "x x", "y0")], "y0"
    for level in range(1, levels + 1):
        then = graph(inner, [], [info(name, [3])], name=f"then{level}")
        other = graph([node("Neg", "x", f"e{level}")], [], [info(f"e{level}", [3])], name=f"else{level}")
        name = f"y{level}"
        inner = [node("If", "c", name, then_branch=then, else_branch=other)]
    return graph(inner, [info("x", [3]), info("c", [], BOOL)], [info(name, [3])])


@pytest.mark.parametrize("levels", [9, 25])
def test_graphs_nest_as_deeply_as_a_file_can(levels):
    x = np.float32([1, 2, 3])
    with loaded(nested(levels)) as result:
        assert result.run([x, np.array(True)])[0].tolist() == [2, 4, 6]
        assert result.run([x, np.array(False)])[0].tolist() == [-1, -2, -3]


def test_graphs_that_functions_nest_too_deeply_are_refused():
    functions = []
    for level in range(34):
        called = helper.make_node(f"F{level - 1}", ["a", "c"], ["t"], domain="f")
        then = graph([called] if level else [node("Neg", "a", "t")], [], [info("t", [3])])
        other = graph([node("Identity", "a", "e")], [], [info("e", [3])])
        body = [node("If", "c", "b", then_branch=then, else_branch=other)]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        functions.append(helper.make_function("f", f"F{level}", ["a", "c"], ["b"], body, opsets))
    last = helper.make_node("F33", ["x", "c"], ["y"], domain="f")
    created = model(graph([last], [info("x", [3]), info("c", [], BOOL)], [info("y", [3])]), 17)
    created.functions.extend(functions)
    with pytest.raises(ParseError, match="graphs are nested in more than 32 levels, which is not supported"):
        load_onnx(created)


def test_what_fails_inside_is_said_with_its_place():
    then = graph([node("MatMul", "x x x", "a", name="broken")], [], [info("a", [3])])
    chosen = node("If", "c", "y", then_branch=then, else_branch=then)
    result = refusal(graph([chosen], [info("x", [3, 4]), info("c", [], BOOL)], [info("y")]))
    assert result.startswith("node 'broken' (MatMul): ")


# --- what is computed from data ---------------------------------------------------------------------------------------


def test_bounds_and_shapes_that_an_iteration_computes_are_operands_of_layers():
    nodes = [
        node("Unsqueeze", "i zero", "n"),
        node("Slice", "v zero n", "part"),
        node("Concat", "one n", "two", axis=0),
        node("Expand", "total two", "spread"),
        node("Reshape", "spread minus", "flat"),
        node("Tile", "flat one", "again"),
        node("ReduceSum", "again", "sum", keepdims=0),
        node("ReduceSum", "part", "total", keepdims=0),
        node("Add", "v sum", "u"),
    ]
    arrays = {"zero": np.int64([0]), "one": np.int64([1]), "minus": np.int64([-1])}
    result = loaded(
        counted([nodes[0], nodes[1], nodes[7], *nodes[2:7], nodes[8]], [info("u", [3])], given=True, **arrays)
    )
    last = X
    for i in range(4):
        last = last + last[:i].sum() * i
    assert result.run([np.int64(4), X])[0].tolist() == last.tolist()


# --- what graphs take from around them --------------------------------------------------------------------------------


def both_ways(operator: str, inputs: str, shape: list[Any], *others: Any, **arrays: Any) -> onnx.GraphProto:
    """The same operator in both branches of an If whose condition is an input."""
    then, other = (graph([node(operator, inputs, name)], [], [info(name)]) for name in ("a", "b"))
    for item in (then, other):
        item.output[0].type.tensor_type.ClearField("shape")
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    created = graph([chosen], [info("c", [], BOOL), info("x", shape), *others], [info("y")], **arrays)
    created.output[0].type.tensor_type.ClearField("shape")
    return created


def test_a_value_that_an_operator_in_a_branch_must_know_is_taken_from_each_call():
    created = load(model(both_ways("ReduceSum", "x axes", [2, 3], info("axes", [1], INT64))), ["CpuRef"])
    assert created.needed_values == ("axes",)
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    assert created.run([True, x, [0]])[0].tolist() == [[5, 7, 9]]
    assert created.run([False, x, [1]])[0].tolist() == [[6], [15]]


def test_a_shape_that_an_operator_in_a_branch_must_know_is_taken_from_each_call():
    then = graph([node("Split", "x", "a b", axis=0)], [], [info("a", ["k"])])
    other = graph([node("Neg", "x", "e")], [], [info("e", ["k"])])
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    created = load(model(graph([chosen], [info("c", [], BOOL), info("x", ["n"])], [info("y", ["m"])])), ["CpuRef"])
    assert created.run([True, [1, 2, 3, 4]])[0].tolist() == [1, 2]
    assert created.run([False, [1, 2]])[0].tolist() == [-1, -2]


def test_a_value_that_only_an_iteration_knows_stays_refused():
    body = graph(
        [node("Unsqueeze", "i zero", "axes"), node("ReduceSum", "x axes", "s", keepdims=0)],
        [info("i", [], INT64), info("go", [], BOOL)],
        [info("go", [], BOOL), info("s", [2])],
        zero=np.array([0]),
    )
    inputs = [info("n", [], INT64), info("x", [2, 2])]
    assert "its operand 'axes' is computed from data" in refusal(
        graph([node("Loop", "n -", "y", body=body)], inputs, [info("y", ["n", 2])])
    )


@pytest.mark.parametrize("flag", [True, False])
def test_a_loop_in_a_branch_that_cannot_be_unrolled_keeps_what_is_captured(flag):
    body = graph(
        [node("Add", "v x", "next"), node("ReduceSum", "next", "sum", keepdims=0), node("Less", "sum limit", "more")],
        [info("i", [], INT64), info("go", [], BOOL), info("v", [3])],
        [info("more", [], BOOL), info("next", [3])],
        limit=np.float32(10),
    )
    then = graph([node("Loop", "n - x", "a", body=body)], [], [info("a", [3])], n=np.int64(4))
    other = graph([node("Neg", "x", "b")], [], [info("b", [3])])
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    created = load(model(graph([chosen], [info("c", [], BOOL), info("x", [3])], [info("y", [3])])), ["CpuRef"])
    assert created.run([np.array(flag), X])[0].tolist() == ([2, 4, 6] if flag else [-1, -2, -3])


# --- quantized tensors ------------------------------------------------------------------------------------------------

UINT8 = TensorProto.UINT8
SCALES = {"s": np.float32(0.5), "t": np.float32(0.25), "z": np.uint8(3)}


@pytest.mark.parametrize("flag", [True, False])
def test_branches_may_quantize_with_different_scales(flag):
    then = graph([node("QuantizeLinear", "x s z", "a")], [], [info("a", [3], UINT8)])
    other = graph([node("QuantizeLinear", "x t z", "b")], [], [info("b", [3], UINT8)])
    chosen = node("If", "c", "q", then_branch=then, else_branch=other)
    nodes = [chosen, node("DequantizeLinear", "q one none", "y")]
    scales = {**SCALES, "one": np.float32(1), "none": np.uint8(0)}
    created = load(model(graph(nodes, [info("x", [3]), info("c", [], BOOL)], [info("y", [3])], **scales)), ["CpuRef"])
    stored = np.rint(X / (SCALES["s"] if flag else SCALES["t"])) + 3
    assert created.run([X, np.array(flag)])[0].tolist() == stored.tolist()


@pytest.mark.parametrize("count", [0, 3])
def test_what_an_iteration_quantizes_is_carried_as_the_integers_it_is(count):
    body = graph(
        [
            node("DequantizeLinear", "v s z", "real"),
            node("Add", "real real", "twice"),
            node("QuantizeLinear", "twice s z", "next"),
        ],
        [info("i", [], INT64), info("go", [], BOOL), info("v", [3], UINT8)],
        [info("go", [], BOOL), info("next", [3], UINT8)],
    )
    nodes = [node("QuantizeLinear", "x s z", "q"), node("Loop", "n - q", "y", body=body)]
    created = graph(nodes, [info("x", [3]), info("n", [], INT64)], [info("y", [3], UINT8)], **SCALES)
    result = load(model(created), ["CpuRef"]).run([X, np.int64(count)])[0]
    assert result.tolist() == [3 + int(2 * x) * 2**count for x in X]


def test_branches_with_different_numbers_of_results_are_refused():
    then = graph([node("Relu", "x", "a"), node("Neg", "x", "b")], [], [info("a", [3]), info("b", [3])])
    other = graph([node("Abs", "x", "d")], [], [info("d", [3])])
    chosen = node("If", "c", "y", then_branch=then, else_branch=other)
    with pytest.raises(ParseError) as caught:
        load_onnx(model(graph([chosen], [info("x", [3]), info("c", [], BOOL)], [info("y", [3])])))
    assert str(caught.value) == "node 'If_0' (If): its graphs have 2 and 1 outputs; expected the same number"
