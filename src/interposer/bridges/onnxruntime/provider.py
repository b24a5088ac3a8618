"""The execution provider: what the C code of the bridge asks at each step of a session of ONNX Runtime.

A session creates a provider, asks it for the groups of nodes that it takes, lets it compile them, and runs them. All
functions with C arguments return the address of a status, or 0 for success; no exception leaves them.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Final

import numpy as np

from interposer._version import __version__
from interposer.bridges.claims import Claims, Group, claims
from interposer.bridges.direct import DirectPart, direct_part
from interposer.bridges.embedding import native, text_at
from interposer.bridges.onnxruntime.abi import FAIL, INVALID_ARGUMENT, OrtApi, OrtError
from interposer.bridges.onnxruntime.graph import OrtGraph
from interposer.bridges.options import BridgeOptions, bridge_options
from interposer.bridges.reporting import PartReport, Report, add_report
from interposer.core.errors import BindingError, InterposerError, InvalidArgumentError, InvalidValueError, did_you_mean
from interposer.core.types import Array

__all__ = [
    "compile_parts",
    "compute",
    "create_provider",
    "get_capability",
    "release_part",
    "release_provider",
    "start",
]

SUFFIX: Final = "ExecutionProvider"
_OWN: Final = "Interposer"
LARGE: Final = 1 << 20
"""Bytes of copied constants from which on free memory is returned: ONNX Runtime's own constants are released then."""
_log: Final = logging.getLogger("interposer.bridges")
_apis: Final[list[OrtApi]] = []
_providers: Final[dict[int, _Provider]] = {}
_parts: Final[dict[int, _Part]] = {}
_ids: Final = itertools.count(1)


def start(api: int, ep_api: int, version: int, own_version: int, size: int) -> int:
    """Note the functions of ONNX Runtime, and write this package's version into a buffer; called once per library."""
    if not _apis:
        functions = native()
        functions.interposer_bridge_ort_part.restype = ctypes.c_void_p
        functions.interposer_bridge_ort_part.argtypes = [
            ctypes.c_uint64,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_bool,
        ]
        functions.interposer_bridge_ort_counts.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        functions.interposer_bridge_ort_give_up_direct.argtypes = [ctypes.c_void_p]
        _apis.append(OrtApi(api, ep_api, text_at(version)))
    text = __version__.encode()[: size - 1] + b"\0"
    ctypes.memmove(own_version, text, len(text))
    return 0


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    """Return a function that returns the address of a status in place of an exception."""

    @wraps(function)
    def guarded(*arguments: int) -> int:
        try:
            function(*arguments)
        except (BindingError, InvalidValueError) as error:
            return _apis[0].status(INVALID_ARGUMENT, f"Interposer: {error}")
        except (InterposerError, OrtError) as error:
            return _apis[0].status(FAIL, f"Interposer: {error}")
        except Exception as error:
            _log.exception("a bridge into ONNX Runtime failed")
            return _apis[0].status(FAIL, f"Interposer: {type(error).__name__}: {error}")
        return 0

    return guarded


@_guarded
def create_provider(name: int, options: int, out: int) -> None:
    """Create a provider with the options of a session, and write its number to `out`."""
    provider_name = text_at(name)
    prefix = f"ep.{provider_name.lower()}."
    entries = _apis[0].config_entries(options)
    texts = {key.removeprefix(prefix): text for key, text in entries.items() if key.startswith(prefix)}
    number = next(_ids)
    _providers[number] = _Provider(_options(provider_name, texts))
    ctypes.c_uint64.from_address(out).value = number


def _options(provider: str, texts: Mapping[str, str]) -> BridgeOptions:
    """Return the options of a provider; the backend after which it is named is the default."""
    backend = provider.removesuffix(SUFFIX)
    options = bridge_options(texts, () if backend == _OWN else [backend])
    ids = options.runtime().registry.ids
    for option, names in (("backends", options.backends), ("isolate", options.isolate or ())):
        for name in names:
            if name not in ids:
                raise InvalidArgumentError(
                    f"{provider}: no backend has the id {name!r}{did_you_mean(name, ids)} (there are: "
                    f"{', '.join(ids)}); the option {option!r} names others"
                )
    return options


def release_provider(number: int) -> int:
    """Forget a provider of a session that has ended, and unload its models."""
    provider = _providers.pop(number, None)
    if provider is not None:
        provider.close()
    return 0


@_guarded
def get_capability(number: int, graph: int, support: int) -> None:
    """Claim the groups of nodes of a graph that the provider runs."""
    if not _apis[0].pointer("Graph_GetParentNode", graph):
        _providers[number].claim(graph, support)


@_guarded
def compile_parts(number: int, graphs: int, nodes: int, count: int, out: int, contexts: int) -> None:
    """Write a table for each claimed group to `out`; `nodes` are the fused nodes that stand for them."""
    provider = _providers[number]
    pointers = [(ctypes.c_void_p * count).from_address(address) for address in (nodes, out)]
    for n in range(count):
        pointers[1][n] = provider.compiled(pointers[0][n] or 0)


@_guarded
def compute(number: int, context: int) -> None:
    """Run a part in a kernel context of ONNX Runtime."""
    _parts[number].run(context)


def release_part(number: int) -> int:
    """Forget a part; its table in C is released after this."""
    part = _parts.pop(number, None)
    if part is not None:
        part.close()
    return 0


class _Provider:
    """The provider of one session: its options, and the groups that it has claimed, by the names of their results."""

    def __init__(self, options: BridgeOptions) -> None:
        self.options = options
        self._groups: dict[frozenset[str], tuple[Group, PartReport]] = {}
        self._frees_memory = False
        self._problem: InterposerError | None = None

    def claim(self, address: int, support: int) -> None:
        graph = OrtGraph(_apis[0], address)
        if not graph.nodes:
            return
        try:
            claimed = claims(graph, self.options)
        except InterposerError as error:
            if not self.options.strict:
                raise
            self._problem = error  # ONNX Runtime only logs an error here, so the compilation of a node raises it
            _apis[0].claim(support, graph.addresses([0]))
            return
        self._take(graph, claimed, support)

    def _take(self, graph: OrtGraph, claimed: Claims, support: int) -> None:
        report = Report.of(f"ONNX Runtime {_apis[0].version}", claimed)
        for group, part in zip(claimed.groups, report.parts, strict=True):
            self._groups[frozenset(group.model.outputs)] = group, part
            _apis[0].claim(support, graph.addresses(group.members))
        self._frees_memory = graph.copied_bytes() >= LARGE
        add_report(report, self.options.explain)

    def compiled(self, node: int) -> int:
        """Return the table in C for the fused node at an address."""
        if self._problem is not None:
            raise self._problem
        names = [
            [
                _apis[0].text("GetValueInfoName", value) if value else ""
                for value in _apis[0].listed(node, f"Node.{kind}")
            ]
            for kind in ("Inputs", "Outputs")
        ]
        group, report = self._groups[frozenset(names[1])]
        part = _Part(next(_ids), group, report, *names, frees_memory=self._frees_memory)
        self._frees_memory = False
        _parts[part.number] = part
        return part.table

    def close(self) -> None:
        for group, _ in self._groups.values():
            group.model.close()
        self._groups.clear()


class _Part:
    """A claimed group that runs. `table` is the address of its table in C.

    `inputs` and `outputs` are the names of the values that ONNX Runtime passes, in its order. With `frees_memory`, the
    process returns free memory to the system when the session is complete.
    """

    def __init__(
        self,
        number: int,
        group: Group,
        report: PartReport,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        frees_memory: bool,
    ) -> None:
        self.number, self.model, self.report = number, group.model, report
        self.inputs = [inputs.index(name) for name in self.model.inputs]
        self.outputs = [outputs.index(name) for name in self.model.outputs]
        self.direct: DirectPart | None = None if group.is_dynamic else direct_part(self.model)
        numbers = array("I", [*self.inputs, *self.outputs])
        direct = None if self.direct is None else self.direct.address
        self.table: int = native().interposer_bridge_ort_part(number, direct, numbers.buffer_info()[0], frees_memory)
        self._events = 0
        report.counters = self.counters

    def run(self, context: int) -> None:
        """Run once, with the arrays of a kernel context."""
        api = _apis[0]
        arrays = [api.array(self._input(context, n)) for n in self.inputs]
        try:
            results = self.model.run(arrays)
        finally:
            self._note_events()
        for n, output in zip(self.outputs, results, strict=True):
            self._write(context, n, np.asarray(output))

    def _input(self, context: int, number: int) -> int:
        value = ctypes.c_void_p()
        _apis[0].call("KernelContext_GetInput", context, number, ctypes.byref(value))
        return value.value or 0

    def _write(self, context: int, number: int, output: Array) -> None:
        value, shape = ctypes.c_void_p(), (ctypes.c_int64 * output.ndim)(*output.shape)
        _apis[0].call("KernelContext_GetOutput", context, number, shape, output.ndim, ctypes.byref(value))
        if output.size:
            address = _apis[0].pointer("GetTensorMutableData", value.value or 0)
            memory = memoryview((ctypes.c_char * output.nbytes).from_address(address)).cast("B")
            np.copyto(np.frombuffer(memory, output.dtype).reshape(output.shape), output)

    def _note_events(self) -> None:
        """Report backends that the model stopped using; its direct runs would still use them."""
        events = self.model.events
        if len(events) > self._events:
            native().interposer_bridge_ort_give_up_direct(self.table)
            self.report.events += [str(event) for event in events[self._events :]]
            self._events = len(events)

    def counters(self) -> tuple[int, int, float]:
        """Return the number of runs, how many of them were direct, and the seconds of all."""
        counts = (ctypes.c_uint64 * 3)()
        native().interposer_bridge_ort_counts(self.table, counts)
        return counts[0], counts[1], counts[2] * 1e-9

    def close(self) -> None:
        """Release what C code needs for direct runs, and keep the counters as they are."""
        final = self.counters()
        self.report.counters = lambda: final
        if self.direct is not None:
            self.direct.close()
