"""Imported memory of callers, which a loaded network uses directly; checked once for any number of runs."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NewType

import numpy as np

from interposer.backend import ExternalMemory, MemoryDescriptor, MemorySource
from interposer.core.dlpack import shared_array
from interposer.core.errors import BindingError, MemoryImportError, expect
from interposer.core.types import Array
from interposer.runtime.bindings import Binding, Bindings, array_problems
from interposer.runtime.overlaps import is_same_memory, share_memory

__all__ = ["Import", "ImportedInputId", "ImportedOutputId", "ImportedRun", "Imports"]

ImportedInputId = NewType("ImportedInputId", int)
ImportedOutputId = NewType("ImportedOutputId", int)
Accepts = Callable[[str, int, Array], "str | None"]


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
    to check before each run. `complete` is True if the imports cover all inputs and outputs. `gone` is True once one of
    the imports was cleared. `ids` are the import ids.
    """

    inputs: Mapping[int, Array]
    outputs: Mapping[int, Array]
    watched: tuple[tuple[str, ExternalMemory], ...]
    complete: bool
    ids: frozenset[int]
    gone: bool = False


class Imports:
    """The memory that callers have imported for one network, by import id. Thread-safe.

    Args:
        accepts: called with the kind, binding id and array; returns the reason why the network cannot use the array
            directly, or None.
        aliases: returns the binding ids of the inputs whose memory an output may have, by those of the outputs.
    """

    def __init__(
        self, bindings: Bindings, name: str, accepts: Accepts, aliases: Callable[[], Mapping[int, int]]
    ) -> None:
        self._bindings, self._name, self._accepts, self._aliases = bindings, name, accepts, aliases
        self._known: dict[int, Import] = {}
        self._numbers = itertools.count(1)
        self._runs: dict[tuple[Sequence[int], Sequence[int]], ImportedRun] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, value: Mapping[int, Any], source: MemorySource) -> list[int]:
        """Import memory for inputs or outputs; return their import ids in the order of `value`.

        `kind` is "input" or "output", `value` has the memory by binding id, and `source` is the kind that all of it
        must have (UNDEFINED for any).

        Raises:
            MemoryImportError: some tensors cannot be used directly; the error lists all of them. Nothing is imported
                then.
            BindingError: the network has no such binding id.
        """
        created, refusals = self._tried(kind, value, source)
        if refusals:
            for item in created:
                _drop(item, undone=True)
            raise MemoryImportError(_said(kind, refusals, self._known_bindings(kind)), refusals)
        with self._lock:
            numbers = [next(self._numbers) for _ in created]
            self._known.update(zip(numbers, created, strict=True))
        return numbers

    def refusals(self, kind: str, value: Mapping[int, Any]) -> dict[tuple[str, int], str]:
        """Return why tensors could not be imported, by kind and binding id; tensors that could be are left out.

        `kind` is "input" or "output", and `value` has the tensors by binding id. Nothing stays imported.
        """
        created, refusals = self._tried(kind, value, MemorySource.UNDEFINED)
        for item in created:
            _drop(item, undone=True)
        return refusals

    def _known_bindings(self, kind: str) -> Mapping[int, Binding]:
        return self._bindings.inputs if kind == "input" else self._bindings.outputs

    def _tried(
        self, kind: str, value: Mapping[int, Any], source: MemorySource
    ) -> tuple[list[Import], dict[tuple[str, int], str]]:
        expect(value, Mapping, f"{kind}s must be a mapping from binding id to tensor")
        expect(source, MemorySource, "the memory source must be a MemorySource")
        created, refusals = [], {}
        for key, item in value.items():
            self._bindings.info(kind, key)
            try:
                created.append(self._import(kind, self._known_bindings(kind)[key], item, source))
            except ValueError as error:
                refusals[kind, key] = str(error)
            except BindingError as error:
                refusals[kind, key] = str(error.__cause__ or error)
        return created, refusals

    def _import(self, kind: str, binding: Binding, value: Any, source: MemorySource) -> Import:
        """Check and map the memory `value` for one input or output, and return the import.

        Raises ValueError with the reason if it cannot be imported, for example if it is not of the kind `source`.
        """
        writable = kind == "output"
        if binding.shape is None:
            raise ValueError(f"it is {binding.info}, which is not known before running; give it to each run")
        memory = None
        if isinstance(value, MemoryDescriptor):
            memory = ExternalMemory(value, binding.info, writable=writable)
            assert memory.array is not None
            array = memory.array
        else:
            array = np.asarray(shared_array(value))
        error = _source_problem(value, source) or _problem(binding, array, writable)
        error = error or self._accepts(kind, binding.id, array)
        if error:
            if memory is not None:
                memory.release(undone=True)
            raise ValueError(error)
        return Import(kind, binding, array, memory)

    def arrays(self, kind: str, numbers: Iterable[int]) -> dict[int, tuple[str, Array]]:
        """Return the imports with these ids by binding id, as pairs of the tensor's layer name and its array.

        `kind` is "input" or "output". Raises `BindingError` for an unknown import id.
        """
        result = [self._checked(kind, number) for number in _numbers(numbers)]
        return {item.binding.id: (item.binding.name, item.array) for item in result}

    def clear(self, kind: str, numbers: Iterable[int]) -> list[ImportedRun]:
        """Clear the inputs or outputs (as `kind` says) with these import ids; return the prepared runs that used them.

        Raises:
            BindingError: an import id is unknown; nothing is cleared then.
        """
        requested = tuple(dict.fromkeys(_numbers(numbers)))
        with self._lock:
            for number in requested:
                self._checked(kind, number)
            gone = {number: self._known.pop(number) for number in requested}
            keys = [key for key, run in self._runs.items() if not run.ids.isdisjoint(gone)]
            over = [self._runs.pop(key) for key in keys]
            for run in over:
                run.gone = True
        for item in gone.values():
            _drop(item)
        return over

    def _checked(self, kind: str, number: int) -> Import:
        result = self._known.get(number)
        if result is None or result.kind != kind:
            raise BindingError(f"no {kind} of {self._name!r} was imported as number {number!r}")
        return result

    def clear_all(self) -> list[ImportedRun]:
        """Clear all imports, as when the network is unloaded; return the prepared runs that used them."""
        with self._lock:
            gone, over = list(self._known.values()), list(self._runs.values())
            self._known.clear()
            self._runs.clear()
            for run in over:
                run.gone = True
        for item in gone:
            _drop(item)
        return over

    def run_of(self, inputs: Sequence[int], outputs: Sequence[int]) -> ImportedRun:
        """Return what runs on these imported inputs and outputs need; it is created once, and cached by the import ids.

        Raises:
            BindingError: an import id is unknown, a tensor was imported twice, or an output overlaps another tensor.
        """
        try:
            return self._runs[inputs, outputs]
        except (KeyError, TypeError):
            key = _numbers(inputs), _numbers(outputs)
        with self._lock:
            result = self._runs.get(key)
            if result is None:
                result = self._runs[key] = self._new_run(*key)
            return result

    def _new_run(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> ImportedRun:
        read = self._by_binding("input", inputs)
        written = self._by_binding("output", outputs)
        _refuse_overlaps(read, written, self._aliases())
        every = (*read.values(), *written.values())
        complete = len(read) == len(self._bindings.inputs) and len(written) == len(self._bindings.outputs)
        return ImportedRun(
            {key: item.array for key, item in read.items()},
            {key: item.array for key, item in written.items()},
            tuple((item.title, item.memory) for item in every if item.memory is not None and not item.memory.settled),
            complete,
            frozenset((*inputs, *outputs)),
        )

    def _by_binding(self, kind: str, numbers: Sequence[int]) -> dict[int, Import]:
        result: dict[int, Import] = {}
        for number in numbers:
            item = self._checked(kind, number)
            if item.binding.id in result:
                raise BindingError(f"{item.title} was imported twice; a run takes one of them")
            result[item.binding.id] = item
        return result


def _numbers(value: Any) -> tuple[int, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise BindingError(f"what was imported is given by its numbers, not by {value!r}")
    values: tuple[Any, ...] = tuple(value)
    for number in values:
        if not isinstance(number, int):
            raise BindingError(f"what was imported is given by its numbers, not by {number!r}")
    return values


def _drop(item: Import, *, undone: bool = False) -> None:
    if item.memory is not None:
        item.memory.release(undone=undone)


def _said(kind: str, refusals: Mapping[tuple[str, int], str], known: Mapping[int, Binding]) -> str:
    lines = [f"{kind} {key} ({known[key].name}) cannot be imported: {why}" for (_, key), why in refusals.items()]
    return lines[0] if len(lines) == 1 else "\n  - ".join([f"{len(lines)} errors:", *lines])


def _source_problem(value: Any, requested: MemorySource) -> str | None:
    has = value.source if isinstance(value, MemoryDescriptor) else MemorySource.MALLOC
    if requested in (MemorySource.UNDEFINED, has):
        return None
    return f"it is memory of the source {has.name}; {requested.name} was asked for"


def _problem(binding: Binding, array: Array, writable: bool) -> str | None:
    """Return why no backend could use an array in place for a tensor, or None if some could.

    `writable` is True for outputs, whose memory must not be read-only.
    """
    result = next(array_problems("it", binding.info, array), None)
    if result is not None:
        return result
    if not array.flags.c_contiguous:
        steps = [step // array.itemsize for step in array.strides]
        return f"its elements are not contiguous (strides of {steps} elements); import a contiguous copy"
    if not array.flags.aligned:
        return f"its address is not a multiple of {array.dtype.alignment} bytes"
    return "it is read-only; give memory that can be written to" if writable and not array.flags.writeable else None


def _overlap(a: Import, b: Import) -> bool:
    if a.memory is not None and b.memory is not None:
        return a.memory.overlaps(b.memory)
    return share_memory(a.array, b.array)


def _refuse_overlaps(read: Mapping[int, Import], written: Mapping[int, Import], aliases: Mapping[int, int]) -> None:
    """Raise `BindingError` if an output overlaps another tensor of a run, except an input whose memory it may have.

    `aliases` has the binding ids of these inputs by those of the outputs.
    """
    for number, (binding, target) in enumerate(written.items()):
        source = read.get(aliases[binding]) if binding in aliases else None
        shared = source if source is not None and is_same_memory(target.array, source.array) else None
        for other in (*read.values(), *list(written.values())[:number]):
            if other is not shared and _overlap(target, other):
                raise BindingError(f"{target.title} overlaps {other.title} in memory; one run cannot use both")
