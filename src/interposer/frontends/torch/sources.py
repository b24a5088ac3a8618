"""What the inputs of an fx graph stand for, and what its outputs became."""

from __future__ import annotations

from typing import Any, TypeAlias

from interposer.core.records import dataclass
from interposer.ir.network import Network

__all__ = ["Fixed", "Imported", "Produced", "Result", "Source", "StateBuffer", "UserInput", "Weight"]


@dataclass(frozen=True, slots=True)
class UserInput:
    """An input of the graph that becomes an input of the network with this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Weight:
    """An input of the graph that is a constant: the tensor's memory is shared, not copied."""

    name: str
    tensor: Any


@dataclass(frozen=True, slots=True)
class StateBuffer:
    """An input of the graph that becomes a state of the network; the tensor has its initial value."""

    name: str
    tensor: Any


@dataclass(frozen=True, slots=True)
class Fixed:
    """A Python value that takes no part in runs, such as a number or None: as an input or an output of the graph."""

    value: Any


Source: TypeAlias = UserInput | Weight | StateBuffer | Fixed


@dataclass(frozen=True, slots=True)
class Produced:
    """An output of the graph that is the network's output number `binding_id`.

    `is_number` is True if the graph returns a Python number, which the network returns as a tensor of rank 0.
    `is_complex` is True for a complex tensor, which the network returns with real and imaginary part as the last axis.
    """

    binding_id: int
    is_number: bool = False
    is_complex: bool = False


Result: TypeAlias = Produced | Fixed


@dataclass(frozen=True, slots=True)
class Imported:
    """A network that was built from an fx graph, and for each output of the graph what it became, in order."""

    network: Network
    outputs: tuple[Result, ...]
