"""`QuickShapes`: with which inputs a model runs so quickly that the event loop runs it itself.

Handing a run over to a thread and back takes longer than a small model needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array, DataType, Dim, TensorInfo
from interposer.ir.graph import Layer
from interposer.session import Model

__all__ = ["QuickShapes", "shapes_of"]

_QUICK: Final = 250e-6
"""Seconds of a run up to which the event loop runs the model itself."""
_RUNS: Final = 32
"""Runs of which the quickest one counts. Others may have waited for a processor."""
_LEAST_TIME: Final = 20 * _QUICK
"""Seconds until the deadline of a request from which on its run may be in the event loop, which cannot stop it."""
_LONG: Final = 0.05
"""Seconds of a run that no wait for a processor explains: the next `_RUNS` runs are not in the event loop."""
_MOST: Final = 256
"""Combinations of shapes that are remembered."""
_BACKENDS: Final = frozenset({"CpuAcc", "CpuRef"})
"""Backends that do not wait for other processes or devices."""
_Shapes: TypeAlias = tuple[tuple[int, ...], ...]


class QuickShapes:
    """The shapes of inputs with which a model was measured, and how long it ran. Used in the event loop only.

    The time of a run must follow from the shapes alone: no layer is a loop or has a shape that depends on values, no
    value is a text, which may have any length, and all backends are CpuAcc or CpuRef in this process. When the model
    has begun or stopped to use a backend, all times are measured again.

    Args:
        model: the model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._times: dict[_Shapes, _Times] = {}
        self._is_suited: bool | None = None
        self._events = model.events

    def has(self, shapes: _Shapes, seconds: float) -> bool:
        """Return True if a run with inputs of these shapes is quick enough for a deadline in `seconds`."""
        times = self._times.get(shapes)
        if times is None or not times.is_quick or seconds < _LEAST_TIME:
            return False
        if self._model.events != self._events:
            self._forget()
            return False
        return True

    def ran(self, shapes: _Shapes, seconds: float) -> None:
        """Note the time of a run with inputs of these shapes."""
        times = self._times.get(shapes)
        if times is None:
            times = self._new_times(shapes)
        if times is not None:
            times.add(seconds)

    def failed(self, shapes: _Shapes) -> None:
        """Note that a run with inputs of these shapes failed, or had to be built: it is measured in another thread."""
        self._times.pop(shapes, None)

    def _forget(self) -> None:
        """Measure all shapes again, as other backends run the model now."""
        self._times.clear()
        self._is_suited, self._events = None, self._model.events

    def _new_times(self, shapes: _Shapes) -> _Times | None:
        if self._model.events != self._events:
            self._forget()
        if self._is_suited is None:
            self._is_suited = _time_follows_from_shapes(self._model)
        if not self._is_suited:
            return None
        if len(self._times) >= _MOST:
            self._times.clear()
        times = self._times[shapes] = _Times()
        return times


class _Times:
    """The times of the last runs with inputs of some shapes."""

    __slots__ = ("_count", "_has_long", "_shortest", "is_quick")

    def __init__(self) -> None:
        self.is_quick = self._has_long = False
        self._count, self._shortest = 0, float("inf")

    def add(self, seconds: float) -> None:
        """Note the time of a run."""
        if self.is_quick and seconds >= _LONG:
            self.is_quick, self._has_long = False, True
            self._count, self._shortest = 0, float("inf")
            return
        self._count += 1
        if seconds < self._shortest:
            self._shortest = seconds
            self.is_quick = self.is_quick or (seconds < _QUICK and not self._has_long)
        if self._count == _RUNS:
            self.is_quick, self._has_long = self._shortest < _QUICK, False
            self._count, self._shortest = 0, float("inf")


def shapes_of(inputs: Mapping[str, Array]) -> _Shapes:
    """Return the shapes of inputs in their order."""
    return tuple([array.shape for array in inputs.values()])


def _time_follows_from_shapes(model: Model) -> bool:
    try:
        network = model.optimized
    except InvalidArgumentError:  # not prepared, or closed
        return False
    registry = model.runtime.registry
    names = {str(placement.backend) for placement in network.placements}
    if not names <= _BACKENDS or any(registry.isolation(name) is not None for name in names):
        return False
    return not any(layer.regions or _has_open_size(layer) for layer in network.graph)


def _has_open_size(layer: Layer) -> bool:
    """Return True if the bytes of an output do not follow from the shapes of the inputs."""
    infos = [value.info for value in layer.outputs]
    return any(info is None or not info.is_tensor or _is_open(info) for info in infos)


def _is_open(info: TensorInfo) -> bool:
    has_texts = info.dtype is DataType.STRING
    return has_texts or not info.is_ranked or any(isinstance(size, Dim) for size in info.shape)
