"""SavedModels: signatures, functions, and variables in checkpoints."""

import pickle

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BindingError, InvalidArgumentError, ParseError
from interposer.frontends.tensorflow import load, signatures
from tests.damage import damaged_variants
from tests.frontends.tensorflow.graphs import (
    Func,
    Shape,
    Type,
    block,
    checkpoint,
    const,
    entry,
    function,
    graph,
    node,
    number,
    placeholder,
    saved_model,
    varint,
)

RNG = np.random.default_rng(4)
WEIGHTS = RNG.normal(size=(3, 2)).astype(np.float32)
BIAS = RNG.normal(size=2).astype(np.float32)
X = RNG.normal(size=(4, 3)).astype(np.float32)
VALUES = {"layer/_0/kernel/.ATTRIBUTES/VARIABLE_VALUE": WEIGHTS, "layer/_0/bias/.ATTRIBUTES/VARIABLE_VALUE": BIAS}


def written(folder, content, values=None):
    """Write a SavedModel into a folder, with the variables in a checkpoint, and return its path."""
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(content)
    if values is not None:
        (folder / "variables").mkdir()
        index, data = checkpoint(values)
        (folder / "variables" / "variables.index").write_bytes(index)
        (folder / "variables" / "variables.data-00000-of-00001").write_bytes(data)
    return folder


def keras():
    """Return the graph of a dense layer as TensorFlow 2 writes it, with a function that restores the variables."""
    call = function(
        "call",
        {"x": "float32", "kernel": "resource", "bias": "resource"},
        {"out": "dense/Relu:activations:0"},
        node("ReadVariableOp", "dense/MatMul/Read", "kernel", dtype=Type("float32")),
        node("MatMul", "dense/MatMul", "x", "dense/MatMul/Read:value:0"),
        node("ReadVariableOp", "dense/BiasAdd/Read", "bias", dtype=Type("float32")),
        node("BiasAdd", "dense/BiasAdd", "dense/MatMul:product:0", "dense/BiasAdd/Read:value:0"),
        node("Relu", "dense/Relu", "dense/BiasAdd:output:0"),
    )
    restore = function(
        "restore",
        {"file": "str", "a": "resource", "b": "resource"},
        {"done": "file"},
        const("names", np.array(list(VALUES))),
        const("slices", np.array(["", ""])),
        node("RestoreV2", "RestoreV2", "file", "names:output:0", "slices:output:0"),
        node("Identity", "first", "RestoreV2:tensors:0"),
        node("Identity", "second", "RestoreV2:tensors:1"),
        node("AssignVariableOp", "to_a", "a", "first:output:0"),
        node("AssignVariableOp", "to_b", "b", "second:output:0"),
    )
    return graph(
        placeholder("serving_default_x", (None, 3)),
        placeholder("saver_filename", (), "str"),
        node("VarHandleOp", "dense/kernel", dtype=Type("float32"), shape=Shape((3, 2))),
        node("VarHandleOp", "dense/bias", dtype=Type("float32"), shape=Shape((2,))),
        node("StatefulPartitionedCall", "run", "serving_default_x", "dense/kernel", "dense/bias", f=Func("call")),
        node("StatefulPartitionedCall", "restored", "saver_filename", "dense/kernel", "dense/bias", f=Func("restore")),
        functions=[call, restore],
    )


def dense():
    return saved_model(
        keras(), {"x": "serving_default_x:0"}, {"scores": "run:0"}, {"x": (None, 3), "scores": (None, 2)}
    )


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "model", dense(), VALUES)


def test_a_saved_model_reads_its_variables_and_has_the_names_of_its_signature(folder):
    model = ip.load(folder)
    assert list(model.inputs) == ["x"] and list(model.outputs) == ["scores"]
    assert np.allclose(model(x=X), np.maximum(X @ WEIGHTS + BIAS, 0), atol=1e-5)


def test_the_path_of_the_file_in_the_folder_works_too(folder):
    assert np.allclose(ip.load(folder / "saved_model.pb")(X), np.maximum(X @ WEIGHTS + BIAS, 0), atol=1e-5)


def test_layers_of_functions_have_the_names_of_their_nodes(folder):
    names = {layer.name for layer in load(folder).graph}
    assert {"dense/BiasAdd", "dense/Relu"} <= names


def test_values_in_functions_may_be_outputs(folder):
    model = ip.load(folder, ["CpuRef"], outputs=["dense/BiasAdd", "scores"])
    before, scores = model.run([X])
    assert list(model.outputs) == ["dense/BiasAdd", "scores"]
    assert np.allclose(before, X @ WEIGHTS + BIAS) and np.array_equal(scores, np.maximum(before, 0))


def test_an_output_that_a_saved_model_lacks_is_refused_with_similar_names(folder):
    with pytest.raises(BindingError) as caught:
        ip.load(folder, outputs=["dense/BiasAd"])
    assert str(caught.value) == "outputs: the model has no value 'dense/BiasAd'; did you mean 'dense/BiasAdd'?"


def test_a_model_sees_new_values_of_its_variables_when_it_is_loaded_again(folder):
    before = ip.load(folder)(X)
    index, data = checkpoint({key: -value for key, value in VALUES.items()})
    (folder / "variables" / "variables.data-00000-of-00001").unlink()
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(data)
    (folder / "variables" / "variables.index").write_bytes(index)
    after = ip.load(folder)(X)
    assert np.allclose(after, np.maximum(-(X @ WEIGHTS) - BIAS, 0), atol=1e-5) and not np.allclose(after, before)


def test_a_model_of_a_folder_can_be_pickled(folder):
    model = ip.load(folder)
    assert np.array_equal(pickle.loads(pickle.dumps(model))(X), model(X))


def test_signatures_are_chosen_by_name(tmp_path):
    content = graph(placeholder("a", (2,)), node("Relu", "relu", "a"), node("Neg", "neg", "a"))
    one = saved_model(content, {"x": "a:0"}, {"y": "relu:0"}, {}, "positive")
    path = written(tmp_path / "model", one)
    assert signatures(path) == {"positive": (["x"], ["y"])}
    assert ip.load(path)(np.float32([1, -1])).tolist() == [1, 0]
    assert ip.load(path, signature="positive")(np.float32([1, -1])).tolist() == [1, 0]
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(path, signature="positiv")
    assert str(caught.value) == (
        "signature: the model has no signature 'positiv'; did you mean 'positive'? (it has: positive)"
    )


def test_a_model_has_all_of_its_signatures(tmp_path):
    content = graph(placeholder("a", (2,)), node("Relu", "relu", "a"), node("Neg", "neg", "a"))
    first = saved_model(content, {"x": "a:0"}, {"y": "relu:0"}, {})
    taken = block(1, entry("x", block(1, "a:0") + number(2, 1)))
    extra = block(5, entry("negative", taken + block(2, entry("z", block(1, "neg:0")))))
    merged = first[: first.index(b"\x12")]
    body = first[len(merged) :]
    length = 1
    while body[length] >= 0x80:
        length += 1
    inner = body[length + 1 :] + extra
    path = written(tmp_path / "model", merged + b"\x12" + varint(len(inner)) + inner)
    model = ip.load(path)
    assert list(model.signatures) == ["serving_default", "negative"]
    x = np.float32([1, -1])
    assert model.run([x])[0].tolist() == [1, 0]
    assert model.run([x], signature="negative")[0].tolist() == [-1, 1]


def test_variables_of_old_graphs_are_restored_by_their_names(tmp_path):
    content = graph(
        placeholder("x", (None, 3)),
        node("VariableV2", "w", dtype=Type("float32"), shape=Shape((3, 2))),
        node("Identity", "w/read", "w"),
        node("MatMul", "y", "x", "w/read"),
        const("save/Const", np.array("model")),
        const("save/RestoreV2/tensor_names", np.array(["stored"])),
        const("save/RestoreV2/slices", np.array([""])),
        node("RestoreV2", "save/RestoreV2", "save/Const", "save/RestoreV2/tensor_names", "save/RestoreV2/slices"),
        node("Assign", "save/Assign", "w", "save/RestoreV2"),
    )
    data = saved_model(content, {"x": "x:0"}, {"y": "y:0"}, {"x": (None, 3)})
    path = written(tmp_path / "model", data, {"stored": WEIGHTS})
    assert np.allclose(ip.load(path)(X), X @ WEIGHTS, atol=1e-5)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "variables" / "variables.index").unlink(), "variables.index: node"),
        (lambda folder: (folder / "variables" / "variables.index").unlink(), "the file cannot be read"),
        (
            lambda folder: (folder / "variables" / "variables.data-00000-of-00001").write_bytes(
                b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
            ),
            "the file is a pointer of Git LFS, not a model; get the model with: git lfs pull",
        ),
        (
            lambda folder: (folder / "variables" / "variables.index").write_bytes(b"nothing"),
            "the checkpoint's index has no footer of a table",
        ),
        (
            lambda folder: (folder / "variables" / "variables.data-00000-of-00001").write_bytes(b"123"),
            "a tensor reaches beyond its data file",
        ),
        (
            lambda folder: [(folder / "variables" / name).write_bytes(part) for name, part in zip(
                ("variables.index", "variables.data-00000-of-00001"), checkpoint({"other": WEIGHTS}), strict=True
            )],
            "the checkpoint has no tensor 'layer/_0/kernel/.ATTRIBUTES/VARIABLE_VALUE'",
        ),
        (lambda folder: (folder / "saved_model.pb").write_bytes(b""), "the file is empty"),
        (lambda folder: (folder / "saved_model.pb").write_bytes(b"\x08\x01\x12\x02\x0a\x00"), "it has no graph"),
    ],
)  # fmt: skip
def test_incomplete_folders_are_refused(folder, spoil, message):
    spoil(folder)
    with pytest.raises(ParseError) as caught:
        load(folder)
    assert message in str(caught.value) and str(folder) in str(caught.value)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ParseError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the folder holds no saved_model.pb"


def test_a_signature_must_be_named_if_there_is_no_default(tmp_path):
    path = written(tmp_path / "model", number(1, 1) + block(2, block(2, graph(placeholder("x", (2,))))))
    with pytest.raises(ParseError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}: the SavedModel has no signature 'serving_default'; choose one with signature= (it has: none)"
    )


def test_functions_that_call_themselves_are_refused(tmp_path):
    loop = function("f", {"x": "float32"}, {"y": "call:output:0"}, node("PartitionedCall", "call", "x", f=Func("f")))
    content = graph(placeholder("x", (2,)), node("PartitionedCall", "y", "x", f=Func("f")), functions=[loop])
    with pytest.raises(ParseError) as caught:
        load(content)
    assert "functions call each other in more than 32 levels, which is not supported" in str(caught.value)


@pytest.mark.parametrize("which", ["saved_model.pb", "variables/variables.index"])
@pytest.mark.parametrize("count", [120, pytest.param(1250, marks=pytest.mark.slow)])
def test_damaged_files_raise_only_our_errors(tmp_path, which, count):
    path = written(tmp_path / "model", dense(), VALUES)
    whole = (path / which).read_bytes()
    for _, data in damaged_variants(whole, count, seed=7):
        (path / which).unlink()
        (path / which).write_bytes(data)
        try:
            load(path)
        except ip.InterposerError as error:
            assert "cannot be converted" not in str(error), str(error)
