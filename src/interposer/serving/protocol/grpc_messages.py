"""Messages of the Open Inference Protocol over gRPC, as protobuf classes, and their meaning.

The classes are in a descriptor pool of their own, so that a client of the protocol can be imported in the same process.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

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
from interposer.serving.protocol.wire import check_wire, field_of, without_field

__all__ = [
    "HEALTH",
    "INFERENCE",
    "InferMessage",
    "Message",
    "checked",
    "checked_infer",
    "infer_response",
    "infer_stream_response",
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


_RAW_INPUTS, _RAW_OUTPUTS, _INFER_RESPONSE = 7, 6, 2
"""The numbers of the fields raw_input_contents, raw_output_contents and infer_response."""
_SMALL: Final = 1 << 15
"""Bytes of a message up to which its raw contents are copied, as that is quicker."""
_SOME: Final = 1 << 14
"""Elements that are written before other threads have their turns."""


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
    check_wire(data, kind, reading)
    return _parsed(kind, data)


def _parsed(kind: Message, message_bytes: bytes) -> Message:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - an optional dependency

    try:
        return kind.FromString(message_bytes)
    except DecodeError as error:
        raise ServingError(Status.INVALID, f"the request is not a message of the protocol: {error}") from None


class InferMessage(NamedTuple):
    """A ``ModelInferRequest`` without its raw contents, and these as parts of the bytes that have arrived."""

    message: Message
    raw: list[memoryview]


def checked_infer(data: bytes, reading: Reading) -> InferMessage:
    """Return the ``ModelInferRequest`` in these bytes; see `checked`. Its raw contents are not copied."""
    if len(data) > _SMALL:
        check_wire(data, message("ModelInferRequest"), reading)
        other_fields, raw_inputs = without_field(data, _RAW_INPUTS)
        return InferMessage(_parsed(message("ModelInferRequest"), other_fields), raw_inputs)
    request = checked(message("ModelInferRequest"), data, reading)
    return InferMessage(request, [memoryview(content) for content in request.raw_input_contents])


def parameters_of(fields: Mapping[str, Message]) -> Parameters:
    """Return the values of parameters by name; those without a value are left out."""
    if not fields:
        return {}
    field_of_name = {name: parameter.WhichOneof("parameter_choice") for name, parameter in fields.items()}
    return {name: getattr(fields[name], field) for name, field in field_of_name.items() if field is not None}


def read_infer_request(
    request: InferMessage, regions: Regions | None = None, reading: Reading = UNLIMITED
) -> InferRequest:
    """Return the request in a ``ModelInferRequest``.

    Args:
        request: the message and its raw contents.
        regions: the regions of shared memory that inputs may be in; None if there are none.
        reading: limits of the request.

    Raises:
        ServingError: the inputs have elements in two forms or in none, or do not fit their shapes.
    """
    fields, all_raw = request
    tensors = list(fields.inputs)
    if max(len(tensors), len(fields.outputs)) > MOST_TENSORS:
        raise ServingError(Status.INVALID, f"the request has more than {MOST_TENSORS} inputs or outputs")
    check_names("inputs", [tensor.name for tensor in tensors])
    check_names("outputs", [tensor.name for tensor in fields.outputs])
    raw_inputs = iter(all_raw)
    in_message = [tensor for tensor in tensors if "shared_memory_region" not in tensor.parameters]
    is_raw = bool(all_raw)
    if is_raw and len(all_raw) != len(in_message):
        raise ServingError(
            Status.INVALID, f"raw_input_contents has {len(all_raw)} elements for {len(in_message)} inputs"
        )
    return InferRequest(
        inputs=tuple(_input(tensor, raw_inputs if is_raw else None, regions, reading) for tensor in tensors),
        outputs=tuple(requested_output(tensor.name, parameters_of(tensor.parameters)) for tensor in fields.outputs),
        id=fields.id,
        parameters=parameters_of(fields.parameters),
    )


def _input(
    tensor: Message, raw_inputs: Iterable[memoryview] | None, regions: Regions | None, reading: Reading
) -> InputTensor:
    name, datatype = tensor.name, tensor.datatype
    data_type(datatype)
    shape = checked_shape(name, list(tensor.shape))
    parameters = parameters_of(tensor.parameters)
    if "shared_memory_region" in parameters:
        return InputTensor(name, datatype, shared_tensor(name, datatype, shape, parameters, regions, reading))
    if raw_inputs is None:
        if len(tensor.contents.ListFields()) > 1:
            raise ServingError(Status.INVALID, f"input {name!r} has contents of several types")
        field = _CONTENTS.get(datatype)
        values = () if field is None else getattr(tensor.contents, field)
        return InputTensor(name, datatype, from_contents(name, datatype, shape, values, reading))
    if tensor.HasField("contents"):
        raise ServingError(Status.INVALID, f"input {name!r} has contents, but the request has raw_input_contents")
    return InputTensor(name, datatype, from_bytes(name, datatype, shape, next(iter(raw_inputs)), reading))


def infer_response(response: InferResponse, is_raw: bool) -> bytes:
    """Return the bytes of a ``ModelInferResponse``; `is_raw` says whether elements are raw or in typed contents.

    They are always raw if a data type has no typed contents.
    """
    return b"".join(_parts(response, is_raw))


def infer_stream_response(response: InferResponse, is_raw: bool) -> bytes:
    """Return the bytes of a ``ModelStreamInferResponse`` with an answer; see `infer_response`."""
    message_parts = _parts(response, is_raw)
    return b"".join(
        [field_of(_INFER_RESPONSE, sum(len(message_part) for message_part in message_parts)), *message_parts]
    )


def _parts(response: InferResponse, is_raw: bool) -> list[bytes]:
    """Return the parts of a ``ModelInferResponse``, whose raw contents are not copied into a message."""
    raw_outputs: list[bytes] = []
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
            content = to_bytes(output.array)
            raw_outputs += [field_of(_RAW_OUTPUTS, len(content)), content]
        else:
            _add_contents(tensor.contents, output)
    return [response_message.SerializeToString(), *raw_outputs]


def _region_parameters(name: str, offset: int, size: int) -> dict[str, Any]:
    return {
        "shared_memory_region": name, "shared_memory_byte_size": size, "shared_memory_offset": offset
    }  # fmt: skip


def _add_contents(contents: Message, output: OutputTensor) -> None:
    flat_array, field = output.array.reshape(-1), getattr(contents, _CONTENTS[output.datatype])
    for begin in range(0, len(flat_array), _SOME):  # in pieces, so that other threads have their turns
        values = flat_array[begin : begin + _SOME].tolist()
        if output.datatype == "BYTES":
            values = [str(text).encode("utf-8", "surrogatepass") for text in values]
        field.extend(values)


def _fill(fields: Any, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        field = {bool: "bool_param", int: "int64_param", float: "double_param"}.get(type(value), "string_param")
        setattr(fields[name], field, value)
