"""The kernel of a part that a delegate took: a model for each set of shapes, run on the host's tensors in place."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from interposer.bridges.claims import Group
from interposer.bridges.direct import DirectPart, direct_part
from interposer.bridges.embedding import native
from interposer.bridges.litert import abi
from interposer.bridges.litert.host import Host, Part
from interposer.bridges.litert.parts import InterpreterGraph
from interposer.bridges.reporting import PartReport
from interposer.core.errors import ExecutionError
from interposer.core.types import Array, TensorInfo
from interposer.ir.network import Network
from interposer.session import Model

__all__ = ["Kernel"]

_MOST_VARIANTS: Final = 8
"""The number of sets of shapes whose models a kernel keeps; those that were not used for longest are dropped first."""

Shapes = tuple[tuple[int, ...], ...]


class _Variant:
    """The model of a part for one set of shapes, and what runs it without Python if that is possible."""

    def __init__(self, model: Model, profiles: bool) -> None:
        self.model = model
        self.direct: DirectPart | None = None if profiles else direct_part(model)
        if profiles:
            model.profiler.enable_profiling()
        self.inputs = list(model.inputs.values())
        self.outputs = list(model.outputs.values())
        self.host_arrays: tuple[tuple[int, ...], list[Array], list[Array]] = (), [], []
        """The addresses of the host's tensors, and arrays at these addresses: inputs and outputs."""

    @property
    def is_open(self) -> bool:
        """True if the shape of an output is known only after a run."""
        return any(info is None or not info.is_concrete for info in self.outputs)

    def print_profile(self) -> None:
        """Print the runs that the model has recorded, in the JSON form of Arm NN's profiler."""
        self.model.profiler.print(sys.stdout)

    def close(self) -> None:
        """Release the model; no thread may run it any more."""
        if self.direct is not None:
            self.direct.close()
        self.model.close()


class Kernel:
    """A part of a graph that the host runs as one node; its C struct is at `address`.

    The host calls `prepare` before the first run, and again after the shapes of inputs have changed. The calls for one
    interpreter do not overlap. With `profiles`, it prints the profile of its runs in `close`.
    """

    def __init__(
        self, address: int, graph: InterpreterGraph, part: Part, group: Group, report: PartReport, profiles: bool
    ) -> None:
        self.address, self.nodes, self._report, self._profiles = address, graph.nodes, report, profiles
        self._template = graph.template(group.members)
        model = group.model
        self._compile: Callable[[Network], Model] = group.compile
        report.counters = self._counters
        self._counts = 0, 0, 0.0  # as of `close`
        self._lock = threading.RLock()  # guards the C struct, whose counts reports read in other threads
        self._names = list(model.inputs)
        self.inputs = [graph.index_of_name[name] for name in model.inputs]
        self.outputs = [graph.index_of_name[name] for name in model.outputs]
        missing_outputs = {*part.outputs} - {*self.outputs}
        if missing_outputs:
            raise ExecutionError(
                f"the host reads {[graph.names[index] for index in missing_outputs]}, which is not computed"
            )
        shapes = tuple(tuple(map(int, info.shape)) for info in model.inputs.values())
        self._variants: OrderedDict[Shapes, _Variant] = OrderedDict({shapes: _Variant(model, profiles)})
        self._current_variant = self._variants[shapes]

    def prepare(self, host: Host) -> None:
        """Compile the part for the shapes of the host's tensors unless it is, and give the outputs their shapes.

        Raises:
            InterposerError: the part cannot be compiled for these shapes, or the host refuses a shape.
        """
        shapes = tuple(_shape_here(host.tensors[index]) for index in self.inputs)
        self._set_direct(None)
        self._current_variant = self._variant(shapes)
        for index, info in zip(self.outputs, self._current_variant.outputs, strict=True):
            if info is None or not info.is_concrete:
                host.make_dynamic(index)
            else:
                host.resize(index, _shape_of_host(info, host.tensors[index]))
        if not any(host.is_dynamic(index) for index in self.outputs):
            self._set_direct(self._current_variant.direct)

    def _variant(self, shapes: Shapes) -> _Variant:
        if shapes not in self._variants:
            self._variants[shapes] = _Variant(self._compiled(shapes), self._profiles)
        self._variants.move_to_end(shapes)
        while len(self._variants) > _MOST_VARIANTS:
            self._variants.popitem(last=False)[1].close()
        return self._variants[shapes]

    def _compiled(self, shapes: Shapes) -> Model:
        network = self._template.network(shapes=dict(zip(self._names, shapes, strict=True)))
        return self._compile(network)

    def _set_direct(self, direct: DirectPart | None) -> None:
        tensors = (ctypes.c_int * (len(self.inputs) + len(self.outputs)))(*self.inputs, *self.outputs)
        address = direct.address if direct else None
        native().interposer_bridge_litert_direct(
            ctypes.c_void_p(self.address), ctypes.c_void_p(address), ctypes.byref(tensors)
        )

    def run(self, host: Host) -> None:
        """Run the part once on the host's tensors.

        Raises:
            InterposerError: a value of the inputs is wrong, or all backends failed.
        """
        variant = self._current_variant
        if variant.is_open:
            self._run_open(host, variant)
            return
        structs = host.tensors
        tensors = [structs[index] for index in (*self.inputs, *self.outputs)]
        addresses = tuple(tensor.data or 0 for tensor in tensors)
        known_addresses, inputs, outputs = variant.host_arrays
        if addresses != known_addresses:
            views = [
                _view(tensor, info) for tensor, info in zip(tensors, (*variant.inputs, *variant.outputs), strict=True)
            ]
            inputs, outputs = views[: len(self.inputs)], views[len(self.inputs) :]
            variant.host_arrays = addresses, inputs, outputs
        try:
            variant.model.run(inputs, outputs)
        finally:
            self._note_events(variant)

    def _note_events(self, variant: _Variant) -> None:
        """Report backends that the model has stopped using, and stop running the compiled part of such a backend."""
        events = variant.model.events
        if not events:
            return
        self._report.events[:] = map(str, events)
        if variant.direct is not None:
            self._set_direct(None)
            variant.direct.close()
            variant.direct = None

    def _run_open(self, host: Host, variant: _Variant) -> None:
        """Run the part, and let the host allocate outputs, whose shapes are only known then."""
        inputs = [_view(host.tensors[i], info) for i, info in zip(self.inputs, variant.inputs, strict=True)]
        for index, output in zip(self.outputs, variant.model.run(inputs), strict=True):
            host.resize(index, output.shape)
            tensor = host.tensors[index]
            if output.nbytes != tensor.bytes:
                raise ExecutionError(f"the host has {tensor.bytes} bytes for an output of {output.nbytes}")
            ctypes.memmove(tensor.data, np.ascontiguousarray(output).ctypes.data, output.nbytes)

    def _counters(self) -> tuple[int, int, float]:
        """Return the number of runs, how many of them needed no Python, and the seconds of all runs."""
        counts = (ctypes.c_uint64 * 3)()
        with self._lock:
            if not self.address:
                return self._counts
            native().interposer_bridge_litert_counts(ctypes.c_void_p(self.address), ctypes.byref(counts))
        return counts[0], counts[1], counts[2] / 1e9

    def close(self) -> None:
        """Release the models; the host does not call the kernel any more."""
        self._set_direct(None)
        with self._lock:
            self._counts = self._counters()
            self.address = 0
        for variant in self._variants.values():
            if self._profiles:
                variant.print_profile()
            variant.close()
        self._variants.clear()
        del self._template, self._compile, self._current_variant  # reports keep the kernel for its counts


def _is_complex(tensor: Any) -> bool:
    return bool(abi.TYPES[tensor.type].startswith("complex"))


def _shape_here(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a tensor of the host in the model, which has two numbers for each complex one."""
    return (*abi.integers(tensor.dims), 2) if _is_complex(tensor) else abi.integers(tensor.dims)


def _shape_of_host(info: TensorInfo, tensor: Any) -> Sequence[int]:
    """Return the shape in the host of a tensor of the model; it is the converse of `_shape_here`."""
    shape = tuple(map(int, info.shape))
    return shape[:-1] if _is_complex(tensor) else shape


def _view(tensor: Any, info: TensorInfo | None) -> Array:
    """Return the memory of a tensor of the host as an array; it is not copied.

    Raises:
        ExecutionError: it does not have the size of the tensor in the compiled network.
    """
    assert info is not None
    shape, dtype = tuple(map(int, info.shape)), info.dtype.numpy
    if tensor.bytes != info.num_bytes:
        raise ExecutionError(f"a tensor of the host has {tensor.bytes} bytes; {info} takes {info.num_bytes}")
    if not tensor.bytes:
        return np.empty(shape, dtype)
    if not tensor.data:
        raise ExecutionError(f"the host has no memory for a tensor of {tensor.bytes} bytes")
    return np.frombuffer((ctypes.c_char * tensor.bytes).from_address(tensor.data), dtype).reshape(shape)
