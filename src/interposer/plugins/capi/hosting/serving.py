"""The table of a backend, ``ipr_backend``, whose functions call a Python backend."""

from __future__ import annotations

import ctypes
import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np

from interposer._version import __version__
from interposer.backend import Backend, SubgraphView
from interposer.backend.contracts import checked
from interposer.core.addresses import address_of
from interposer.core.errors import InterposerError, InvalidValueError
from interposer.core.types import Array, DataType
from interposer.ir.graph import Graph, Layer
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.attributes import NEVER
from interposer.plugins.capi.abi.replacements import read_offered
from interposer.plugins.capi.hosting.part import HostedPart, know_infos

__all__ = ["revision", "table"]

_LEFT_OUT: Final = ("DynamicShapes", "Sequences", "Deterministic")
"""Capabilities that are flags of the interface, or that it cannot express."""
_DTYPES: Final = {number: dtype for dtype, number in abi.DTYPES.items()}
_served: Final[dict[str, _ServedBackend]] = {}


def table(backend: str) -> int:
    """Return the address of the ``ipr_backend`` of a Python backend, named by "package.module:Class".

    It is valid as long as the process runs. `BackendFactory` of a shared object that hosts Python returns it. The
    backend's tensors are arrays in ordinary memory: it has a kernel table, or a workload factory for such arrays.
    Replacements of its `optimize_subgraph`, its context and its tensor handle factories are not used.
    """
    if backend not in _served:
        module, _, name = backend.partition(":")
        instance = getattr(import_module(module), name)()
        _served[backend] = served = _ServedBackend(checked(instance, Backend, backend, name))
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(served))  # the host calls it until the interpreter has ended
    return ctypes.addressof(_served[backend].table)


def revision() -> int:
    """Return the revision of the vocabulary of a hosted backend: all names, as it is part of this package."""
    return NEVER


class _CallFailedError(Exception):
    """Ends a call with a status; `layer` is the index of the layer that caused it, or -1."""

    def __init__(self, status: int, text: str, layer: int = -1) -> None:
        super().__init__(text)
        self.status, self.layer = status, layer


class _Tensor(NamedTuple):
    """One ``ipr_tensor`` of a run: its array, or None if its shape is not known yet."""

    struct: abi.Tensor
    array: Array | None


class _ServedBackend:
    """A backend with its table, and everything that the table and results of its functions point to."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._callbacks: list[Any] = []
        self._held: dict[int, Any] = {}
        self._numbers = itertools.count(1)
        self._texts: dict[bytes, Any] = {}
        self._libraries, self._lock = 0, threading.Lock()
        self._release = abi.FUNCTIONS["release"](self._let_go)
        self.table = abi.Backend(magic=abi.MAGIC, struct_size=ctypes.sizeof(abi.Backend))
        for name in abi.REQUIRED:
            method = getattr(self, f"_{name}")
            function = abi.FUNCTIONS[name](method if name == "shutdown" else _reporting(method))
            self._callbacks.append(function)
            setattr(self.table, name, _address(function))

    # --- the functions of the table -----------------------------------------------------------------------------------

    def _init(self, _: Any, host: int, options: int | None) -> None:
        reason = self._backend.unavailable()
        if reason is not None:
            raise _CallFailedError(abi.UNAVAILABLE, reason)
        with self._lock:
            self._libraries += 1

    def _shutdown(self, _: Any) -> None:
        """Release everything that is left, when the last library with this table shuts down."""
        with self._lock:
            self._libraries -= 1
            if not self._libraries:
                self._held.clear()

    def _get_info(self, _: Any, out: int) -> None:
        info, backend = abi.Info.from_address(out), self._backend
        capabilities = backend.capabilities
        info.vendor, info.name = self._text("Interposer"), self._text(f"{backend.id} in Python")
        info.version = self._text(backend.version or __version__)
        info.description = self._text((type(backend).__doc__ or "").strip().partition("\n")[0])
        flags = abi.Cap.CONCURRENT_COMPILE
        flags |= abi.Cap.DYNAMIC_SHAPES if capabilities.has("DynamicShapes") else abi.Cap(0)
        flags |= abi.Cap(0) if capabilities.has("Deterministic", False) else abi.Cap.DETERMINISTIC
        info.capabilities, info.memory_kinds = int(flags), abi.MEMORY_HOST
        properties = self._properties
        info.property_count, info.property_stride = len(properties), ctypes.sizeof(abi.Property)
        info.properties = ctypes.addressof(properties) if len(properties) else None

    def _query_support(self, _: Any, graph: int, options: int | None, out: int) -> None:
        offered_graph, layers = _offered(graph)
        answers = self._backend.layer_support({}).query(SubgraphView(offered_graph, layers, layers))
        texts: list[Any] = []
        verdicts = (abi.Verdict * len(layers))()
        for verdict, answer in zip(verdicts, answers, strict=True):
            verdict.verdict = abi.YES if answer else abi.NO
            if not answer:
                texts.append(ctypes.create_string_buffer("; ".join(answer.reasons).encode("utf-8", "replace")))
                verdict.reason_code = _OTHER
                verdict.reason = abi.String(ctypes.addressof(texts[-1]), len(texts[-1]) - 1)
        report = abi.Report.from_address(out)
        report.verdict_count, report.verdict_stride = len(layers), ctypes.sizeof(abi.Verdict)
        report.verdicts = ctypes.addressof(verdicts)
        report.owner, report.release = self._hold((verdicts, texts)), _address(self._release)

    def _compile(self, _: Any, graph: int, options: int | None, out: int) -> None:
        offered_graph, layers = _offered(graph)
        for number, layer in enumerate(layers):
            layer.backend = self._backend.id
            answer = self._backend.layer_support({}).query(SubgraphView(offered_graph, [layer], layers))[0]
            if not answer:
                raise _CallFailedError(abi.UNSUPPORTED, "; ".join(answer.reasons), number)
        part = HostedPart(offered_graph, layers, self._backend)
        executable = abi.Executable.from_address(out)
        executable.handle = executable.owner = self._hold(part)
        executable.flags = int(abi.ExecutableFlag.CONCURRENT) if part.concurrent else 0
        executable.release = _address(self._release)

    def _execute(self, _: Any, handle: int, address: int) -> None:
        run = abi.Run.from_address(address)
        inputs = _tensors(run.inputs, run.input_count, run.tensor_stride)
        outputs = _tensors(run.outputs, run.output_count, run.tensor_stride)
        for tensor in inputs:
            tensor.array.flags.writeable = False  # type: ignore[union-attr] # inputs have known shapes
        part: HostedPart = self._held[handle]
        arrays = [tensor.array for tensor in inputs if tensor.array is not None]
        results = part.run(arrays, [tensor.array for tensor in outputs], lambda: _check_time(run))
        for number, (tensor, array) in enumerate(zip(outputs, results, strict=True)):
            target = _resized(run, number, tensor, array) if tensor.array is None else tensor.array
            if array is not target:
                np.copyto(target, array)

    # --- memory -------------------------------------------------------------------------------------------------------

    def _hold(self, held_object: object) -> int:
        number = next(self._numbers)
        self._held[number] = held_object
        return number

    def _let_go(self, number: int | None) -> None:
        self._held.pop(number or 0, None)

    def _text(self, text: str) -> abi.String:
        """Return a text of the information about the backend, which stays valid; equal texts share their memory."""
        content = text.encode("utf-8", "replace")
        buffer = self._texts.setdefault(content, ctypes.create_string_buffer(content))
        return abi.String(ctypes.addressof(buffer), len(buffer) - 1)

    @cached_property
    def _properties(self) -> Any:
        """The array of the backend's capabilities."""
        capabilities = self._backend.capabilities
        properties = [
            self._property(capability.name, capability.value, capability.doc)
            for capability in capabilities
            if capability.name not in _LEFT_OUT
        ]
        return (abi.Property * len(properties))(*properties)

    def _property(self, name: str, value: bool | int | float | str, doc: str) -> abi.Property:
        kinds = {bool: abi.KIND_BOOL, int: abi.KIND_INT, float: abi.KIND_FLOAT, str: abi.KIND_TEXT}
        return abi.Property(
            name=self._text(name),
            doc=self._text(doc),
            kind=kinds[type(value)],
            i=int(value) if isinstance(value, int) else 0,
            f=value if isinstance(value, float) else 0.0,
            text=self._text(value if isinstance(value, str) else ""),
        )


_OTHER: Final = 100


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


def _reporting(method: Callable[..., None]) -> Callable[..., int]:
    """Return a function for the table: it calls `method`, and turns an exception into a status and an ``ipr_error``."""

    def call(*arguments: Any) -> int:
        *passed_arguments, error = arguments
        try:
            method(*passed_arguments)
        except _CallFailedError as failure:
            return _fail(error, failure.status, str(failure), failure.layer)
        except InvalidValueError as problem:
            return _fail(error, abi.INVALID_VALUE, str(problem))
        except MemoryError as problem:
            return _fail(error, abi.OUT_OF_MEMORY, str(problem) or "out of memory")
        except BaseException as problem:  # no exception may leave a function of the table
            message = str(problem) if isinstance(problem, InterposerError) else f"{type(problem).__name__}: {problem}"
            return _fail(error, abi.FAILED, message)
        return abi.OK

    return call


def _fail(address: int | None, status: int, text: str, layer: int = -1) -> int:
    if not address:
        return status
    error, content = abi.Error.from_address(address), text.encode("utf-8", "replace")
    if layer >= 0:
        error.item_kind, error.item = abi.ITEM_LAYER, layer
    ctypes.memmove(error.text, content, min(len(content), error.capacity))
    error.length = len(content)
    return status


def _offered(address: int) -> tuple[Graph, list[Layer]]:
    graph, layers = read_offered(address, _memory)
    know_infos(graph)
    return graph, layers


def _memory(address: int | None, size: int, subject: str) -> memoryview:
    """Return the memory of the host itself, which stays valid as long as the interface says."""
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B") if size and address else memoryview(b"")


def _tensors(address: int | None, count: int, stride: int) -> list[_Tensor]:
    structs = [abi.Tensor.from_address((address or 0) + index * stride) for index in range(count)]
    return [_Tensor(struct, _array(struct)) for struct in structs]


def _array(struct: abi.Tensor) -> Array | None:
    shape = _shape(struct)
    return None if min(shape, default=0) < 0 else _array_of(struct, shape)


def _shape(struct: abi.Tensor) -> tuple[int, ...]:
    return tuple((ctypes.c_int64 * struct.ndim).from_address(struct.shape)) if struct.ndim else ()


def _array_of(struct: abi.Tensor, shape: Sequence[int]) -> Array:
    dtype: DataType = _DTYPES[struct.dtype]
    memory = _memory(struct.data, math.prod(shape) * dtype.numpy.itemsize, "a tensor")
    if not memory.nbytes:
        return np.empty(shape, dtype.numpy)
    return np.frombuffer(memory, np.uint8).view(dtype.numpy).reshape(shape)


def _resized(run: abi.Run, output: int, tensor: _Tensor, array: Array) -> Array:
    """Report the shape of an output to the host, and return the array that it provides."""
    shape = np.array(array.shape, np.int64)
    status = abi.FUNCTIONS["resize"](run.resize)(run.host, output, address_of(shape), array.ndim)
    if status != abi.OK:
        raise _CallFailedError(status, f"the host refused the shape {list(array.shape)} of output {output}")
    return _array_of(tensor.struct, array.shape)


def _check_time(run: abi.Run) -> None:
    if run.cancel and ctypes.c_uint32.from_address(run.cancel).value:
        raise _CallFailedError(abi.CANCELLED, "the run was cancelled")
    if run.deadline_ns and time.monotonic_ns() > run.deadline_ns:
        raise _CallFailedError(abi.DEADLINE, "the deadline has passed")
