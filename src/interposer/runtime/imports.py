"""Imported memory of callers, which a loaded network uses directly; checked once for any number of runs."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NewType

import numpy as np

from interposer.backend import ExternalMemory, MemoryDescriptor, MemorySource
from interposer.core.dlpack import shared_array
from interposer.core.errors import BindingError, MemoryImportError, expect
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.runtime.bindings import Binding, Bindings, array_problems
from interposer.runtime.overlaps import is_same_memory, share_memory

__all__ = ["Import", "ImportedInputId", "ImportedOutputId", "ImportedRun", "Imports"]

ImportedInputId = NewType("ImportedInputId", int)
ImportedOutputId = NewType("ImportedOutputId", int)
Problem = Callable[[str, int, Array], "str | None"]


@dataclass(frozen=True, slots=True, eq=False)
class Import:
    """An input or output of a network that uses memory of the caller until it is cleared.

    `kind` is "input" or "output", and `array` covers the memory. `memory` is the mapped memory of a descriptor, or None
    if the caller passed an array.
    """

    kind: str
    binding: Binding
    array: Array
    memory: ExternalMemory | None

    @property
    def title(self) -> str:
        """The name of the tensor in messages."""
        return f"{self.kind} {self.binding.id} ({self.binding.name})"


@dataclass(slots=True, eq=False)
class ImportedRun:
    """The imports that runs use together, prepared once for all of these runs.

    `inputs` and `outputs` are arrays by binding id. `watched` has the memory of descriptors, with the tensors' names,
    to check before each run. `complete` is True if the imports cover all inputs and outputs. `cleared` is True once
    one of the imports was cleared. `ids` are the import ids.
    """

    inputs: Mapping[int, Array]
    outputs: Mapping[int, Array]
    watched: tuple[tuple[str, ExternalMemory], ...]
    complete: bool
    ids: frozenset[int]
    cleared: bool = False


class Imports:
    """The memory that callers have imported for one network, by import id. Thread-safe.

    Args:
        problem: a weak reference to a method of the network, which owns this object. It takes the kind, binding id and
            array, and returns the reason why the network cannot use the array directly, or None.

    `aliases` has the binding ids of the inputs whose memory an output may have, by those of the outputs.
    """

    def __init__(self, bindings: Bindings, name: str, problem: weakref.WeakMethod[Problem]) -> None:
        self._bindings, self._name, self._problem = bindings, name, problem
        self.aliases: Mapping[int, int] = {}
        self._imports: dict[int, Import] = {}
        self._new_ids = itertools.count(1)
        self._runs: dict[tuple[Sequence[int], Sequence[int]], ImportedRun] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, memories: Mapping[int, Any], source: MemorySource) -> list[int]:
        """Import memory for inputs or outputs; return their import ids in the order of `memories`.

        `kind` is "input" or "output", `memories` has the memory by binding id, and `source` is the kind that all of it
        must have (UNDEFINED for any).

        Raises:
            MemoryImportError: some tensors cannot be used directly; the error lists all of them. Nothing is imported
                then.
            BindingError: the network has no such binding id.
        """
        imports, refusals = self._try_imports(kind, memories, source)
        if refusals:
            for import_ in imports:
                _drop(import_, undone=True)
            raise MemoryImportError(_refusals_text(kind, refusals, self._known_bindings(kind)), refusals)
        with self._lock:
            import_ids = [next(self._new_ids) for _ in imports]
            self._imports.update(zip(import_ids, imports, strict=True))
        return import_ids

    def refusals(self, kind: str, memories: Mapping[int, Any]) -> dict[tuple[str, int], str]:
        """Return why tensors could not be imported, by kind and binding id; tensors that could be are left out.

        `kind` is "input" or "output", and `memories` has the tensors by binding id. Nothing stays imported.
        """
        imports, refusals = self._try_imports(kind, memories, MemorySource.UNDEFINED)
        for import_ in imports:
            _drop(import_, undone=True)
        return refusals

    def _known_bindings(self, kind: str) -> Mapping[int, Binding]:
        return self._bindings.inputs if kind == "input" else self._bindings.outputs

    def _try_imports(
        self, kind: str, memories: Mapping[int, Any], source: MemorySource
    ) -> tuple[list[Import], dict[tuple[str, int], str]]:
        expect(memories, Mapping, f"{kind}s must be a mapping from binding id to tensor")
        expect(source, MemorySource, "the memory source must be a MemorySource")
        imports, refusals = [], {}
        for binding, memory in memories.items():
            self._bindings.info(kind, binding)
            try:
                imports.append(self._import(kind, self._known_bindings(kind)[binding], memory, source))
            except ValueError as error:
                refusals[kind, binding] = str(error)
            except BindingError as error:
                refusals[kind, binding] = str(error.__cause__ or error)
        return imports, refusals

    def _import(self, kind: str, binding: Binding, caller_memory: Any, source: MemorySource) -> Import:
        """Check and map the memory `caller_memory` for one input or output, and return the import.

        Raises ValueError with the reason if it cannot be imported, for example if it is not of the kind `source`.
        """
        writable = kind == "output"
        if binding.shape is None:
            raise ValueError(f"it is {binding.info}, which is not known before running; give it to each run")
        memory = None
        if isinstance(caller_memory, MemoryDescriptor):
            memory = ExternalMemory(caller_memory, binding.info, writable=writable)
            assert memory.array is not None
            array = memory.array
        else:
            array = np.asarray(shared_array(caller_memory))
        error = _source_problem(caller_memory, source) or _problem(binding, array, writable)
        problem = self._problem()
        error = error or (problem and problem(kind, binding.id, array))
        if error:
            if memory is not None:
                memory.release(undone=True)
            raise ValueError(error)
        return Import(kind, binding, array, memory)

    def arrays(self, kind: str, import_ids: Iterable[int]) -> dict[int, tuple[str, Array]]:
        """Return the imports with these ids by binding id, as pairs of the tensor's layer name and its array.

        `kind` is "input" or "output". Raises `BindingError` for an unknown import id.
        """
        imports = [self._checked(kind, import_id) for import_id in _checked_ids(import_ids)]
        return {import_.binding.id: (import_.binding.name, import_.array) for import_ in imports}

    def clear(self, kind: str, import_ids: Iterable[int]) -> list[ImportedRun]:
        """Clear the inputs or outputs (as `kind` says) with these import ids; return the prepared runs that used them.

        Raises:
            BindingError: an import id is unknown; nothing is cleared then.
        """
        unique_ids = tuple(dict.fromkeys(_checked_ids(import_ids)))
        with self._lock:
            for import_id in unique_ids:
                self._checked(kind, import_id)
            cleared_imports = {import_id: self._imports.pop(import_id) for import_id in unique_ids}
            keys = [key for key, run in self._runs.items() if not run.ids.isdisjoint(cleared_imports)]
            affected_runs = [self._runs.pop(key) for key in keys]
            for run in affected_runs:
                run.cleared = True
        for import_ in cleared_imports.values():
            _drop(import_)
        return affected_runs

    def _checked(self, kind: str, import_id: int) -> Import:
        import_ = self._imports.get(import_id)
        if import_ is None or import_.kind != kind:
            raise BindingError(f"no {kind} of {self._name!r} was imported as number {import_id!r}")
        return import_

    def clear_all(self) -> list[ImportedRun]:
        """Clear all imports, as when the network is unloaded; return the prepared runs that used them."""
        with self._lock:
            cleared_imports, affected_runs = list(self._imports.values()), list(self._runs.values())
            self._imports.clear()
            self._runs.clear()
            for run in affected_runs:
                run.cleared = True
        for import_ in cleared_imports:
            _drop(import_)
        return affected_runs

    def run_of(self, inputs: Sequence[int], outputs: Sequence[int]) -> ImportedRun:
        """Return what runs on these imported inputs and outputs need; it is created once, and cached by the import ids.

        Raises:
            BindingError: an import id is unknown, a tensor was imported twice, or an output overlaps another tensor.
        """
        try:
            return self._runs[inputs, outputs]
        except (KeyError, TypeError):
            ids = _checked_ids(inputs), _checked_ids(outputs)
        with self._lock:
            run = self._runs.get(ids)
            if run is None:
                run = self._runs[ids] = self._new_run(*ids)
            return run

    def _new_run(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> ImportedRun:
        inputs_read = self._by_binding("input", inputs)
        outputs_written = self._by_binding("output", outputs)
        _refuse_overlaps(inputs_read, outputs_written, self.aliases)
        all_imports = (*inputs_read.values(), *outputs_written.values())
        is_complete = len(inputs_read) == len(self._bindings.inputs) and len(outputs_written) == len(
            self._bindings.outputs
        )
        return ImportedRun(
            {binding: import_.array for binding, import_ in inputs_read.items()},
            {binding: import_.array for binding, import_ in outputs_written.items()},
            tuple(
                (import_.title, import_.memory)
                for import_ in all_imports
                if import_.memory is not None and not import_.memory.settled
            ),
            is_complete,
            frozenset((*inputs, *outputs)),
        )

    def _by_binding(self, kind: str, import_ids: Sequence[int]) -> dict[int, Import]:
        by_binding: dict[int, Import] = {}
        for import_id in import_ids:
            import_ = self._checked(kind, import_id)
            if import_.binding.id in by_binding:
                raise BindingError(f"{import_.title} was imported twice; a run takes one of them")
            by_binding[import_.binding.id] = import_
        return by_binding


def _checked_ids(import_ids: Any) -> tuple[int, ...]:
    if isinstance(import_ids, str) or not isinstance(import_ids, Iterable):
        raise BindingError(f"what was imported is given by its numbers, not by {import_ids!r}")
    ids: tuple[Any, ...] = tuple(import_ids)
    for import_id in ids:
        if not isinstance(import_id, int):
            raise BindingError(f"what was imported is given by its numbers, not by {import_id!r}")
    return ids


def _drop(import_: Import, *, undone: bool = False) -> None:
    if import_.memory is not None:
        import_.memory.release(undone=undone)


def _refusals_text(kind: str, refusals: Mapping[tuple[str, int], str], bindings: Mapping[int, Binding]) -> str:
    lines = [
        f"{kind} {binding} ({bindings[binding].name}) cannot be imported: {reason}"
        for (_, binding), reason in refusals.items()
    ]
    return lines[0] if len(lines) == 1 else "\n  - ".join([f"{len(lines)} errors:", *lines])


def _source_problem(memory: Any, requested_source: MemorySource) -> str | None:
    source = memory.source if isinstance(memory, MemoryDescriptor) else MemorySource.MALLOC
    if requested_source in (MemorySource.UNDEFINED, source):
        return None
    return f"it is memory of the source {source.name}; {requested_source.name} was asked for"


def _problem(binding: Binding, array: Array, writable: bool) -> str | None:
    """Return why no backend could use an array in place for a tensor, or None if some could.

    `writable` is True for outputs, whose memory must not be read-only.
    """
    mismatch = next(array_problems("it", binding.info, array), None)
    if mismatch is not None:
        return mismatch
    if not array.flags.c_contiguous:
        element_strides = [step // array.itemsize for step in array.strides]
        return f"its elements are not contiguous (strides of {element_strides} elements); import a contiguous copy"
    if not array.flags.aligned:
        return f"its address is not a multiple of {array.dtype.alignment} bytes"
    return "it is read-only; give memory that can be written to" if writable and not array.flags.writeable else None


def _overlap(a: Import, b: Import) -> bool:
    if a.memory is not None and b.memory is not None:
        return a.memory.overlaps(b.memory)
    return share_memory(a.array, b.array)


def _refuse_overlaps(
    read_imports: Mapping[int, Import], written_imports: Mapping[int, Import], aliases: Mapping[int, int]
) -> None:
    """Raise `BindingError` if an output overlaps another tensor of a run, except an input whose memory it may have.

    `aliases` has the binding ids of these inputs by those of the outputs.
    """
    for index, (binding, target) in enumerate(written_imports.items()):
        source = read_imports.get(aliases[binding]) if binding in aliases else None
        aliased_input = source if source is not None and is_same_memory(target.array, source.array) else None
        for other_array in (*read_imports.values(), *list(written_imports.values())[:index]):
            if other_array is not aliased_input and _overlap(target, other_array):
                raise BindingError(f"{target.title} overlaps {other_array.title} in memory; one run cannot use both")
