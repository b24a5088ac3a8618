"""Bodies of HTTP requests and responses: JSON, and JSON followed by the bytes of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from interposer.core.types import Array
from interposer.serving.protocol.datatypes import data_type
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.json_text import json_bytes, object_of, quick_object_of
from interposer.serving.protocol.messages import (
    InferRequest,
    InferResponse,
    InputTensor,
    OutputTensor,
    Parameters,
    RequestedOutput,
)
from interposer.serving.protocol.tensors import check_size, checked_shape, from_bytes, from_json, to_bytes, to_json

__all__ = [
    "Regions",
    "checked_parameters",
    "no_shared_memory",
    "read_infer_request",
    "requested_output",
    "shared_tensor",
    "write_response",
]

_MOST_TENSORS: Final = 4096
_MOST_CLASSES: Final = 1 << 20


class Regions(Protocol):
    """Regions of shared memory that clients have registered."""

    def read(self, name: str, offset: int, size: int) -> memoryview:
        """Return a copy of bytes of a region; raise `ServingError` if the region does not have them."""


def read_infer_request(body: bytes, header_length: int | None = None, regions: Regions | None = None) -> InferRequest:
    """Return the request in the body of an HTTP request.

    Args:
        body: the JSON object, followed by the bytes of binary tensors.
        header_length: the number of bytes of the JSON object; None if the body has nothing else.
        regions: the regions of shared memory that inputs may be in; None if there are none.

    Fields that the protocol does not have are ignored, because some clients send the name of the model, for example.

    Raises:
        ServingError: the body is not a request. The message says which part of it is wrong.
    """
    if header_length is not None and not 0 <= header_length <= len(body):
        raise ServingError(
            Status.INVALID, f"Inference-Header-Content-Length is {header_length}, but the body has {len(body)} bytes"
        )
    text = body if header_length is None else body[:header_length]
    rest = memoryview(body)[len(text) :]
    head = quick_object_of(text)
    if head is not None:
        with suppress(ServingError):  # a request that is refused is read again, for a message with all of its digits
            return _request_of(head, rest, regions)
    return _request_of(object_of(text), rest, regions)


def _request_of(head: Mapping[str, Any], tail: memoryview, regions: Regions | None) -> InferRequest:
    items = _objects("inputs", head.get("inputs", []))
    rest = _Rest(tail)
    inputs = tuple(_input(item, rest, regions) for item in items)
    rest.check_end()
    parameters = checked_parameters("the request", head.get("parameters"))
    if not isinstance(parameters.get("binary_data_output", False), bool):
        raise ServingError(Status.INVALID, "the parameter binary_data_output is neither true nor false")
    return InferRequest(
        inputs=inputs,
        outputs=tuple(_output(item) for item in _objects("outputs", head.get("outputs") or [])),
        id=_text("id", head.get("id") or ""),
        parameters=parameters,
    )


class _Rest:
    """The bytes after the JSON object, which are given to inputs in order."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def take(self, name: str, size: int) -> memoryview:
        left = len(self._data) - self._at
        if size > left:
            raise ServingError(
                Status.INVALID, f"input {name!r} has binary_data_size {size}, but {left} bytes are left in the body"
            )
        self._at += size
        return self._data[self._at - size : self._at]

    def check_end(self) -> None:
        left = len(self._data) - self._at
        if left:
            raise ServingError(Status.INVALID, f"the body has {left} bytes after its last input")


def _objects(field: str, items: Any) -> Sequence[Mapping[str, Any]]:
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ServingError(Status.INVALID, f"{field!r} is not a list of objects")
    if len(items) > _MOST_TENSORS:
        raise ServingError(Status.INVALID, f"{field!r} has {len(items)} objects; at most {_MOST_TENSORS} are possible")
    names = [_text("name", item.get("name")) for item in items]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ServingError(Status.INVALID, f"{field!r} has {twice!r} more than once")
    return items


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ServingError(Status.INVALID, f"{field!r} is not a string")
    return value


def checked_parameters(where: str, value: Any) -> Parameters:
    """Return parameters by name; raise `ServingError` if they are no object of strings, numbers and truth values."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(item, str | int | float) for item in value.values()):
        raise ServingError(
            Status.INVALID, f"the parameters of {where} are not an object of strings, numbers and truth values"
        )
    return value


def _input(item: Mapping[str, Any], rest: _Rest, regions: Regions | None) -> InputTensor:
    name = item["name"]
    datatype = item.get("datatype")
    data_type(datatype)
    shape = checked_shape(name, item.get("shape"))
    parameters = checked_parameters(f"input {name!r}", item.get("parameters"))
    ways = [
        key in parameters if key != "data" else key in item
        for key in ("data", "binary_data_size", "shared_memory_region")
    ]
    if sum(ways) != 1:
        raise ServingError(
            Status.INVALID, f"input {name!r} needs exactly one of data, binary_data_size and shared_memory_region"
        )
    return InputTensor(name, str(datatype), _array(item, str(datatype), shape, parameters, rest, regions))


def _array(
    item: Mapping[str, Any],
    datatype: str,
    shape: tuple[int, ...],
    parameters: Parameters,
    rest: _Rest,
    regions: Regions | None,
) -> Array:
    name = item["name"]
    if "data" in item:
        return from_json(name, datatype, shape, item["data"])
    if "binary_data_size" in parameters:
        size = _whole(f"binary_data_size of input {name!r}", parameters["binary_data_size"])
        return from_bytes(name, datatype, shape, rest.take(name, size))
    return shared_tensor(name, datatype, shape, parameters, regions)


def shared_tensor(
    name: str, datatype: str, shape: tuple[int, ...], parameters: Parameters, regions: Regions | None
) -> Array:
    """Return the tensor in the region of its parameters; raise `ServingError` before a copy if its size is wrong."""
    if regions is None:
        raise no_shared_memory()
    region = region_of(name, parameters)
    check_size(name, datatype, shape, region[2])
    return from_bytes(name, datatype, shape, regions.read(*region))


def no_shared_memory() -> ServingError:
    """Return the error for a request with shared memory to a server that does not offer it."""
    return ServingError(Status.FORBIDDEN, "this server does not offer shared memory")


def region_of(name: str, parameters: Parameters) -> tuple[str, int, int]:
    """Return the name, the offset and the size of the shared memory in the parameters of a tensor."""
    region = _text("shared_memory_region", parameters["shared_memory_region"])
    offset = _whole(f"shared_memory_offset of {name!r}", parameters.get("shared_memory_offset", 0))
    size = _whole(f"shared_memory_byte_size of {name!r}", parameters.get("shared_memory_byte_size"))
    return region, offset, size


def _whole(title: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ServingError(Status.INVALID, f"the {title} is not a whole number from 0 on")
    return value


def _output(item: Mapping[str, Any]) -> RequestedOutput:
    return requested_output(item["name"], checked_parameters(f"output {item['name']!r}", item.get("parameters")))


def requested_output(name: str, parameters: Parameters) -> RequestedOutput:
    """Return an output that a request asks for, with the meaning of its parameters; raise `ServingError` if wrong."""
    binary = parameters.get("binary_data")
    if not isinstance(binary, bool | None):
        raise ServingError(Status.INVALID, f"binary_data of output {name!r} is neither true nor false")
    classes = _whole(f"classification of output {name!r}", parameters.get("classification", 0))
    region = region_of(name, parameters) if "shared_memory_region" in parameters else None
    return RequestedOutput(name, binary, min(classes, _MOST_CLASSES), region)


def write_response(response: InferResponse, binary: bool) -> tuple[list[bytes], int | None]:
    """Return the parts of a body, and the length of its JSON object if bytes of tensors follow it, else None.

    `binary` says how outputs are sent of which the request does not say it.

    Raises:
        ServingError: JSON cannot express an output.
    """
    tails: list[bytes] = []
    outputs = [_written(item, binary, tails) for item in response.outputs]
    head: dict[str, Any] = {"model_name": response.model, "model_version": response.version, "outputs": outputs}
    if response.id:
        head["id"] = response.id
    if response.parameters:
        head["parameters"] = response.parameters
    text = json_bytes(head)
    return [text, *tails], len(text) if tails else None


def _written(item: OutputTensor, binary: bool, tails: list[bytes]) -> dict[str, Any]:
    result = {"name": item.name, "datatype": item.datatype, "shape": list(item.array.shape)}
    requested = item.requested
    if item.is_shared and requested is not None and requested.region is not None:
        name, offset, size = requested.region
        parameters = {"shared_memory_region": name, "shared_memory_byte_size": size}
        return result | {"parameters": parameters | ({"shared_memory_offset": offset} if offset else {})}
    if binary if requested is None or requested.binary is None else requested.binary:
        data = to_bytes(item.array)
        tails.append(data)
        return result | {"parameters": {"binary_data_size": len(data)}}
    return result | {"data": to_json(item.name, item.datatype, item.array)}
