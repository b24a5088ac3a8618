"""`BoundRun`: a model that is bound to fixed input and output arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from interposer.core.dlpack import shared_array
from interposer.core.errors import (
    BindingError,
    ExecutionError,
    InvalidArgumentError,
    MemoryImportError,
    UnknownNetworkError,
)
from interposer.core.types import Array
from interposer.profiling.recorder import active
from interposer.runtime import Runtime
from interposer.runtime.loaded import DirectRun
from interposer.session.imports import ImportedTensors

__all__ = ["BoundRun"]


class RunsOnArrays(Protocol):
    """A model, as far as `BoundRun` needs it: a runtime, and methods to run and to import."""

    @property
    def runtime(self) -> Runtime:
        """The runtime that the model is loaded in."""

    def run(self, inputs: Any, outputs: Any) -> Any:
        """Run the model once; inputs and outputs are arrays by name or in order, or imported tensors."""

    def import_inputs(self, inputs: Mapping[str, Any]) -> ImportedTensors:
        """Let the backends use the arrays of inputs directly."""

    def import_outputs(self, outputs: Sequence[Any]) -> ImportedTensors:
        """Let the backends use the arrays of outputs directly."""


class BoundRun:
    """A model bound to arrays by `Model.bind`; each call runs it on the same arrays and returns the list of `outputs`.

    The arrays are checked once, when the object is created. Tensors that the backends can use directly are never
    copied; all others are copied in each call. The content of the inputs may change between calls, and each call
    overwrites the outputs. Calls must not overlap: create one bound run per thread. The memory is in use until `close`,
    the end of a ``with`` block, or until the model is closed.

    `before_each` is called before each run, and returns True if the model has unloaded the network that was bound.
    """

    def __init__(
        self,
        model: RunsOnArrays,
        inputs: Mapping[str, Any],
        outputs: Sequence[Any],
        is_replaced: Callable[[ExecutionError | UnknownNetworkError, int], bool],
        num_events: Callable[[], int],
    ) -> None:
        self.inputs = inputs
        self.outputs: list[Array] = [shared_array(output, f"output {index}") for index, output in enumerate(outputs)]
        self._model, self._is_replaced, self._num_events = model, is_replaced, num_events
        self._imports: tuple[ImportedTensors, ImportedTensors] | None = None
        self._closed = False
        self.before_each: Callable[[], bool] | None = None
        self._events = num_events()  # read before the arrays are imported for the current placement
        with suppress(MemoryImportError):
            self._import()
        self._quick = self._bound()

    def __call__(self) -> list[Array]:
        """Run once and return `outputs`.

        Raises:
            InvalidArgumentError: this bound run is closed.
            ExecutionError: the model is closed; or a layer failed, and fallback is disabled or no other backend is
                left.
        """
        if self.before_each is not None and self.before_each():
            self._quick = None
        quick_run, events_before = self._quick, self._events
        if quick_run is not None:
            try:
                if quick_run():
                    return self.outputs
            except (ExecutionError, UnknownNetworkError) as error:
                if not self._is_replaced(error, events_before):
                    raise
        return self._run_anew()

    def _run_anew(self) -> list[Array]:
        """Run through `Model.run`, and bind the arrays to the current placement of the model."""
        if self._closed:
            raise InvalidArgumentError("this bound run is closed; bind the model again")
        events_before = self._num_events()
        try:
            self._model.run(*(self._imports or (self.inputs, self.outputs)))
        except BindingError:
            if self._imports is None:
                raise
            self._drop_imports()
            self._model.run(self.inputs, self.outputs)
        self._events, self._quick = events_before, self._bound()
        return self.outputs

    def _drop_imports(self) -> None:
        """Give arrays to the following runs, which copy, because an output overlaps an input."""
        imports, self._imports = self._imports or (), None
        for imported in imports:
            imported.close()

    def _import(self) -> None:
        inputs = self._model.import_inputs(self.inputs)
        try:
            self._imports = inputs, self._model.import_outputs(self.outputs)
        except BaseException:
            inputs.close()
            raise

    def _bound(self) -> Callable[[], bool] | None:
        if self._imports is None:
            return None
        inputs, outputs = self._imports
        if inputs.network_id != outputs.network_id:  # in the current placement, inputs or outputs have to be copied
            return None
        runtime, network_id = self._model.runtime, inputs.network_id
        with suppress(UnknownNetworkError):
            try:
                run_imported = runtime.prepare_run(network_id, inputs.ids, outputs.ids)
            except BindingError:
                self._drop_imports()
                return None
            direct = runtime.direct_call(network_id, tuple(runtime.bindings(network_id).inputs))
            if direct is None:
                return run_imported
            recorded = runtime.recorded(network_id, direct)
            return partial(_run_directly, direct, recorded, inputs.arrays, outputs.arrays, run_imported)
        return None

    @property
    def copies(self) -> bool:
        """True if calls copy tensors, because a backend cannot use all of the arrays directly."""
        return self._imports is None

    def close(self) -> None:
        """Release the arrays. Closing a closed bound run does nothing."""
        self._closed, self._quick = True, None
        for imported in self._imports or ():
            imported.close()

    def __enter__(self) -> BoundRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _run_directly(
    direct: DirectRun,
    recorded: DirectRun,
    inputs: Mapping[str, Array],
    outputs: Mapping[str, Array],
    prepared: Callable[[], bool],
) -> bool:
    """Run the model once on these arrays by name; return False if it did not run, and must run in the ordinary way.

    `direct` is a function of `Runtime.direct_call`, and `recorded` records its runs. If the network does not accept
    such calls any more, `prepared`, a function of `Runtime.prepare_run`, is called.
    """
    call = recorded if active else direct
    return call(inputs, outputs) is not None or prepared()
