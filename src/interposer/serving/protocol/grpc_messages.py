"""Messages of the Open Inference Protocol over gRPC, as protobuf classes, and their meaning.

The classes are in a descriptor pool of their own, so that a client of the protocol can be imported in the same process.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from interposer.core.errors import MissingDependencyError
from interposer.serving.protocol.datatypes import BINARY_ONLY, data_type
from interposer.serving.protocol.descriptor import FILES
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.http_messages import Regions, requested_output, shared_tensor
from interposer.serving.protocol.messages import InferRequest, InferResponse, InputTensor, OutputTensor, Parameters
from interposer.serving.protocol.tensors import checked_shape, from_bytes, from_contents, to_bytes

__all__ = [
    "HEALTH",
    "INFERENCE",
    "Message",
    "infer_response",
    "message",
    "methods",
    "parameters_of",
    "parsed",
    "read_infer_request",
]

Message: TypeAlias = Any
"""A protobuf message; its fields are not statically typed."""
INFERENCE: Final = "inference.GRPCInferenceService"
HEALTH: Final = "grpc.health.v1.Health"
"""The full names of the services."""

_CONTENTS: Final = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip
_MOST_TENSORS: Final = 4096


@cache
def _pool() -> Any:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise MissingDependencyError("protobuf", "grpc", "gRPC") from None
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(FILES)).file:
        pool.Add(file)
    return pool


@cache
def message(name: str, service: str = INFERENCE) -> Message:
    """Return the class of messages with this name, from the package of a service.

    Raises:
        MissingDependencyError: the package protobuf is not installed.
    """
    from google.protobuf import message_factory  # noqa: PLC0415 - an optional dependency

    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{service.rpartition('.')[0]}.{name}"))


def methods(service: str = INFERENCE) -> dict[str, tuple[Message, Message]]:
    """Return the classes of requests and responses by the names of the methods of a service."""
    return {
        method.name: (message(method.input_type.name, service), message(method.output_type.name, service))
        for method in _pool().FindServiceByName(service).methods
    }


def parsed(kind: Message, data: bytes) -> Message:
    """Return the message of the class `kind` in these bytes; raise `ServingError` if they are damaged."""
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an optional dependency

    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ServingError(Status.INVALID, f"the request is not a message of the protocol: {error}") from None


def parameters_of(fields: Mapping[str, Message]) -> Parameters:
    """Return the values of parameters by name; those without a value are left out."""
    chosen = {name: item.WhichOneof("parameter_choice") for name, item in fields.items()}
    return {name: getattr(fields[name], kind) for name, kind in chosen.items() if kind is not None}


def read_infer_request(request: Message, regions: Regions | None = None) -> InferRequest:
    """Return the request in a ``ModelInferRequest``.

    Raises:
        ServingError: the inputs have elements in two forms or in none, or do not fit their shapes.
    """
    items = list(request.inputs)
    if max(len(items), len(request.outputs)) > _MOST_TENSORS:
        raise ServingError(Status.INVALID, f"the request has more than {_MOST_TENSORS} inputs or outputs")
    _check_names("inputs", [item.name for item in items])
    _check_names("outputs", [item.name for item in request.outputs])
    raw = iter(request.raw_input_contents)
    inside = [item for item in items if "shared_memory_region" not in item.parameters]
    is_raw = bool(request.raw_input_contents)
    if is_raw and len(request.raw_input_contents) != len(inside):
        count = len(request.raw_input_contents)
        raise ServingError(Status.INVALID, f"raw_input_contents has {count} elements for {len(inside)} inputs")
    return InferRequest(
        inputs=tuple(_input(item, raw if is_raw else None, regions) for item in items),
        outputs=tuple(requested_output(item.name, parameters_of(item.parameters)) for item in request.outputs),
        id=request.id,
        parameters=parameters_of(request.parameters),
    )


def _check_names(field: str, names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ServingError(Status.INVALID, f"{field!r} has {twice!r} more than once")


def _input(item: Message, raw: Iterable[bytes] | None, regions: Regions | None) -> InputTensor:
    name, datatype = item.name, item.datatype
    data_type(datatype)
    shape = checked_shape(name, list(item.shape))
    parameters = parameters_of(item.parameters)
    if "shared_memory_region" in parameters:
        return InputTensor(name, datatype, shared_tensor(name, datatype, shape, parameters, regions))
    if raw is None:
        if len(item.contents.ListFields()) > 1:
            raise ServingError(Status.INVALID, f"input {name!r} has contents of several types")
        field = _CONTENTS.get(datatype)
        values = () if field is None else getattr(item.contents, field)
        return InputTensor(name, datatype, from_contents(name, datatype, shape, values))
    if item.HasField("contents"):
        raise ServingError(Status.INVALID, f"input {name!r} has contents, but the request has raw_input_contents")
    return InputTensor(name, datatype, from_bytes(name, datatype, shape, memoryview(next(iter(raw)))))


def infer_response(response: InferResponse, is_raw: bool) -> Message:
    """Return a ``ModelInferResponse``; `is_raw` says whether elements are sent as bytes or in typed contents.

    They are always sent as bytes if a data type has no typed contents.
    """
    result = message("ModelInferResponse")(model_name=response.model, model_version=response.version, id=response.id)
    _fill(result.parameters, response.parameters)
    is_raw = is_raw or any(item.datatype in BINARY_ONLY for item in response.outputs)
    for item in response.outputs:
        tensor = result.outputs.add(name=item.name, datatype=item.datatype, shape=item.array.shape)
        if item.is_shared and item.requested is not None and item.requested.region is not None:
            _fill(tensor.parameters, _region_parameters(*item.requested.region))
        elif is_raw:
            result.raw_output_contents.append(to_bytes(item.array))
        else:
            _add_contents(tensor.contents, item)
    return result


def _region_parameters(name: str, offset: int, size: int) -> dict[str, Any]:
    return {
        "shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset
    }  # fmt: skip


def _add_contents(contents: Message, item: OutputTensor) -> None:
    flat = item.array.reshape(-1).tolist()
    values = [str(text).encode("utf-8", "surrogatepass") for text in flat] if item.datatype == "BYTES" else flat
    getattr(contents, _CONTENTS[item.datatype]).extend(values)


def _fill(fields: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        kind = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
        setattr(fields[name], kind, value)
