"""Requests and responses as objects, the same for HTTP and gRPC. Nothing changes them after their creation.

Most are not frozen, because frozen ones take three times as long to create.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, TypeAlias

from interposer.core.records import dataclass
from interposer.core.types import Array

__all__ = [
    "CLIENT",
    "InferRequest",
    "InferResponse",
    "InputTensor",
    "OutputTensor",
    "Parameters",
    "RequestedOutput",
    "client_of",
    "is_named",
    "named",
]

Parameters: TypeAlias = Mapping[str, "bool | int | float | str"]
CLIENT: Final = "interposer.client"
"""The parameter of a run whose value is the client who sends the request; what a client sends itself is replaced."""

_NAMED: Final = "client "


def named(name: str) -> str:
    """Return how messages call a client that the server knows by a name."""
    return _NAMED + name


def is_named(client: str) -> bool:
    """Return True for a client with a name, and False for an address."""
    return client.startswith(_NAMED)


def client_of(parameters: Parameters) -> str:
    """Return the client who sends a request, from the parameters of its run; an empty text if they do not say it."""
    return str(parameters.get(CLIENT, ""))


@dataclass(slots=True)
class InputTensor:
    """One input of a request: its name, its data type on the wire such as ``FP32``, and its array."""

    name: str
    datatype: str
    array: Array


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """One output that a request asks for.

    Args:
        name: the name of the output.
        binary: whether the response has it as bytes instead of JSON numbers; None if the request does not say.
        classes: the number of largest elements to return as texts instead of the tensor; 0 returns the tensor.
        region: the shared memory to write it to, as name, offset and size in bytes; None for the response.
    """

    name: str
    binary: bool | None = None
    classes: int = 0
    region: tuple[str, int, int] | None = None


@dataclass(slots=True)
class InferRequest:
    """A request to run a model. No `outputs` means all of them."""

    inputs: tuple[InputTensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    id: str = ""
    parameters: Parameters = field(default_factory=dict)


@dataclass(slots=True)
class OutputTensor:
    """One output of a response. `is_shared` is True if its elements are in a region of shared memory."""

    name: str
    datatype: str
    array: Array
    requested: RequestedOutput | None = None
    is_shared: bool = False


@dataclass(slots=True)
class InferResponse:
    """The result of a request."""

    model: str
    version: str
    outputs: tuple[OutputTensor, ...]
    id: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
