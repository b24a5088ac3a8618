"""The Torch backend: subgraphs as modules of torch functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, Final

from interposer.backend import BackendId, Options, SubgraphView, thread_budget
from interposer.backends.engines.engine import Engine, Executable, RefusedError
from interposer.backends.engines.engine_options import MOST_THREADS, Option, capabilities
from interposer.backends.engines.memory import shareable
from interposer.backends.engines.profiles import EngineStep
from interposer.backends.engines.torch import convolutions, elements, moves, sums  # noqa: F401 - they fill the table
from interposer.backends.engines.torch.marked import Marked
from interposer.backends.engines.torch.package import fx, torch
from interposer.backends.engines.torch.table import ANY, refusals
from interposer.backends.engines.torch.traced import LAYER, traced
from interposer.core.constants import aligned
from interposer.core.types import Array, DataType
from interposer.ir.graph import Layer, Value

__all__ = ["Torch"]

_OPTIONS: Final = (
    Option("threads", 0, "threads for one subgraph on the CPU; 0 for the thread budget", most=MOST_THREADS),
    Option("device", "cpu", "the device that runs subgraphs: cpu, cuda, cuda:1 ..."),
)


class Torch(Engine):
    """A backend that runs subgraphs with PyTorch."""

    id: ClassVar = BackendId("Torch")
    packages: ClassVar = ("torch",)
    extra: ClassVar = "torch"
    options: ClassVar = _OPTIONS
    types: ClassVar = ANY
    capabilities: ClassVar = capabilities(_OPTIONS, NonConstWeights=True, HasFp16=True)

    def device_options(self, name: str) -> Options:
        """Return the options for one of PyTorch's devices: cpu, cuda, cuda:1, mps ..."""
        for reason in _no_device(name):
            raise RefusedError(reason)
        return {"device": name}

    def refusals(self, layer: Layer, options: dict[str, Any]) -> list[str]:
        """Return the reasons against a layer: the device is missing, or the layer has no torch function."""
        return _no_device(options["device"]) or refusals(layer)

    def try_layers(self, view: SubgraphView, options: dict[str, Any]) -> None:
        """Trace all layers to a torch module, as `compile` does.

        Raise `RefusedError` if one of them cannot be traced.
        """
        _module(view)

    def compile(self, view: SubgraphView, options: dict[str, Any]) -> Executable:
        """Return the subgraph as a traced torch module; raise `RefusedError` if a layer cannot be traced."""
        return Traced(view, options)


@cache
def _no_device(name: str) -> list[str]:
    try:
        if torch.empty(0, device=name).is_meta:
            return [f"torch's device {name!r} has no data"]
    except (RuntimeError, AssertionError) as error:  # AssertionError if torch was built without CUDA
        return [f"torch has no device {name!r}: {str(error).splitlines()[0]}"]
    return []


class _Threads:
    """The process-wide thread count of torch: set by the latest run, and restored after the last concurrent run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = self._count_before = 0

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Set torch's thread count during a ``with`` block; 0 keeps the current count."""
        if not count:
            yield
            return
        with self._lock:
            if not self._runs:
                self._count_before = torch.get_num_threads()
            self._runs += 1
            _set_threads(count)
        try:
            yield
        finally:
            with self._lock:
                self._runs -= 1
                if not self._runs:
                    _set_threads(self._count_before)


_threads: Final = _Threads()


def _set_threads(count: int) -> None:
    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


class Traced(Executable):
    """A subgraph as one torch module, on the device that the options name.

    On the CPU, constants that are read unchanged share the memory of the network.
    """

    def __init__(self, view: SubgraphView, options: dict[str, Any]) -> None:
        self.device = torch.device(options["device"])
        self.threads = (options["threads"] or thread_budget()) if self.device.type == "cpu" else 0
        self.constants = [value.constant for value in view.constants if value.constant is not None]
        with torch.inference_mode():
            self.module = _module(view).to(self.device)
        self._forward = self.module.forward
        self._marked_module: Marked | None = None

    def held_weights(self, view: SubgraphView) -> int:
        """Return the bytes of the buffers that do not share the memory of the network."""
        shared_addresses = {array.ctypes.data for array in self.constants}
        return sum(buffer.nbytes for buffer in self.module.buffers() if buffer.data_ptr() not in shared_addresses)

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Run on tensors that share the memory of the inputs; copy the results into the outputs."""
        self._run(self._forward, inputs, outputs)

    def run_measured(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Sequence[EngineStep]:
        """Run as `run` does, and return the layers with their times; on a device, nothing is measured."""
        if self.device.type != "cpu":
            return super().run_measured(inputs, outputs)
        if self._marked_module is None:
            self._marked_module = Marked(self.module)
        with self._marked_module.measured() as steps:
            self._run(self._marked_module.forward, inputs, outputs)
        return steps

    def _run(self, forward: Callable[..., Any], inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        with _threads.set(self.threads), torch.inference_mode():
            tensors = [_tensor(array).to(self.device) for array in inputs]
            try:
                results = forward(*tensors)
            except Exception as error:
                located_error = _located_error(self.module, tensors)
                if located_error is None:
                    raise
                raise located_error from error
            for array, tensor in zip(outputs, results, strict=True):
                _tensor(array).copy_(tensor)


def _module(view: SubgraphView) -> Any:
    with torch.inference_mode():
        return traced(view, {value: _constant(value) for value in view.constants})


def _located_error(module: Any, tensors: Sequence[Any]) -> Exception | None:
    """Return an error that names the layer at which a torch module fails; None if the second run does not fail.

    The module is run again on the input tensors, layer by layer.
    """
    interpreter = _followed_type()(module)
    interpreter.extra_traceback = False
    try:
        interpreter.run(*tensors)
    except Exception as error:
        return RuntimeError(f"layer {interpreter.layer!r}: {error}") if interpreter.layer else None
    return None


@cache
def _followed_type() -> type[Any]:
    """Return a subclass of `torch.fx.Interpreter` that stores the name of the layer that it runs.

    It is created on first use, because torch is imported late.
    """

    class Followed(fx.Interpreter):  # type: ignore[misc] # of a package that is imported late
        layer = ""

        def run_node(self, n: Any) -> Any:
            self.layer = n.meta.get(LAYER, "")
            return super().run_node(n)

    return Followed


def _constant(value: Value) -> Any:
    array = value.constant
    if array is None or value.known.dtype not in ANY:
        raise RefusedError(f"torch does not support the tensor {value.name!r}, {value.known}")
    return _tensor(aligned(array))


def _tensor(array: Array) -> Any:
    """Return a tensor that shares the memory of an array."""
    if DataType.of(array.dtype) is DataType.BFLOAT16:
        return torch.from_numpy(shareable(array).view("int16")).view(torch.bfloat16)
    return torch.from_numpy(shareable(array))
