"""The inputs and outputs of a loaded network, and checks of the arrays that callers pass for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.containers import as_given, as_stored
from interposer.core.dlpack import as_array, shared_array
from interposer.core.errors import BindingError, ExecutionError
from interposer.core.records import dataclass
from interposer.core.types import MAX_RANK, Array, DataType, TensorInfo, TensorShape
from interposer.ir.graph import Layer, binding_id
from interposer.ir.states import direct_sinks
from interposer.ops.control import Input
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime.overlaps import Constants, refuse_overlaps

__all__ = ["Binding", "Bindings", "array_problems"]


@dataclass(frozen=True, slots=True)
class Binding:
    """One input or output of a network: its binding id, the name of its layer, and the info of its tensor."""

    id: int
    name: str
    info: TensorInfo
    shape: tuple[int, ...] | None = None
    """The shape, or None if it is not known before running."""
    dtype: np.dtype[Any] | None = None


class Fitting(dict[int, Array]):
    """Input arrays, by binding id, that were checked already and need no conversion.

    `Bindings.checked_inputs` returns such a mapping unchanged.
    """


class Bindings:
    """Checks and converts the inputs and outputs of one network, which are known by binding id.

    With `states`, the tensors that read and set states are among them, with negative ids. Those that set a state to an
    output of the caller are left out.
    """

    def __init__(self, optimized: OptimizedNetwork, *, states: bool = False) -> None:
        graph = optimized.graph
        inputs, outputs = (graph.sources, direct_sinks(graph)) if states else (graph.inputs, graph.outputs)
        self.inputs = {binding.id: binding for binding in map(_binding, inputs)}
        self.outputs = {binding.id: binding for binding in map(_binding, outputs)}
        self._output_titles = {key: f"output {key} ({binding.name})" for key, binding in self.outputs.items()}
        self.constants = Constants(())
        self._only_tensors = all(binding.info.is_tensor for binding in self.outputs.values())

    def fitting(self, binding_ids: Sequence[int], inputs: Sequence[Any]) -> Fitting | None:
        """Return the inputs by binding id if all of them are arrays that need no conversion, else None.

        `binding_ids` are the binding ids of `inputs`. None only means that `checked_inputs` has to check the inputs.
        """
        feeds = Fitting(zip(binding_ids, inputs, strict=True))
        return feeds if _fits(self.inputs, feeds) else None

    def checked_inputs(self, inputs: Mapping[int, Any]) -> dict[int, Array]:
        """Check the inputs that a caller passes, by binding id, and return them as the runtime stores them.

        Tensors must be arrays, or objects that share memory as arrays, of the declared type and shape. Lists for
        sequences are copied.

        Raises:
            BindingError: some inputs do not fit; the message lists all of them.
        """
        if type(inputs) is Fitting:
            return inputs
        if type(inputs) is dict and _fits(self.inputs, inputs):
            return dict(inputs)
        errors = _id_errors("input", self.inputs, inputs)
        arrays = {
            input_id: _checked_input(binding, inputs[input_id], errors)
            for input_id, binding in self.inputs.items()
            if input_id in inputs
        }
        _raise_errors(errors)
        return arrays

    def checked_outputs(self, outputs: Mapping[int, Any]) -> dict[int, Array]:
        """Check the arrays that a caller passes for outputs, by binding id, and return them as writable arrays.

        Outputs of unknown shape may be absent. Sequences and optionals must be absent.

        Raises:
            BindingError: some outputs do not fit (the message lists all of them), or an array shares memory with
                another one or with a constant of the network.
        """
        if (
            type(outputs) is dict
            and _fits(self.outputs, outputs)
            and all(array.flags.writeable for array in outputs.values())
        ):
            arrays = dict(outputs)
        else:
            errors = _id_errors("output", self.outputs, outputs)
            arrays = {
                output_id: _checked_target(binding, outputs[output_id], errors)
                for output_id, binding in self.outputs.items()
                if output_id in outputs
            }
            _raise_errors(errors)
        titled_arrays = [
            (title, arrays[output_id]) for output_id, title in self._output_titles.items() if output_id in arrays
        ]
        refuse_overlaps(titled_arrays)
        self.constants.refuse(titled_arrays)
        return arrays

    def new_outputs(self) -> dict[int, Array]:
        """Return new arrays for all outputs whose shape is known before running, by binding id.

        Raises:
            ExecutionError: there is not enough memory.
        """
        try:
            return {
                output_id: np.empty(binding.shape, binding.dtype)
                for output_id, binding in self.outputs.items()
                if binding.shape is not None
            }
        except (MemoryError, ValueError) as error:
            largest = max(self.outputs.values(), key=_bytes_of)
            raise ExecutionError(
                f"there is not enough memory for the outputs; the largest is {largest.id} ({largest.name}): "
                f"{largest.info}, {_bytes_of(largest):,} bytes",
                layer=largest.name,
            ) from error

    def given_out(self, outputs: Mapping[int, Array]) -> dict[int, Any]:
        """Return the outputs of a run in the form in which callers get them, by binding id.

        A tensor is an array, a sequence is a list of arrays, and an optional is its element or None.
        """
        if self._only_tensors:
            return dict(outputs)
        return {output_id: as_given(self.outputs[output_id].info, array) for output_id, array in outputs.items()}

    def info(self, kind: str, binding_id: int) -> TensorInfo:
        """Return the info of an input or output, as `kind` says; raise `BindingError` if no binding has this id."""
        bindings = self.inputs if kind == "input" else self.outputs
        try:
            return bindings[binding_id].info
        except (KeyError, TypeError):
            raise BindingError(f"no {kind} has the binding id {binding_id!r}; there are {_listed(bindings)}") from None


def _bytes_of(binding: Binding) -> int:
    return int(binding.info.num_bytes) if binding.shape is not None else 0


def _binding(layer: Layer) -> Binding:
    value = layer.output if isinstance(layer.op, Input) else layer.values[0]
    info = value.known.with_constant(None)
    shape = tuple(map(int, info.shape)) if _is_fixed(info) else None
    return Binding(binding_id(layer), layer.name, info, shape, info.dtype.numpy)


def _fits(bindings: Mapping[int, Binding], arrays: dict[Any, Any]) -> bool:
    """Return True if all arrays have the shape and type of the binding with their id, so that nothing is converted.

    False only means that a full check is needed.
    """
    if len(arrays) != len(bindings):
        return False
    for key, array in arrays.items():
        binding = bindings.get(key)
        if (
            binding is None
            or type(array) is not np.ndarray
            or array.shape != binding.shape
            or array.dtype != binding.dtype
        ):
            return False
        if array.dtype.hasobject:  # every element must be a text
            return False
    return True


def _listed(bindings: Mapping[int, Binding]) -> str:
    return ", ".join(f"{binding.id} ({binding.name})" for binding in bindings.values()) or "none"


def _id_errors(kind: str, bindings: Mapping[int, Binding], arrays: object) -> list[str]:
    if not isinstance(arrays, Mapping):
        raise BindingError(f"{kind}s must be a mapping from binding id to array, not {type(arrays).__name__}")
    absent_bindings = [
        binding
        for binding in bindings.values()
        if binding.id not in arrays and (kind == "input" or _is_fixed(binding.info))
    ]
    missing_errors = [f"no tensor was given for {kind} {binding.id} ({binding.name})" for binding in absent_bindings]
    extra_errors = [
        f"no {kind} has the binding id {key!r}; there are {_listed(bindings)}" for key in arrays if key not in bindings
    ]
    return missing_errors + extra_errors


def _is_fixed(info: TensorInfo) -> bool:
    """Return True for a tensor (no sequence or optional) whose shape is known before running."""
    return info.is_tensor and info.is_concrete


def _checked_input(binding: Binding, caller_input: object, errors: list[str]) -> Array:
    """Return an input of the caller as the runtime stores it: an array, or an object array for a sequence or optional.

    Error messages about its shape, type or elements are appended to `errors`.
    """

    def to_tensor(title: str, info: TensorInfo, element: object) -> Array:
        array = as_array(element, title)
        problems = list(array_problems(title, info, array))
        errors.extend(problems or _text_problems(title, info, array))
        return array

    return as_stored(f"input {binding.id} ({binding.name})", binding.info, caller_input, to_tensor)


def array_problems(title: str, info: TensorInfo, array: Array) -> Iterator[str]:
    """Yield error messages if an array does not have the shape and type of `info`; `title` names it in the messages."""
    if len(array.shape) > MAX_RANK or not info.shape.accepts(TensorShape(array.shape)):
        yield f"{title} has shape {list(array.shape)}; expected {info.shape}"
    if array.dtype != info.dtype.numpy:
        yield f"{title} is {_type_name(array.dtype)}; expected {info.dtype}"


def _text_problems(title: str, info: TensorInfo, array: Array) -> Iterator[str]:
    """Yield an error message if `info` is a tensor of strings and an element of the array is not a string.

    `title` names the array in the message.
    """
    if info.dtype is not DataType.STRING:
        return
    not_text = next((element for element in array.flat if not isinstance(element, str)), None)
    if not_text is not None:
        yield f"{title} holds {not_text!r}; expected {DataType.STRING}, texts"


def _type_name(dtype: np.dtype[Any]) -> str:
    is_swapped = dtype.byteorder not in "=|" and dtype != dtype.newbyteorder("=")
    return f"{dtype.newbyteorder('=')} with its bytes the other way round" if is_swapped else str(dtype)


def _checked_target(binding: Binding, memory: Any, errors: list[str]) -> Array:
    """Return an array that shares the memory that a caller gives for an output.

    Error messages are appended to `errors`, such as for read-only memory or a wrong shape.
    """
    title = f"output {binding.id} ({binding.name})"
    if not binding.info.is_tensor:
        errors.append(f"{title} is {binding.info}, and no tensor that an array could hold; give none")
        return np.empty(0)
    try:
        array = np.asarray(shared_array(memory, title))
    except BindingError as error:
        errors.append(str(error))
        return np.empty(0)
    errors += array_problems(title, binding.info, array)
    if not array.flags.writeable:
        errors.append(f"{title} is read-only; give an array that can be written to")
    return array


def _raise_errors(errors: list[str]) -> None:
    if errors:
        raise BindingError(errors[0] if len(errors) == 1 else "\n  - ".join([f"{len(errors)} errors:", *errors]))
