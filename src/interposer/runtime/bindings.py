"""The border of a loaded network: which tensors a caller gives and gets, and whether what was given fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from interposer.errors import BindingError
from interposer.ir.graph import Layer
from interposer.ir.optimized import OptimizedNetwork
from interposer.kernels.table import empty
from interposer.ops.control import Input
from interposer.types import MAX_RANK, Array, TensorInfo, TensorShape

__all__ = ["Binding", "Bindings"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of a network: its binding id, its layer's name, and its tensor's info."""

    id: int
    name: str
    info: TensorInfo


class Bindings:
    """The inputs and outputs of one network, by binding id."""

    def __init__(self, optimized: OptimizedNetwork) -> None:
        self.inputs = {one.id: one for one in map(_binding, optimized.inputs)}
        self.outputs = {one.id: one for one in map(_binding, optimized.outputs)}

    def checked_inputs(self, given: Mapping[int, Any]) -> dict[int, Array]:
        """The arrays for the inputs.

        Raises:
            BindingError: with everything that does not fit.
        """
        faults = _id_faults("input", self.inputs, given)
        arrays = {key: _array(self.inputs[key], given[key]) for key in self.inputs if key in given}
        faults += [fault for key, array in arrays.items() for fault in _array_faults("input", self.inputs[key], array)]
        _raise(faults)
        return arrays

    def checked_outputs(self, given: Mapping[int, Any]) -> dict[int, Array]:
        """The arrays for the outputs, which must be arrays that can be written to; one of unknown shape may be absent.

        Raises:
            BindingError: with everything that does not fit.
        """
        faults = _id_faults("output", self.outputs, given)
        for key, binding in self.outputs.items():
            faults += _output_faults(binding, given[key]) if key in given else []
        _raise(faults)
        return dict(given)

    def new_outputs(self) -> dict[int, Array]:
        """Fresh arrays for all outputs whose shape is known before running."""
        return {key: empty(one.info) for key, one in self.outputs.items() if one.info.is_concrete}

    def info(self, kind: str, binding_id: int) -> TensorInfo:
        """The info of an input or output; `BindingError` where there is none of that id."""
        known = self.inputs if kind == "input" else self.outputs
        try:
            return known[binding_id].info
        except (KeyError, TypeError):
            raise BindingError(f"no {kind} has the binding id {binding_id!r}; there are {_listed(known)}") from None


def _binding(layer: Layer) -> Binding:
    op: Any = layer.op
    value = layer.output if isinstance(op, Input) else layer.values[0]
    return Binding(int(op.binding_id), layer.name, value.known.with_constant(None))


def _listed(known: Mapping[int, Binding]) -> str:
    return ", ".join(f"{one.id} ({one.name})" for one in known.values()) or "none"


def _id_faults(kind: str, known: Mapping[int, Binding], given: object) -> list[str]:
    if not isinstance(given, Mapping):
        raise BindingError(f"{kind}s must be a mapping from binding id to array, not {type(given).__name__}")
    absent = [one for one in known.values() if one.id not in given and one.info.is_concrete]
    missing = [f"no tensor was given for {kind} {one.id} ({one.name})" for one in absent]
    extra = [f"no {kind} has the binding id {key!r}; there are {_listed(known)}" for key in given if key not in known]
    return missing + extra


def _array(binding: Binding, given: object) -> Array:
    try:
        return np.asarray(given)
    except ValueError as error:
        raise BindingError(f"input {binding.id} ({binding.name}) cannot be made into an array: {error}") from error


def _array_faults(kind: str, binding: Binding, array: Array) -> Iterator[str]:
    label = f"{kind} {binding.id} ({binding.name})"
    if len(array.shape) > MAX_RANK or not binding.info.shape.accepts(TensorShape(array.shape)):
        yield f"{label} has shape {list(array.shape)}; expected {binding.info.shape}"
    if array.dtype != binding.info.dtype.numpy:
        yield f"{label} is {array.dtype}; expected {binding.info.dtype}"


def _output_faults(binding: Binding, array: Any) -> list[str]:
    if not isinstance(array, np.ndarray):
        return [f"output {binding.id} ({binding.name}) must be a NumPy array to write to, not {type(array).__name__}"]
    faults = list(_array_faults("output", binding, array))
    if not array.flags.writeable:
        faults.append(f"output {binding.id} ({binding.name}) is read-only; give an array that can be written to")
    return faults


def _raise(faults: list[str]) -> None:
    if faults:
        raise BindingError(faults[0] if len(faults) == 1 else "\n  - ".join([f"{len(faults)} faults:", *faults]))
