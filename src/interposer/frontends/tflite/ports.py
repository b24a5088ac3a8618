"""The names and order of a subgraph's inputs and outputs, which are those of a signature or of the tensors."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable

from interposer.core.errors import ParseError
from interposer.frontends.tflite.contents import Signature, Subgraph

__all__ = ["input_ports", "output_ports"]


def input_ports(subgraph: Subgraph, signature: Signature | None) -> dict[str, int]:
    """Return the tensor index of each input by name: those of the signature first, then the rest of the subgraph's.

    A number is appended to repeated names. `ParseError` is raised if a tensor of the signature is no input of the
    subgraph.
    """
    named = {} if signature is None else dict(signature.inputs)
    for name, index in named.items():
        if signature is not None and index not in subgraph.inputs:
            message = f"its input {name!r} is tensor {index}, which is no input of subgraph {signature.subgraph}"
            raise ParseError(message, where=f"signature {signature.key!r}")
    unnamed = [index for index in subgraph.inputs if index not in named.values()]
    return _named([*named.items(), *((subgraph.tensors[index].name, index) for index in unnamed)], "input")


def output_ports(subgraph: Subgraph, signature: Signature | None) -> dict[str, int]:
    """Return the tensor index of each output by name; a number is appended to repeated names."""
    if signature is not None:
        return _named(signature.outputs.items(), "output")
    return _named(((subgraph.tensors[index].name, index) for index in subgraph.outputs), "output")


def _named(pairs: Iterable[tuple[str, int]], kind: str) -> dict[str, int]:
    ports = dict[str, int]()
    for number, (name, index) in enumerate(pairs):
        ports[_unique(name or f"{kind}_{number}", ports)] = index
    return ports


def _unique(name: str, taken: Container[str]) -> str:
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    return next(candidate for candidate in candidates if candidate not in taken)
