"""Irregular ONNX files as exporters and converters write them, which ONNX Runtime reads."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import interposer as ip
from interposer.core.errors import (
    InvalidArgumentError,
    InvalidValueError,
    LimitExceededError,
    ParseError,
    UnboundInputError,
    UnwritableError,
)
from interposer.frontends.onnx import load, operator
from interposer.writers import tflite
from interposer.writers.onnx import write
from tests.frontends.onnx.models import info, model, ours, single

X = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
DEFAULT, ALIAS, MICROSOFT = "", "ai.onnx", "com.microsoft"


def graph_of(nodes, inputs=(), outputs=("y",), name="graph", constants=()):
    outputs = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return helper.make_graph(nodes, name, list(inputs), outputs, list(constants))


def imported(opsets, *nodes, functions=()):
    graph = graph_of(nodes, [info("x", X.shape)])
    imports = [helper.make_opsetid(*opset) for opset in opsets]
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=9)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def old_softmax(x):
    return softmax(x.reshape(len(x), -1)).reshape(x.shape)


# --- operator sets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opsets", "expected"),
    [
        ([(DEFAULT, 13), (ALIAS, 13)], softmax),
        ([(DEFAULT, 13), (ALIAS, 11)], old_softmax),
        ([(ALIAS, 11), (DEFAULT, 13)], softmax),
        ([(DEFAULT, 13), (DEFAULT, 11)], old_softmax),
        ([(MICROSOFT, 1)], softmax),
        ([("ai.onnx.ml", 3)], softmax),
        ([(DEFAULT, 13), (MICROSOFT, 1), (MICROSOFT, 1)], softmax),
        ([(DEFAULT, 13), ("com.example", 0)], softmax),
    ],
)
def test_the_last_import_of_a_domain_counts_and_a_missing_one_is_the_newest(opsets, expected):
    [result] = ours(imported(opsets, helper.make_node("Softmax", ["x"], ["y"])), X)
    np.testing.assert_allclose(result, expected(X), rtol=1e-6)


def test_operators_of_known_domains_are_read_although_their_domain_is_not_imported():
    gelu = helper.make_node("QuickGelu", ["x"], ["y"], domain=MICROSOFT, alpha=1.0)
    np.testing.assert_allclose(ours(imported([(DEFAULT, 13)], gelu), X)[0], X / (1 + np.exp(-X)), rtol=1e-6)
    binarizer = helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml", threshold=4.0)
    np.testing.assert_array_equal(ours(imported([(DEFAULT, 13)], binarizer), X)[0], (X > 4).astype(np.float32))


def test_a_converter_of_the_caller_needs_no_import_of_its_domain():
    @operator("FoundFilesTwice", domain="com.example.found", since=3)
    def twice(node):
        x = node.value(0)
        return node.result(ip.ops.Addition(), x, x)

    mine = helper.make_node("FoundFilesTwice", ["x"], ["y"], domain="com.example.found")
    assert (ours(imported([(DEFAULT, 13)], mine), X)[0] == 2 * X).all()
    other = helper.make_node("Unregistered", ["x"], ["y"], domain="com.example.other")
    network = load(imported([(DEFAULT, 13)], other), operators={"com.example.other.Unregistered": twice})
    assert [layer.op.op_name() for layer in network.graph if layer.values and layer.outputs] == ["Addition"]


def test_each_function_has_the_operator_sets_that_it_imports():
    def function(name, *opsets):
        body = [helper.make_node("Softmax", ["a"], ["b"])]
        return helper.make_function("f", name, ["a"], ["b"], body, [helper.make_opsetid(*opset) for opset in opsets])

    functions = [function("Old", (DEFAULT, 11)), function("New", (DEFAULT, 12), (ALIAS, 13))]
    nodes = [helper.make_node("Old", ["x"], ["h"], domain="f"), helper.make_node("New", ["h"], ["y"], domain="f")]
    [result] = ours(imported([(DEFAULT, 13)], *nodes, functions=functions), X)
    np.testing.assert_allclose(result, softmax(old_softmax(X)), rtol=1e-6)


# --- dimensions and shapes of inputs ----------------------------------------------------------------------------------


def product(a, b):
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"])]
    return model(nodes, {"a": a, "b": b}).SerializeToString()


@pytest.mark.parametrize("name", ["?", "", "-1", "None", "unk__12", "a_dynamic_axes_1", "DynamicDimension.0"])
def test_dimensions_whose_names_stand_for_unknown_sizes_may_differ(name):
    data = product((name, name), (name, name))
    shapes = {"a": (2, 3), "b": (3, 5)}
    arrays = [np.ones(shape, np.float32) for shape in shapes.values()]
    for given in (None, shapes, {"a_0": 2, "a_1": 3, "b_0": 3, "b_1": 5}):
        with ip.load(data, shapes=given) as loaded:
            assert loaded.run(arrays)[0].tolist() == [[3] * 5] * 2


def test_a_generated_name_of_one_dimension_or_with_a_given_size_is_kept():
    data = product(("unk__12", 3), (3, "unk__13"))
    with ip.load(data, shapes={"unk__12": 2, "unk__13": 1}) as loaded:
        assert [tuple(shape.shape) for shape in loaded.inputs.values()] == [(2, 3), (3, 1)]
    with ip.load(product(("dynamic", 3), (3, "dynamic")), shapes={"dynamic": 2}) as loaded:
        assert [tuple(shape.shape) for shape in loaded.inputs.values()] == [(2, 3), (3, 2)]
    with pytest.raises(InvalidArgumentError, match="'n' is both 2 and 3"):
        ip.load(product((1, "n"), ("n", 1)), shapes={"a": (1, 2), "b": (3, 1)})


def test_inputs_without_shapes_take_them_from_each_call():
    data = product(None, None)
    with pytest.raises(UnboundInputError) as caught:
        load(data)
    assert str(caught.value).endswith("2 x Input ('a', 'b': no shape; give shapes={'a': (...), 'b': (...)})")
    with ip.load(data) as loaded:
        for rows in (1, 3):
            arrays = [np.ones((rows, 2), np.float32), np.ones((2, 1), np.float32)]
            assert loaded.run(arrays)[0].tolist() == [[2]] * rows


# --- loops ------------------------------------------------------------------------------------------------------------

LARGEST_COUNT = 2**63 - 1


def counted_while(trip_count, stop):
    """Return a model that adds 1 to x until all elements reach `stop`, in at most `trip_count` iterations."""
    nodes = [
        helper.make_node("Add", ["v", "one"], ["w"]),
        helper.make_node("ReduceMin", ["w"], ["least"], keepdims=0),
        helper.make_node("Less", ["least", "stop"], ["again"]),
    ]
    inputs = [info("i", [], np.int64), info("c", [], np.bool_), info("v", [3])]
    body = helper.make_graph(nodes, "body", inputs, [info("again", [], np.bool_), info("w", [3])])
    constants = {"one": np.float32(1), "stop": np.float32(stop), "m": np.int64(trip_count), "c": np.array(True)}
    return model([helper.make_node("Loop", ["m", "c", "x"], ["y"], body=body)], {"x": (3,)}, constants=constants)


@pytest.mark.parametrize(("trip_count", "expected"), [(LARGEST_COUNT, [8, 9, 10]), (10**6, [8, 9, 10]), (4, [3, 4, 5])])
def test_a_loop_that_ends_by_its_condition_is_not_refused_for_its_trip_count(trip_count, expected):
    with ip.load(counted_while(trip_count, 8)) as loaded:
        assert loaded.run([np.float32([-1, 0, 1])])[0].tolist() == expected


def test_a_loop_that_runs_all_its_iterations_is_refused_before_it_runs_if_they_are_too_many():
    nodes = [helper.make_node("Add", ["v", "v"], ["w"]), helper.make_node("Identity", ["c"], ["d"])]
    inputs = [info("i", [], np.int64), info("c", [], np.bool_), info("v", [3])]
    body = helper.make_graph(nodes, "body", inputs, [info("d", [], np.bool_), info("w", [3])])
    loop = helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)
    with pytest.raises(LimitExceededError, match="operations of arithmetic"):
        ip.load(model([loop], {"x": (3,)}, constants={"m": np.int64(LARGEST_COUNT)}))


# --- slices -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [4, "n"])
@pytest.mark.parametrize("is_computed", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (-6, -100, -1, [0]),
        (-5, -100, -2, [0]),
        (-(2**63) + 1, -(2**63) + 1, -1, [0]),
        (-6, 0, -1, []),
        (-6, -4, -1, []),
        (-4, -5, -1, [0]),
        (-1, -100, -3, [3, 0]),
        (9, -100, -1, [3, 2, 1, 0]),
        (-6, 2, 1, [0, 1]),
    ],
)
def test_a_slice_starts_at_the_first_element_backwards_if_its_start_lies_before(
    size, is_computed, start, end, step, expected
):
    bounds = {name: np.array([number]) for name, number in zip("setn", (start, end, step, 0), strict=True)}
    inputs = {"x": (size,)}
    if is_computed:
        inputs |= {name: bounds.pop(name) for name in "set"}
    slice_ = helper.make_node("Slice", ["x", "s", "e", "n", "t"], ["y"])
    data = model([slice_], inputs, constants=bounds, opset=13).SerializeToString()
    x = np.arange(4, dtype=np.float32)
    feeds = {"x": x} | {name: np.array([number]) for name, number in zip("set", (start, end, step), strict=True)}
    with ip.load(data) as loaded:
        assert loaded.run({name: feeds[name] for name in inputs})[0].tolist() == expected


# --- texts ------------------------------------------------------------------------------------------------------------

TEXT = """
ir_version: 8
graph {
  node { input: "x" output: "y" op_type: "Relu" }
  name: "text"
  input { name: "x" type { tensor_type { elem_type: 1 shape { dim { dim_value: 3 } } } } }
  output { name: "y" }
}
opset_import { version: 13 }
"""


@pytest.mark.parametrize("name", ["model.pbtxt", "model.onnx", "model.txt", "model.textproto"])
@pytest.mark.parametrize("head", ["", "# a comment\n\n", "opset_import { domain: 'com.microsoft' version: 1 }\n"])
def test_a_model_in_the_text_format_is_read_under_any_name(tmp_path, name, head):
    path = tmp_path / name
    path.write_text(head + TEXT)
    with ip.load(path) as loaded:
        assert loaded.run([np.float32([-1, 0, 2])])[0].tolist() == [0, 0, 2]


def test_a_graph_of_tensorflow_is_read_under_the_name_of_an_onnx_file(tmp_path):
    path = tmp_path / "graph.onnx"
    placeholder = 'node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }'
    path.write_text(placeholder + 'node { name: "y" op: "Relu" input: "x" }')
    for shape in (3, (3,)):
        with ip.load(path, shapes={"x": shape}) as loaded:
            assert loaded.run([np.float32([-1, 0, 2])])[0].tolist() == [0, 0, 2]


# --- sparse tensors ---------------------------------------------------------------------------------------------------

DENSE = [[0, 1, 0], [0, 0, 2]]


def sparse(indices, shape=(2, 3)):
    values = numpy_helper.from_array(np.float32([1, 2]), "s")
    return helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(indices, np.int64), "indices"), shape)


def sum_with(graph):
    """Return a model of a graph that adds "s", which the graph defines, to an input of zeros."""
    graph.node.append(helper.make_node("Add", ["x", "s"], ["y"]))
    graph.input.append(info("x", (2, 3)))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_are_read_as_dense_ones(indices):
    stored = graph_of([])
    stored.sparse_initializer.append(sparse(indices))
    computed = graph_of([helper.make_node("Constant", [], ["s"], sparse_value=sparse(indices))])
    for graph in (stored, computed):
        assert ours(sum_with(graph), np.zeros((2, 3), np.float32))[0].tolist() == DENSE
    branch = graph_of([helper.make_node("Add", ["x", "s"], ["t"])], outputs=["t"], name="then")
    branch.sparse_initializer.append(sparse(indices))
    other = graph_of([helper.make_node("Neg", ["x"], ["e"])], outputs=["e"], name="else")
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=other)
    chosen = model([node], {"x": (2, 3), "c": np.array(True)})
    with ip.load(chosen) as loaded:
        assert loaded.run([np.zeros((2, 3), np.float32), np.array(True)])[0].tolist() == DENSE


@pytest.mark.parametrize(
    ("indices", "shape", "message"),
    [
        ([1, 6], (2, 3), "sparse tensor of shape [2, 3] has an index out of range"),
        ([[0, 1], [-1, 0]], (2, 3), "sparse tensor of shape [2, 3] has an index out of range"),
        ([1, 2, 3], (2, 3), "has values of shape [2] and indices of shape [3]; expected an index, or"),
        ([1, 2], (1 << 20, 1 << 20), "a sparse tensor of shape [1048576, 1048576] and of the type float32 is not "
         "supported"),
    ],
)  # fmt: skip
def test_damaged_sparse_tensors_are_refused(indices, shape, message):
    graph = graph_of([])
    graph.sparse_initializer.append(sparse(indices, shape))
    with pytest.raises(ParseError) as caught:
        load(sum_with(graph))
    assert str(caught.value).startswith("sparse initializer 's': ") and message in str(caught.value)


# --- operators in unusual forms ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "expected"), [(np.float32(3), [[0]]), (np.float32(0), [[]]), (np.bool_(1), [[0]])])
def test_the_nonzero_elements_of_a_scalar_are_those_of_a_tensor_of_one_element(number, expected):
    assert ours(single("NonZero", number), number)[0].tolist() == expected


@pytest.mark.parametrize("axis", [0, -1])
def test_a_scalar_is_squeezed_like_a_tensor_of_one_element(axis):
    assert ours(single("Squeeze", np.float32(3), np.array([axis])), np.float32(3))[0].tolist() == 3


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_integers_shrink_in_float_and_are_truncated(dtype):
    x = np.array([-3, -1, 0, 2, 5], dtype)
    [result] = ours(single("Shrink", x, lambd=1.5, bias=0.5), x)
    assert result.dtype == dtype
    assert result.tolist() == [-2, 0, 0, 1, 4]


def test_a_signal_may_lack_the_axis_for_the_parts_of_a_number():
    signal = np.sin(np.arange(32, dtype=np.float32)).reshape(1, 32)
    expected = ours(single("STFT", signal[..., None], np.array(8), None, np.array(16), opset=17), signal[..., None])[0]
    np.testing.assert_array_equal(
        ours(single("STFT", signal, np.array(8), None, np.array(16), opset=17), signal)[0], expected
    )


@pytest.mark.parametrize(
    ("numbers", "texts"),
    [
        (np.float32([-2.5, 0, -0.0, 1 / 3, 1e-5, 1e8, 2**24]), "-2.5 0 -0 0.33333334 9.9999997e-06 1e+08 16777216"),
        (np.float32([np.inf, -np.inf, np.nan]), "INF -INF NaN"),
        (np.array([0.1, np.pi, 1e300, 1e17]), "0.1 3.1415927 1e+300 1e+17"),
        (np.float16([1.5, 0.1, 65504]), "1.5 0.099975586 65504"),
        (np.int64([-(2**63), 0, 7]), "-9223372036854775808 0 7"),
        (np.uint64([2**64 - 1]), "18446744073709551615"),
        (np.array([True, False]), "1 0"),
    ],
)
def test_numbers_are_cast_to_the_texts_that_onnxruntime_writes(numbers, texts):
    [result] = ours(single("Cast", numbers, to=onnx.TensorProto.STRING), numbers)
    assert result.tolist() == texts.split()


@pytest.mark.parametrize(
    ("texts", "to", "numbers"),
    [
        ("1.5 -2 3e4 +4 .5 12abc", "FLOAT", np.float32([1.5, -2, 3e4, 4, 0.5, 12])),
        ("inf -INF 1e300", "FLOAT", np.float32([np.inf, -np.inf, np.inf])),
        ("1e300 0.1", "DOUBLE", np.array([1e300, 0.1])),
        ("1.5 -2", "FLOAT16", np.float16([1.5, -2])),
        ("1 -2 1.7 300", "INT32", np.int32([1, -2, 1, 300])),
        ("1 300", "UINT8", np.uint8([1, 44])),
        ("-9223372036854775808 7", "INT64", np.int64([-(2**63), 7])),
        ("18446744073709551615", "UINT64", np.uint64([2**64 - 1])),
        ("1 0 2", "BOOL", np.array([True, False, True])),
    ],
)  # fmt: skip
def test_texts_are_cast_to_the_numbers_with_which_they_begin(texts, to, numbers):
    given = np.array(texts.split(), object)
    [result] = ours(single("Cast", given, to=getattr(onnx.TensorProto, to)), given)
    assert result.dtype == numbers.dtype
    np.testing.assert_array_equal(result, numbers)


@pytest.mark.parametrize(("text", "to"), [("abc", "FLOAT"), ("", "INT32"), ("-e5", "INT64"), ("9" * 30, "INT64")])
def test_a_text_that_begins_with_no_number_is_an_error_of_the_caller(text, to):
    given = np.array(["1", text], object)
    with ip.load(single("Cast", given, to=getattr(onnx.TensorProto, to))) as loaded:
        with pytest.raises(InvalidValueError, match=r"at \[1\] begins with no") as caught:
            loaded.run([given])
        assert (caught.value.position, caught.value.value) == ((1,), text)
        assert loaded.run([np.array(["1", "2"], object)])[0].tolist() == [1, 2]


def test_casts_of_texts_are_written_to_onnx():
    nodes = [
        helper.make_node("Cast", ["x"], ["t"], to=onnx.TensorProto.STRING),
        helper.make_node("Cast", ["t"], ["y"], to=onnx.TensorProto.INT32),
    ]
    network = load(model(nodes, {"x": np.float32([1.5, -2])}))
    assert ours(write(network), np.float32([1.5, -2]))[0].tolist() == [1, -2]


# --- tensors of many axes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [9, 12, 16])
def test_tensors_may_have_more_axes_than_backends_in_c_and_engines_get(rank):
    shape = (*[1] * (rank - 3), 2, 3, 2)
    x = np.arange(12, dtype=np.float32).reshape(shape) - 6
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Transpose", ["r"], ["t"], perm=[*range(rank - 2), rank - 1, rank - 2]),
        helper.make_node("MatMul", ["r", "t"], ["m"]),
        helper.make_node("Squeeze", ["m", "axes"], ["y"]),
    ]
    data = model(nodes, {"x": shape}, ["y", "m"], {"axes": np.arange(rank - 3)})
    rows = np.maximum(x.reshape(2, 3, 2), 0)
    with ip.load(data) as loaded:
        assert {placement.backend for placement in loaded.optimized.placements} == {"CpuRef"}
        squeezed, product = loaded.run([x])
    np.testing.assert_array_equal(squeezed, rows @ rows.swapaxes(1, 2))
    assert product.shape == (*[1] * (rank - 3), 2, 3, 3)
    with pytest.raises(UnwritableError, match="and TFLite's kernels take at most 8"):
        tflite.write(load(data))
