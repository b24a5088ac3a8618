"""Lookup tables: their content comes from nodes of the graph, from functions, and from files."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import ParseError, UnsupportedOperatorError
from interposer.frontends.tensorflow import load
from tests.frontends.tensorflow.graphs import Func, Shape, Type, const, function, graph, node, placeholder, saved_model

WORDS = np.array(["cat", "dog", "bird"])
KINDS = {"key_dtype": Type("str"), "value_dtype": Type("int64")}
QUERY = np.array(["dog", "cow", "cat"], object)


def lookup(*writers):
    return [
        node("HashTableV2", "table", **KINDS),
        placeholder("word", (None,), "str"),
        const("unknown", np.int64(-1)),
        node("LookupTableFindV2", "y", "table", "word", "unknown", Tin=Type("str"), Tout=Type("int64")),
        *writers,
    ]


def test_the_content_of_a_table_is_constant():
    writers = [
        const("keys", WORDS), const("values", np.int64([10, 20, 30])),
        node("Identity", "handle", "table"), node("Identity", "same_keys", "keys"),
        node("LookupTableImportV2", "import", "handle", "same_keys", "values"),
        node("LookupTableSizeV2", "size", "table"),
    ]  # fmt: skip
    found, size = ip.load(load(graph(*lookup(*writers)), outputs=["y", "size"]), ["CpuRef"]).run([QUERY])
    assert (found.tolist(), size.tolist()) == ([20, -1, 10], 3)
    assert list(load(graph(*lookup(*writers))).graph.outputs)[0].name == "y"


def initialized():
    """Return a graph in which a function initializes the table, as TensorFlow 2 writes it."""
    body = function(
        "fill",
        {"handle": "resource", "keys": "str", "values": "int64"},
        {"done": "keys"},
        node("LookupTableImportV2", "import", "handle", "keys", "values"),
    )
    writers = [
        const("keys", WORDS), const("values", np.int64([7, 8, 9])),
        node("StatefulPartitionedCall", "init", "table", "keys", "values", f=Func("fill")),
    ]  # fmt: skip
    return graph(*lookup(*writers), functions=[body])


def test_a_function_may_initialize_a_table():
    assert ip.load(load(initialized(), outputs=["y"]), ["CpuRef"]).run([QUERY])[0].tolist() == [8, -1, 7]


def with_file(folder, text, **attributes):
    """Write a SavedModel whose table is a text file among its assets, and return its path."""
    writers = [
        const("path", np.array("/elsewhere/words.txt")),
        node("InitializeTableFromTextFileV2", "import", "table", "path", **attributes),
    ]
    content = saved_model(graph(*lookup(*writers)), {"word": "word:0"}, {"y": "y:0"}, {}, dtype="str")
    (folder / "assets").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(content)
    if text is not None:
        (folder / "assets" / "words.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("text", "attributes", "expected"),
    [
        ("cat\ndog\nbird\n", {"key_index": -2, "value_index": -1}, [1, -1, 0]),
        ("cat 5\ndog 6", {"key_index": 0, "value_index": 1, "delimiter": " "}, [6, -1, 5]),
        ("a\ndog\ncat\ncow\n", {"key_index": -2, "value_index": -1, "vocab_size": 3}, [1, -1, 2]),
    ],
)
def test_a_table_may_be_a_file_among_the_assets(text, attributes, expected, tmp_path):
    network = load(with_file(tmp_path / "model", text, **attributes), shapes={"word": (3,)})
    assert ip.load(network, ["CpuRef"]).run([QUERY])[0].tolist() == expected


def with_variable(folder, *writers, file="words.txt"):
    """Write a SavedModel as TensorFlow 2 does: a variable holds the path of the file, and a function reads the file."""
    body = function(
        "fill",
        {"path": "str", "handle": "resource"},
        {"done": "path"},
        node("InitializeTableFromTextFileV2", "import", "handle", "path", key_index=-2, value_index=-1),
    )
    nodes = [
        placeholder("asset_path", (), "str"),
        node("VarHandleOp", "variable", dtype=Type("str"), shape=Shape(())),
        node("ReadVariableOp", "path", "variable", dtype=Type("str")),
        node("StatefulPartitionedCall", "init", "path", "table", f=Func("fill")),
        *writers,
    ]
    content = saved_model(
        graph(*lookup(*nodes), functions=[body]), {"word": "word:0"}, {"y": "y:0"}, {}, dtype="str",
        assets={"asset_path:0": file},
    )  # fmt: skip
    (folder / "assets").mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(content)
    (folder / "assets" / "words.txt").write_text("cat\ndog\nbird\n", encoding="utf-8")
    return folder


ASSIGNED = node("AssignVariableOp", "assign", "variable", "asset_path")


@pytest.mark.parametrize("file", ["words.txt", "../../words.txt"])
def test_a_variable_may_hold_the_path_of_an_asset(file, tmp_path):
    network = load(with_variable(tmp_path / "model", ASSIGNED, file=file), shapes={"word": (3,)})
    assert ip.load(network, ["CpuRef"]).run([QUERY])[0].tolist() == [1, -1, 0]


@pytest.mark.parametrize("writers", [[], [node("AssignVariableOp", "assign", "variable", "path")]])
def test_a_table_whose_path_nothing_determines_is_refused(writers, tmp_path):
    with pytest.raises(UnsupportedOperatorError, match="the content of the table 'table' is no constant"):
        load(with_variable(tmp_path / "model", *writers), shapes={"word": (3,)})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "the file 'words.txt' of a table cannot be read"),
        ("cat\n", "it cannot be converted"),
    ],
)
def test_a_file_that_is_missing_or_has_too_few_columns_is_refused(text, message, tmp_path):
    with pytest.raises(ParseError, match=message):
        load(with_file(tmp_path / "model", text, key_index=0, value_index=1), shapes={"word": (3,)})


def test_a_table_that_nothing_initializes_is_refused():
    with pytest.raises(UnsupportedOperatorError) as caught:
        load(graph(*lookup()))
    assert str(caught.value) == (
        "operators that are not supported:\n"
        "  - 1 x LookupTableFindV2 (node 'y': no constants initialize the table 'table')"
    )
