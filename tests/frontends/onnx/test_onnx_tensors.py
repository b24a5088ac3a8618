"""Tensors in a file: every type in every form, and data in files beside the model."""

import os

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from interposer.core.errors import ParseError
from interposer.frontends.onnx import load
from tests.frontends.onnx.models import model, onnx_type, ours

TYPES = {
    "FLOAT": np.float32, "DOUBLE": np.float64, "FLOAT16": np.float16, "BFLOAT16": ml_dtypes.bfloat16,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16,
    "UINT32": np.uint32, "UINT64": np.uint64, "BOOL": np.bool_, "INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4,
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn, "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2, "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "INT2": ml_dtypes.int2, "UINT2": ml_dtypes.uint2, "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "FLOAT6E2M3": ml_dtypes.float6_e2m3fn, "FLOAT6E3M2": ml_dtypes.float6_e3m2fn,
}  # fmt: skip


def value_of(tensor):
    """The array that a model with the tensor as its only constant gives."""
    tensor.name = "y"
    value = model([], {}, ["y"])
    value.graph.initializer.append(tensor)
    return ours(value)[0]


def error_of(tensor):
    with pytest.raises(ParseError) as caught:
        value_of(tensor)
    return str(caught.value)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(3, 1), (4,), (), (0, 2)])
@pytest.mark.parametrize("raw", [True, False])
def test_a_tensor_of_any_type_is_read_as_bytes_and_as_numbers(name, shape, raw):
    period, first = (4, 2) if name.endswith("INT2") else (7, 3)
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape) % period - (0 if name[0] in "UB" else first)
    numbers = numbers.astype(np.float32 if "FLOAT" in name else np.int64).astype(TYPES[name])
    kind = onnx_type(name)
    tensor = numpy_helper.from_array(numbers) if raw else helper.make_tensor("y", kind, shape, numbers.ravel())
    result = value_of(tensor)
    assert (result.dtype, result.shape) == (numbers.dtype, shape)
    np.testing.assert_array_equal(result.astype(np.float64), numbers.astype(np.float64))


def test_powers_of_two_without_sign_are_read():
    numbers = np.float32([0.25, 1, 2, 2**100]).astype(ml_dtypes.float8_e8m0fnu)
    assert value_of(numpy_helper.from_array(numbers)).tolist() == [0.25, 1, 2, 2**100]


@pytest.mark.parametrize(
    ("kind", "count", "length", "needed"),
    [("INT2", 5, 1, 2), ("FLOAT4E2M1", 3, 3, 2), ("FLOAT6E2M3", 3, 2, 3), ("FLOAT6E3M2", 5, 5, 4)],
)
def test_packed_bytes_are_as_many_as_the_elements_need(kind, count, length, needed):
    tensor = TensorProto(dims=[count], data_type=onnx_type(kind), raw_data=bytes(length))
    assert f"holds {length} bytes of data; its type and shape ask for {needed}" in error_of(tensor)


def test_texts_are_read():
    assert value_of(helper.make_tensor("y", TensorProto.STRING, (2, 1), ["a", "ä"])).tolist() == [["a"], ["ä"]]
    assert value_of(helper.make_tensor("y", TensorProto.STRING, (0,), [])).shape == (0,)


def test_bytes_that_are_neither_0_nor_1_are_true():
    tensor = TensorProto(dims=[3], data_type=TensorProto.BOOL, raw_data=b"\x00\x01\x80")
    assert value_of(tensor).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"dims": [3], "raw_data": b"\0" * 8}, "a tensor holds 8 bytes of data; its type and shape ask for 12"),
        ({"dims": [2**40], "raw_data": b"\0" * 8}, "ask for 4398046511104"),
        ({"dims": [2**62, 2**62, 0], "raw_data": b""}, "it is too large"),
        ({"dims": [-1], "raw_data": b""}, "a tensor has the shape [-1]; a dimension must not be negative"),
        ({"dims": [1] * 17, "raw_data": b"\0" * 4}, "a tensor has rank 17; ranks 0 to 16 are supported"),
        ({"dims": [2], "float_data": [1.0]}, "a tensor has 1 elements in float_data; its type and shape ask for 2"),
        ({"dims": [2**60]}, "it is too large"),
        ({"dims": [2**50]}, "a tensor has 0 elements in float_data"),
        ({"dims": [1], "int64_data": [1]}, "a tensor has 0 elements in float_data; its type and shape ask for 1"),
        ({"dims": [1], "data_type": 0}, "tensors of type 0 are not supported"),
        ({"dims": [1], "data_type": TensorProto.COMPLEX64}, "tensors of type complex64 are not supported"),
        (
            {"dims": [1], "data_type": TensorProto.STRING, "raw_data": b"x"},
            "a tensor of strings must not be given as bytes",
        ),
        ({"dims": [1], "data_type": TensorProto.STRING, "string_data": [b"\xff"]}, "a string is not UTF-8: b'\\xff'"),
        ({"dims": [1], "segment": TensorProto.Segment(begin=0, end=1)}, "tensors in segments are not supported"),
    ],
)
def test_a_tensor_that_lies_about_its_data_is_refused_before_anything_is_allocated(fields, text):
    result = error_of(TensorProto(**{"data_type": TensorProto.FLOAT} | fields))
    assert result.startswith("initializer 'y': ")
    assert text in result


# --- data in files beside the model -----------------------------------------------------------------------------------

DATA = np.arange(6, dtype=np.float32).reshape(2, 3)


def external(folder, dims=(2, 3), **entries):
    """The path of a model whose only constant lies in another file, as its entries say."""
    tensor = TensorProto(name="y", dims=dims, data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    arguments = model([], {}, ["y"])
    arguments.graph.initializer.append(tensor)
    path = folder / "net.onnx"
    path.write_bytes(arguments.SerializeToString())
    return path


def constant_of(path):
    [layer] = [layer for layer in load(path) if layer.kind == "Constant"]
    return layer.op.value


def test_data_beside_the_model_is_mapped(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"head" + DATA.tobytes() + b"tail")
    result = constant_of(external(tmp_path, location="weights.bin", offset=4, length=24))
    np.testing.assert_array_equal(result, DATA)
    while isinstance(result, np.ndarray) and result.base is not None:
        result = result.base
    assert not isinstance(result, bytes)
    np.testing.assert_array_equal(constant_of(external(tmp_path, location="./weights.bin", offset=4)), DATA)
    np.testing.assert_array_equal(constant_of(external(tmp_path, location="weights.bin", offset=4, length=0)), DATA)


def test_data_that_lies_at_odd_places_and_no_data_at_all(tmp_path):
    (tmp_path / "weights.bin").write_bytes(b"x" + DATA.tobytes())
    np.testing.assert_array_equal(constant_of(external(tmp_path, location="weights.bin", offset=1)), DATA)
    (tmp_path / "empty.bin").write_bytes(b"")
    assert constant_of(external(tmp_path, (0, 3), location="empty.bin")).shape == (0, 3)


def test_what_onnx_itself_writes_is_read(tmp_path):
    value = model([], {}, ["y"], {"y": np.arange(1000, dtype=np.float32)})
    onnx.save(value, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin")
    np.testing.assert_array_equal(constant_of(tmp_path / "net.onnx"), np.arange(1000))


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"location": "../secret"}, "external data in '../secret', which leads out of the model's folder"),
        ({"location": "sub/../../secret"}, "which leads out of the model's folder"),
        ({"location": "/etc/passwd"}, "external data in '/etc/passwd'; expected a path relative to the model's folder"),
        ({"location": "..\\secret"}, "expected a path relative to the model's folder"),
        ({"location": ""}, "external data in ''; expected a path relative to the model's folder"),
        ({}, "external data in ''; expected a path relative to the model's folder"),
        ({"location": "link"}, "external data in 'link', which leads out of the model's folder"),
        ({"location": "absent"}, "the file 'absent' with external data cannot be read: No such file or directory"),
        ({"location": "folder"}, "external data in 'folder', which is no regular file"),
        ({"location": "pipe"}, "external data in 'pipe', which is no regular file"),
        ({"location": "w", "offset": 8}, "'w' is truncated or damaged: it has 24 bytes, but the data ends at 32"),
        ({"location": "w", "offset": "-8"}, "external data has the offset '-8'; expected a whole number of bytes"),
        ({"location": "w", "offset": "9" * 40}, "expected a whole number of bytes"),
        ({"location": "w", "length": 20}, "external data of 20 bytes; the tensor's type and shape ask for 24"),
        ({"location": "w\0x"}, "expected a path relative to the model's folder"),
    ],
)
def test_data_that_is_not_where_it_may_be_is_refused(tmp_path, entries, text):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(DATA.tobytes())
    (folder / "w").write_bytes(DATA.tobytes())
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    path = external(folder, **entries)
    with pytest.raises(ParseError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: initializer 'y': ")
    assert text in str(caught.value)


def test_a_model_that_is_a_link_may_have_its_data_beside_the_file_it_links_to(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    external(blobs, location="net.data").rename(blobs / "123")
    (blobs / "456").write_bytes(DATA.tobytes())
    (snapshot / "net.onnx").symlink_to(blobs / "123")
    (snapshot / "net.data").symlink_to(blobs / "456")
    np.testing.assert_array_equal(constant_of(snapshot / "net.onnx"), DATA)


def test_bytes_have_no_folder(tmp_path):
    path = external(tmp_path, location="w")
    with pytest.raises(ParseError) as caught:
        load(path.read_bytes())
    assert str(caught.value) == (
        "initializer 'y': data lies in the file 'w' beside the model, which was not given as a path"
    )
