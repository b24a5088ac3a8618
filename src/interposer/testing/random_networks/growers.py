"""The growers: functions that add layers to a network, and their probabilities."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.ir.graph import Value
from interposer.testing.random_networks.growth import Growth

__all__ = ["GROWERS", "Grower", "grower"]

_Function = Callable[[Growth, Value], Any]
_FAVOUR: Final = 120
"""The factor on the weight of a grower of favoured operators only; it decreases with the square of their share."""


@dataclass(frozen=True)
class Grower:
    """A function that adds certain layers to a random network, and how often it is used.

    Args:
        function: a function of the network and one of its values that adds layers after the value, or raises `Skipped`.
        weight: the relative frequency in networks of its kinds; in other networks, an eighth of it applies.
        ops: the operators that it adds.
        kinds: the kinds of networks to which `weight` applies, "float" or "quantized".
        choice: a function that returns the operators of which it adds one, preferably a favoured one; `ops` is then
            empty.
    """

    function: _Function
    weight: int
    ops: frozenset[type[Op]]
    kinds: tuple[str, ...]
    choice: Callable[[], Collection[type[Op]]] | None = None

    @property
    def name(self) -> str:
        """The module and the name of the function, by which growers are sorted."""
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def weight_for(self, kind: str, favoured: frozenset[type[Op]]) -> int:
        """Return the relative frequency of the grower in networks of this kind.

        It is increased if `favoured` has some of its operators.
        """
        weight = self.weight if kind in self.kinds else (self.weight + 7) // 8
        share = self._share(favoured) if favoured else 0.0
        return weight * max(1, int(_FAVOUR * share * share))

    def _share(self, favoured: frozenset[type[Op]]) -> float:
        """Return the fraction of the grower's operators that are in `favoured`.

        If it chooses one of many operators, this is the fraction of `favoured` that it can add.
        """
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
    """Register the decorated function as a `Grower` that adds the operators `ops`.

    See `Grower` for the other arguments.
    """

    def register(function: _Function) -> _Function:
        GROWERS.append(Grower(function, weight, frozenset(ops), kinds, choice))
        return function

    return register
