"""The backend: parts as modules of torch functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, Final

from interposer.backend import BackendId, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Executable, RefusedError
from interposer.backends.engines.memory import shareable
from interposer.backends.engines.options import MOST_THREADS, Option, capabilities
from interposer.backends.engines.torch import elements, moves, sums, windows  # noqa: F401 - they fill the table
from interposer.backends.engines.torch.package import torch
from interposer.backends.engines.torch.reals import in_reals
from interposer.backends.engines.torch.table import ANY, Function, needs_reals, refusals, torch_function
from interposer.ir.graph import Layer, Value
from interposer.types import Array, DataType

__all__ = ["Torch"]

_OPTIONS: Final = (
    Option("threads", 0, "threads that compute one part, on the processor; 0 for the thread budget", most=MOST_THREADS),
    Option("device", "cpu", "where parts are computed: cpu, cuda, cuda:1 ..."),
)


class Torch(Engine):
    """Runs parts with PyTorch."""

    id: ClassVar = BackendId("Torch")
    packages: ClassVar = ("torch",)
    extra: ClassVar = "torch"
    options: ClassVar = _OPTIONS
    types: ClassVar = ANY
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True, HasFp16=True)

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """A device that is not there, and layers that there are no functions for."""
        return _no_device(options["device"]) or refusals(layer)

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Look for the functions of all layers."""
        for layer in view:
            _function(layer)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """A module of the part."""
        return _Module(view, options)


@cache
def _no_device(name: str) -> list[str]:
    try:
        if torch.empty(0, device=name).is_meta:
            return [f"torch's device {name!r} has no data"]
    except (RuntimeError, AssertionError) as error:  # AssertionError where torch was built without CUDA
        return [f"torch has no device {name!r}: {str(error).splitlines()[0]}"]
    return []


class _Threads:
    """How many threads torch has, which is the process's: as the last run asked, and as before after the last run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = self._before = 0

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Let torch have so many threads, or as many as it has where that is 0."""
        if not count:
            yield
            return
        with self._lock:
            if not self._runs:
                self._before = torch.get_num_threads()
            self._runs += 1
            _set_threads(count)
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    _set_threads(self._before)


_threads: Final = _Threads()


def _set_threads(count: int) -> None:
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


class _Step:
    """A function, the numbers of the values that it takes (None where there is none) and gives, and what it frees."""

    def __init__(self, function: Function, takes: Sequence[int | None], gives: Sequence[int], frees: Sequence[int]):
        self.function, self.takes, self.gives, self.frees = function, tuple(takes), tuple(gives), tuple(frees)


class _Module(Executable):
    """The functions of a part in running order. On the processor, constants lie in the memory of the network."""

    def __init__(self, view: SubgraphView, options: dict[str, Any]) -> None:
        self.device = torch.device(options["device"])
        self.threads = (options["threads"] or thread_budget()) if self.device.type == "cpu" else 0
        numbers: dict[Value, int] = {}
        for value in (*view.inputs, *view.constants, *(one for layer in view for one in layer.outputs)):
            numbers[value] = len(numbers)
        self.size = len(numbers)
        self._tensors = {numbers[value]: self._constant(value) for value in view.constants}
        self.constants = [value.constant for value in view.constants if value.constant is not None]
        self.inputs = [numbers[value] for value in view.inputs]
        self.outputs = [numbers[value] for value in view.outputs]
        self.steps = _steps(view, numbers, {*self._tensors, *self.outputs})

    def _constant(self, value: Value) -> Any:
        array = value.constant
        if array is None or value.known.dtype not in ANY:
            raise RefusedError(f"torch has no tensors such as {value.name!r}, {value.known}")
        return _tensor(array).to(self.device)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run on tensors that lie in the arrays' memory; results are copied into theirs."""
        with _threads.set(self.threads), torch.inference_mode():
            self._run(inputs, outputs)

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        values: list[Any] = [None] * self.size
        for number, tensor in self._tensors.items():
            values[number] = tensor
        for number, array in zip(self.inputs, inputs, strict=True):
            values[number] = _tensor(array).to(self.device)
        for step in self.steps:
            found = step.function(*(None if number is None else values[number] for number in step.takes))
            for number, tensor in zip(step.gives, found if isinstance(found, tuple | list) else (found,), strict=True):
                values[number] = tensor
            for number in step.frees:
                values[number] = None
        for number, array in zip(self.outputs, outputs, strict=True):
            _tensor(array).copy_(values[number])


def _steps(view: SubgraphView, numbers: dict[Value, int], kept: set[int]) -> list[_Step]:
    steps = []
    last = {value: layer for layer in view for value in layer.values}
    for layer in view:
        takes: list[int | None] = [None if value is None else numbers[value] for value in layer.inputs]
        takes += [None] * (len(layer.op.operands) - len(takes))
        gives = [numbers[value] for value in layer.outputs]
        frees = {numbers[value] for value in layer.values if last[value] is layer} - kept
        steps.append(_Step(_function(layer), takes, gives, sorted(frees)))
    return steps


def _function(layer: Layer) -> Function:
    """The function for a layer on the tensors that it has, quantized ones too."""
    function = torch_function(layer)
    return in_reals(function, layer) if needs_reals(layer) else function


def _tensor(array: Array) -> Any:
    """A tensor in the memory of an array."""
    if DataType.of(array.dtype) is DataType.BFLOAT16:
        return torch.from_numpy(shareable(array).view("int16")).view(torch.bfloat16)
    return torch.from_numpy(shareable(array))
