"""The growers: functions that add layers to a network, with how often each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from interposer.ir.graph import Value
from interposer.schema import Op
from interposer.testing.random_networks.growth import Growth

__all__ = ["GROWERS", "Grower", "grower"]


@dataclass(frozen=True)
class Grower:
    """A function that adds layers after a value: how often it is drawn, and the operators that it may add."""

    function: Callable[[Growth, Value], Any]
    weight: int
    ops: frozenset[type[Op]]
    kinds: tuple[str, ...]

    @property
    def name(self) -> str:
        """The module and name of the function, by which growers are put in order."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    @property
    def of_any_operator(self) -> bool:
        """True if it may add any operator."""
        return not self.ops

    def weight_for(self, kind: str, favoured: Collection[type[Op]]) -> int:
        """Return how often it is drawn for a network of that kind."""
        weight = self.weight if kind in self.kinds else (self.weight + 7) // 8
        if favoured and (self.of_any_operator or not self.ops.isdisjoint(favoured)):
            return weight * 40
        return weight


GROWERS: Final[list[Grower]] = []
"""All growers, in the order in which their modules were imported."""

_Function = Callable[[Growth, Value], Any]


def grower(
    weight: int, *ops: type[Op], kinds: tuple[str, ...] = ("float", "quantized")
) -> Callable[[_Function], _Function]:
    """Register the decorated function, which adds layers after a value.

    Args:
        weight: how often it is drawn in networks of the given kinds; in those of other kinds, an eighth of it.
        ops: the operators that it may add; any, if there are none.
        kinds: the kinds of networks that it is for.
    """

    def register(function: _Function) -> _Function:
        GROWERS.append(Grower(function, weight, frozenset(ops), kinds))
        return function

    return register
