"""The fast path of a model that has a single loaded network."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from interposer.core.types import Array
from interposer.runtime import NetworkId, Runtime
from interposer.runtime.loaded import DirectRun
from interposer.session.imports import ImportedTensors
from interposer.session.variants import fingerprint

__all__ = ["Expected", "FastPath"]


class Expected(NamedTuple):
    """The shape, type and fingerprint of an input whose values a network was built for, and its position."""

    position: int
    shape: tuple[int, ...]
    dtype: Any
    fingerprint: Hashable

    def is_met(self, array: Any) -> bool:
        """Return True if this is an array of the expected shape, type and values."""
        is_alike = type(array) is np.ndarray and array.shape == self.shape and array.dtype == self.dtype
        return is_alike and fingerprint(array) == self.fingerprint


class FastPath:
    """Runs the only loaded network of a model without locks, for calls whose arrays need no conversion.

    It exists while the model has no second variant, a network for other input shapes or values. `names` are the names
    of the inputs in order. `values` are the inputs whose values the network was built for: calls with other values need
    the ordinary way, as if their arrays needed a conversion. `direct` is the function of `Runtime.direct_call`, or None
    if the network has none. `recorded` does the same and records the run.
    """

    def __init__(
        self, runtime: Runtime, network_id: NetworkId, names: tuple[str, ...], values: Sequence[Expected] = ()
    ) -> None:
        self.network_id, self._enqueue, self._names = network_id, runtime.enqueue_workload, names
        self._bindings, self.values = runtime.bindings(network_id), values
        numbers = {bound.name: number for number, bound in self._bindings.inputs.items()}
        unbound = {expected.position for expected in values} - {names.index(name) for name in numbers}
        self._positions = [position for position in range(len(names)) if position not in unbound]
        self._numbers = tuple(numbers[names[position]] for position in self._positions)
        self._order = tuple(sorted(self._bindings.outputs))
        self.direct = runtime.direct_call(network_id, self._numbers)
        self.recorded = None if self.direct is None else runtime.recorded(network_id, self.direct)
        if values:
            self.direct, self.recorded = self._guarded(self.direct), self._guarded(self.recorded)

    def _guarded(self, call: DirectRun | None) -> DirectRun | None:
        """Return a function that makes calls with the expected values, and returns None for others."""
        if call is None:
            return None

        def guarded(inputs: Any, outputs: Any) -> list[Array] | None:
            bound = self._bound(inputs)
            return None if bound is None else call(bound, outputs)

        return guarded

    def _bound(self, inputs: Any) -> list[Any] | None:
        """Return the inputs that the network reads; None if others do not have the values that it was built for."""
        if type(inputs) is dict:
            inputs = [inputs.get(name) for name in self._names] if len(inputs) == len(self._names) else ()
        if not (type(inputs) is list and len(inputs) == len(self._names)):
            return None
        is_met = all(expected.is_met(inputs[expected.position]) for expected in self.values)
        return [inputs[position] for position in self._positions] if is_met else None

    def run(self, owner: object, inputs: Any, outputs: Any) -> list[Any] | None:
        """Run once and return the outputs in order; None without running if the ordinary way is needed.

        That is so if inputs or outputs need a conversion or a check. `owner` owns the tensors that were imported for
        this model: see `ImportedTensors`.
        """
        if self.values:
            inputs = self._bound(inputs)
        if type(inputs) is type(outputs) is ImportedTensors:
            return self._run_imported(owner, inputs, outputs)
        if type(inputs) is dict:
            inputs = [inputs[name] for name in self._names if name in inputs] if len(inputs) == len(self._names) else ()
        if not (type(inputs) is list and len(inputs) == len(self._numbers)):
            return None
        targets = None if outputs is None else self._targets(outputs)
        feeds = None if targets is None and outputs is not None else self._bindings.fitting(self._numbers, inputs)
        return None if feeds is None else self._in_order(self._enqueue(self.network_id, feeds, targets))

    def _targets(self, outputs: Any) -> dict[int, Any] | None:
        """Return the caller's arrays for all outputs by binding id; None if `outputs` is not a list of NumPy arrays."""
        arrays = type(outputs) is list and all(type(output) is np.ndarray for output in outputs)
        return dict(zip(self._order, outputs, strict=True)) if arrays and len(outputs) == len(self._order) else None

    def _run_imported(self, owner: object, inputs: ImportedTensors, outputs: ImportedTensors) -> list[Any] | None:
        if not (self._has(owner, inputs, "input") and self._has(owner, outputs, "output")):
            return None
        outputs_by_number = self._enqueue(self.network_id, imported_inputs=inputs.ids, imported_outputs=outputs.ids)
        return self._in_order(outputs_by_number)

    def _in_order(self, outputs: Mapping[int, Any]) -> list[Any]:
        return [outputs[number] for number in self._order]

    def _has(self, owner: object, imported: ImportedTensors, kind: str) -> bool:
        is_own = imported.owner is owner and imported.network_id == self.network_id
        return is_own and imported.kind == kind and not imported.closed
