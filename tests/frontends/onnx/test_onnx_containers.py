"""ONNX: sequences and optionals, SequenceMap, texts, labels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import interposer
from interposer.core.errors import ExecutionError, InvalidArgumentError, ParseError, UnsupportedOperatorError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import info, model, single, theirs

node = helper.make_node
FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
ROWS = [np.float32([[1, 2]]), np.float32([[3, 4], [5, 6]])]
POSITION = {"zero": np.int64(0), "last": np.int64(-1), "two": np.int64(2)}


def typed(nodes, inputs, outputs=("y",), constants=None, opset=21, **extra):
    """A model whose inputs have these types."""
    created = model(nodes, {}, outputs, constants, opset, **extra)
    created.graph.input.extend(helper.make_value_info(name, kind) for name, kind in inputs.items())
    return created


def run(given, *feeds, **options):
    return interposer.load(given.SerializeToString(), ["CpuRef"], format="onnx", **options).run(list(feeds))


def kinds(network):
    return [layer.kind for layer in network if layer.kind not in ("Input", "Output", "Constant")]


def same(found, expected):
    if isinstance(expected, list):
        assert [item.tolist() for item in found] == [np.asarray(item).tolist() for item in expected]
    else:
        assert np.asarray(found).tolist() == np.asarray(expected).tolist()


# --- sequences --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "nodes",
    [
        [node("SequenceInsert", ["x", "row"], ["y"])],
        [node("SequenceInsert", ["x", "row", "zero"], ["y"])],
        [node("SequenceErase", ["x"], ["y"])],
        [node("SequenceErase", ["x", "zero"], ["y"])],
        [node("SequenceAt", ["x", "last"], ["y"])],
        [node("SequenceLength", ["x"], ["y"])],
        [node("ConcatFromSequence", ["x"], ["y"], axis=0)],
        [node("ConcatFromSequence", ["x"], ["y"], axis=-2)],
        [node("SequenceInsert", ["x", "row"], ["a"]), node("ConcatFromSequence", ["a"], ["y"], axis=0)],
        [node("SequenceAt", ["x", "zero"], ["a"]), node("Add", ["a", "a"], ["b"]), node("Relu", ["b"], ["y"])],
        [node("SequenceAt", ["x", "zero"], ["a"]), node("Shape", ["a"], ["y"])],
    ],
    ids=lambda nodes: "-".join(item.op_type for item in nodes),
)
def test_operators_on_a_sequence_that_comes_in(nodes):
    value = typed(nodes, {"x": SEQUENCE}, constants={**POSITION, "row": np.float32([[7, 8]])})
    [expected] = theirs_on_lists(value, ROWS)
    same(run(value, ROWS)[0], expected)


def theirs_on_lists(given, rows):
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(given).run(None, {"x": rows})


def test_where_it_is_known_what_a_sequence_holds_none_is_left():
    nodes = [
        node("SequenceEmpty", [], ["s0"]),
        node("SequenceInsert", ["s0", "x"], ["s1"]),
        node("Relu", ["x"], ["r"]),
        node("SequenceInsert", ["s1", "r", "zero"], ["s2"]),
        node("SequenceInsert", ["s2", "r", "last"], ["s3"]),
        node("SequenceErase", ["s3", "zero"], ["s4"]),
        node("SequenceLength", ["s4"], ["length"]),
        node("SequenceAt", ["s4", "last"], ["at"]),
        node("ConcatFromSequence", ["s4"], ["joined"], axis=0, new_axis=1),
    ]
    value = model(nodes, {"x": (2, 3)}, ["length", "at", "joined"], POSITION)
    assert kinds(load(value)) == ["Activation", "Stack"]
    x = np.float32([[1, -2, 3], [-4, 5, -6]])
    for result, expected in zip(run(value, x), theirs(value, x), strict=True):
        same(result, expected)


def test_pieces_that_are_known_are_cut_without_a_sequence():
    nodes = [node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=0), node("SequenceAt", ["s", "last"], ["y"])]
    value = model(nodes, {"x": (2, 3)}, constants=POSITION)
    assert kinds(load(value)) == ["Splitter", "Reshape"]
    x = np.float32([[1, 2, 3], [4, 5, 6]])
    same(run(value, x)[0], [3, 6])


def test_sequences_of_constants_are_computed_while_loading():
    nodes = [
        node("SplitToSequence", ["c", "two"], ["s"]),
        node("SequenceAt", ["s", "last"], ["a"]),
        node("Add", ["x", "a"], ["y"]),
    ]
    value = model(nodes, {"x": (1,)}, constants={**POSITION, "c": np.float32([1, 2, 3])})
    assert kinds(load(value)) == ["ElementwiseBinary"] or kinds(load(value)) == ["Addition"]
    same(run(value, np.float32([10]))[0], [13])


def test_a_sequence_that_grows_in_a_loop_is_run():
    body = helper.make_graph(
        [node("Identity", ["c"], ["again"]), node("SequenceInsert", ["s", "x"], ["longer"])],
        "body",
        [info("i", (), np.int64), info("c", (), np.bool_), helper.make_value_info("s", SEQUENCE)],
        [info("again", (), np.bool_), helper.make_value_info("longer", SEQUENCE)],
    )
    nodes = [
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["n", "", "empty"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["y"], axis=0),
    ]
    value = model(nodes, {"x": (1, 2), "n": np.array(0)}, ["y", "all"])
    merged, rows = run(value, ROWS[0], np.array(3))
    assert merged.tolist() == [[1, 2]] * 3
    assert len(rows) == 3


def mapped(given):
    body = helper.make_graph(
        [node("Mul", ["a", "f"], ["b"]), node("Shape", ["b"], ["c"])],
        "body",
        [info("a", ("n", 2)), info("f", ())],
        [info("b", ("n", 2)), info("c", (2,), np.int64)],
    )
    element = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, ("n", 2)))
    nodes = [*given, node("SequenceMap", ["x", "f"], ["y", "shapes"], body=body)]
    inputs = {"x": element} if not given else {"t": helper.make_tensor_type_proto(TensorProto.FLOAT, (3, 2))}
    return typed(nodes, inputs, ["y", "shapes"], {"f": np.float32(2)}, 17)


def test_a_graph_is_applied_to_every_element_of_a_sequence():
    doubled, shapes = run(mapped([]), ROWS)
    assert [item.tolist() for item in doubled] == [[[2, 4]], [[6, 8], [10, 12]]]
    assert [shape.tolist() for shape in shapes] == [[1, 2], [2, 2]]
    assert run(mapped([]), []) == [[], []]


def test_where_the_length_is_known_it_is_applied_once_for_each():
    value = mapped([node("SplitToSequence", ["t"], ["x"])])
    assert "Loop" not in kinds(load(value))
    doubled, _ = run(value, np.float32([[1, 2], [3, 4], [5, 6]]))
    assert [item.tolist() for item in doubled] == [[[2, 4]], [[6, 8]], [[10, 12]]]


# --- optionals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [FLOATS, SEQUENCE], ids=["tensor", "sequence"])
def test_an_optional_without_an_element_is_made_of_its_type(kind):
    nodes = [node("Optional", [], ["y"], type=kind), node("OptionalHasElement", ["y"], ["there"])]
    empty, there = run(typed(nodes, {"x": FLOATS}, ["y", "there"]), np.float32(1), shapes={"x": ()})
    assert empty is None
    assert not there


def test_what_is_put_into_an_optional_is_got_from_it():
    nodes = [node("Optional", ["x"], ["o"]), node("OptionalGetElement", ["o"], ["g"]), node("Relu", ["g"], ["y"])]
    value = model(nodes, {"x": (2,)})
    assert kinds(load(value)) == ["Activation"]
    same(run(value, np.float32([-1, 1]))[0], [0, 1])


def test_an_optional_that_comes_in_decides_what_runs():
    branches = {
        name: helper.make_graph([helper.make_node(*operator)], name, [], [info(name, None)])
        for name, operator in {
            "there": ("OptionalGetElement", ["x"], ["there"]),
            "none": ("Constant", [], ["none"]),
        }.items()
    }
    branches["none"].node[0].attribute.append(helper.make_attribute("value_floats", [9.0]))
    nodes = [
        node("OptionalHasElement", ["x"], ["c"]),
        node("If", ["c"], ["y"], then_branch=branches["there"], else_branch=branches["none"]),
    ]
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, (1,)))
    value = interposer.load(typed(nodes, {"x": kind}).SerializeToString(), ["CpuRef"], format="onnx")
    assert value.run([np.float32([5])])[0].tolist() == [5]
    assert value.run([None])[0].tolist() == [9]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_map_as_an_input_is_refused():
    kind = onnx.TypeProto()
    kind.map_type.key_type = TensorProto.INT64
    kind.map_type.value_type.CopyFrom(FLOATS)
    with pytest.raises(
        ParseError, match="^input 'x': it is a map; only tensors, sequences and optionals are supported$"
    ):
        load(typed([node("Identity", ["x"], ["y"])], {"x": kind}))
    with pytest.raises(ParseError, match="^input 'x': it is a map"):
        load(typed([node("Identity", ["x"], ["y"])], {"x": helper.make_sequence_type_proto(kind)}))


def test_a_sequence_cannot_be_bound_to_a_value_but_its_length_can():
    value = typed([node("SequenceLength", ["x"], ["y"])], {"x": SEQUENCE})
    with pytest.raises(InvalidArgumentError, match="only tensors can be given values$"):
        load(value, values={"x": ROWS})
    assert run(value, ROWS, shapes={"x": (2,)})[0] == 2


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        ([node("SequenceConstruct", ["x", "i"], ["y"], name="n")], r"inputs\[1\] is int64\[\]; expected float32"),
        ([node("SequenceAt", ["x", "i"], ["y"], name="n")], "sequence is float32; expected one of sequence"),
        ([node("SequenceEmpty", [], ["y"], dtype=99, name="n")], "tensors of type 99 are not supported"),
        ([node("Optional", [], ["y"], name="n")], "it needs the attribute 'type'"),
    ],
    ids=["mixed", "no sequence", "type", "untyped"],
)
def test_what_is_wrong_is_said_with_the_node(nodes, fault):
    value = model(nodes, {"x": (2,)}, constants={"i": np.int64(7)})
    with pytest.raises(ParseError, match=rf"^node 'n' \(\w+\): {fault}"):
        load(value)


@pytest.mark.parametrize(
    ("nodes", "fault"),
    [
        (
            [node("SequenceConstruct", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["y"])],
            "position is 7; expected -1 to 0",
        ),
        (
            [node("SequenceEmpty", [], ["s"]), node("ConcatFromSequence", ["s"], ["y"], axis=0)],
            "the sequence is empty",
        ),
    ],
    ids=["place", "nothing"],
)
def test_what_is_not_there_is_told_when_it_is_read(nodes, fault):
    value = model(nodes, {"x": (2,)}, constants={"i": np.int64(7)})
    with pytest.raises(ExecutionError, match=fault):
        run(value, np.float32([1, 2]))


def test_a_node_that_needs_a_rank_which_is_not_known_is_refused():
    nodes = [node("SequenceAt", ["x", "zero"], ["a"]), node("Flatten", ["a"], ["y"], name="n")]
    with pytest.raises(UnsupportedOperatorError, match="'n': the rank of a tensor is not known before running"):
        load(typed(nodes, {"x": SEQUENCE}, constants=POSITION))


# --- texts and labels -------------------------------------------------------------------------------------------------

ML = {"domains": [helper.make_opsetid("ai.onnx.ml", 1)]}


def labels(version, x, **attributes):
    created = single("LabelEncoder", x, **attributes)
    created.graph.node[0].domain = "ai.onnx.ml"
    created.opset_import.append(helper.make_opsetid("ai.onnx.ml", version))
    return run(created, x)[0].tolist()


TEXTS = np.array(["b", "x", "a"], object)


def test_labels_of_the_first_version_are_places_in_a_list():
    assert labels(1, TEXTS, classes_strings=["a", "b"]) == [1, -1, 0]
    assert labels(1, np.array([1, 5, 0]), classes_strings=["a", "b"], default_string="?") == ["b", "?", "a"]


def test_labels_of_later_versions_have_keys_and_values():
    assert labels(2, TEXTS, keys_strings=["a", "b"], values_floats=[0.5, 1.5]) == [1.5, -0.0, 0.5]
    assert labels(2, np.array([2, 1]), keys_int64s=[1], values_strings=["one"]) == ["_Unused", "one"]
    keys = helper.make_tensor("k", TensorProto.DOUBLE, (2,), [1.5, float("nan")])
    values = helper.make_tensor("v", TensorProto.INT16, (2,), [3, 4])
    x = np.array([np.nan, 1.5, 2.0])
    assert labels(4, x, keys_tensor=keys, values_tensor=values) == [4, 3, -1]
    default = helper.make_tensor("d", TensorProto.INT16, (1,), [9])
    assert labels(4, x, keys_tensor=keys, values_tensor=values, default_tensor=default) == [4, 3, 9]


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"keys_strings": ["a"]}, "it has no values; expected one of values_int64s, values_floats"),
        (
            {"keys_strings": ["a"], "keys_int64s": [1], "values_int64s": [1]},
            "it has keys_int64s, keys_strings; expected",
        ),
        ({"keys_strings": ["a", "b"], "values_int64s": [1]}, r"LabelEncoder: keys has shape \[2\]"),
        ({"keys_int64s": [1], "values_int64s": [1]}, "input is string; expected int64, the type of the keys"),
    ],
)
def test_keys_and_values_that_do_not_fit_are_refused(attributes, fault):
    with pytest.raises(ParseError, match=fault):
        labels(2, TEXTS, **attributes)


@pytest.mark.parametrize(
    ("dtype", "threshold", "wanted"),
    [
        (np.int32, 1.5, [0, 0, 1]),
        (np.int32, 2.0, [0, 0, 0]),
        (np.int64, -1e30, [1, 1, 1]),
        (np.int64, 1e30, [0, 0, 0]),
        (np.int32, float("nan"), [0, 0, 0]),
        (np.int32, float("-inf"), [1, 1, 1]),
        (np.float32, 0.0, [0, 1, 1]),
        (np.float64, 1.0, [0, 0, 1]),
    ],
)
def test_numbers_above_a_threshold_are_one(dtype, threshold, wanted):
    created = single("Binarizer", np.array([0, 1, 2], dtype), threshold=threshold)
    created.graph.node[0].domain = "ai.onnx.ml"
    created.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    [result] = run(created, np.array([0, 1, 2], dtype))
    assert result.dtype == dtype
    assert result.tolist() == wanted


def test_features_of_a_list_are_a_row():
    nodes = [node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")]
    value = model(nodes, {"x": (3,)}, constants={"i": np.array([[2, 0]])}, **ML)
    assert run(value, np.float32([5, 6, 7]))[0].tolist() == [[7, 5]]


def test_a_language_with_rules_of_its_own_is_refused():
    with pytest.raises(UnsupportedOperatorError, match="the locale 'tr_TR' has rules of its own"):
        load(single("StringNormalizer", TEXTS, case_change_action="LOWER", locale="tr_TR"))
    [result] = run(single("StringNormalizer", TEXTS, case_change_action="UPPER", locale="en_US"), TEXTS)
    assert result.tolist() == ["B", "X", "A"]


@pytest.mark.parametrize(
    ("operator", "attributes", "fault"),
    [
        (
            "StringNormalizer",
            {"case_change_action": "lower"},
            "its case_change_action is 'lower'; expected NONE, LOWER",
        ),
        ("RegexFullMatch", {"pattern": "(a"}, r"the regular expression '\(a' is invalid at character 2"),
        ("StringSplit", {"maxsplit": -1}, "maxsplit is -1; expected >= 0"),
        ("TfIdfVectorizer", {"mode": "IF"}, "its mode is 'IF'; expected TF, IDF, TFIDF"),
    ],
)
def test_texts_that_cannot_be_worked_on_so_are_refused(operator, attributes, fault):
    with pytest.raises(ParseError, match=fault):
        load(single(operator, TEXTS, outputs=2 if operator == "StringSplit" else 1, **attributes))


TERMS = {
    "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "ngram_counts": [0, 2],
    "ngram_indexes": [0, 1, 2], "pool_int64s": [1, 2, 1, 2],
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"ngram_counts": [0, 3]}, "which splits a term in a pool of 4 words"),
        ({"ngram_counts": [2, 0]}, "expected increasing indices into 4 words"),
        ({"ngram_indexes": [0, 1]}, "there are 2 ngram_indexes for 3 terms"),
        ({"weights": [1.0]}, "there are 1 weights for 3 terms"),
        ({"max_gram_length": 3}, "max_gram_length is 3, but ngram_counts has 2 numbers"),
        ({"min_gram_length": 3}, "min_gram_length is 3, and max_gram_length 2"),
        ({"pool_strings": ["a"]}, "it needs either pool_int64s or pool_strings"),
    ],
)
def test_terms_that_do_not_fit_their_pool_are_refused(change, fault):
    with pytest.raises(ParseError, match=fault):
        load(single("TfIdfVectorizer", np.array([1, 2]), **{**TERMS, **change}))
    assert run(single("TfIdfVectorizer", np.array([1, 2]), **TERMS), np.array([1, 2]))[0].tolist() == [1, 1, 1]
