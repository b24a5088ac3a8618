"""Inputs and outputs of a model in memory of the caller, imported once and used in many calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from interposer.core.errors import InvalidArgumentError, MemoryImportError, UnknownNetworkError
from interposer.core.types import Array
from interposer.runtime import NetworkId, Runtime

__all__ = ["ImportedTensors"]


class ImportedTensors:
    """All inputs, or all outputs, of a model, as imported by `Model.import_inputs` or `Model.import_outputs`.

    `arrays` are views of the memory by name. The memory is in use until `close`, the end of a ``with`` block, or until
    the model is closed. `owner` is the `LoadedVariants` of the model; `network_id` and `ids` identify the network and
    the imports in its runtime.
    """

    def __init__(
        self,
        owner: object,
        runtime: Runtime,
        kind: str,
        network_id: NetworkId,
        ids: Sequence[int],
        on_close: Callable[[], None],
    ) -> None:
        self.owner, self.kind, self.network_id, self.ids = owner, kind, network_id, tuple(ids)
        self._runtime, self._on_close = runtime, on_close
        self._arrays = runtime.imported_arrays(network_id, kind, ids)
        self.closed = False

    @property
    def arrays(self) -> dict[str, Array]:
        """Arrays over the imported memory, by name.

        Raises:
            InvalidArgumentError: these tensors are closed.
        """
        self._check_open()
        return {name: array for name, array in self._arrays.values()}

    def check(self, owner: object, kind: str) -> None:
        """Raise `InvalidArgumentError` if the networks `owner` of a model cannot use these tensors in a run.

        `kind` is "input" or "output". They may belong to another model, be of the other kind, or be closed.
        """
        if owner is not self.owner:
            raise InvalidArgumentError(f"these {self.kind}s were imported by another model")
        if kind != self.kind:
            raise InvalidArgumentError(f"these are {self.kind}s, given for {kind}s")
        self._check_open()

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidArgumentError(f"these {self.kind}s are closed; import them again")

    def ids_in(self, network_id: NetworkId) -> tuple[int, ...]:
        """Return the import ids in the network with this id; import the arrays again if the model was optimized again.

        The result is empty if that network cannot use the memory directly and has to copy.
        """
        if self.network_id != network_id:
            take = self._runtime.import_inputs if self.kind == "input" else self._runtime.import_outputs
            try:
                ids = take(network_id, {number: array for number, (_, array) in self._arrays.items()})
            except MemoryImportError:
                return ()
            self.network_id, self.ids = network_id, tuple(ids)
        return self.ids

    def close(self) -> None:
        """Release the memory; later calls with it raise `InvalidArgumentError`. Closing again does nothing."""
        if self.closed:
            return
        self.closed = True
        self._arrays = {}
        clear: Callable[[NetworkId, Sequence[int]], None] = (
            self._runtime.clear_imported_inputs if self.kind == "input" else self._runtime.clear_imported_outputs
        )
        with suppress(UnknownNetworkError):  # the network is unloaded already
            clear(self.network_id, self.ids)
        self._on_close()

    def __enter__(self) -> ImportedTensors:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        tensors_text = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self._arrays.values())
        return f"<ImportedTensors {self.kind}s {tensors_text or '(closed)'}>"
