"""`BoundRun`: a model with the arrays that it is to read and write, for the same call again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from interposer.core.dlpack import shared_array
from interposer.core.errors import ExecutionError, InvalidArgumentError, MemoryImportError, UnknownNetworkError
from interposer.core.types import Array
from interposer.session.imports import ImportedTensors

if TYPE_CHECKING:
    from interposer.session.model import Model

__all__ = ["BoundRun"]


class BoundRun:
    """Runs a model on the same arrays in every call, as `Model.bind` gave it; each call gives the list of `outputs`.

    Everything is checked when it is made, so a call has the least to do. Tensors that a backend can use where they lie
    are never copied, and what it cannot is. The content of the inputs may change between calls; that of the outputs is
    replaced by each. One call at a time: for several threads make one for each. The memory is in use until `close`, the
    end of a ``with`` block, or until the model is closed.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Any],
        outputs: Sequence[Any],
        is_placed_anew: Callable[[ExecutionError | UnknownNetworkError, int], bool],
    ) -> None:
        self.inputs = inputs
        self.outputs: list[Array] = [shared_array(output, f"output {index}") for index, output in enumerate(outputs)]
        self._model, self._is_placed_anew = model, is_placed_anew
        self._imports: tuple[ImportedTensors, ImportedTensors] | None = None
        self._closed = False
        self._events = len(model.events)  # before anything is taken from where the model is placed
        with suppress(MemoryImportError):
            self._import()
        self._quick = self._bound()

    def __call__(self) -> list[Array]:
        """Run once.

        Raises:
            InvalidArgumentError: it is closed.
            ExecutionError: the model is closed; or a layer failed, and nobody else may run it or is left to.
        """
        quick, before = self._quick, self._events
        if quick is not None:
            try:
                if quick():
                    return self.outputs
            except (ExecutionError, UnknownNetworkError) as error:
                if not self._is_placed_anew(error, before):
                    raise
        return self._run_anew()

    def _run_anew(self) -> list[Array]:
        """Run as any other call does, and bind to where the model is placed now."""
        if self._closed:
            raise InvalidArgumentError("this bound run is closed; bind the model again")
        before = len(self._model.events)
        self._model.run(*(self._imports or (self.inputs, self.outputs)))
        self._events, self._quick = before, self._bound()
        return self.outputs

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
        if inputs.network_id != outputs.network_id:  # where the model is placed now, one of them has to be copied
            return None
        with suppress(UnknownNetworkError):
            return self._model.runtime.prepare_run(inputs.network_id, inputs.ids, outputs.ids)
        return None

    @property
    def copies(self) -> bool:
        """True if tensors are copied, as a backend cannot use them all where they lie."""
        return self._imports is None

    def close(self) -> None:
        """Let go of the arrays. Closing again does nothing."""
        self._closed, self._quick = True, None
        for taken in self._imports or ():
            taken.close()

    def __enter__(self) -> BoundRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
