"""Signatures of TFLite files: names of inputs and outputs, several networks in one file; and their metadata."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np
import pytest

from interposer import load
from interposer.cli.main import main
from interposer.core.errors import BindingError, DamagedFileError, InvalidArgumentError, ParseError
from interposer.core.types import UNRANKED, TensorInfo
from interposer.frontends import tflite

pytest.importorskip("flatbuffers", reason="the package flatbuffers, which builds the files, is not installed")

from tests.frontends.tflite.build import code, encode, operator, tensor

X = np.float32([3, 4])


def named(**indices: int) -> list[dict[str, Any]]:
    return [{"name": name, "tensor_index": index} for name, index in indices.items()]


def two_networks(**more: Any) -> dict[str, Any]:
    """Return a model with two signatures: encode(x) = x + x, and decode(b, a) = (b - a, and a)."""
    tensors = [tensor("t0", [2]), tensor("t1", [2], shape_signature=[-1]), tensor("t2", [2])]
    for item in tensors:
        item["shape_signature"] = [-1]
    add = operator([0, 0], [1], opcode_index=0, builtin_options=("AddOptions", {}))
    subtract = operator([1, 0], [2], opcode_index=1, builtin_options=("SubOptions", {}))
    return {
        "version": 3,
        "description": "doubles",
        "operator_codes": [code("ADD"), code("SUB")],
        "buffers": [{}, {"data": b"1.14.0\0\0"}],
        "metadata": [{"name": "min_runtime_version", "buffer": 1}],
        "subgraphs": [
            {"tensors": tensors, "inputs": [0], "outputs": [1], "operators": [add]},
            {"tensors": tensors, "inputs": [0, 1], "outputs": [2], "operators": [subtract]},
        ],
        "signature_defs": [
            {"signature_key": "encode", "inputs": named(x=0), "outputs": named(code=1), "subgraph_index": 0},
            {"signature_key": "decode", "inputs": named(b=1, a=0), "outputs": named(difference=2, a=0),
             "subgraph_index": 1},
        ],
    } | more  # fmt: skip


@pytest.fixture
def model():
    with load(encode(two_networks()), ["CpuRef"]) as result:
        yield result


def test_a_signature_is_called_with_its_own_names(model):
    assert model.run([X])[0].tolist() == [6, 8]
    assert model.run({"b": X, "a": X * 2}, signature="decode")[0].tolist() == [-3, -4]
    assert model(b=X, a=X * 2, signature="decode")["difference"].tolist() == [-3, -4]
    assert model(X, signature="encode").tolist() == [6, 8]


def test_lists_are_in_the_order_of_the_signature(model):
    first, second = model.run([X, X * 3], signature="decode")
    assert (first.tolist(), second.tolist()) == ([-6, -8], [9, 12])


def test_a_signature_is_submitted_and_takes_names_of_outputs(model):
    run = model.submit(b=X, a=X, signature="decode")
    assert run.result()[0].tolist() == [0, 0]
    assert model({"b": X, "a": X}, "difference", signature="decode").tolist() == [0, 0]


def test_signatures_are_listed_with_their_inputs_and_outputs(model):
    assert list(model.signatures) == ["encode", "decode"]
    decode = model.signatures["decode"]
    assert {name: str(info.shape) for name, info in decode.inputs.items()} == {"b": "[b_0]", "a": "[a_0]"}
    assert decode.outputs == {"difference": TensorInfo(UNRANKED), "a": TensorInfo(UNRANKED)}


def test_a_model_is_loaded_for_a_signature():
    with load(encode(two_networks()), ["CpuRef"], signature="decode", shapes={"a": (2,)}) as model:
        assert list(model.inputs) == ["b", "a"]
        assert model.inputs["a"] == TensorInfo((2,))
        assert model(b=X, a=X)["difference"].tolist() == [0, 0]
    network = tflite.load(encode(two_networks()), signature="decode")
    assert [layer.name for layer in network.inputs.values()] == ["b", "a"]
    assert [layer.name for layer in network.outputs.values()] == ["difference", "a_1"]


def test_a_signature_that_does_not_exist_is_named(model):
    message = "signature: the model has no signature 'decod'; did you mean 'decode'? (it has: encode, decode)"
    with pytest.raises(InvalidArgumentError) as caught:
        model.run([X], signature="decod")
    assert str(caught.value) == message
    with pytest.raises(InvalidArgumentError) as caught:
        load(encode(two_networks()), ["CpuRef"], signature="decod")
    assert str(caught.value) == message


def test_a_format_without_signatures_refuses_one():
    text = b'graph "g" {\n %x = Input : float32[1]\n Output %x as "y"\n}'
    with pytest.raises(InvalidArgumentError) as caught:
        load(text, ["CpuRef"], signature="a")
    names = "TFLite files, TensorFlow models and saved networks"
    assert str(caught.value) == f"signature= is for {names}; this is a model of format 'text'"
    model = load(text, ["CpuRef"])
    assert model.signatures == {}
    with pytest.raises(InvalidArgumentError, match=r"the model has no signature 'a' \(it has: none\)"):
        model.run([X[:1]], signature="a")


def test_errors_of_a_call_name_the_inputs_of_the_signature(model):
    with pytest.raises(BindingError) as caught:
        model.run({"b": X, "c": X}, signature="decode")
    assert str(caught.value) == "the model has no input 'c'"


def test_a_signature_whose_input_is_no_input_of_its_subgraph_is_refused():
    wrong = {"signature_key": "s", "inputs": named(x=1), "outputs": named(y=1), "subgraph_index": 0}
    data = encode(two_networks(signature_defs=[wrong]))
    assert load(data, ["CpuRef"])(X).tolist() == [6, 8]
    with pytest.raises(ParseError) as caught:
        load(data, ["CpuRef"], signature="s")
    assert str(caught.value) == "signature 's': its input 'x' is tensor 1, which is no input of subgraph 0"


def test_a_pickled_model_has_the_signatures(model):
    other = pickle.loads(pickle.dumps(model))
    assert other(b=X, a=X, signature="decode")["difference"].tolist() == [0, 0]


def test_the_command_line_takes_a_signature(tmp_path, capsys):
    path = tmp_path / "two.tflite"
    path.write_bytes(encode(two_networks()))
    assert main(["run", str(path), "--signature", "decode", "--random", "--backends", "CpuRef"]) == 0
    assert "difference" in capsys.readouterr().out
    assert main(["explain", str(path), "--signature", "decod", "--backends", "CpuRef"]) != 0
    assert "did you mean 'decode'" in capsys.readouterr().err


def with_archive(data: bytes, files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a model file with a zip archive at its end, as metadata writers make it."""
    target = io.BytesIO(data)
    target.seek(0, io.SEEK_END)
    with zipfile.ZipFile(target, "a", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def test_metadata_and_files_inside_are_read(model):
    assert model.metadata.description == "doubles"
    assert dict(model.metadata.entries) == {"min_runtime_version": b"1.14.0\0\0"}
    assert dict(model.metadata.files) == {}
    data = with_archive(encode(two_networks()), {"labels.txt": b"cat\ndog\n", "more/x.txt": b""})
    other = load(data, ["CpuRef"])
    assert other(X).tolist() == [6, 8]
    assert dict(other.metadata.files) == {"labels.txt": b"cat\ndog\n", "more/x.txt": b""}


@pytest.mark.parametrize(("compression", "offset"), [(zipfile.ZIP_DEFLATED, 0), (zipfile.ZIP_LZMA, 4)])
def test_a_damaged_archive_leaves_the_model_usable(compression, offset):
    data = bytearray(with_archive(encode(two_networks()), {"labels.txt": b"cat\ndog\n" * 9}, compression))
    start = data.index(b"labels.txt") + len("labels.txt") + offset
    data[start : start + 4] = b"\xff\xff\xff\xff"
    model = load(bytes(data), ["CpuRef"])
    assert model(X).tolist() == [6, 8]
    with pytest.raises(DamagedFileError, match=r"archive, file 'labels\.txt': it cannot be unpacked"):
        model.metadata.files["labels.txt"]


def test_a_file_in_the_archive_may_have_lost_its_name():
    data = bytearray(with_archive(encode(two_networks()), {"labels.txt": b"cat\ndog\n"}))
    data[data.rindex(b"labels.txt")] = 0
    files = load(bytes(data), ["CpuRef"]).metadata.files
    assert list(files) == [""]
    with pytest.raises(DamagedFileError, match=r"archive, file '': it cannot be unpacked"):
        files[""]


def plain(inputs: list[int], outputs: list[int], **signature: list[int]) -> bytes:
    """Return a file that adds tensor 0 to itself, with these inputs and outputs."""
    graph = {
        "tensors": [tensor("x", [2], **signature), tensor("y", [2])],
        "inputs": inputs,
        "outputs": outputs,
        "operators": [operator([0, 0], [1], opcode_index=0, builtin_options=("AddOptions", {}))],
    }
    return encode({"version": 3, "operator_codes": [code("ADD")], "buffers": [{}], "subgraphs": [graph]})


def test_a_model_without_outputs_runs_and_returns_nothing():
    with load(plain([0], []), ["CpuRef"]) as model:
        assert model.run([X]) == []
        assert model.outputs == {}


def test_a_tensor_that_is_an_input_twice_has_the_value_that_is_given_last():
    with load(plain([0, 0], [1, 1]), ["CpuRef"]) as model:
        assert list(model.inputs) == ["x", "x_1"]
        assert [array.tolist() for array in model.run([X * 0, X])] == [[6, 8], [6, 8]]


@pytest.mark.parametrize("signature", [[-1, 2], [2, 2, 2]])
def test_a_shape_signature_of_another_rank_is_ignored(signature):
    assert load(plain([0], [1], shape_signature=signature), ["CpuRef"]).inputs["x"] == TensorInfo((2,))


def test_a_subgraph_is_read_by_its_number(tmp_path):
    data = encode(two_networks())
    with load(data, ["CpuRef"], subgraph=1) as model:
        assert list(model.inputs) == ["t0", "t1"]
        assert model.run([X, X * 3])[0].tolist() == [6, 8]
        assert pickle.loads(pickle.dumps(model)).run([X, X * 3])[0].tolist() == [6, 8]
    with load(data, ["CpuRef"], subgraph=1, inputs=["t1", "t0"]) as model:
        assert model.run([X * 3, X])[0].tolist() == [6, 8]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"subgraph": 2}, "subgraph: the file has no subgraph 2; it has 2, numbered from 0"),
        ({"subgraph": -1}, "subgraph: the file has no subgraph -1; it has 2, numbered from 0"),
        ({"subgraph": "1"}, "subgraph must be the index of one, not '1'"),
        ({"subgraph": 1, "signature": "encode"}, "subgraph 1 and the signature 'encode' are given; name one of them"),
    ],
)
def test_a_subgraph_that_cannot_be_read_is_refused(arguments, message):
    with pytest.raises(InvalidArgumentError) as error:
        load(encode(two_networks()), ["CpuRef"], **arguments)
    assert str(error.value).startswith(message)


def test_only_tflite_files_have_subgraphs():
    with pytest.raises(InvalidArgumentError, match="subgraph= is for TFLite files; this is a model of format 'text'"):
        load(b'graph "g" { }', ["CpuRef"], subgraph=1)
