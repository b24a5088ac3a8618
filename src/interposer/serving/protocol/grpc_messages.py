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
from interposer.serving.protocol.http_messages import (
    MOST_TENSORS,
    Regions,
    check_names,
    requested_output,
    shared_tensor,
)
from interposer.serving.protocol.messages import InferRequest, InferResponse, InputTensor, OutputTensor, Parameters
from interposer.serving.protocol.reading import UNLIMITED, Reading
from interposer.serving.protocol.tensors import checked_shape, from_bytes, from_contents, to_bytes
from interposer.serving.protocol.wire import check_wire

__all__ = [
    "HEALTH",
    "INFERENCE",
    "Message",
    "checked",
    "infer_response",
    "message",
    "methods",
    "parameters_of",
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


def checked(kind: Message, data: bytes, reading: Reading) -> Message:
    """Return the message of the class `kind` in these bytes.

    Raises:
        ServingError: the bytes are damaged, or have more elements than `reading` allows.
    """
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an optional dependency

    check_wire(data, kind, reading)
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise ServingError(Status.INVALID, f"the request is not a message of the protocol: {error}") from None


def parameters_of(fields: Mapping[str, Message]) -> Parameters:
    """Return the values of parameters by name; those without a value are left out."""
    field_of_name = {name: parameter.WhichOneof("parameter_choice") for name, parameter in fields.items()}
    return {name: getattr(fields[name], field) for name, field in field_of_name.items() if field is not None}


def read_infer_request(request: Message, regions: Regions | None = None, reading: Reading = UNLIMITED) -> InferRequest:
    """Return the request in a ``ModelInferRequest``.

    Args:
        request: the message.
        regions: the regions of shared memory that inputs may be in; None if there are none.
        reading: limits of the request.

    Raises:
        ServingError: the inputs have elements in two forms or in none, or do not fit their shapes.
    """
    tensors = list(request.inputs)
    if max(len(tensors), len(request.outputs)) > MOST_TENSORS:
        raise ServingError(Status.INVALID, f"the request has more than {MOST_TENSORS} inputs or outputs")
    check_names("inputs", [tensor.name for tensor in tensors])
    check_names("outputs", [tensor.name for tensor in request.outputs])
    raw = iter(request.raw_input_contents)
    in_message = [tensor for tensor in tensors if "shared_memory_region" not in tensor.parameters]
    is_raw = bool(request.raw_input_contents)
    if is_raw and len(request.raw_input_contents) != len(in_message):
        count = len(request.raw_input_contents)
        raise ServingError(Status.INVALID, f"raw_input_contents has {count} elements for {len(in_message)} inputs")
    return InferRequest(
        inputs=tuple(_input(tensor, raw if is_raw else None, regions, reading) for tensor in tensors),
        outputs=tuple(requested_output(tensor.name, parameters_of(tensor.parameters)) for tensor in request.outputs),
        id=request.id,
        parameters=parameters_of(request.parameters),
    )


def _input(tensor: Message, raw: Iterable[bytes] | None, regions: Regions | None, reading: Reading) -> InputTensor:
    name, datatype = tensor.name, tensor.datatype
    data_type(datatype)
    shape = checked_shape(name, list(tensor.shape))
    parameters = parameters_of(tensor.parameters)
    if "shared_memory_region" in parameters:
        return InputTensor(name, datatype, shared_tensor(name, datatype, shape, parameters, regions, reading))
    if raw is None:
        if len(tensor.contents.ListFields()) > 1:
            raise ServingError(Status.INVALID, f"input {name!r} has contents of several types")
        field = _CONTENTS.get(datatype)
        values = () if field is None else getattr(tensor.contents, field)
        return InputTensor(name, datatype, from_contents(name, datatype, shape, values, reading))
    if tensor.HasField("contents"):
        raise ServingError(Status.INVALID, f"input {name!r} has contents, but the request has raw_input_contents")
    return InputTensor(name, datatype, from_bytes(name, datatype, shape, memoryview(next(iter(raw))), reading))


def infer_response(response: InferResponse, is_raw: bool) -> Message:
    """Return a ``ModelInferResponse``; `is_raw` says whether elements are sent as bytes or in typed contents.

    They are always sent as bytes if a data type has no typed contents.
    """
    response_message = message("ModelInferResponse")(
        model_name=response.model, model_version=response.version, id=response.id
    )
    _fill(response_message.parameters, response.parameters)
    is_raw = is_raw or any(output.datatype in BINARY_ONLY for output in response.outputs)
    for output in response.outputs:
        tensor = response_message.outputs.add(name=output.name, datatype=output.datatype, shape=output.array.shape)
        if output.is_shared and output.requested is not None and output.requested.region is not None:
            _fill(tensor.parameters, _region_parameters(*output.requested.region))
        elif is_raw:
            response_message.raw_output_contents.append(to_bytes(output.array))
        else:
            _add_contents(tensor.contents, output)
    return response_message


def _region_parameters(name: str, offset: int, size: int) -> dict[str, Any]:
    return {
        "shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset
    }  # fmt: skip


def _add_contents(contents: Message, output: OutputTensor) -> None:
    flat = output.array.reshape(-1).tolist()
    values = [str(text).encode("utf-8", "surrogatepass") for text in flat] if output.datatype == "BYTES" else flat
    getattr(contents, _CONTENTS[output.datatype]).extend(values)


def _fill(fields: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        field = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
        setattr(fields[name], field, value)
