"""Bodies of HTTP requests and responses: JSON, and JSON followed by the bytes of tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from interposer.core.types import Array
from interposer.serving.protocol.datatypes import data_type
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.json_text import json_bytes, long_array, object_of, quick_object_of
from interposer.serving.protocol.long_lists import LongList
from interposer.serving.protocol.messages import (
    InferRequest,
    InferResponse,
    InputTensor,
    OutputTensor,
    Parameters,
    RequestedOutput,
)
from interposer.serving.protocol.outline import DEEPEST, outline
from interposer.serving.protocol.reading import UNLIMITED, Reading
from interposer.serving.protocol.tensors import check_size, checked_shape, from_bytes, from_json, to_bytes, to_json

__all__ = [
    "MOST_TENSORS",
    "Regions",
    "check_names",
    "checked_parameters",
    "no_shared_memory",
    "read_infer_request",
    "requested_output",
    "shared_tensor",
    "small_object_of",
    "write_response",
]

MOST_TENSORS: Final = 4096
"""The largest number of inputs, or of outputs, in one request."""
_MOST_CLASSES: Final = 1 << 20
_LONGEST_TEXT: Final = 4096
"""Characters of a name or an id."""
_SMALL: Final = 1 << 16
"""Bytes of JSON text below which its objects need little memory, however many there are."""
_MOST_AT_ONCE: Final = 1 << 16
"""Elements of an output from which on it is written in pieces."""
_LARGEST_TEXT: Final = 1 << 24
"""Bytes of JSON text that are read at once. More of them would stop other threads for long."""
_CONTAINER, _VALUE = 256, 64
"""Bytes that a list or an object needs, and any other value."""


class Regions(Protocol):
    """Regions of shared memory that clients have registered."""

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """Return a copy of bytes of a region; raise `ServingError` if the region does not have them."""


def read_infer_request(
    body: bytes | bytearray,
    header_length: int | None = None,
    regions: Regions | None = None,
    reading: Reading = UNLIMITED,
) -> InferRequest:
    """Return the request in the body of an HTTP request.

    Args:
        body: the JSON object, followed by the bytes of binary tensors.
        header_length: the number of bytes of the JSON object; None if the body has nothing else.
        regions: the regions of shared memory that inputs may be in; None if there are none.
        reading: limits of the request.

    Fields that the protocol does not have are ignored, because some clients send the name of the model, for example.

    Raises:
        ServingError: the body is not a request, or exceeds a limit. The message says which part of it is wrong.
    """
    if header_length is not None and not 0 <= header_length <= len(body):
        raise ServingError(
            Status.INVALID, f"Inference-Header-Content-Length is {header_length}, but the body has {len(body)} bytes"
        )
    json_text = body if header_length is None else body[:header_length]
    binary_data = memoryview(body)[len(json_text) :]
    short_text, long_lists = _without_long_lists(json_text, reading)
    header = quick_object_of(short_text)
    if header is None:
        header = object_of(short_text)
    elif len(short_text) < _SMALL:
        with suppress(ServingError):  # a request that is refused is read again, for a message with all of its digits
            return _request_of(header, binary_data, regions, reading, long_lists)
        header = object_of(short_text)
    return _request_of(header, binary_data, regions, reading, long_lists)


def _without_long_lists(text: bytes | bytearray, reading: Reading) -> tuple[bytes | bytearray, Mapping[str, LongList]]:
    """Return JSON text in which long lists of numbers are replaced, and the lists by the keys that replace them.

    A list is replaced by an object with one key, which no client can know. The text that is returned has room for as
    many objects as it may create.
    """
    if len(text) < _SMALL and text.count(b"[") + text.count(b"{") <= DEEPEST:
        return text, {}
    found_outline = outline(text, reading)
    reading.take(found_outline.containers * _CONTAINER + found_outline.values * _VALUE)
    nonce = os.urandom(16).hex()
    text_parts: list[bytes | bytearray] = []
    long_lists: dict[str, LongList] = {}
    end = 0
    for begin_of_list, end_of_list in found_outline.long_lists:
        key = f"{nonce}{len(long_lists)}"
        long_lists[key] = LongList(text, begin_of_list, end_of_list, reading)
        text_parts += [text[end:begin_of_list], f'{{"{key}":0}}'.encode()]
        end = end_of_list
    if sum(map(len, text_parts)) + len(text) - end > _LARGEST_TEXT:
        raise ServingError(
            Status.TOO_LARGE,
            f"the request has more than {_LARGEST_TEXT:,} bytes of JSON, beside long lists of numbers; send tensors as "
            "binary data",
        )
    return (b"".join([*text_parts, text[end:]]) if long_lists else text), long_lists


def small_object_of(text: bytes | bytearray) -> dict[str, Any]:
    """Return the JSON object in a short text; raise `ServingError` if it is not one, or is nested too deep."""
    outline(text, UNLIMITED)
    return object_of(text)


def _request_of(
    header: Mapping[str, Any],
    tail: memoryview,
    regions: Regions | None,
    reading: Reading,
    long_lists: Mapping[str, LongList],
) -> InferRequest:
    input_objects = _objects("inputs", header.get("inputs", []))
    binary_tensors = _BinaryTensors(tail)
    source = _Source(binary_tensors, regions, reading, long_lists)
    inputs = tuple(_input(tensor, source) for tensor in input_objects)
    binary_tensors.check_end()
    parameters = checked_parameters("the request", header.get("parameters"))
    if not isinstance(parameters.get("binary_data_output", False), bool):
        raise ServingError(Status.INVALID, "the parameter binary_data_output is neither true nor false")
    return InferRequest(
        inputs=inputs,
        outputs=tuple(_output(tensor) for tensor in _objects("outputs", header.get("outputs") or [])),
        id=_text("id", header.get("id") or ""),
        parameters=parameters,
    )


class _BinaryTensors:
    """The bytes after the JSON object, which are given to inputs in order."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._offset = data, 0

    def take(self, name: str, size: int) -> memoryview:
        bytes_left = len(self._data) - self._offset
        if size > bytes_left:
            raise ServingError(
                Status.INVALID,
                f"input {name!r} has binary_data_size {size}, but {bytes_left} bytes are left in the body",
            )
        self._offset += size
        return self._data[self._offset - size : self._offset]

    def check_end(self) -> None:
        bytes_left = len(self._data) - self._offset
        if bytes_left:
            raise ServingError(Status.INVALID, f"the body has {bytes_left} bytes after its last input")


class _Source(NamedTuple):
    """What the inputs of one request are read from."""

    binary_tensors: _BinaryTensors
    regions: Regions | None
    reading: Reading
    long_lists: Mapping[str, LongList]

    def data(self, data: Any) -> Any:
        """Return the `LongList` that an object stands for, or `data` if it is no such object."""
        if type(data) is not dict or len(data) != 1:
            return data
        return self.long_lists.get(next(iter(data)), data)


def _objects(field: str, objects: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(objects, list) or not all(isinstance(tensor, dict) for tensor in objects):
        raise ServingError(Status.INVALID, f"{field!r} is not a list of objects")
    if len(objects) > MOST_TENSORS:
        raise ServingError(Status.INVALID, f"{field!r} has {len(objects)} objects; at most {MOST_TENSORS} are possible")
    check_names(field, [_text("name", tensor.get("name")) for tensor in objects])
    return objects


def check_names(field: str, names: Sequence[str]) -> None:
    """Raise `ServingError` if two tensors of the list `field` ("inputs" or "outputs") of a request share a name."""
    if len(set(names)) < len(names):
        repeated_name = next(name for name in names if names.count(name) > 1)
        raise ServingError(Status.INVALID, f"{field!r} has {repeated_name!r} more than once")


def _text(field: str, text: Any) -> str:
    if not isinstance(text, str):
        raise ServingError(Status.INVALID, f"{field!r} is not a string")
    if len(text) > _LONGEST_TEXT:
        raise ServingError(
            Status.INVALID, f"{field!r} has {len(text)} characters; at most {_LONGEST_TEXT} are possible"
        )
    return text


def checked_parameters(owner: str, parameters: Any) -> Parameters:
    """Return parameters by name; raise `ServingError` if they are no object of strings, numbers and truth values."""
    if parameters is None:
        return {}
    if not isinstance(parameters, dict) or not all(map(_is_scalar, parameters.values())):
        raise ServingError(
            Status.INVALID, f"the parameters of {owner} are not an object of strings, numbers and truth values"
        )
    return parameters


def _is_scalar(parameter: Any) -> bool:
    return isinstance(parameter, (str, int, float))  # a union takes several times as long


def _input(tensor: Mapping[str, Any], source: _Source) -> InputTensor:
    name = tensor["name"]
    datatype = tensor.get("datatype")
    data_type(datatype)
    shape = checked_shape(name, tensor.get("shape"))
    parameters = checked_parameters(f"input {name!r}", tensor.get("parameters"))
    forms = [
        key in parameters if key != "data" else key in tensor
        for key in ("data", "binary_data_size", "shared_memory_region")
    ]
    if sum(forms) != 1:
        raise ServingError(
            Status.INVALID, f"input {name!r} needs exactly one of data, binary_data_size and shared_memory_region"
        )
    return InputTensor(name, str(datatype), _array(tensor, str(datatype), shape, parameters, source))


def _array(
    tensor: Mapping[str, Any], datatype: str, shape: tuple[int, ...], parameters: Parameters, source: _Source
) -> Array:
    name = tensor["name"]
    if "data" in tensor:
        return from_json(name, datatype, shape, source.data(tensor["data"]))
    if "binary_data_size" in parameters:
        size = _whole(f"binary_data_size of input {name!r}", parameters["binary_data_size"])
        tensor_bytes = source.binary_tensors.take(name, size)
        return from_bytes(name, datatype, shape, tensor_bytes, source.reading)
    return shared_tensor(name, datatype, shape, parameters, source.regions, source.reading)


def shared_tensor(
    name: str,
    datatype: str,
    shape: tuple[int, ...],
    parameters: Parameters,
    regions: Regions | None,
    reading: Reading = UNLIMITED,
) -> Array:
    """Return the tensor in the region of its parameters; raise `ServingError` before a copy if its size is wrong."""
    if regions is None:
        raise no_shared_memory()
    region = region_of(name, parameters)
    check_size(name, datatype, shape, region[2])
    reading.take(region[2])
    return from_bytes(name, datatype, shape, regions.read(*region), reading)


def no_shared_memory() -> ServingError:
    """Return the error for a request with shared memory to a server that does not offer it."""
    return ServingError(Status.FORBIDDEN, "this server does not offer shared memory")


def region_of(name: str, parameters: Parameters) -> tuple[str, int, int]:
    """Return the name, the offset and the size of the shared memory in the parameters of a tensor."""
    region = _text("shared_memory_region", parameters["shared_memory_region"])
    offset = _whole(f"shared_memory_offset of {name!r}", parameters.get("shared_memory_offset", 0))
    size = _whole(f"shared_memory_byte_size of {name!r}", parameters.get("shared_memory_byte_size"))
    return region, offset, size


def _whole(subject: str, number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 63:
        raise ServingError(Status.INVALID, f"the {subject} is not a whole number from 0 on")
    return number


def _output(tensor: Mapping[str, Any]) -> RequestedOutput:
    return requested_output(tensor["name"], checked_parameters(f"output {tensor['name']!r}", tensor.get("parameters")))


def requested_output(name: str, parameters: Parameters) -> RequestedOutput:
    """Return an output that a request asks for, with the meaning of its parameters; raise `ServingError` if wrong."""
    binary = parameters.get("binary_data")
    if not isinstance(binary, bool | None):
        raise ServingError(Status.INVALID, f"binary_data of output {name!r} is neither true nor false")
    classes = _whole(f"classification of output {name!r}", parameters.get("classification", 0))
    region = region_of(name, parameters) if "shared_memory_region" in parameters else None
    return RequestedOutput(name, binary, min(classes, _MOST_CLASSES), region)


def write_response(response: InferResponse, is_binary: bool) -> tuple[list[bytes], int | None]:
    """Return the parts of a body, and the length of its JSON object if bytes of tensors follow it, else None.

    `is_binary` says how outputs are sent of which the request does not say it.

    Raises:
        ServingError: JSON cannot express an output.
    """
    binary_parts: list[bytes] = []
    long_arrays: list[Array] = []
    outputs = [_written(output, is_binary, binary_parts, long_arrays) for output in response.outputs]
    header: dict[str, Any] = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.id:
        header["id"] = response.id
    if response.parameters:
        header["parameters"] = response.parameters
    json_text = json_bytes(header, long_arrays)
    return [json_text, *binary_parts], len(json_text) if binary_parts else None


def _written(
    output: OutputTensor, is_binary: bool, binary_parts: list[bytes], long_arrays: list[Array]
) -> dict[str, Any]:
    tensor = {"name": output.name, "datatype": output.datatype, "shape": list(output.array.shape)}
    requested_output = output.requested
    if output.is_shared and requested_output is not None and requested_output.region is not None:
        name, offset, size = requested_output.region
        parameters = {"shared_memory_region": name, "shared_memory_byte_size": size}
        return tensor | {"parameters": parameters | ({"shared_memory_offset": offset} if offset else {})}
    if is_binary if requested_output is None or requested_output.binary is None else requested_output.binary:
        tensor_bytes = to_bytes(output.array)
        binary_parts.append(tensor_bytes)
        return tensor | {"parameters": {"binary_data_size": len(tensor_bytes)}}
    elements = to_json(output.name, output.datatype, output.array)
    if isinstance(elements, list) or len(elements) < _MOST_AT_ONCE:
        return tensor | {"data": elements}
    long_arrays.append(elements)
    return tensor | {"data": long_array(len(long_arrays) - 1)}
