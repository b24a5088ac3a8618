"""The execution provider: what the C code of the bridge asks at each step of a session of ONNX Runtime.

A session creates a provider, asks it for the groups of nodes that it takes, lets it compile them, and runs them. All
functions with C arguments return the address of a status, or 0 for success; no exception leaves them.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Final, TypeAlias

import numpy as np

from interposer._version import __version__
from interposer.bridges.claims import Claims, Group, claims
from interposer.bridges.direct import DirectPart, direct_part, direct_part_of_shapes
from interposer.bridges.embedding import native, text_at
from interposer.bridges.onnxruntime.abi import FAIL, INVALID_ARGUMENT, OrtApi, OrtError
from interposer.bridges.onnxruntime.contexts import ContextOptions, read_context, write_context
from interposer.bridges.onnxruntime.graph import OrtGraph
from interposer.bridges.options import BridgeOptions, bridge_options
from interposer.bridges.reporting import PartReport, Report, add_report
from interposer.bridges.stored import stored_claims
from interposer.bridges.warnings import warn_once
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
_MOST_SHAPES: Final = 64
"""The number of sets of shapes for which a part remembers whether runs can be direct."""
_log: Final = logging.getLogger("interposer.bridges")
_apis: Final[dict[int, OrtApi]] = {}
"""The functions of each copy of ONNX Runtime in the process, by the address of its table."""
_providers: Final[dict[int, _Provider]] = {}
_parts: Final[dict[int, _Part]] = {}
_ids: Final = itertools.count(1)
_Shapes: TypeAlias = tuple[tuple[int, ...], ...]


def start(api: int, ep_api: int, version: int, own_version: int, size: int) -> int:
    """Note the functions of a copy of ONNX Runtime, and write this package's version into a buffer.

    `api` is the address of the copy's table of functions, by which the other functions of this module find it.
    """
    if not _apis:
        functions = native()
        functions.interposer_bridge_ort_part.restype = ctypes.c_void_p
        functions.interposer_bridge_ort_part.argtypes = [
            *(ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p),
            *(ctypes.c_size_t, ctypes.c_size_t, ctypes.c_bool),
        ]
        functions.interposer_bridge_ort_counts.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        functions.interposer_bridge_ort_add_direct.restype = ctypes.c_void_p
        functions.interposer_bridge_ort_add_direct.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        functions.interposer_bridge_ort_give_up_direct.argtypes = [ctypes.c_void_p]
    _apis.setdefault(api, OrtApi(api, ep_api, text_at(version)))
    version_bytes = __version__.encode()[: size - 1] + b"\0"
    ctypes.memmove(own_version, version_bytes, len(version_bytes))
    return 0


def _guarded(function: Callable[..., None]) -> Callable[..., int]:
    """Return a function that returns the address of a status in place of an exception."""

    @wraps(function)
    def guarded(address: int, *arguments: int) -> int:
        api = _apis[address]
        try:
            function(api, *arguments)
        except (BindingError, InvalidValueError) as error:
            return api.status(INVALID_ARGUMENT, f"Interposer: {error}")
        except (InterposerError, OrtError) as error:
            return api.status(FAIL, f"Interposer: {error}")
        except Exception as error:
            _log.exception("a bridge into ONNX Runtime failed")
            return api.status(FAIL, f"Interposer: {type(error).__name__}: {error}")
        return 0

    return guarded


@_guarded
def create_provider(api: OrtApi, name: int, options: int, out: int) -> None:
    """Create a provider with the options of a session, and write its number to `out`."""
    provider_name = text_at(name)
    prefix = f"ep.{provider_name.lower()}."
    entries = api.config_entries(options)
    texts = {key.removeprefix(prefix): text for key, text in entries.items() if key.startswith(prefix)}
    number = next(_ids)
    context = ContextOptions.of(provider_name, entries)
    _providers[number] = _Provider(api, _options(provider_name, texts), context)
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
    options.optimizer_options()  # raises an error if options are for an unknown backend
    return options


def release_provider(number: int) -> int:
    """Forget a provider of a session that has ended, and unload its models."""
    provider = _providers.pop(number, None)
    if provider is not None:
        provider.close()
    return 0


@_guarded
def get_capability(api: OrtApi, number: int, graph: int, support: int) -> None:
    """Claim the groups of nodes of a graph that the provider runs."""
    if not (api.pointer("Graph_GetParentNode", graph) or _reads_outer_values(api, graph)):
        _providers[number].claim(graph, support)


def _reads_outer_values(api: OrtApi, graph: int) -> bool:
    """Return True for a graph that belongs to a control flow node, as its nodes read values of the graph around it.

    A version that gives parents of graphs need not be asked.
    """
    return not api.gives_parents and any(
        value and api.number("ValueInfo_IsFromOuterScope", value, ctypes.c_bool)
        for node in api.listed(graph, "Graph.Nodes")
        for kind in ("Inputs", "ImplicitInputs")
        for value in api.listed(node, f"Node.{kind}")
    )


@_guarded
def compile_parts(api: OrtApi, number: int, graphs: int, nodes: int, count: int, out: int, contexts: int) -> None:
    """Write a table for each claimed group to `out`; `nodes` are the fused nodes that stand for them."""
    provider = _providers[number]
    pointers = [(ctypes.c_void_p * count).from_address(address) for address in (nodes, out)]
    for n in range(count):
        pointers[1][n] = provider.compiled(pointers[0][n] or 0)
    if contexts and provider.context.writes:
        context_nodes = (ctypes.c_void_p * count).from_address(contexts)
        for n in range(count):
            context_nodes[n] = provider.context_node(pointers[0][n] or 0)


@_guarded
def compute(api: OrtApi, number: int, context: int) -> None:
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

    def __init__(self, api: OrtApi, options: BridgeOptions, context: ContextOptions) -> None:
        self._api, self.options, self.context = api, options, context
        self._path = ""
        self._groups: dict[frozenset[str], tuple[Group, PartReport]] = {}
        self._frees_memory = False
        self._problem: Exception | None = None

    def claim(self, address: int, support: int) -> None:
        """Claim groups of a graph; an error leaves all nodes to ONNX Runtime, unless the user asks for an error.

        A version that does not give parents of graphs uses equal names for groups of several graphs of a session, so
        only one of its graphs can have some.
        """
        if self._groups and not self._api.gives_parents:
            return
        contexts: list[int] = []
        try:
            graph = OrtGraph(self._api, address)
            self._path = graph.path
            contexts = graph.own_contexts(self.context.provider)
            if graph.nodes:
                self._take(graph, self._claims(graph, contexts), support)
        except Exception as error:
            if not (self.options.strict or contexts):
                warn_once("all nodes are left to ONNX Runtime", error)
                return
            if not isinstance(error, InterposerError):
                _log.exception("a bridge into ONNX Runtime failed")
            self._problem = error  # ONNX Runtime only logs an error here, so the compilation of a node raises it
            nodes = self._api.listed(address, "Graph.Nodes")
            self._api.claim(support, [nodes[n] for n in (contexts or [0])[:1]])

    def _claims(self, graph: OrtGraph, contexts: Sequence[int]) -> Claims:
        if contexts:
            return claims(graph, self.options, stored=[self._stored(graph, n) for n in contexts])
        return stored_claims(graph, self.options)

    def _stored(self, graph: OrtGraph, index: int) -> Group:
        """Return the group that a context node has as a saved network."""
        node, [address] = graph.nodes[index], graph.addresses([index])
        names, dtypes = (node.inputs, node.outputs), partial(graph.dtypes, index)
        return read_context(
            self._api, (index, address, node.name), names, dtypes, self._path, self.context, self.options
        )

    def _take(self, graph: OrtGraph, claimed: Claims, support: int) -> None:
        report = Report.of(f"ONNX Runtime {self._api.version}", claimed)
        for group, part in zip(claimed.groups, report.parts, strict=True):
            self._groups[frozenset(group.model.outputs)] = group, part
            self._api.claim(support, graph.addresses(group.members))
        self._frees_memory = graph.copied_bytes() >= LARGE
        add_report(report, self.options.explain)

    def compiled(self, node: int) -> int:
        """Return the table in C for the fused node at an address."""
        if self._problem is not None:
            raise self._problem
        names = self._names(node)
        group, report = self._groups[frozenset(names[1])]
        part = _Part(self._api, next(_ids), group, report, *names, frees_memory=self._frees_memory)
        self._frees_memory = False
        _parts[part.number] = part
        return part.table

    def _names(self, node: int) -> tuple[list[str], list[str]]:
        """Return the names of the inputs and of the outputs of a node at an address."""
        inputs, outputs = (
            [
                self._api.text("GetValueInfoName", value) if value else ""
                for value in self._api.listed(node, f"Node.{kind}")
            ]
            for kind in ("Inputs", "Outputs")
        )
        return inputs, outputs

    def context_node(self, node: int) -> int:
        """Return a new context node for the fused node at an address."""
        names = self._names(node)
        group, _ = self._groups[frozenset(names[1])]
        name = self._api.text("Node_GetName", node)
        return write_context(self._api, name, names, group, self._path, self.context, self.options)

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
        api: OrtApi,
        number: int,
        group: Group,
        report: PartReport,
        inputs: Sequence[str],
        outputs: Sequence[str],
        *,
        frees_memory: bool,
    ) -> None:
        self._api, self.number, self.model, self.report = api, number, group.model, report
        self.inputs = [inputs.index(name) for name in self.model.inputs]
        self.outputs = [outputs.index(name) for name in self.model.outputs]
        numbers = array("I", [*self.inputs, *self.outputs])
        self.table: int = native().interposer_bridge_ort_part(
            api.address, number, numbers.buffer_info()[0], len(self.inputs), len(self.outputs), frees_memory
        )
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # of runs through Python, once there are direct runs that must not be concurrent
        self._num_running = 0  # runs through Python
        self._is_serial = False
        self._direct: dict[int, tuple[DirectPart, _Shapes]] = {}
        self._seen: set[_Shapes] = set()
        self._is_dynamic = group.is_dynamic
        if not group.is_dynamic:
            self._add_direct(direct_part(self.model), ())
        self._events = 0
        report.counters = self.counters

    def run(self, context: int) -> None:
        """Run once, with the arrays of a kernel context."""
        arrays = [self._api.array(self._input(context, n)) for n in self.inputs]
        try:
            with self._counted(), self._alone():
                results = self.model.run(arrays)
        finally:
            self._note_events()
        for n, output in zip(self.outputs, results, strict=True):
            self._write(context, n, np.asarray(output))
        if self._is_dynamic:
            self._prepare_direct(arrays)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A context manager for a run through Python."""
        with self._lock:
            self._num_running += 1
        try:
            yield
        finally:
            with self._lock:
                self._num_running -= 1

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A context manager in which no other run is in progress, if the part does not allow concurrent runs."""
        if not self._is_serial:
            yield
            return
        with self._turn:
            try:
                self._pause(True)
                yield
            finally:
                self._pause(False)

    def _pause(self, is_paused: bool) -> None:
        with self._lock:
            for direct, _ in self._direct.values():
                direct.pause(is_paused)

    def _prepare_direct(self, arrays: Sequence[Array]) -> None:
        """Let later runs with these shapes be direct if they can be."""
        shapes = tuple(values.shape for values in arrays)
        with self._lock:
            if shapes in self._seen or self._events:
                return
            if len(self._seen) >= _MOST_SHAPES:
                self._seen = {known for _, known in self._direct.values()}
            self._seen.add(shapes)
            direct = direct_part_of_shapes(self.model, dict(zip(self.model.inputs, arrays, strict=True)))
            if direct is not None and direct.is_serial and self._num_running:
                direct.close()  # those runs do not know that they have to be alone; a later run tries again
                self._seen.discard(shapes)
                return
            self._add_direct(direct, shapes)

    def _add_direct(self, direct: DirectPart | None, shapes: _Shapes) -> None:
        """Add a direct run for some shapes, and close the one that it replaces."""
        if direct is None:
            return
        self._is_serial |= direct.is_serial
        self._direct[direct.address] = direct, shapes
        replaced_address = native().interposer_bridge_ort_add_direct(self.table, direct.address)
        if replaced_address:
            closed_part, old_shapes = self._direct.pop(replaced_address)
            closed_part.close()
            self._seen.discard(old_shapes)

    def _input(self, context: int, number: int) -> int:
        ort_value = ctypes.c_void_p()
        self._api.call("KernelContext_GetInput", context, number, ctypes.byref(ort_value))
        return ort_value.value or 0

    def _write(self, context: int, number: int, output: Array) -> None:
        ort_value, shape = ctypes.c_void_p(), (ctypes.c_int64 * output.ndim)(*output.shape)
        self._api.call("KernelContext_GetOutput", context, number, shape, output.ndim, ctypes.byref(ort_value))
        if output.size:
            address = self._api.pointer("GetTensorMutableData", ort_value.value or 0)
            memory = memoryview((ctypes.c_char * output.nbytes).from_address(address)).cast("B")
            np.copyto(np.frombuffer(memory, output.dtype).reshape(output.shape), output)

    def _note_events(self) -> None:
        """Report backends that the model stopped using; its direct runs would still use them."""
        events = self.model.events
        if len(events) > self._events:
            with self._lock:
                self._close_direct()
                self.report.events += [str(event) for event in events[self._events :]]
                self._events = len(events)

    def _close_direct(self) -> None:
        native().interposer_bridge_ort_give_up_direct(self.table)
        for direct, _ in self._direct.values():
            direct.close()
        self._direct.clear()

    def counters(self) -> tuple[int, int, float]:
        """Return the number of runs, how many of them were direct, and the seconds of all."""
        counts = (ctypes.c_uint64 * 3)()
        native().interposer_bridge_ort_counts(self.table, counts)
        return counts[0], counts[1], counts[2] * 1e-9

    def close(self) -> None:
        """Release what C code needs for direct runs, and keep the counters as they are."""
        final_counters = self.counters()
        self.report.counters = lambda: final_counters
        self._close_direct()
