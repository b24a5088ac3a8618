"""The protobuf messages of TensorFlow's files that matter for inference, as dataclasses, and their decoding.

Every attribute declares the number of its field, and how its value is stored. Fields that are not declared are skipped.

Source: graph.proto, node_def.proto, attr_value.proto, tensor.proto, tensor_shape.proto, function.proto, op_def.proto,
meta_graph.proto, saved_model.proto, saved_object_graph.proto, trackable_object_graph.proto and tensor_bundle.proto of
TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np

from interposer.core.errors import DamagedFileError
from interposer.core.records import dataclass
from interposer.core.types import Array
from interposer.frontends.tensorflow.dtypes import TYPE_NUMBERS
from interposer.frontends.tensorflow.wire import BYTES, FIXED32, FIXED64, VARINT, Entry, Field, fields, varints

__all__ = [
    "ArgDef",
    "AttrValue",
    "BundleEntry",
    "BundleHeader",
    "FunctionDef",
    "GraphDef",
    "ListValue",
    "MetaGraphDef",
    "NameAttrList",
    "NodeDef",
    "SavedModel",
    "SignatureDef",
    "TensorProto",
    "TensorShape",
    "TrackableGraph",
    "decode",
    "from_text",
]

M = TypeVar("M")

_WIRE: Final = {
    "int": VARINT, "bool": VARINT, "type": VARINT, "float": FIXED32, "double": FIXED64, "fixed32": FIXED32,
    "text": BYTES, "bytes": BYTES,
}  # fmt: skip
_NUMPY: Final[dict[str, np.dtype[Any]]] = {
    "float": np.dtype("<f4"),
    "double": np.dtype("<f8"),
    "fixed32": np.dtype("<u4"),
}
_EMPTY: Final = memoryview(b"")


class _Rule(NamedTuple):
    """How a field is stored: its number, a kind of `_WIRE` or the class of a message, and its multiplicity.

    `form` is "one", "list", "numbers" (an array), or "map" (by text).
    """

    number: int
    kind: str | type[Any]
    form: str


def _one(number: int, kind: str | type[Any], default: Any = None) -> Any:
    return dataclasses.field(default=default, metadata={"rule": _Rule(number, kind, "one")})


def _message(number: int, kind: type[Any]) -> Any:
    """Declare a message that is empty if it is absent."""
    return dataclasses.field(default_factory=kind, metadata={"rule": _Rule(number, kind, "one")})


def _list(number: int, kind: str | type[Any]) -> Any:
    return dataclasses.field(default_factory=list, metadata={"rule": _Rule(number, kind, "list")})


def _numbers(number: int, kind: str) -> Any:
    return dataclasses.field(default_factory=list, metadata={"rule": _Rule(number, kind, "numbers")})


def _map(number: int, kind: str | type[Any]) -> Any:
    return dataclasses.field(default_factory=dict, metadata={"rule": _Rule(number, kind, "map")})


@dataclass(slots=True)
class Dimension:
    """A dimension of a shape; -1 is an unknown size."""

    size: int = _one(1, "int", 0)


@dataclass(slots=True)
class TensorShape:
    """The shape of a tensor."""

    dim: list[Dimension] = _list(2, Dimension)
    unknown_rank: bool = _one(3, "bool", False)

    def dims(self) -> list[int | None] | None:
        """Return the sizes, None for unknown ones; None if the rank is unknown."""
        return None if self.unknown_rank else [None if dim.size < 0 else dim.size for dim in self.dim]


@dataclass(slots=True)
class TensorProto:
    """A constant tensor: its elements are bytes in `tensor_content`, or numbers in the list for its type."""

    dtype: int = _one(1, "type", 0)
    tensor_shape: TensorShape | None = _one(2, TensorShape)
    tensor_content: memoryview = _one(4, "bytes", _EMPTY)
    float_val: Array = _numbers(5, "float")
    double_val: Array = _numbers(6, "double")
    int_val: Array = _numbers(7, "int")
    string_val: list[memoryview] = _list(8, "bytes")
    int64_val: Array = _numbers(10, "int")
    bool_val: Array = _numbers(11, "int")
    half_val: Array = _numbers(13, "int")
    uint32_val: Array = _numbers(16, "int")
    uint64_val: Array = _numbers(17, "int")


@dataclass(slots=True)
class ListValue:
    """An attribute that is a list."""

    s: list[memoryview] = _list(2, "bytes")
    i: list[int] = _list(3, "int")
    f: list[float] = _list(4, "float")
    b: list[bool] = _list(5, "bool")
    type: list[int] = _list(6, "type")
    shape: list[TensorShape] = _list(7, TensorShape)


@dataclass(slots=True)
class NameAttrList:
    """A function by its name."""

    name: str = _one(1, "text", "")


@dataclass(slots=True)
class AttrValue:
    """The value of an attribute: the member that is not None."""

    list: ListValue | None = _one(1, ListValue)
    s: memoryview | None = _one(2, "bytes")
    i: int | None = _one(3, "int")
    f: float | None = _one(4, "float")
    b: bool | None = _one(5, "bool")
    type: int | None = _one(6, "type")
    shape: TensorShape | None = _one(7, TensorShape)
    tensor: TensorProto | None = _one(8, TensorProto)
    placeholder: str | None = _one(9, "text")
    func: NameAttrList | None = _one(10, NameAttrList)


@dataclass(slots=True)
class NodeDef:
    """A node of a graph or function."""

    name: str = _one(1, "text", "")
    op: str = _one(2, "text", "")
    input: list[str] = _list(3, "text")
    attr: dict[str, AttrValue] = _map(5, AttrValue)


@dataclass(slots=True)
class ArgDef:
    """An argument of a function."""

    name: str = _one(1, "text", "")
    type: int = _one(3, "type", 0)
    number_attr: str = _one(5, "text", "")
    type_list_attr: str = _one(6, "text", "")


@dataclass(slots=True)
class OpDef:
    """The signature of a function."""

    name: str = _one(1, "text", "")
    input_arg: list[ArgDef] = _list(2, ArgDef)
    output_arg: list[ArgDef] = _list(3, ArgDef)


@dataclass(slots=True)
class FunctionDef:
    """A function; `ret` maps the names of its outputs to values in its body."""

    signature: OpDef = _message(1, OpDef)
    node_def: list[NodeDef] = _list(3, NodeDef)
    ret: dict[str, str] = _map(4, "text")


@dataclass(slots=True)
class FunctionLibrary:
    """The functions that the nodes of a graph call."""

    function: list[FunctionDef] = _list(1, FunctionDef)


@dataclass(slots=True)
class GraphDef:
    """A graph of nodes."""

    node: list[NodeDef] = _list(1, NodeDef)
    library: FunctionLibrary = _message(2, FunctionLibrary)


@dataclass(slots=True)
class SignatureTensor:
    """An input or output of a signature."""

    name: str = _one(1, "text", "")
    dtype: int = _one(2, "type", 0)
    tensor_shape: TensorShape | None = _one(3, TensorShape)


@dataclass(slots=True)
class SignatureDef:
    """A way to run a SavedModel: inputs and outputs by their names."""

    inputs: dict[str, SignatureTensor] = _map(1, SignatureTensor)
    outputs: dict[str, SignatureTensor] = _map(2, SignatureTensor)


@dataclass(slots=True)
class MetaInfo:
    """The tags of a graph in a SavedModel."""

    tags: list[str] = _list(4, "text")


@dataclass(slots=True)
class Saver:
    """The node that restores the variables."""

    restore_op_name: str = _one(3, "text", "")


@dataclass(slots=True)
class AssetFile:
    """A file among the assets of a SavedModel, and the tensor that holds its path."""

    tensor_info: SignatureTensor = _message(1, SignatureTensor)
    filename: str = _one(2, "text", "")


@dataclass(slots=True)
class MetaGraphDef:
    """A graph of a SavedModel, with its signatures."""

    meta_info_def: MetaInfo = _message(1, MetaInfo)
    graph_def: GraphDef | None = _one(2, GraphDef)
    saver_def: Saver = _message(3, Saver)
    signature_def: dict[str, SignatureDef] = _map(5, SignatureDef)
    asset_file_def: list[AssetFile] = _list(6, AssetFile)


@dataclass(slots=True)
class SavedModel:
    """The content of saved_model.pb."""

    schema_version: int = _one(1, "int", 0)
    meta_graphs: list[MetaGraphDef] = _list(2, MetaGraphDef)


@dataclass(slots=True)
class SerializedTensor:
    """A tensor of a tracked object: the variable's name, and its key in the checkpoint."""

    full_name: str = _one(2, "text", "")
    checkpoint_key: str = _one(3, "text", "")


@dataclass(slots=True)
class TrackedObject:
    """An object in a checkpoint."""

    attributes: list[SerializedTensor] = _list(2, SerializedTensor)


@dataclass(slots=True)
class TrackableGraph:
    """The objects of a checkpoint."""

    nodes: list[TrackedObject] = _list(1, TrackedObject)


@dataclass(slots=True)
class BundleHeader:
    """The first entry of a checkpoint's index; endianness 0 is little."""

    num_shards: int = _one(1, "int", 0)
    endianness: int = _one(2, "int", 0)


@dataclass(slots=True)
class BundleEntry:
    """Where a tensor is in the data files of a checkpoint."""

    dtype: int = _one(1, "type", 0)
    shape: TensorShape = _message(2, TensorShape)
    shard_id: int = _one(3, "int", 0)
    offset: int = _one(4, "int", 0)
    size: int = _one(5, "int", 0)
    slices: list[Dimension] = _list(7, Dimension)


@cache
def _rules(kind: Hashable) -> Mapping[int, tuple[str, _Rule]]:
    names_and_rules = ((field.name, field.metadata["rule"]) for field in dataclasses.fields(cast("Any", kind)))
    return {rule.number: (name, rule) for name, rule in names_and_rules}


@cache
def _rules_by_name(kind: Hashable) -> Mapping[str, _Rule]:
    return {field.name: field.metadata["rule"] for field in dataclasses.fields(cast("Any", kind))}


# --- binary -----------------------------------------------------------------------------------------------------------


def decode(kind: type[M], view: memoryview) -> M:
    """Return the message of the class `kind` that is encoded in `view`; its bytes are views of `view`.

    Raises:
        DamagedFileError: the bytes are no such message.
    """
    message, rules = kind(), _rules(cast("Hashable", kind))
    for field in fields(view):
        if field.number in rules:
            name, rule = rules[field.number]
            _store(message, name, rule, field)
    return message


def _store(message: Any, name: str, rule: _Rule, field: Field) -> None:
    if rule.form == "one":
        setattr(message, name, _scalar(rule, field))
    elif rule.form == "map":
        key, value = _entry(rule, field)
        getattr(message, name)[key] = value
    elif field.kind == BYTES and _WIRE.get(str(rule.kind)) not in (None, BYTES):
        _extend(message, name, rule, _packed(str(rule.kind), field.content))
    elif rule.form == "numbers":
        _extend(message, name, rule, np.array([_scalar(rule, field)]))
    else:
        getattr(message, name).append(_scalar(rule, field))


def _extend(message: Any, name: str, rule: _Rule, numbers: Array) -> None:
    old_numbers = getattr(message, name)
    if rule.form == "list":
        old_numbers += numbers.tolist()
    else:
        setattr(message, name, np.concatenate([old_numbers, numbers]) if len(old_numbers) else numbers)


def _packed(kind: str, view: memoryview) -> Array:
    if kind in _NUMPY:
        dtype = _NUMPY[kind]
        if len(view) % dtype.itemsize:
            raise DamagedFileError("a list of numbers is truncated")
        return np.frombuffer(view, dtype)
    return varints(view).view(np.int64)


def _scalar(rule: _Rule, field: Field) -> Any:
    if isinstance(rule.kind, type):
        if field.kind != BYTES:
            raise DamagedFileError(f"field {field.number} is no message")
        return decode(rule.kind, field.content)
    if field.kind != _WIRE[rule.kind]:
        raise DamagedFileError(f"field {field.number} has the wire type {field.kind}; expected {_WIRE[rule.kind]}")
    if rule.kind == "bytes":
        return field.content
    if rule.kind == "text":
        return bytes(field.content).decode("utf-8", "replace")
    if rule.kind in _NUMPY:
        return np.frombuffer(field.content, _NUMPY[rule.kind])[0].item()
    value = field.integer & 0xFFFF_FFFF_FFFF_FFFF
    return bool(value) if rule.kind == "bool" else value - (1 << 64) if value >> 63 else value


def _entry(rule: _Rule, field: Field) -> tuple[str, Any]:
    if field.kind != BYTES:
        raise DamagedFileError(f"field {field.number} is no entry of a map")
    key, value = "", rule.kind() if isinstance(rule.kind, type) else ""
    for entry_field in fields(field.content):
        if entry_field.number == 1 and entry_field.kind == BYTES:
            key = bytes(entry_field.content).decode("utf-8", "replace")
        elif entry_field.number == 2:
            value = _scalar(rule, entry_field)
    return key, value


# --- text -------------------------------------------------------------------------------------------------------------


def from_text(kind: type[M], entries: Sequence[tuple[str, Entry]]) -> M:
    """Return the message of the class `kind` with the fields that `parse_text` returned.

    Raises:
        DamagedFileError: a field has a value of another kind.
    """
    message, rules = kind(), _rules_by_name(cast("Hashable", kind))
    for name, entry in entries:
        rule = rules.get(name)
        if rule is None:
            continue
        if rule.form == "one":
            setattr(message, name, _read(rule.kind, entry, name))
        elif rule.form == "map":
            key, value = _pair(rule, entry, name)
            getattr(message, name)[key] = value
        else:
            getattr(message, name).append(_read(rule.kind, entry, name))
    for name, rule in rules.items():
        if rule.form == "numbers":
            dtype = np.int64 if rule.kind == "int" else np.float64 if rule.kind == "double" else np.float32
            setattr(message, name, np.array(getattr(message, name), dtype))
    return message


def _pair(rule: _Rule, entry: Entry, name: str) -> tuple[str, Any]:
    if not isinstance(entry, list):
        raise DamagedFileError(f"{name} is no entry of a map")
    fields_of_entry = dict(entry)
    default: Entry = [] if isinstance(rule.kind, type) else b""
    return str(_read("text", fields_of_entry.get("key", b""), "key")), _read(
        rule.kind, fields_of_entry.get("value", default), "value"
    )


def _read(kind: str | type[Any], entry: Entry, name: str) -> Any:
    if isinstance(kind, type):
        if not isinstance(entry, list):
            raise DamagedFileError(f"{name} is no message")
        return from_text(kind, entry)
    if isinstance(entry, list) or isinstance(entry, bytes) != (kind in {"text", "bytes"}):
        raise DamagedFileError(f"{name} is {str(entry)[:40]!r}, not of the kind {kind}")
    if isinstance(entry, bytes):
        return entry.decode("utf-8", "replace") if kind == "text" else memoryview(entry)
    return _number(kind, entry, name)


def _number(kind: str, word: str, name: str) -> Any:
    try:
        if kind == "type":
            return TYPE_NUMBERS[word] if word in TYPE_NUMBERS else int(word)
        if kind == "bool":
            return {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}[word.lower()]
        if kind == "int":
            return {"true": 1, "false": 0}[word] if word in {"true", "false"} else _within(int(word, 0))
        return float(word.rstrip("fF") if not word.lower().lstrip("+-").startswith(("inf", "nan")) else word)
    except (KeyError, ValueError) as error:
        raise DamagedFileError(f"{name} is {word[:40]!r}, not of the kind {kind}") from error


def _within(number: int) -> int:
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError("a number of more than 64 bits")
    return number - (1 << 64) if number >> 63 > 0 else number
