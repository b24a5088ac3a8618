"""Values that an engine cannot use: whether the inputs of a subgraph are the cause of a failed run.

Engines raise the same exceptions for an index out of range as for any other failure, and some compute something from it
or end the process. The indices and sizes that depend on inputs of the subgraph are therefore checked as the reference
kernels check them: after a failure, and before each run for operators that the engine does not check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from interposer.core.schema import Op
from interposer.core.types import Array
from interposer.ir.graph import Layer
from interposer.ir.subgraph import SubgraphView
from interposer.kernels.value_checks import Refused, ValueChecks, decisive_operands

__all__ = ["InputChecks"]

_MOST_ELEMENTS: Final = 1 << 14
"""The most elements of a layer that is computed in order to check indices, as this is repeated in each run."""


class InputChecks:
    """The checks of the inputs of a subgraph that the backend `backend` runs.

    `unchecked` are the operators whose indices and sizes the engine does not check.
    """

    def __init__(self, view: SubgraphView, backend: str, unchecked: Sequence[type[Op]]) -> None:
        self._backend = backend
        self._checks = ValueChecks(list(view), view.inputs, most_elements=_MOST_ELEMENTS)
        self._positions = [(view.inputs.index(source), source) for source in self._checks.sources]
        is_unchecked = any(isinstance(layer.op, tuple(unchecked)) and _is_decided(layer) for layer in view)
        self.comes_first = bool(self._positions) and is_unchecked

    def check(self, arrays: Sequence[Array]) -> None:
        """Raise `InvalidValueError` if a layer cannot use a value of these arrays, the inputs of the subgraph."""
        if not self._positions:
            return
        try:
            self._checks.check({source: arrays[position] for position, source in self._positions})
        except Refused as refused:
            layer, error = refused.layer, refused.error
            raise error.of_layer(str(layer), layer=layer.name, backend=self._backend, tensor=refused.tensor) from error


def _is_decided(layer: Layer) -> bool:
    return bool(decisive_operands(layer.op, len(layer.inputs)))
