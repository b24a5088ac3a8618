"""Bodies of HTTP requests and responses, and the errors for damaged ones."""

from __future__ import annotations

import json
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer.core.types import integer_range as range_of
from interposer.serving.protocol import InferRequest, InferResponse, RequestedOutput, ServingError, json_text
from interposer.serving.protocol.datatypes import data_type
from interposer.serving.protocol.http_messages import read_infer_request, write_response
from interposer.serving.protocol.messages import OutputTensor
from interposer.serving.protocol.tensors import from_bytes, from_contents, from_json, to_bytes

TYPES = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64, "UINT8": np.uint8,
    "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32,
    "FP64": np.float64, "BF16": ml_dtypes.bfloat16,
}  # fmt: skip


def body(*inputs: dict[str, Any], tail: bytes = b"", **fields: Any) -> tuple[bytes, int]:
    head = json.dumps({"inputs": list(inputs), **fields}).encode()
    return head + tail, len(head)


def tensor(datatype: str, shape: list[int], data: Any = None, **parameters: Any) -> dict[str, Any]:
    result: dict[str, Any] = {"name": "x", "datatype": datatype, "shape": shape}
    if data is not None:
        result["data"] = data
    return result | ({"parameters": parameters} if parameters else {})


def read(*inputs: dict[str, Any], tail: bytes = b"", **fields: Any) -> InferRequest:
    data, length = body(*inputs, tail=tail, **fields)
    return read_infer_request(data, length if tail else None)


@pytest.mark.parametrize("datatype", TYPES)
def test_a_binary_tensor_of_each_type_is_read_and_written(datatype):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(TYPES[datatype])
    request = read(tensor(datatype, [2, 3], binary_data_size=array.nbytes), tail=array.tobytes())
    [tensor_read] = request.inputs
    np.testing.assert_array_equal(tensor_read.array, array)
    assert tensor_read.array.dtype == array.dtype
    parts, length = write_response(InferResponse("m", "1", (OutputTensor("y", datatype, tensor_read.array),)), True)
    assert parts[1] == array.tobytes()
    assert length == len(parts[0])
    assert json.loads(parts[0])["outputs"] == [
        {"name": "y", "datatype": datatype, "shape": [2, 3], "parameters": {"binary_data_size": array.nbytes}}
    ]


@pytest.mark.parametrize("datatype", sorted(TYPES.keys() - {"FP16", "BF16"}))
@pytest.mark.parametrize("is_nested", [True, False])
def test_a_tensor_of_json_numbers_is_read_and_written(datatype, is_nested):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(TYPES[datatype])
    data = array.tolist() if is_nested else array.reshape(-1).tolist()
    [tensor_read] = read(tensor(datatype, [2, 3], data)).inputs
    np.testing.assert_array_equal(tensor_read.array, array)
    assert tensor_read.array.dtype == array.dtype
    parts, length = write_response(
        InferResponse("m", "1", (OutputTensor("y", datatype, tensor_read.array),), "7"), False
    )
    assert (len(parts), length) == (1, None)
    assert json.loads(parts[0]) == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [{"name": "y", "datatype": datatype, "shape": [2, 3], "data": array.reshape(-1).tolist()}],
    }


NUMBERS = {
    "BOOL": [True, False], "INT8": [-128, 127], "UINT8": [0, 255], "INT16": [-(1 << 15)], "UINT16": [(1 << 16) - 1],
    "INT32": [-(1 << 31)], "UINT32": [(1 << 32) - 1], "INT64": [-(1 << 63), (1 << 63) - 1], "UINT64": [(1 << 64) - 1],
    "FP32": [0.1, -0.0, 3.4028234663852886e38, 1e-45, 1 / 3, 16777216], "FP64": [0.1, 5e-324, 1.7e308, 1],
}  # fmt: skip


@pytest.mark.parametrize("has_orjson", [True, False])
@pytest.mark.parametrize("datatype", sorted(NUMBERS))
def test_the_extreme_values_of_each_type_survive_json(monkeypatch, datatype, has_orjson):
    if not has_orjson:
        monkeypatch.setattr(json_text, "orjson", None)
    elif json_text.orjson is None:
        pytest.skip("the package orjson is not installed")
    array = np.array(NUMBERS[datatype], TYPES[datatype])
    [tensor_read] = read(tensor(datatype, [len(array)], array.tolist())).inputs
    assert tensor_read.array.tobytes() == array.tobytes()
    [text], _ = write_response(InferResponse("m", "1", (OutputTensor("y", datatype, array),)), False)
    [tensor_again] = read(tensor(datatype, [len(array)], json.loads(text)["outputs"][0]["data"])).inputs
    assert tensor_again.array.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "text",
    [
        '{"inputs": [], "id": "\\ud800"}',
        '\ufeff{"inputs": [], "parameters": {"a": 1e400}}',
        '{"inputs": [], "parameters": {"a": 123456789012345678901234567890}}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [123456789012345678901234567890]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "UINT64", "data": [18446744073709551616]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "INT8", "data": [-0]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [-0]}]}',
        '{"inputs": [{"name": "x", "shape": [1], "datatype": "FP64", "data": [1e400]}]}',
        '{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "UINT8", "data": [[1, 2], [3, 256]]}]}',
        '{"inputs": [{"name": "x", "shape": [2, 2], "datatype": "UINT8", "data": [[1, 2], [true, 4]]}]}',
        '{"inputs": [{"name": "x", "shape": [99999999999999999999], "datatype": "UINT8", "data": [1]}]}',
        '{"inputs": [1,]}',
        '{"inputs": [], "inputs": {}}',
        "\ud800",
    ],
)
def test_orjson_changes_neither_requests_nor_messages(monkeypatch, text):
    def outcome() -> str:
        try:
            return repr(read_infer_request(text.encode("utf-8", "surrogatepass")))
        except ServingError as error:
            return str(error)

    quick = outcome()
    monkeypatch.setattr(json_text, "orjson", None)
    assert quick.replace("1.2345678901234568e+29", "123456789012345678901234567890") == outcome()


def test_an_answer_with_half_of_a_surrogate_pair_is_written():
    output = OutputTensor("y", "BYTES", np.array(["\ud800", "ü"], object))
    [text], _ = write_response(InferResponse("m", "1", (output,)), False)
    assert json.loads(text)["outputs"][0]["data"] == ["\ud800", "ü"]


def test_strings_are_read_and_written_in_both_forms():
    texts = np.array([["", "two words"], ["übel", "\x00"]], object)
    packed = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts.reshape(-1))
    for request in (
        read(tensor("BYTES", [2, 2], texts.tolist())),
        read(tensor("BYTES", [2, 2], binary_data_size=len(packed)), tail=packed),
    ):
        assert request.inputs[0].array.tolist() == texts.tolist()
    assert to_bytes(texts) == packed
    assert from_contents("x", "BYTES", (1,), [b"abc"]).tolist() == ["abc"]


def test_tensors_without_elements_and_without_dimensions_are_read():
    assert read(tensor("FP32", [2, 0], [[], []])).inputs[0].array.shape == (2, 0)
    assert read(tensor("FP32", [0, 3], [])).inputs[0].array.shape == (0, 3)
    assert read(tensor("FP32", [], [5])).inputs[0].array.shape == ()
    assert from_bytes("x", "INT8", (0, 1 << 40), memoryview(b"")).shape == (0, 1 << 40)


def test_a_tensor_that_is_not_aligned_in_the_body_is_copied():
    array = np.arange(4, dtype=np.float64)
    copied = from_bytes("x", "FP64", (4,), memoryview(b"#" + array.tobytes())[1:])
    assert copied.flags.aligned
    np.testing.assert_array_equal(copied, array)


def test_the_other_fields_of_a_request_are_read():
    outputs = [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z", "parameters": {"classification": 3}}]
    request = read(tensor("INT8", [1], [1]), id="a", parameters={"explain": True, "timeout": 5}, outputs=outputs)
    assert (request.id, request.parameters) == ("a", {"explain": True, "timeout": 5})
    assert request.outputs == (RequestedOutput("y", True), RequestedOutput("z", None, 3))


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (tensor("FP33", [1], [1]), "the data type 'FP33' is unknown; did you mean 'FP32'?"),
        (tensor("FP32", "12", [1]), "input 'x' has a shape that is not a list of whole numbers"),
        (tensor("FP32", [True], [1]), "input 'x' has a shape that is not a list of whole numbers"),
        (tensor("FP32", [-1], [1]), "input 'x' has the shape [-1]; sizes must not be negative"),
        (tensor("FP32", [1] * 17, [1]), "input 'x' has 17 dimensions; at most 16 are possible"),
        (tensor("FP32", [1 << 40, 1 << 40], [1]), "input 'x' has a shape with too many elements"),
        (tensor("FP32", [1 << 30], [1]), "input 'x' has 1 elements; the shape [1073741824] needs 1073741824"),
        (tensor("FP32", [2], [1, "a"]), "input 'x' has elements that are not numbers, as FP32 needs"),
        (tensor("INT8", [1], [1.0]), "input 'x' has elements that are not integers, as INT8 needs"),
        (tensor("INT8", [1], [True]), "input 'x' has elements that are not integers, as INT8 needs"),
        (tensor("BOOL", [1], [1]), "input 'x' has elements that are not true and false, as BOOL needs"),
        (tensor("INT8", [2], [1, 128]), "input 'x' has the element 128; INT8 has -128 to 127"),
        (tensor("UINT64", [1], [1 << 70]), "input 'x' has the element of more than 64 bits; UINT64 has 0 to "
         "18446744073709551615"),
        (tensor("FP32", [1], [1e39]), "input 'x' has an element that is too large for FP32, or not a number; send "
         "infinities and NaN as binary data"),
        (tensor("FP64", [1], [10**400]), "input 'x' has an element that is too large for FP64"),
        (tensor("FP16", [1], [1]), "input 'x' is FP16, which JSON cannot express; send it as binary data"),
        (tensor("FP32", [2, 2], [[1], [2, 3]]), "input 'x' has lists that do not have the shape [2, 2]"),
        (tensor("FP32", [2, 2], [[[1, 2]], [[3, 4]]]), "input 'x' has lists that do not have the shape [2, 2]"),
        (tensor("FP32", [1], 1), "input 'x' has data that is not a list"),
        (tensor("BYTES", [1], ["\ud800"]), "input 'x' has a string with half of a surrogate pair"),
        (tensor("FP32", [1]), "input 'x' needs exactly one of data, binary_data_size and shared_memory_region"),
        (tensor("FP32", [1], [1], binary_data_size=4),
         "input 'x' needs exactly one of data, binary_data_size and shared_memory_region"),
        (tensor("FP32", [1], binary_data_size=4), "input 'x' has binary_data_size 4, but 0 bytes are left in the body"),
        (tensor("FP32", [1], binary_data_size=-4), "the binary_data_size of input 'x' is not a whole number from 0 on"),
        (tensor("FP32", [1], shared_memory_region="r", shared_memory_byte_size=4),
         "this server does not offer shared memory"),
        (tensor("FP32", [1], [1]) | {"parameters": {"a": [1]}},
         "the parameters of input 'x' are not an object of strings, numbers and truth values"),
    ],
)  # fmt: skip
def test_a_wrong_input_is_refused_with_a_sentence(inputs, text):
    with pytest.raises(ServingError) as caught:
        read(inputs)
    assert str(caught.value) == text
    assert caught.value.status.http in (400, 403)


@pytest.mark.parametrize(
    ("datatype", "shape", "tail", "text"),
    [
        ("FP32", [2], bytes(7), "input 'x' has 7 bytes; FP32 with the shape [2] needs 8"),
        ("BOOL", [2], b"\1\2", "input 'x' has bytes other than 0 and 1; BOOL has only these"),
        ("BYTES", [2], bytes(7), "input 'x' has 7 bytes, too few for the lengths of 2 strings"),
        ("BYTES", [1], b"\xff\xff\xff\xffab", "input 'x' has a string of 4294967295 bytes, of which only 2 are there"),
        ("BYTES", [1], b"\1\0\0\0\xff", "input 'x' has a string that is not UTF-8"),
        ("BYTES", [1], b"\1\0\0\0ab", "input 'x' has 1 bytes after its 1 strings"),
        ("BYTES", [2], b"\4\0\0\0\0\0\0\0", "input 'x' ends before its 2 strings"),
    ],
)
def test_wrong_bytes_are_refused_with_a_sentence(datatype, shape, tail, text):
    with pytest.raises(ServingError) as caught:
        read(tensor(datatype, shape, binary_data_size=len(tail)), tail=tail)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("data", "length", "text"),
    [
        (b"", None, "the request is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[]", None, "the request is not a JSON object"),
        (b"\xff", None, "the request is not JSON"),
        (b'{"inputs": [' + b"[" * 100_000, None, "the request has lists nested more than 64 deep"),
        (b'{"id": ' + b"9" * 5000 + b"}", None, "the request is not JSON"),
        (b'{"inputs": NaN}', None, "the request has NaN, which JSON does not have; send it as binary data"),
        (b'{"inputs": {}}', None, "'inputs' is not a list of objects"),
        (b'{"inputs": [{}]}', None, "'name' is not a string"),
        (b'{"id": 1, "inputs": []}', None, "'id' is not a string"),
        (b'{"inputs": [{"name": "a"}, {"name": "a"}]}', None, "'inputs' has 'a' more than once"),
        (b'{"outputs": [{"name": "a", "parameters": {"binary_data": 1}}]}', None,
         "binary_data of output 'a' is neither true nor false"),
        (b"{}", 3, "Inference-Header-Content-Length is 3, but the body has 2 bytes"),
        (b"{}", -1, "Inference-Header-Content-Length is -1, but the body has 2 bytes"),
        (b"{}abc", 2, "the body has 3 bytes after its last input"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_with_a_sentence(data, length, text):
    with pytest.raises(ServingError) as caught:
        read_infer_request(data, length)
    assert str(caught.value) == text


@pytest.mark.parametrize(("datatype", "array", "reason"), [
    ("FP16", np.zeros(1, np.float16), "is FP16, which JSON cannot express"),
    ("FP32", np.array([np.nan], np.float32), "has infinities or NaN, which JSON cannot express"),
])  # fmt: skip
def test_an_output_that_json_cannot_express_is_refused_with_a_hint(datatype, array, reason):
    with pytest.raises(ServingError) as caught:
        write_response(InferResponse("m", "1", (OutputTensor("y", datatype, array),)), False)
    assert str(caught.value) == f"output 'y' {reason}; ask for it with the output parameter binary_data"


SOMETHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = st.sampled_from(["x", "name", "shape", "datatype", "data", "parameters", "binary_data_size", "inputs"])
INPUTS = st.fixed_dictionaries(
    {"name": st.just("x") | SOMETHING, "datatype": st.sampled_from([*TYPES, "BYTES"]) | SOMETHING},
    optional={
        "shape": st.lists(st.integers(-2, 5) | st.integers(), max_size=4) | SOMETHING,
        "data": st.lists(st.integers() | st.floats() | st.booleans() | st.text(), max_size=6) | SOMETHING,
        "parameters": st.dictionaries(NAMES, st.integers(-1, 40) | SOMETHING, max_size=3) | SOMETHING,
    },
)


@given(st.dictionaries(NAMES, st.lists(INPUTS, max_size=3) | SOMETHING), st.binary(max_size=40), st.integers(-3, 3))
def test_no_body_causes_another_error(fields, tail, off):
    head = json.dumps(fields).encode()
    for data, length in ((head, None), (head + tail, len(head)), (head + tail, len(head) + off), (tail, None)):
        try:
            read_infer_request(data, length)
        except ServingError as error:
            assert str(error)


@given(st.sampled_from([*TYPES, "BYTES"]), st.lists(st.integers(0, 4), max_size=4), st.binary(max_size=64))
def test_no_bytes_cause_another_error(datatype, shape, data):
    try:
        array = from_bytes("x", datatype, tuple(shape), memoryview(data))
    except ServingError:
        return
    assert to_bytes(array) == data


@pytest.mark.parametrize("others", [[1, 0], [5, 6]])
@pytest.mark.parametrize("place", [0, 1, 4999])
@pytest.mark.parametrize(("datatype", "elements", "problem"), [
    ("UINT8", [True], "has elements that are not integers, as UINT8 needs"),
    ("UINT8", [2.0], "has elements that are not integers, as UINT8 needs"),
    ("UINT8", [256], "has the element 256; UINT8 has 0 to 255"),
    ("INT8", [False], "has elements that are not integers, as INT8 needs"),
    ("INT8", [-129], "has the element -129; INT8 has -128 to 127"),
    ("INT64", [1.5], "has elements that are not integers, as INT64 needs"),
    ("INT64", [1 << 63, 0.5], "has elements that are not integers, as INT64 needs"),
    ("UINT64", [-1], "has the element -1; UINT64 has 0 to 18446744073709551615"),
    ("FP32", [True], "has elements that are not numbers, as FP32 needs"),
    ("FP32", ["1.5"], "has elements that are not numbers, as FP32 needs"),
    ("FP32", [None], "has elements that are not numbers, as FP32 needs"),
    ("FP64", [10**400], "has an element that is too large for FP64"),
    ("BOOL", [1], "has elements that are not true and false, as BOOL needs"),
])  # fmt: skip
def test_one_wrong_element_among_many_is_found(datatype, elements, problem, place, others):
    data = [False] * 5000 if datatype == "BOOL" else others * 2500
    data[place : place + len(elements)] = elements
    with pytest.raises(ServingError) as caught:
        from_json("x", datatype, (len(data),), data)
    assert str(caught.value) == f"input 'x' {problem}"


@pytest.mark.parametrize("datatype", ["UINT8", "INT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"])
def test_the_extremes_of_integers_are_read(datatype):
    low, high = range_of(data_type(datatype))
    array = from_json("x", datatype, (4,), [low, high, 0, 1])
    assert (array.dtype, array.tolist()) == (data_type(datatype).numpy, [low, high, 0, 1])
