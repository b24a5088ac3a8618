"""`Execution`: runs of the loaded networks of a model, which are repeated on other backends if one fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from interposer.backend import MemoryDescriptor, MemorySource
from interposer.core.containers import as_given
from interposer.core.dlpack import shared_array
from interposer.core.errors import (
    BackendUnavailableError,
    ExecutionError,
    InterposerError,
    InvalidArgumentError,
    InvalidValueError,
    LimitExceededError,
    LoadError,
    RunCancelledError,
    UnknownNetworkError,
    UnsupportedLayerError,
)
from interposer.core.types import Array
from interposer.runtime import NetworkId, RunControl
from interposer.session.arguments import input_arrays, inputs_by_name, outputs_by_number
from interposer.session.imports import ImportedTensors
from interposer.session.loaded import LoadedVariants
from interposer.session.variants import Key

__all__ = ["Execution"]


class Execution:
    """Runs the loaded networks of one model, and imports memory for them.

    `check_inputs` is called with the arrays of the inputs by name before a network for their shapes is loaded. It
    raises `BindingError` if the model does not take them.
    """

    def __init__(self, variants: LoadedVariants) -> None:
        self._variants, self._runtime = variants, variants.runtime
        self.check_inputs: Callable[[Mapping[str, Array]], None] | None = None

    def run(
        self,
        inputs: Any,
        outputs: Any,
        control: Callable[[], RunControl | None],
        disabled: set[str] | None = None,
        failure: InterposerError | None = None,
    ) -> list[Any]:
        """Run once and return the outputs; if a backend fails, run again on the remaining backends.

        `control` creates the object that can stop a run, for each attempt. `disabled` are the backends that this call
        has disabled already. `failure` is the error of an earlier attempt of the same call, which is raised if there is
        no other way to run the network.
        """
        variants = self._variants
        disabled = set() if disabled is None else disabled
        imported_inputs = inputs if isinstance(inputs, ImportedTensors) else None
        for kind, tensors in (("input", inputs), ("output", outputs)):
            if isinstance(tensors, ImportedTensors):
                tensors.check(variants, kind)
        arrays = self._arrays(inputs)
        while True:
            events_before = variants.choice.num_events
            try:
                return self._run_once(arrays, imported_inputs, outputs, control(), disabled)
            except RunCancelledError:
                raise
            except (InvalidValueError, LimitExceededError):
                variants.blame_values(disabled)
                raise
            except (ExecutionError, LoadError, UnknownNetworkError) as error:
                failure = error
                self._check_values(error, arrays, disabled)
                if not variants.is_replaced(error, events_before, disabled):
                    raise variants.given_up(error, disabled) from error.__cause__
            except (BackendUnavailableError, UnsupportedLayerError) as error:
                first = failure or error
                raise variants.given_up(first, disabled) from first.__cause__

    def run_once(self, inputs: Any) -> list[Any]:
        """Run once and return the outputs; raise the error of a backend that fails, without disabling it.

        Raises:
            InterposerError: as for `run`.
        """
        return self._run_once(self._arrays(inputs), None, None, None, set())

    def _check_values(self, error: InterposerError, arrays: Mapping[str, Array], disabled: set[str]) -> None:
        """Raise `InvalidValueError` if the values of the inputs are the cause of an error."""
        try:
            self._variants.check_values(error, lambda: arrays)
        except InvalidValueError:
            self._variants.blame_values(disabled)
            raise

    def check_values(self, error: InterposerError, inputs: Any) -> None:
        """Raise `InvalidValueError` if the values of the inputs, in any form that `run` takes, caused an error."""
        self._variants.check_values(error, lambda: self._arrays(inputs))

    def _arrays(self, inputs: Any) -> Mapping[str, Array]:
        if isinstance(inputs, ImportedTensors):
            return inputs.arrays
        return input_arrays(self._variants.blueprint.inputs, inputs)

    def _run_once(
        self,
        arrays: Mapping[str, Array],
        imported: ImportedTensors | None,
        outputs: Any,
        control: RunControl | None,
        disabled: set[str],
    ) -> list[Any]:
        key, network_id = self._begin(arrays, disabled)
        try:
            input_ids = () if imported is None else imported.ids_in(network_id)
            feeds = None if input_ids else self._feeds(network_id, arrays)
            targets, output_ids = self._targets(network_id, outputs)
            results = self._runtime.enqueue_workload(
                network_id, feeds, targets, imported_inputs=input_ids, imported_outputs=output_ids, control=control
            )
        finally:
            self._variants.end(key)
        return [results[number] for number in sorted(results)]

    def _begin(self, arrays: Mapping[str, Array], disabled: set[str] | None = None) -> tuple[Key, NetworkId]:
        if self.check_inputs is not None:
            self.check_inputs(arrays)
        return self._variants.begin(arrays, disabled)

    def _feeds(self, network_id: NetworkId, arrays: Mapping[str, Array]) -> dict[int, Any]:
        infos = self._variants.blueprint.inputs
        return {
            number: arrays[binding.name]
            if binding.info.is_tensor
            else as_given(infos[binding.name], arrays[binding.name])
            for number, binding in self._runtime.bindings(network_id).inputs.items()
        }

    def _targets(self, network_id: NetworkId, outputs: Any) -> tuple[dict[int, Any] | None, tuple[int, ...]]:
        """Return where a run writes its outputs: arrays by binding id, and the ids of imported outputs.

        One of them is None or empty. Both are if `outputs` is None, so that new arrays are allocated.
        """
        if outputs is None:
            return None, ()
        if not isinstance(outputs, ImportedTensors):
            return self._outputs_by_binding(network_id, outputs), ()
        arrays = outputs.arrays
        ids = outputs.ids_in(network_id)
        return (None, ids) if ids else (self._outputs_by_binding(network_id, arrays), ())

    def _outputs_by_binding(self, network_id: NetworkId, outputs: Sequence[Any] | Mapping[str, Any]) -> dict[int, Any]:
        bindings = self._runtime.bindings(network_id).outputs
        return outputs_by_number({bindings[number].name: number for number in sorted(bindings)}, outputs)

    def as_arrays(self, inputs: Any) -> Any:
        """Return inputs that another model of the same network can take.

        Imported inputs belong to this model, and are returned as arrays by name; other inputs are returned unchanged.
        """
        if not isinstance(inputs, ImportedTensors):
            return inputs
        inputs.check(self._variants, "input")
        return inputs.arrays

    def import_inputs(self, inputs: Sequence[Any] | Mapping[str, Any], memory_source: MemorySource) -> ImportedTensors:
        """Import the memory of all inputs; see `Model.import_inputs`."""
        blueprint = self._variants.blueprint
        by_name = inputs_by_name(blueprint.inputs, inputs)
        if blueprint.needed:
            raise InvalidArgumentError(
                f"the network depends on {blueprint.lacking}, which may change; give these inputs to each call"
            )
        with self._variants.lock:
            key, network_id = self._begin(self._with_shapes(by_name))
        numbers = {binding.name: number for number, binding in self._runtime.bindings(network_id).inputs.items()}
        by_number = {numbers[name]: tensor for name, tensor in by_name.items()}
        return self._imported("input", key, network_id, by_number, memory_source)

    def import_outputs(
        self, outputs: Sequence[Any] | Mapping[str, Any], memory_source: MemorySource
    ) -> ImportedTensors:
        """Import the memory of all outputs; see `Model.import_outputs`."""
        key, network_id = self._variants.begin_like_the_last()
        try:
            tensors_by_binding = self._outputs_by_binding(network_id, outputs)
        except InterposerError:
            self._variants.end(key)
            raise
        return self._imported("output", key, network_id, tensors_by_binding, memory_source)

    def _imported(
        self, kind: str, key: Key, network_id: NetworkId, tensors: Mapping[int, Any], source: MemorySource
    ) -> ImportedTensors:
        take = self._runtime.import_inputs if kind == "input" else self._runtime.import_outputs
        try:
            ids = take(network_id, tensors, source)
            return ImportedTensors(
                self._variants, self._runtime, kind, network_id, ids, partial(self._variants.end, key)
            )
        except InterposerError:
            self._variants.end(key)
            raise

    def tensors_to_bind(
        self, inputs: Sequence[Any] | Mapping[str, Any], outputs: Sequence[Any] | Mapping[str, Any] | None
    ) -> tuple[dict[str, Any], list[Any]]:
        """Return the inputs by name and the outputs in order, once they are checked; None allocates the outputs.

        Raises:
            InvalidArgumentError: the shape of an output depends on data.
            InterposerError: the inputs or outputs do not fit the network.
        """
        infos = self._variants.blueprint.inputs
        by_name = inputs_by_name(infos, inputs)
        key, network_id = self._begin(self._with_shapes(by_name))
        try:
            bindings = self._runtime.bindings(network_id)
            output_tensors = (
                bindings.new_outputs() if outputs is None else self._outputs_by_binding(network_id, outputs)
            )
            missing_outputs = [
                repr(binding.name) for number, binding in bindings.outputs.items() if number not in output_tensors
            ]
            bindings.checked_outputs({number: shared_array(target) for number, target in output_tensors.items()})
            input_arrays(infos, by_name)
        finally:
            self._variants.end(key)
        if missing_outputs:
            raise InvalidArgumentError(
                f"nothing can be bound to output {', '.join(missing_outputs)}: its shape depends on data"
            )
        return by_name, [output_tensors[number] for number in sorted(output_tensors)]

    def _with_shapes(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        return {name: self._with_shape(name, tensor) for name, tensor in inputs.items()}

    def _with_shape(self, name: str, tensor: Any) -> Array:
        """Return an array that has the shape of what was passed for the input `name`.

        A `MemoryDescriptor` has no shape: the array then has the input's own or usual shape, and no meaningful
        content. Raises `InvalidArgumentError` if that shape is not known.
        """
        if not isinstance(tensor, MemoryDescriptor):
            return shared_array(tensor, f"input {name!r}")
        blueprint = self._variants.blueprint
        shape = blueprint.usual_shapes.get(name, blueprint.inputs[name].shape)
        if not shape.is_concrete:
            raise InvalidArgumentError(f"input {name!r} has the shape {shape}; a descriptor does not define its sizes")
        return np.broadcast_to(np.empty((), np.uint8), tuple(map(int, shape)))
