"""Frozen graphs as files: what becomes an input and an output, which names remain, and what is refused."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import (
    InvalidArgumentError,
    ParseError,
    UnboundInputError,
    UnsupportedOperatorError,
)
from interposer.frontends.tensorflow import load, operators
from tests.damage import damaged_variants
from tests.frontends.tensorflow.graphs import Shape, Type, const, graph, node, placeholder, tensor

RNG = np.random.default_rng(3)
WEIGHTS = RNG.normal(size=(3, 3, 2, 4)).astype(np.float32)
BIAS = RNG.normal(size=4).astype(np.float32)
IMAGE = RNG.normal(size=(1, 6, 5, 2)).astype(np.float32)
CLASSIFIER = graph(
    placeholder("image", (None, 6, 5, 2)),
    const("conv/weights", WEIGHTS),
    node("Identity", "conv/weights/read", "conv/weights"),
    node("Conv2D", "conv/Conv2D", "image", "conv/weights/read", strides=[1, 1, 1, 1], padding="SAME"),
    const("conv/biases", BIAS),
    node("BiasAdd", "conv/BiasAdd", "conv/Conv2D", "conv/biases"),
    node("Relu", "conv/Relu", "conv/BiasAdd"),
    const("axes", np.int32([1, 2])),
    node("Mean", "pool", "conv/Relu", "axes", keep_dims=False),
    node("Softmax", "softmax", "pool"),
    node("NoOp", "init", "^conv/weights"),
)


def run(data, *inputs, **arguments):
    return ip.load(load(data, **arguments), ["CpuRef"]).run(list(inputs))


def test_placeholders_are_inputs_and_unread_nodes_are_outputs():
    model = ip.load(CLASSIFIER)
    assert [str(info.shape) for info in model.inputs.values()] == ["[image_0, 6, 5, 2]"]
    assert list(model.outputs) == ["softmax"]


def test_a_frozen_classifier_computes_what_its_nodes_say():
    padded = np.pad(IMAGE, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    conv = np.einsum("nhwcij,ijco->nhwo", windows, WEIGHTS) + BIAS
    logits = np.maximum(conv, 0).mean((1, 2))
    expected = np.exp(logits) / np.exp(logits).sum()
    assert np.allclose(run(CLASSIFIER, IMAGE)[0], expected, atol=1e-5)


def test_layers_and_tensors_keep_their_names():
    network = load(CLASSIFIER)
    names = [layer.name for layer in network.graph]
    assert {"image", "conv/BiasAdd", "conv/Relu", "pool"} <= set(names)
    assert np.allclose(ip.load(network).run([IMAGE], ["conv/Relu"])[0].min(), 0)


def test_a_bias_becomes_part_of_its_convolution():
    kinds = [type(layer.op).__name__ for layer in load(CLASSIFIER).graph]
    assert kinds.count("Convolution2d") == 1 and "Addition" not in kinds


def test_a_convolution_that_two_nodes_read_keeps_its_own_result():
    data = graph(
        placeholder("image", (1, 6, 5, 2)),
        const("w", WEIGHTS),
        const("b", BIAS),
        node("Conv2D", "conv", "image", "w", strides=[1, 1, 1, 1], padding="SAME"),
        node("BiasAdd", "biased", "conv", "b"),
        node("Identity", "again", "conv"),
        node("Sub", "y", "biased", "again"),
    )
    assert np.allclose(run(data, IMAGE)[0], np.broadcast_to(BIAS, (1, 6, 5, 4)), atol=1e-4)


def test_outputs_can_be_named():
    data = graph(
        placeholder("x", (2, 6)),
        const("axis", np.int32(1)),
        node("Split", "split", "axis", "x", num_split=3),
        node("Relu", "relu", "split:1"),
    )
    x = RNG.normal(size=(2, 6)).astype(np.float32)
    assert np.array_equal(run(data, x)[0], np.maximum(x[:, 2:4], 0))
    assert np.array_equal(ip.load(data, outputs=["split:2"]).run([x])[0], x[:, 4:])
    first, last = run(data, x, outputs=["split", "split:2"])
    assert np.array_equal(first, x[:, :2]) and np.array_equal(last, x[:, 4:])


def test_nodes_that_mark_a_branch_are_no_outputs():
    data = graph(
        placeholder("x", (2,)),
        const("true", np.array(True)),
        node("Switch", "switch", "true", "true"),
        node("Identity", "switch_t", "switch:1"),
        node("Identity", "switch_f", "switch"),
        const("two", np.float32(2)).replace(b"\x0a\x03two", b"\x0a\x03two\x1a\x09^switch_t"),
        const("one", np.float32(1)).replace(b"\x0a\x03one", b"\x0a\x03one\x1a\x09^switch_f"),
        node("Merge", "factor", "one", "two"),
        node("Mul", "y", "x", "factor"),
    )
    assert list(ip.load(data).outputs) == ["y"]
    assert run(data, np.float32([1, 3]))[0].tolist() == [2, 6]


def test_all_outputs_of_an_unread_node_are_outputs_of_the_model():
    data = graph(placeholder("x", (2, 6)), const("k", np.int32(2)), node("TopKV2", "top", "x", "k"))
    assert list(ip.load(data).outputs) == ["top", "top:1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"outputs": ["sotfmax"]}, "outputs: the model has no output or node 'sotfmax'; did you mean 'softmax'?"),
        ({"outputs": []}, "outputs: the list is empty; expected at least one name"),
        ({"outputs": "softmax"}, "outputs: 'softmax' is one name; expected a list of names"),
        ({"signature": "serve"}, "signature: a frozen graph has no signatures"),
        (
            {"shapes": {"imgae": (1, 6, 5, 2)}},
            "shapes: the network has no input 'imgae'; did you mean 'image'? (it has: image)",
        ),
        ({"values": {"imgae": IMAGE}}, "values: the model has no input 'imgae'; did you mean 'image'? (it has: image)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(InvalidArgumentError) as caught:
        load(CLASSIFIER, **arguments)
    assert str(caught.value) == message


def test_shapes_of_inputs_can_be_given_by_either_name_of_the_tensor():
    for name in ("image", "image:0"):
        network = load(CLASSIFIER, shapes={name: (3, 6, 5, 2)})
        assert tuple(network.graph.outputs[0].values[0].known.shape) == (3, 4)


def test_an_input_without_a_shape_asks_for_one():
    data = graph(node("Placeholder", "x", dtype=Type("float32")), node("Relu", "y", "x"))
    with pytest.raises(UnboundInputError) as caught:
        load(data)
    assert str(caught.value) == (
        "operators that need to know more of the inputs:\n  - 1 x Input ('x': no shape; give shapes={'x': (...)})"
    )
    assert run(data, np.float32([-1, 2]), shapes={"x": (2,)})[0].tolist() == [0, 2]


def test_inputs_without_shapes_take_them_from_each_call():
    inputs = [node("Placeholder", name, dtype=Type("float32")) for name in ("a", "b")]
    data = graph(*inputs, node("MatMul", "y", "a", "b", T=Type("float32")))
    with pytest.raises(UnboundInputError) as caught:
        load(data)
    assert str(caught.value).endswith("2 x Input ('a', 'b': no shape; give shapes={'a': (...), 'b': (...)})")
    with ip.load(data, format="tensorflow") as model:
        assert model.run([np.ones((2, 3), np.float32), np.ones((3, 1), np.float32)])[0].tolist() == [[3], [3]]
        assert model.run([np.ones((1, 2), np.float32), np.ones((2, 1), np.float32)])[0].tolist() == [[2]]


def test_what_training_records_is_no_output_and_what_it_prints_is_passed_on():
    data = graph(
        placeholder("x", (2,)),
        node("Print", "printed", "x", "x"),
        node("Relu", "y", "printed"),
        const("tag", np.array("y")),
        node("HistogramSummary", "histogram", "tag", "y"),
        node("MergeSummary", "merged", "histogram", N=1),
    )
    model = load(data)
    assert [output.name for output in model.outputs.values()] == ["y"]
    assert run(data, np.float32([-1, 2]))[0].tolist() == [0, 2]


def test_an_input_without_a_shape_can_have_a_value():
    data = graph(
        placeholder("x", (2,)),
        node("Placeholder", "is_training", dtype=Type("bool")),
        node("Switch", "branches", "x", "is_training"),
        node("Neg", "train", "branches:1"),
        node("Relu", "infer", "branches"),
        node("Merge", "y", "infer", "train"),
    )
    for name in ("is_training", "is_training:0"):
        model = ip.load(data, values={name: False}, backends=["CpuRef"])
        assert list(model.inputs) == ["x"]
        assert model.run([np.float32([-1, 2])])[0].tolist() == [0, 2]


@pytest.mark.parametrize(("kind", "seeds"), [("RandomUniform", {}), ("RandomUniform", {"seed": 3, "seed2": 5})])
def test_dropout_that_keeps_everything_changes_nothing(kind, seeds):
    data = graph(
        placeholder("x", (None, 3)),
        node("Placeholder", "keep_prob", dtype=Type("float32")),
        node("Shape", "shape", "x"),
        node(kind, "noise", "shape", dtype=Type("float32"), **seeds),
        node("Add", "sum", "keep_prob", "noise"),
        node("Floor", "mask", "sum"),
        node("RealDiv", "scaled", "x", "keep_prob"),
        node("Mul", "y", "scaled", "mask"),
    )
    x = np.float32([[1, 2, -3], [4, 0, 6]])
    assert run(data, x, values={"keep_prob": 1.0})[0].tolist() == x.tolist()


def test_random_numbers_have_the_distribution_and_the_seed_of_the_node():
    def drawn(kind, **seeds):
        data = graph(const("shape", np.int32([400, 50])), node(kind, "y", "shape", dtype=Type("float32"), **seeds))
        return run(data)[0]

    uniform, normal = drawn("RandomUniform", seed=1, seed2=2), drawn("RandomStandardNormal", seed=1, seed2=2)
    assert uniform.shape == normal.shape == (400, 50)
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.01
    assert abs(normal.std() - 1) < 0.03
    assert np.array_equal(uniform, drawn("RandomUniform", seed=1, seed2=2))
    assert not np.array_equal(uniform, drawn("RandomUniform", seed=1, seed2=3))


META = b"\n\x10\x12\x0e\n\x0c\n\x05AddV2\x12\x03\n\x01x\x12\x00"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (META, "the file is a meta graph of TensorFlow, which has no values of variables; "
               "write a SavedModel or a frozen graph"),
        (b"\x00\x00\x06\x08\x01\x1a\x02\x08\x01\x00\x01\x13w", "the file is a part of a checkpoint of TensorFlow, "
         "which has no graph; write a SavedModel or a frozen graph"),
        (b'model_checkpoint_path: "model.ckpt-1"\n', "the file is a part of a checkpoint of TensorFlow, "
         "which has no graph; write a SavedModel or a frozen graph"),
        (b"PK\x03\x04" + bytes(26) + b"metadata.json{}", "the file is a model of Keras, which is not supported; "
         "write it with Keras' model.export(folder)"),
    ],
)  # fmt: skip
def test_files_of_tensorflow_that_are_no_models_are_named(content, message, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(content)
    for source in (content, tmp_path, tmp_path / "saved_model.pb"):
        with pytest.raises(ParseError) as caught:
            ip.load(source)
        assert caught.value.message == message


def test_a_folder_of_versions_says_which_of_its_folders_is_a_saved_model(tmp_path):
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "saved_model.pb").write_bytes(b"")
    for read in (ip.load, load):
        with pytest.raises(ParseError) as caught:
            read(tmp_path)
        assert caught.value.message == "the folder holds no saved_model.pb, but its folder '2' does"


def test_a_node_with_a_shape_becomes_an_input_and_what_is_before_it_is_dropped():
    data = graph(
        placeholder("file", (), "str"),
        node("DecodeJpeg", "decoded", "file"),
        node("Cast", "pixels", "decoded", DstT=Type("int32")),
        node("Neg", "y", "pixels"),
    )
    with pytest.raises(UnsupportedOperatorError):
        load(data)
    model = ip.load(data, shapes={"pixels:0": (2,)})
    assert list(model.inputs) == ["pixels"]
    assert model.run([np.int32([1, -2])])[0].tolist() == [-1, 2]


def test_a_switch_of_the_training_phase_is_folded():
    data = graph(
        placeholder("x", (2,)),
        const("false", np.array(False)),
        node("PlaceholderWithDefault", "phase", "false", dtype=Type("bool"), shape=Shape(())),
        node("Switch", "switch", "x", "phase"),
        node("NotAnOperator", "dropped", "switch:1"),
        node("Identity", "kept", "switch"),
        node("Merge", "y", "kept", "dropped"),
    )
    network = load(data, outputs=["y"])
    assert [type(layer.op).__name__ for layer in network.graph] == ["Input", "Output"]


def test_a_condition_that_is_data_selects_one_of_both_branches():
    data = graph(
        placeholder("x", (2,)),
        placeholder("flag", (), "bool"),
        node("Switch", "switch", "x", "flag"),
        node("Identity", "pivot", "switch:1"),
        const("two", np.float32(2)),
        node("Mul", "double", "switch:1", "two"),
        node("Neg", "negative", "switch"),
        node("Merge", "y", "negative", "double"),
    )
    model = ip.load(load(data, outputs=["y", "y:1"]), ["CpuRef"])
    x = np.float32([1, -3])
    assert [item.tolist() for item in model.run([x, np.array(True)])] == [[2, -6], 1]
    assert [item.tolist() for item in model.run([x, np.array(False)])] == [[-1, 3], 0]


def test_operators_that_are_missing_are_listed_with_their_counts():
    data = graph(
        placeholder("x", (2,)),
        node("Foo", "foo", "x"),
        node("Bar", "bar", "foo"),
        node("Foo", "again", "bar"),
        node("Relu", "y", "again"),
    )
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(data)
    assert caught.value.operators == {"Foo": 2, "Bar": 1}
    assert "node 'foo'" in str(caught.value)


def test_an_operand_that_depends_on_an_input_asks_for_its_value():
    data = graph(placeholder("x", (2, 3)), placeholder("axis", (), "int32"), node("ExpandDims", "y", "x", "axis"))
    with pytest.raises(UnboundInputError) as caught:
        load(data)
    assert caught.value.inputs == ("axis",)
    assert run(data, np.zeros((2, 3), np.float32), values={"axis": 1})[0].shape == (2, 1, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (graph(node("Relu", "y", "x")), "the value 'x' is not defined, but node 'y' takes it"),
        (graph(node("Relu", "y", "y"), node("Relu", "z", "y")), "nodes depend on themselves: 'y', 'y'"),
        (graph(placeholder("x", (2,)), node("Relu", "y", "x:1")), "node 'x' has 1 outputs; output 1 is used"),
        (graph(placeholder("x", (2,)), placeholder("x", (2,)), node("Relu", "y", "x")), "two nodes have one name"),
        (graph(placeholder("x", (2,))), "the graph has no outputs; name some with outputs="),
        (
            graph(placeholder("x", (2,)), node("VariableV2", "v"), node("Add", "y", "x", "v")),
            "node 'v' (VariableV2): it reads a variable, but the file has no values of variables; freeze the graph",
        ),
        (
            graph(placeholder("x", (2, 3)), const("p", np.int32([0])), node("Transpose", "y", "x", "p")),
            "node 'y' (Transpose): permutation is (0,); expected every axis of the input, 0 to 1, once",
        ),
    ],
)
def test_graphs_that_break_the_format_are_refused(data, message):
    with pytest.raises(ParseError) as caught:
        load(data)
    assert message in str(caught.value)


def test_binary_and_text_files_are_known_by_their_content(tmp_path):
    binary = tmp_path / "model.bin"
    binary.write_bytes(CLASSIFIER)
    assert list(ip.load(binary).outputs) == ["softmax"]
    text = tmp_path / "model.txt"
    text.write_text(
        """# a comment
        node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "shape" value { shape { dim { size: 2 } } } } }
        node { name: 'c' op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
               attr { key: "value" value { tensor {
                 dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: [1.5, -2] } } } }
        node { name: "y" op: "Add" input: "x" input: "c" }
        """
    )
    assert ip.load(text).run([np.float32([1, 1])])[0].tolist() == [2.5, -1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node { name: 'x' ", "line 1: expected the name of a field, not ''"),
        ("node { name: 3 }", "name is '3', not of the kind text"),
        ("node {\n name: 'x' op: {} }", "op is '[]', not of the kind text"),
        ("node {\n ? }", "line 2: '? }' is not expected"),
    ],
)
def test_damaged_texts_name_the_place(text, message):
    with pytest.raises(ParseError) as caught:
        load(text.encode())
    assert message in str(caught.value)


def test_a_list_of_numbers_that_is_too_short_repeats_its_last_number():
    dims = tensor(np.zeros((2, 2), np.float32))[: -(2 + 16)]
    assert dims
    text = """node { name: "c" op: "Const" attr { key: "value" value {
        tensor { dtype: DT_INT32 tensor_shape { dim { size: 2 } dim { size: 2 } } int_val: 7 int_val: 5 } } } }
        node { name: "y" op: "Neg" input: "c" }"""
    assert run(text.encode())[0].tolist() == [[-7, -5], [-5, -5]]


@pytest.mark.slow
def test_damaged_files_raise_only_our_errors():
    for _, data in damaged_variants(CLASSIFIER, 2500, seed=5):
        with_errors(data)


def test_some_damaged_files_raise_only_our_errors():
    for _, data in damaged_variants(CLASSIFIER, 250, seed=6):
        with_errors(data)


def with_errors(data):
    try:
        load(data)
    except ip.InterposerError as error:
        assert "cannot be converted" not in str(error), str(error)


def test_the_table_of_operators_has_those_of_image_classifiers():
    assert {"Conv2D", "DepthwiseConv2dNative", "FusedBatchNormV3", "StridedSlice", "While"} <= set(operators())


@pytest.mark.parametrize(
    ("op", "expected"), [("FloorDiv", 3), ("FloorMod", 1), ("Maximum", 7), ("SquaredDifference", 4)]
)
def test_sizes_computed_from_open_dimensions_stay_open(op, expected):
    data = graph(
        placeholder("x", (None, 2)),
        node("Shape", "shape", "x"),
        const("first", np.int32([0])), const("second", np.int32([1])),
        const("other", np.int32({"Maximum": 5}.get(op, 2))),
        node("StridedSlice", "rows", "shape", "first", "second", "second", shrink_axis_mask=1),
        node(op, "size", "rows", "other"),
        const("zeros", np.int32([0, 0])), const("two", np.int32(2)),
        node("Pack", "sizes", "size", "two", N=2, axis=0),
        node("Slice", "cut", "x", "zeros", "sizes"),
    )  # fmt: skip
    rows = {"FloorDiv": 7, "FloorMod": 7, "Maximum": 7, "SquaredDifference": 4}[op]
    x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    [result] = ip.load(data, ["CpuRef"]).run([x])
    assert result.tolist() == x[:expected].tolist()
