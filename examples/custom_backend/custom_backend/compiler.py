"""The compiler: it converts a part of a network to an object that the backend can run."""

from __future__ import annotations

from dataclasses import dataclass

from interposer.backend import SubgraphView
from interposer.types import Array


@dataclass
class CustomPreCompiledObject:
    """A compiled addition; each operand is the number of an input, or the value of a constant.

    The optimizer does not inspect the object. It is passed to the workload factory in a PreCompiled layer.
    """

    operands: tuple[int | Array, ...]
    runs: int = 0


def compiled(part: SubgraphView) -> CustomPreCompiledObject:
    """Return the object for a part that is one addition.

    A PreCompiled layer has the inputs of the part, each once and without the constants.
    """
    [addition] = part.layers
    operands = [part.inputs.index(value) if value.constant is None else value.constant for value in addition.values]
    return CustomPreCompiledObject(tuple(operands))
