"""Shapes and types that are inferred here are those that the package onnx infers, where both know them."""

import numpy as np
import onnx
import pytest
from onnx import helper, shape_inference

import interposer as ip
from interposer.core.errors import InterposerError, InvalidValueError
from interposer.core.types import Dim
from interposer.frontends.onnx import load
from interposer.frontends.onnx.tensors import data_type
from tests.frontends.onnx import models

EVERY = 17
"""One of how many cases is looked at unless all are."""


def cases():
    from onnx.backend.test.case.node import collect_testcases
    from onnx.backend.test.loader import load_model_tests

    models = [(case.name, case.model) for case in collect_testcases(None)]
    for kind in ("simple", "pytorch-converted", "pytorch-operator"):
        models += [(case.name, onnx.load(f"{case.model_dir}/model.onnx")) for case in load_model_tests(kind=kind)]
    return models


def with_all_results(model):
    """Return the model with every result of a node as an output, so that its shape is reported."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    known = {output.name for output in model.graph.output}
    for name in (name for node in model.graph.node for name in node.output):
        if name and name not in known:
            wide.graph.output.add().name = name
            known.add(name)
    return wide


def with_named_dimensions(model):
    """The model with a name for every dimension of its inputs, one name for dimensions that are the same and not 1."""
    named = onnx.ModelProto()
    named.CopyFrom(model)
    for number, value in enumerate(named.graph.input):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ()):
            dim.dim_param = f"same{dim.dim_value}" if dim.dim_value > 1 else f"input{number}axis{axis}"
    return named


def theirs(model):
    """What onnx infers of every value, without what the file says of its outputs."""
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.output[:]
    for output in model.graph.output:
        bare.graph.output.add().name = output.name
    try:
        inferred = shape_inference.infer_shapes(bare, strict_mode=False, data_prop=True)
    except Exception:  # it gives up on some models whose dimensions are not known
        return {}
    return {value.name: value.type for value in (*inferred.graph.value_info, *inferred.graph.output)}


def ours(model):
    try:
        network = load(with_all_results(model))
    except InterposerError:
        return {}
    return {layer.name: layer.values[0].known for layer in network.graph.outputs}


def differences(model):
    params = (dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim)
    names = {name for name in params if name.startswith("same")}
    known = theirs(model)
    for name, info in ours(model).items():
        kind = known[name].tensor_type if name in known and known[name].HasField("tensor_type") else None
        if kind is None or not kind.elem_type:
            continue
        if data_type(kind.elem_type) is not info.dtype:
            yield f"{name}: {info}, but onnx has {data_type(kind.elem_type)}"
        elif kind.HasField("shape") and not agree(info.shape, kind.shape.dim, names):
            yield f"{name}: {info}, but onnx has {[dim.dim_value or dim.dim_param for dim in kind.shape.dim]}"


def agree(shape, dims, names):
    return len(shape) == len(dims) and all(same(size, dim, names) for size, dim in zip(shape, dims, strict=True))


def same(extent, dim, names):
    if isinstance(extent, Dim):
        both = extent.name in names and dim.dim_param in names
        return not both or extent.name == dim.dim_param
    return not dim.HasField("dim_value") or extent == dim.dim_value


def check(models, enough):
    answered = 0
    for name, model in models:
        result = list(differences(model))
        assert result == [], name
        answered += bool(ours(model))
    assert answered >= enough * len(models)


@pytest.mark.filterwarnings("ignore")
def test_types_and_shapes_are_those_that_onnx_infers():
    check(cases()[::EVERY], 0.75)


@pytest.mark.filterwarnings("ignore")
def test_so_they_are_where_extents_are_known_by_name_only():
    check([(name, with_named_dimensions(model)) for name, model in cases()[::EVERY]], 0.55)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_so_they_are_in_all_cases():
    check(cases(), 0.75)
    check([(name, with_named_dimensions(model)) for name, model in cases()], 0.55)


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
def test_flatten_multiplies_dimensions_that_have_no_name(axis):
    """The dimensions of the sum of two tensors whose dimensions have other names are unknown and have no name."""
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "y"], ["s"]), helper.make_node("Flatten", ["s"], ["z"], axis=axis)],
        "g",
        [helper.make_tensor_value_info(name, 1, [f"{name}0", f"{name}1", 4, f"{name}3"]) for name in "xy"],
        [helper.make_tensor_value_info("z", 1, None)],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    model = ip.load(file, shapes={"x": x.shape, "y": x.shape} if axis in (2, 3, -1) else None)
    (z,) = model.run({"x": x, "y": x})
    expected = (2 * x).reshape(int(np.prod(x.shape[:axis])), -1)
    np.testing.assert_array_equal(z, expected)


def measured(rank, nodes, constants=(), opset=13):
    """A model whose tensor x of this rank has dimensions without names, which depend on data: counts of nonzeros."""
    before = []
    for axis in range(rank):
        sizes = [-1 if i == axis else 1 for i in range(rank)]
        before += [
            helper.make_node("NonZero", [f"m{axis}"], [f"n{axis}"]),
            helper.make_node("Cast", [f"n{axis}"], [f"c{axis}"], to=1),
            helper.make_node("Constant", [], [f"s{axis}"], value_ints=sizes),
            helper.make_node("Reshape", [f"c{axis}", f"s{axis}"], [f"r{axis}"]),
        ]
    before.append(helper.make_node("Sum", [f"r{axis}" for axis in range(rank)], ["x"]))
    graph = helper.make_graph(
        [*before, *nodes],
        "g",
        [helper.make_tensor_value_info(f"m{axis}", 1, [9]) for axis in range(rank)],
        [helper.make_tensor_value_info("x", 1, None), helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(np.array(array), name) for name, array in dict(constants).items()],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def shape_arithmetic(*nodes):
    return [helper.make_node("Shape", ["x"], ["s"]), *nodes, helper.make_node("Reshape", ["x", "t"], ["y"])]


MEASURED = [
    ("squeeze 0", [helper.make_node("Squeeze", ["x", "k"], ["y"])], [0], (1, 3, 1), (3, 1)),
    ("squeeze 1", [helper.make_node("Squeeze", ["x", "k"], ["y"])], [1], (1, 1, 3), (1, 3)),
    ("squeeze two", [helper.make_node("Squeeze", ["x", "k"], ["y"])], [0, 2], (1, 3, 1, 2), (3, 2)),
    ("unsqueeze 0", [helper.make_node("Unsqueeze", ["x", "k"], ["y"])], [0], (3, 1), (1, 3, 1)),
    ("unsqueeze two", [helper.make_node("Unsqueeze", ["x", "k"], ["y"])], [0, 2], (3, 2), (1, 3, 1, 2)),
    ("turned", shape_arithmetic(helper.make_node("Gather", ["s", "k"], ["t"])), [1, 0], (3, 2), (2, 3)),
    ("scaled", shape_arithmetic(helper.make_node("Div", ["s", "k"], ["t"])), [1, 1], (3, 4), (3, 4)),
    ("zero and rest", [helper.make_node("Reshape", ["x", "k"], ["y"])], [0, -1], (3, 2, 4), (3, 8)),
    ("rest and zero", [helper.make_node("Reshape", ["x", "k"], ["y"])], [-1, 0], (3, 2), (3, 2)),
    ("flatten 1", [helper.make_node("Flatten", ["x"], ["y"], axis=1)], [], (3, 2, 4), (3, 8)),
    ("flatten 2", [helper.make_node("Flatten", ["x"], ["y"], axis=2)], [], (3, 2, 1), (6, 1)),
    (
        "expand",
        [helper.make_node("ExpandDims", ["x", "k"], ["y"], domain="com.microsoft")],
        np.int32(1),
        (3, 2),
        (3, 1, 2),
    ),
]


@pytest.mark.parametrize(("name", "nodes", "k", "sizes", "expected"), MEASURED, ids=[case[0] for case in MEASURED])
def test_dimensions_without_names_are_not_taken_for_each_other(name, nodes, k, sizes, expected):
    constants = {"k": np.asarray(k, np.int64 if isinstance(k, list) else None)}
    value = ip.load(measured(len(sizes), nodes, constants).SerializeToString())
    masks = [np.arange(9) < count for count in sizes]
    x, y = value.run({f"m{axis}": mask.astype(np.float32) for axis, mask in enumerate(masks)})
    assert (x.shape, y.shape) == (sizes, expected)
    np.testing.assert_array_equal(y, x.reshape(expected))


@pytest.mark.parametrize("axis", range(4))
def test_an_old_softmax_of_dimensions_without_names_flattens_and_restores_them(axis):
    value = ip.load(measured(4, [helper.make_node("Softmax", ["x"], ["y"], axis=axis)], opset=11).SerializeToString())
    masks = [np.arange(9) < count for count in (3, 2, 1, 4)]
    x, y = value.run({f"m{axis}": mask.astype(np.float32) for axis, mask in enumerate(masks)})
    axes = tuple(range(axis, 4))
    powers = np.exp(x - x.max(axes, keepdims=True))
    np.testing.assert_allclose(y, powers / powers.sum(axes, keepdims=True), 1e-5)


def test_squeezing_an_axis_whose_size_is_not_one_is_an_error():
    nodes = [helper.make_node("Squeeze", ["x", "k"], ["y"])]
    value = ip.load(measured(3, nodes, {"k": np.array([1])}).SerializeToString(), backends=["CpuRef"])
    masks = {f"m{axis}": np.ones(9, np.float32) for axis in range(3)}
    with pytest.raises(InterposerError, match=r"an input of shape \[9, 9, 9\] cannot be reshaped to \(0, 1, 0\)"):
        value.run(masks)


@pytest.mark.parametrize(
    ("node", "constants", "before", "after"),
    [
        (helper.make_node("Flatten", ["x"], ["y"], axis=1), [], (0, 3, 4), (0, 12)),
        (helper.make_node("Squeeze", ["x", "axes"], ["y"]), [1], (0, 1, 3), (0, 3)),
    ],
    ids=["flatten", "squeeze"],
)
def test_an_empty_batch_without_a_name_keeps_its_other_dimensions(node, constants, before, after):
    axes = [onnx.numpy_helper.from_array(np.array(constants), "axes")] if constants else []
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [None, None, None])
    graph = helper.make_graph([node], "g", [x], [helper.make_empty_tensor_value_info("y")], axes)
    model = ip.load(helper.make_model(graph).SerializeToString())
    assert model.run({"x": np.zeros(before, np.float32)})[0].shape == after


LINE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
FROM_DATA = [
    ("Slice", LINE, [[0, 1], [2, -1], [0, 2]], {}),
    ("Slice", LINE, [[0], [2]], {}),
    ("Slice", LINE, [[2], [-100], [1], [-1]], {}),
    ("Pad", LINE, [[0, 1, 2, 1, 0, 0]], {}),
    ("Pad", LINE, [[0, -1, 2, 1, 0, -2]], {}),
    ("Pad", LINE, [[0, 1, 2, 1, 0, 0]], {"mode": "reflect"}),
    ("Expand", LINE[:1], [[3, 4, 5]], {}),
    ("Tile", LINE, [[2, 1, 3]], {}),
    ("TopK", LINE, [[2]], {}),
    ("Split", LINE, [[1, 3]], {"axis": 1}),
    ("OneHot", np.array([[0, 2], [-1, 7]]), [4, [2, 5]], {"axis": 1}),
    ("Slice", LINE, [[-1], [2**63 - 1], [1], [-1]], {}),
    ("Pad", LINE, [[-5, 0, 0, 3, 0, 0]], {}),
    ("Pad", LINE, [[0, -1, 7, 1, 9, 0]], {"mode": "wrap"}),
    ("Pad", LINE.astype(np.int64), [[0, 0, 1, 0, 0, 2], 2**60 + 1, [0, 2, 1]], {}),
    ("ReduceSum", LINE, [[-1, 0]], {"keepdims": 0}),
    ("ReduceMax", LINE, [[1]], {}),
    ("Squeeze", LINE[:1], [[0]], {}),
    ("Unsqueeze", LINE, [[0, -1]], {}),
    ("CumSum", LINE, [-1], {"reverse": 1}),
    ("Trilu", LINE, [-1], {"upper": 0}),
    ("CenterCropPad", LINE, [[2, 5]], {"axes": [0, 1]}),
    ("Resize", LINE[None], [None, None, [1, 3, 7, 9]], {"mode": "linear"}),
]


@pytest.mark.parametrize("backends", [["CpuRef"], ["CpuAcc", "CpuRef"]])
@pytest.mark.parametrize(("op", "x", "operands", "attributes"), FROM_DATA)
def test_operands_that_are_computed_from_data_have_the_effect_of_constants(op, x, operands, attributes, backends):
    names = ["" if operand is None else f"k{i}" for i, operand in enumerate(operands)]
    outputs = ["y", "z"] if op in ("TopK", "Split") else ["y"]
    zero = [
        helper.make_node("NonZero", ["m"], ["places"]),
        helper.make_node("ReduceSum", ["places"], ["zero"], keepdims=0),
    ]
    sums = [helper.make_node("Add", [f"c{name[1:]}", "zero"], [name]) for name in names if name]
    constants = {f"c{i}": np.array(operand) for i, operand in enumerate(operands) if operand is not None}
    node = helper.make_node(op, ["x", *names], outputs, name="node", **attributes)
    only_first = np.array([True, False])  # at position 0, so that the sum of all positions is 0
    given = models.model([*zero, *sums, node], {"x": x, "m": only_first}, outputs, constants)
    results = ip.load(given.SerializeToString(), backends).run({"x": x, "m": only_first})
    with_constants = models.single(op, x, *operands, outputs=len(outputs), **attributes)
    for result, expected in zip(results, models.ours(with_constants, x), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize(
    ("op", "x", "operands", "attributes", "expected"),
    [
        ("Slice", [1, 2, 3], [[1], [2**63 - 1], [0], [-1]], {}, [2, 1]),
        ("Slice", [1, 2, 3], [[-1], [2**31 - 1], [0], [-2]], {}, [3, 1]),
        ("Slice", [1, 2, 3], [[-1], [2**31], [0], [-1]], {}, []),
        ("Pad", [1, 2, 3], [[-5, 4]], {}, [0, 0]),
        ("Pad", [1, 2, 3], [[4, -5]], {}, [0, 0]),
        ("Pad", [1, 2, 3], [[4, 7]], {"mode": "wrap"}, [3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1]),
        ("Pad", [1, 2, 3], [[3, -1]], {"mode": "wrap"}, [2, 1, 2, 1, 2]),
        ("Pad", [1, 2], [[1, 0], 2**60 + 1], {}, [2**60 + 1, 1, 2]),
    ],
)
def test_slices_and_pads_are_those_of_onnx_runtime(op, x, operands, attributes, expected, is_computed):
    array = np.array(x, np.int64)
    given = models.single(op, array, *operands, **attributes)
    if is_computed:
        mask = np.array([True])
        constants = {f"c{i}": np.array(operand) for i, operand in enumerate(operands)}
        nodes = [helper.make_node("NonZero", ["m"], ["p"]), helper.make_node("ReduceSum", ["p"], ["zero"], keepdims=0)]
        nodes += [helper.make_node("Add", [f"c{i}", "zero"], [f"k{i}"]) for i in range(len(operands))]
        nodes.append(helper.make_node(op, ["x", *(f"k{i}" for i in range(len(operands)))], ["y"], **attributes))
        given = models.model(nodes, {"x": array, "m": mask}, ["y"], constants)
    inputs = [array, np.array([True])] if is_computed else [array]
    assert ip.load(given.SerializeToString()).run(inputs)[0].tolist() == expected


@pytest.mark.parametrize("sizes", [[1, 1], [-1, 4], [3, 1]])
def test_computed_sizes_of_a_split_that_do_not_fit_are_the_callers_error(sizes):
    nodes = [helper.make_node("NonZero", ["m"], ["p"]), helper.make_node("Reshape", ["p", "flat"], ["n"])]
    nodes += [helper.make_node("Add", ["n", "sizes"], ["k"]), helper.make_node("Split", ["x", "k"], ["y", "z"])]
    x, mask = np.arange(3, dtype=np.float32), np.array([True, False])
    given = models.model(nodes, {"x": x, "m": mask, "sizes": np.array(sizes)}, ["y", "z"], {"flat": np.array([-1])})
    loaded = ip.load(given.SerializeToString())
    with pytest.raises(InvalidValueError, match="sizes is "):
        loaded.run([x, mask, sizes])
    assert [part.tolist() for part in loaded.run([x, mask, [1, 2]])] == [[0], [1, 2]]
    assert not loaded.events


@pytest.mark.parametrize("op", ["Slice", "Expand", "Tile", "TopK"])
def test_counts_of_true_elements_are_operands(op):
    x, mask = np.arange(4, dtype=np.float32)[: 1 if op == "Expand" else 4], np.array([True, False, True])
    count = [helper.make_node("NonZero", ["m"], ["places"]), helper.make_node("Shape", ["places"], ["k"], start=1)]
    operands, outputs = ["zero", "k"] if op == "Slice" else ["k"], ["y", "z"] if op == "TopK" else ["y"]
    node = helper.make_node(op, ["x", *operands], outputs)
    given = models.model([*count, node], {"x": x, "m": mask}, outputs, {"zero": np.array([0])})
    for result, expected in zip(models.ours(given, x, mask), models.theirs(given, x, mask), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_even_the_number_of_sliced_axes_may_be_computed():
    cut = [helper.make_node("NonZero", ["m"], ["p"]), helper.make_node("Squeeze", ["p", "zero"], ["starts"])]
    node = helper.make_node("Slice", ["x", "starts", "ends"], ["y"])
    ends = helper.make_node("Add", ["starts", "one"], ["ends"])
    constants = {"zero": np.array([0]), "one": np.array([1])}
    mask = np.array([False, True, True])
    given = models.model([*cut, ends, node], {"x": LINE, "m": mask}, ["y"], constants)
    [result] = models.ours(given, LINE, mask)
    np.testing.assert_array_equal(result, LINE[1:2, 2:3])


@pytest.mark.parametrize(
    ("node", "count", "text"),
    [
        (helper.make_node("Split", ["x", "k"], ["y", "z"]), 3, "it has 2 outputs, but 3 sizes"),
        (helper.make_node("Pad", ["x", "k"], ["y"]), 4, "it has 4 pads for 3 axes; expected two for each"),
    ],
)
def test_operands_that_are_computed_have_an_element_for_each_output_or_axis(node, count, text):
    sizes = [helper.make_node("NonZero", ["m"], ["p"]), helper.make_node("ReduceSum", ["p", "one"], ["n"], keepdims=0)]
    sizes.append(helper.make_node("Expand", ["n", "count"], ["k"]))
    constants = {"one": np.array([1]), "count": np.array([count])}
    given = models.model([*sizes, node], {"x": LINE, "m": np.array([True])}, node.output, constants)
    with pytest.raises(InterposerError, match=text):
        ip.load(given.SerializeToString())


def test_many_sizes_that_each_follow_from_the_one_before_are_an_operand():
    nodes = []
    for i in range(30):
        nodes += [
            helper.make_node("Shape", [f"x{i}"], [f"shape{i}"]),
            helper.make_node("Squeeze", [f"shape{i}", "axis"], [f"size{i}"]),
            helper.make_node("Div", [f"size{i}", f"size{i}"], [f"one{i}"]),
            helper.make_node("Sub", [f"size{i}", f"size{i}"], [f"zero{i}"]),
            helper.make_node("Range", [f"zero{i}", f"size{i}", f"one{i}"], [f"x{i + 1}"]),
        ]
    nodes += [helper.make_node("Shape", ["x30"], ["k"]), helper.make_node("Slice", ["x0", "axis", "k"], ["y"])]
    given = models.model(nodes, {"x0": ["n"]}, ["y"], {"axis": np.array([0])})
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(ip.load(given.SerializeToString()).run({"x0": x})[0], x)
