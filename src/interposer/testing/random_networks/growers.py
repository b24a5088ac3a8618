"""The growers: functions that add layers to a network, with how often each is drawn."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Final

from interposer.core.schema import Op
from interposer.ir.graph import Value
from interposer.testing.random_networks.growth import Growth

__all__ = ["GROWERS", "Grower", "grower"]

_Function = Callable[[Growth, Value], Any]
_FAVOUR: Final = 120
"""How much more often a grower is drawn that adds nothing but favoured operators; for others, it falls off steeply."""


@dataclass(frozen=True)
class Grower:
    """A function that adds layers after a value.

    Args:
        function: adds the layers, or raises `Skipped`.
        weight: how often it is drawn in networks of its kinds; in those of other kinds, an eighth of it.
        ops: the operators that it adds.
        kinds: the kinds of networks that it is for.
        choice: returns the operators that it chooses one of, if it prefers favoured ones; then `ops` are none.
    """

    function: _Function
    weight: int
    ops: frozenset[type[Op]]
    kinds: tuple[str, ...]
    choice: Callable[[], Collection[type[Op]]] | None = None

    @property
    def name(self) -> str:
        """The module and name of the function, by which growers are put in order."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def weight_for(self, kind: str, favoured: frozenset[type[Op]]) -> int:
        """Return how often it is drawn for a network of that kind."""
        weight = self.weight if kind in self.kinds else (self.weight + 7) // 8
        share = self._share(favoured) if favoured else 0.0
        return weight * max(1, int(_FAVOUR * share * share))

    def _share(self, favoured: frozenset[type[Op]]) -> float:
        """Return which part of the operators that it adds are favoured ones."""
        if self.choice is not None:
            return len(favoured.intersection(self.choice())) / len(favoured)
        return len(favoured & self.ops) / len(self.ops)


GROWERS: Final[list[Grower]] = []
"""All growers, in the order in which their modules were imported."""


def grower(
    weight: int,
    *ops: type[Op],
    kinds: tuple[str, ...] = ("float", "quantized"),
    choice: Callable[[], Collection[type[Op]]] | None = None,
) -> Callable[[_Function], _Function]:
    """Register the decorated function as a `Grower` with these arguments."""

    def register(function: _Function) -> _Function:
        GROWERS.append(Grower(function, weight, frozenset(ops), kinds, choice))
        return function

    return register
