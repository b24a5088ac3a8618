"""The NNAPI document: a model as plain data, checked before the import."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final, NamedTuple

import numpy as np

from interposer.core.errors import InvalidArgumentError, ParseError, did_you_mean
from interposer.core.records import dataclass
from interposer.core.types import MAX_RANK, Array, DataType, Quantization, TensorInfo

__all__ = ["Model", "Operand", "Operation", "read_document"]

_MISSING: Final = object()
_TITLES: Final = {Mapping: "a mapping", str: "a text", int: "an integer", float: "a number", Sequence: "a list"}
_KINDS: Final[dict[type, tuple[type, ...]]] = {float: (int, float), Sequence: (list, tuple, np.ndarray)}


class _Type(NamedTuple):
    """What a type name such as TENSOR_QUANT8_ASYMM means: the data type of the elements, and how they are interpreted.

    `tensor` is False for scalars; quantized tensors have one scale, or with `per_channel` one for each channel.
    """

    dtype: DataType
    tensor: bool = True
    quantized: bool = False
    per_channel: bool = False


_TYPES: Final = {
    "BOOL": _Type(DataType.BOOL, tensor=False),
    "INT32": _Type(DataType.INT32, tensor=False),
    "UINT32": _Type(DataType.UINT32, tensor=False),
    "FLOAT16": _Type(DataType.FLOAT16, tensor=False),
    "FLOAT32": _Type(DataType.FLOAT32, tensor=False),
    "SUBGRAPH": _Type(DataType.UINT32, tensor=False),
    "TENSOR_BOOL8": _Type(DataType.BOOL),
    "TENSOR_INT32": _Type(DataType.INT32),
    "TENSOR_FLOAT16": _Type(DataType.FLOAT16),
    "TENSOR_FLOAT32": _Type(DataType.FLOAT32),
    "TENSOR_QUANT8_ASYMM": _Type(DataType.UINT8, quantized=True),
    "TENSOR_QUANT8_ASYMM_SIGNED": _Type(DataType.INT8, quantized=True),
    "TENSOR_QUANT8_SYMM": _Type(DataType.INT8, quantized=True),
    "TENSOR_QUANT8_SYMM_PER_CHANNEL": _Type(DataType.INT8, quantized=True, per_channel=True),
    "TENSOR_QUANT16_SYMM": _Type(DataType.INT16, quantized=True),
    "TENSOR_QUANT16_ASYMM": _Type(DataType.UINT16, quantized=True),
}
INPUT, OUTPUT, TEMPORARY, NO_VALUE = "SUBGRAPH_INPUT", "SUBGRAPH_OUTPUT", "TEMPORARY_VARIABLE", "NO_VALUE"
CONSTANTS: Final = ("CONSTANT_COPY", "CONSTANT_REFERENCE", "SUBGRAPH")
_LIFETIMES: Final = (INPUT, OUTPUT, TEMPORARY, NO_VALUE, *CONSTANTS)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor or scalar of a model; `value` is set for constants, and None if the operand is an input or computed.

    A dimension of 0 in `dims` is unknown. A tensor without dims has unknown rank.
    """

    name: str
    type: str
    dims: tuple[int, ...]
    quantization: Quantization | None
    lifetime: str
    omitted: bool
    value: Array | None

    @property
    def dtype(self) -> DataType:
        """The data type of an element as it is stored."""
        return _TYPES[self.type].dtype

    @property
    def is_scalar(self) -> bool:
        """True for a scalar operand, which is not a tensor."""
        return not _TYPES[self.type].tensor

    @property
    def has_rank(self) -> bool:
        """True if the document gives the number of axes."""
        return self.is_scalar or bool(self.dims)

    def info(self) -> TensorInfo:
        """Return the type, the shape and the quantization that the document declares; the rank must be declared.

        A dimension of 0 becomes an unknown one.
        """
        return TensorInfo([dim or None for dim in self.dims], self.dtype, self.quantization)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of a model: its name, and its inputs and outputs as indices of operands.

    `where` is its location in the document, for errors.
    """

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    where: str


@dataclass(frozen=True, slots=True)
class Model:
    """A model that was read from a document and checked: its operands, and its operations in topological order.

    `inputs` and `outputs` are indices of operands. `referenced` are all models that operations run, directly or
    indirectly; operands of type SUBGRAPH are indices into it.
    """

    name: str
    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    referenced: tuple[Model, ...] = ()


def read_document(document: Mapping[str, Any]) -> Model:
    """Return the model that a document describes, after checking it.

    `ParseError` with the location in the document is raised for the first error.
    """
    if not isinstance(document, Mapping):
        raise ParseError(f"the document is {reprlib.repr(document)}; expected a mapping")
    model = _model(document)
    records = _field(document, "referenced", Sequence, "document", ())
    referenced_models = tuple(_referenced(record, f"referenced[{index}]") for index, record in enumerate(records))
    _check_references((model, *referenced_models))
    return replace(model, referenced=referenced_models)


def _referenced(record: Any, where: str) -> Model:
    try:
        return _model(_record(record, where))
    except ParseError as error:
        inner_where = f"{where}, {error.where}" if error.where and error.where != where else where
        raise ParseError(error.message, where=inner_where) from error


def _check_references(models: Sequence[Model]) -> None:
    """Raise `ParseError` unless all referenced models exist and none runs itself, directly or indirectly."""
    run_by: dict[int, set[int]] = {}
    for number, model in enumerate(models):
        referenced_numbers = [
            int(operand.value) for operand in model.operands if operand.type == "SUBGRAPH" and operand.value is not None
        ]
        run_by[number] = {index + 1 for index in referenced_numbers}
        for index in referenced_numbers:
            if index >= len(models) - 1:
                raise ParseError(f"an operand names model {index} of {len(models) - 1}", where="referenced")
    try:
        TopologicalSorter(run_by).prepare()
    except CycleError as error:
        raise ParseError(f"model {error.args[1][0] - 1} runs itself", where="referenced") from error


def _model(document: Mapping[str, Any]) -> Model:
    records = _field(document, "operands", Sequence, "document")
    operands = tuple(_operand(record, f"operands[{index}]") for index, record in enumerate(records))
    records = _field(document, "operations", Sequence, "document")
    operations = [_operation(record, index, len(operands)) for index, record in enumerate(records)]
    inputs, outputs = (_indices(document, name, name, len(operands)) for name in ("inputs", "outputs"))
    _check_border(operands, inputs, outputs)
    ordered_operations = _in_running_order(operations, _producers(operands, operations))
    _check_produced(operands, ordered_operations, outputs)
    name = document.get("test") or document.get("spec")
    return Model(name if isinstance(name, str) else "nnapi", operands, ordered_operations, inputs, outputs)


def _field(record: Mapping[str, Any], name: str, kind: type, where: str, default: Any = _MISSING) -> Any:
    """Return the entry `name` of a record of the document, or `default` if it is missing or None.

    `ParseError` with the location `where` is raised if it is missing without a default, or not of type `kind`.
    """
    value = record.get(name)
    if value is None:
        if default is _MISSING:
            raise ParseError(f"{name!r} is missing", where=where)
        return default
    if not isinstance(value, _KINDS.get(kind, kind)) or isinstance(value, bool):
        raise ParseError(f"{name!r} is {reprlib.repr(value)}; expected {_TITLES[kind]}", where=where)
    return value


def _integers(record: Mapping[str, Any], name: str, where: str) -> tuple[int, ...]:
    values = tuple(_field(record, name, Sequence, where))
    for value in values:
        if not isinstance(value, int | np.integer) or isinstance(value, bool):
            raise ParseError(f"{name!r} has the entry {reprlib.repr(value)}; expected an integer", where=where)
    return tuple(int(value) for value in values)


def _indices(record: Mapping[str, Any], name: str, where: str, count: int) -> tuple[int, ...]:
    indices = _integers(record, name, where)
    for index in indices:
        if not 0 <= index < count:
            raise ParseError(f"{name!r} has the index {index}, but there are {count} operands", where=where)
    return indices


def _record(record: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(record, Mapping):
        raise ParseError(f"it is {reprlib.repr(record)}; expected a mapping", where=where)
    return record


def _one_of(name: str, known_names: Sequence[str] | Mapping[str, Any], title: str, where: str) -> str:
    if name not in known_names:
        raise ParseError(f"{title} {name!r} is not known{did_you_mean(name, known_names)}", where=where)
    return name


def _operand(content: Any, where: str) -> Operand:
    record = _record(content, where)
    type_name = _one_of(_field(record, "type", str, where), _TYPES, "the type", where)
    lifetime = _one_of(_field(record, "lifetime", str, where), _LIFETIMES, "the lifetime", where)
    kind, dims = _TYPES[type_name], _dims(record, where)
    if dims and not kind.tensor:
        tensor = f"TENSOR_{type_name}"
        hint = f", or the type {tensor}" if tensor in _TYPES else ""
        raise ParseError(f"a {type_name} has dims {list(dims)}; expected none{hint}", where=where)
    elements = _field(record, "data", Sequence, where, None)
    is_omitted = lifetime == NO_VALUE or (lifetime == INPUT and elements is not None and not len(elements))
    value = _constant(kind, dims, elements, where) if lifetime in CONSTANTS else None
    if lifetime == INPUT and elements is not None and not is_omitted and all(dims):
        _check_length(elements, dims, where)
    try:
        quantization = _quantization(kind, record, where)
        operand = Operand(
            _field(record, "name", str, where, ""), type_name, dims, quantization, lifetime, is_omitted, value
        )
        if not is_omitted and value is None:
            operand.info()
    except InvalidArgumentError as error:
        raise ParseError(str(error), where=where) from error
    return operand


def _dims(record: Mapping[str, Any], where: str) -> tuple[int, ...]:
    dims = _integers(record, "dims", where)
    if min(dims, default=0) < 0:
        raise ParseError(f"'dims' is {list(dims)}; a dimension must not be negative, and 0 means unknown", where=where)
    if len(dims) > MAX_RANK:
        raise ParseError(f"a tensor has rank {len(dims)}; ranks 0 to {MAX_RANK} are supported", where=where)
    return dims


def _quantization(kind: _Type, record: Mapping[str, Any], where: str) -> Quantization | None:
    if kind.per_channel:
        axis = _field(record, "channel_dim", int, where)
        return Quantization(_field(record, "channel_scales", Sequence, where), 0, axis)
    scale = _field(record, "scale", float, where, 0.0)
    zero_point = _field(record, "zero_point", int, where, 0)
    if kind.quantized:
        return Quantization(scale, zero_point)
    return Quantization(scale) if scale and kind.dtype is DataType.INT32 else None


def _check_length(elements: Sequence[Any], dims: tuple[int, ...], where: str) -> None:
    if len(elements) != math.prod(dims):
        raise ParseError(f"'data' has {len(elements)} values; dims {list(dims)} take {math.prod(dims)}", where=where)


def _constant(kind: _Type, dims: tuple[int, ...], elements: Sequence[Any] | None, where: str) -> Array:
    if elements is None:
        raise ParseError("a constant has no 'data'", where=where)
    _check_length(elements, dims, where)
    dtype = kind.dtype.numpy
    try:
        array = np.asarray(elements if len(elements) else (), dtype if not len(elements) else None)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParseError(f"'data' cannot be made into an array: {error}", where=where) from error
    if array.ndim != 1 or array.dtype.kind not in {"f": "iuf", "b": "biu"}.get(dtype.kind, "iu"):
        raise ParseError(f"'data' is {reprlib.repr(elements)}; expected a list of {kind.dtype} values", where=where)
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(converted, array):
        raise ParseError(f"'data' has values that are no {kind.dtype}", where=where)
    if dtype.kind == "f" and (is_overflown := np.isinf(converted) & np.isfinite(array.astype(np.float64))).any():
        raise ParseError(f"'data' has {array[is_overflown][0]}, which is too large for {kind.dtype}", where=where)
    return converted.reshape(dims)


def _operation(content: Any, index: int, count: int) -> Operation:
    where = f"operations[{index}]"
    record = _record(content, where)
    name = _field(record, "op", str, where)
    where = f"{where} {name}"
    return Operation(name, _indices(record, "in", where, count), _indices(record, "out", where, count), where)


def _check_border(operands: Sequence[Operand], inputs: Sequence[int], outputs: Sequence[int]) -> None:
    for where, indices, lifetime in (("inputs", inputs, INPUT), ("outputs", outputs, OUTPUT)):
        if len(set(indices)) < len(indices):
            raise ParseError(f"{list(indices)} names an operand twice", where=where)
        for index in indices:
            if operands[index].lifetime != lifetime:
                lifetime_text = f"operands[{index}] has the lifetime {operands[index].lifetime}"
                raise ParseError(f"{lifetime_text}; expected {lifetime}", where=where)
        for index, operand in enumerate(operands):
            if operand.lifetime == lifetime and not operand.omitted and index not in indices:
                raise ParseError(f"operands[{index}] has the lifetime {lifetime} and is missing", where=where)
    if not outputs:
        raise ParseError("the model has no outputs", where="outputs")


def _producers(operands: Sequence[Operand], operations: Sequence[Operation]) -> dict[int, int]:
    """Return for each operand that an operation writes (by index) the index of this operation.

    `ParseError` is raised if two operations write one operand, or one writes an input or a constant.
    """
    producers: dict[int, int] = {}
    for number, operation in enumerate(operations):
        for index in operation.outputs:
            if operands[index].lifetime not in {OUTPUT, TEMPORARY}:
                raise ParseError(
                    f"it writes operands[{index}], whose lifetime is {operands[index].lifetime}", where=operation.where
                )
            if index in producers:
                first_writer = operations[producers[index]].where
                raise ParseError(f"it writes operands[{index}], as {first_writer} does", where=operation.where)
            producers[index] = number
    return producers


def _in_running_order(operations: Sequence[Operation], producers: Mapping[int, int]) -> tuple[Operation, ...]:
    predecessors = {
        number: [producers[index] for index in operation.inputs if index in producers]
        for number, operation in enumerate(operations)
    }
    if all(max(numbers, default=-1) < number for number, numbers in predecessors.items()):
        return tuple(operations)
    try:
        return tuple(operations[number] for number in TopologicalSorter(predecessors).static_order())
    except CycleError as error:
        cycle = " <- ".join(operations[number].where for number in error.args[1])
        raise ParseError(f"operations depend on themselves: {cycle}", where="operations") from error


def _check_produced(operands: Sequence[Operand], operations: Sequence[Operation], outputs: Sequence[int]) -> None:
    written_operands = {index for operation in operations for index in operation.outputs}
    for operation in operations:
        for index in operation.inputs:
            if operands[index].lifetime in {OUTPUT, TEMPORARY} and index not in written_operands:
                raise ParseError(f"it reads operands[{index}], which nothing writes", where=operation.where)
    for index in outputs:
        if index not in written_operands:
            raise ParseError(f"operands[{index}] is written by no operation", where="outputs")
