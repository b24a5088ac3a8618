"""Graphs as JSON-compatible data, with their arrays in data sections of a container."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from interposer.core.addresses import address_of
from interposer.core.codec import codec_of, info_from_plain, info_to_plain
from interposer.core.errors import InvalidArgumentError, ParseError, UnwritableError, VerificationError
from interposer.core.schema import Op, op_class
from interposer.core.types import Array, DataType, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.inference import infer_layer
from interposer.ir.verify import verify
from interposer.ops.control import Constant, Input, PreCompiled
from interposer.saved.container import Ref
from interposer.saved.documents import reading_facts

__all__ = ["ArrayWriter", "Compiled", "GraphReader", "array_of", "graph_to_plain"]

Compiled = Callable[[Layer], Any]
"""A function that returns the JSON-compatible data for the object of a `PreCompiled` layer."""
Restored = Callable[[Any, Sequence[TensorInfo]], Any]
"""A function from such data and the declared infos of the layer's outputs to the object of a `PreCompiled` layer."""
_ARRAY: Final = "array"
_BYTES: Final = "bytes"
_MOST_TEXTS: Final = 1 << 26


class Store(Protocol):
    """The destination of a graph's constants, such as a `SectionWriter`: it stores their bytes in the file."""

    def data(self, raw: memoryview) -> Ref:
        """Store bytes, and return their section, offset and size as a `Ref`."""


class ArrayWriter:
    """Stores arrays in a container; an array at a known address is hashed once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refs: dict[tuple[int, int], tuple[Ref, Array]] = {}

    def ref(self, array: Array) -> Ref:
        """Store the bytes of a contiguous array, and return their place."""
        key = address_of(array), array.nbytes
        if key not in self._refs:
            self._refs[key] = self._store.data(array.reshape(-1).view(np.uint8).data), array
        return self._refs[key][0]

    def plain(self, array: Array) -> dict[str, Any]:
        """Return an array as JSON-compatible data: its type, its shape and the place of its bytes, or its texts."""
        type_and_shape: list[Any] = [str(DataType.of(array.dtype)), list(array.shape)]
        if array.dtype.kind == "O":
            return {_ARRAY: [*type_and_shape, array.reshape(-1).tolist()]}
        return {_ARRAY: [*type_and_shape, self.ref(_little(np.ascontiguousarray(array)))]}


def _little(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False) if array.dtype.kind in "iufbc" else array


def array_of(plain: Mapping[str, Any], data: Callable[[Any], Array]) -> Array:
    """Return the array that `ArrayWriter.plain` described; `data` returns the bytes at a place.

    Raises:
        ValueError: the description is damaged.
    """
    name, sizes, place_or_texts = plain[_ARRAY]
    dtype, shape = DataType.of(name).numpy, tuple(map(int, TensorShape(sizes)))
    if dtype.kind == "O":
        if (
            not isinstance(place_or_texts, list)
            or len(place_or_texts) > _MOST_TEXTS
            or not all(isinstance(text, str) for text in place_or_texts)
        ):
            raise ValueError("an array of texts has no list of texts")
        texts = np.empty(len(place_or_texts), dtype)
        texts[:] = place_or_texts
        return _reshaped(texts, shape)
    array_bytes = data(place_or_texts)
    if array_bytes.nbytes % dtype.itemsize:
        raise ValueError(f"{array_bytes.nbytes} bytes are no array of {name}")
    return _reshaped(array_bytes.view(dtype), shape)


def _reshaped(flat_array: Array, shape: tuple[int, ...]) -> Array:
    count = 1
    for size in shape:
        count *= size
    if flat_array.size != count:
        raise ValueError(f"an array of {flat_array.size} elements cannot have the shape {list(shape)}")
    array = flat_array.reshape(shape)
    array.flags.writeable = False
    return array


# --- writing ----------------------------------------------------------------------------------------------------------


def graph_to_plain(graph: Graph, arrays: ArrayWriter, compiled: Compiled | None = None) -> dict[str, Any]:
    """Return a graph with its regions as JSON-compatible data; `compiled` describes the objects of compiled layers.

    Raises:
        UnwritableError: a layer has an attribute that cannot be saved.
    """
    order = [layer for layer in graph.topological() if not _is_unread(layer)]
    numbers = {value: number for number, value in enumerate(value for layer in order for value in layer.outputs)}
    layers = [_layer(layer, numbers, arrays, compiled) for layer in order]
    folded_infos = {name: _folded(info, arrays) for name, info in graph.folded.items()}
    return {"name": graph.name, "layers": layers} | ({"folded": folded_infos} if folded_infos else {})


def _is_unread(layer: Layer) -> bool:
    """Return True for a constant that only layers read which a backend has replaced."""
    return isinstance(layer.op, Constant) and not layer.output.uses


def _folded(info: TensorInfo, arrays: ArrayWriter) -> dict[str, Any]:
    plain = {"info": info_to_plain(info)}
    return plain if info.constant is None else plain | {"value": arrays.plain(np.asarray(info.constant))}


def _layer(
    layer: Layer, number_of_value: Mapping[Value, int], arrays: ArrayWriter, compiled: Compiled | None
) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "name": layer.name,
        "op": _op(layer, arrays, compiled),
        "in": [None if value is None else number_of_value[value] for value in layer.inputs],
        "out": [_value(value) for value in layer.outputs],
    }
    optional_facts = {
        "backend": layer.backend,
        "hint": layer.hint,
        "source": layer.source,
        "replaced": list(layer.replaced),
    }
    plain |= {name: fact for name, fact in optional_facts.items() if fact}
    if layer.regions:
        plain["regions"] = [graph_to_plain(region, arrays, compiled) for region in layer.regions]
    return plain


def _value(value: Value) -> dict[str, Any]:
    """Return the facts of a value; inference gives those that are left out again."""
    plain: dict[str, Any] = {}
    if value.info is not None and not value.is_constant:
        plain["info"] = info_to_plain(value.info)
    if value.declared is not None and (value.info is None or value.declared != value.info):
        plain["declared"] = info_to_plain(value.declared)
    elif value.declared is not None:
        plain["declared"] = True
    if value.factory is not None:
        plain["factory"] = value.factory
    if value.aliases:
        plain["aliases"] = list(value.aliases)
    return plain


def _op(layer: Layer, arrays: ArrayWriter, compiled: Compiled | None) -> dict[str, Any]:
    op = layer.op
    if isinstance(op, PreCompiled) and compiled is not None:
        return {"op": op.op_name(), "num_outputs": op.num_outputs, "object": compiled(layer)}
    codecs = op.codecs()
    plain = {"op": op.op_name()}
    for name, value in op.changed_attributes().items():
        try:
            plain[name] = _attribute(value, codecs[name], arrays)
        except (TypeError, ValueError) as error:
            reason = f"its attribute {name!r} has a value of the type {error}"
            raise UnwritableError("a saved network", {layer.name: (layer.kind, reason)}) from error
    return plain


_ANY: Final = type(codec_of(Any))


def _attribute(value: Any, codec: Any, arrays: ArrayWriter) -> Any:
    if isinstance(value, np.ndarray):
        return arrays.plain(value)
    if isinstance(value, tuple) and value and all(isinstance(array, np.ndarray) for array in value):
        return [arrays.plain(array) for array in value]
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(codec, _ANY) and not isinstance(value, bool | int | str | type(None)):
        raise TypeError(type(value).__name__)
    return codec.to_plain(value)


# --- reading ----------------------------------------------------------------------------------------------------------


class _LateInfos(Mapping[str, TensorInfo]):
    """Infos by name, each made from its data when it is first read, as few of thousands ever are.

    Reading an info raises `ParseError` if its data is damaged.
    """

    def __init__(self, plain: Mapping[str, Any], read: Callable[[Mapping[str, Any]], TensorInfo]) -> None:
        self._plain, self._read = {_text(name): plain_info for name, plain_info in plain.items()}, read
        self._infos: dict[str, TensorInfo] = {}

    def __getitem__(self, name: str) -> TensorInfo:
        if name not in self._infos:
            self._infos[name] = self._read(self._plain[name])
        return self._infos[name]

    def __contains__(self, name: object) -> bool:
        return name in self._plain

    def __iter__(self) -> Iterator[str]:
        return iter(self._plain)

    def __len__(self) -> int:
        return len(self._plain)


class GraphReader:
    """Creates graphs from their data, and verifies them.

    Args:
        data: returns the bytes at a place, as an array.
        restored: returns the object of a `PreCompiled` layer; None leaves them out.
        path: the file's path for errors.
    """

    def __init__(self, data: Callable[[Any], Array], restored: Restored | None = None, path: str | None = None) -> None:
        self._data, self._restored, self._path = data, restored, path
        self._ops: dict[str, Op] = {}

    def graph(self, plain: Any, *, placed: bool = False) -> Graph:
        """Return the graph that `graph_to_plain` described, with the infos of all tensors.

        With `placed`, its layers must have backends, and its tensors kinds of memory.

        Raises:
            ParseError: the data is damaged, or describes no valid graph.
        """
        try:
            with reading_facts(self._path):
                graph = self._graph(plain)
                for layer in graph.topological():
                    self._infer(layer)
                verify(graph, placed=placed)
        except (InvalidArgumentError, VerificationError) as error:
            raise ParseError(f"the network in the file is damaged: {error}", path=self._path) from error
        return graph

    def _infer(self, layer: Layer) -> None:
        errors = infer_layer(layer)
        if errors:
            raise InvalidArgumentError(f"layer {layer}: {'; '.join(errors)}")

    def _graph(self, plain: Any) -> Graph:
        graph = Graph(_text(plain["name"]))
        graph.folded = _LateInfos(plain.get("folded", {}), self._folded)
        values: list[Value] = []
        for plain_layer in plain["layers"]:
            values += self._layer(graph, plain_layer, values).outputs
        return graph

    def _folded(self, plain: Mapping[str, Any]) -> TensorInfo:
        with reading_facts(self._path):
            info = info_from_plain(plain["info"])
            return info.with_constant(array_of(plain["value"], self._data)) if "value" in plain else info

    def _layer(self, graph: Graph, plain: Mapping[str, Any], values: list[Value]) -> Layer:
        regions = [self._graph(plain_region) for plain_region in plain.get("regions", ())]
        op = self._op(plain["op"], plain["out"])
        name = _text(plain["name"])
        inputs = [None if number is None else values[_index(number)] for number in plain["in"]]
        layer = graph.add(op, inputs, name=name, regions=regions)
        if layer.name != name or len(layer.outputs) != len(plain["out"]):
            raise ValueError(f"layer {name!r} is described twice, or has another number of outputs")
        layer.backend, layer.hint = _text(plain.get("backend", "")) or None, _text(plain.get("hint", "")) or None
        layer.source = _text(plain.get("source", ""))
        if "replaced" in plain:
            layer.replaced = _texts(plain["replaced"])
        for value, plain_value in zip(layer.outputs, plain["out"], strict=True):
            self._set_facts(value, plain_value)
        return layer

    def _set_facts(self, value: Value, plain: Mapping[str, Any]) -> None:
        """Set what a file says about a value.

        Layers whose infos only the file knows (inputs, compiled layers) have them declared.
        """
        declared_info = plain.get("declared")
        if declared_info is not None and declared_info is not True:
            value.declared = info_from_plain(declared_info)
        elif declared_info or isinstance(value.producer.op, PreCompiled | Input):
            value.declared = _info(plain)
        value.factory = _text(plain.get("factory", "")) or None
        if "aliases" in plain:
            value.aliases = _texts(plain["aliases"])

    def _op(self, plain: Mapping[str, Any], outputs: Sequence[Mapping[str, Any]]) -> Op:
        if plain["op"] == "PreCompiled" and self._restored is not None:
            output_infos = [info for info in map(_info, outputs) if info is not None]
            compiled_object = self._restored(plain["object"], output_infos)
            return PreCompiled(num_outputs=plain["num_outputs"], object=compiled_object)
        if plain["op"] == "Constant":
            return self._made(plain)
        key = repr(plain)
        op = self._ops.get(key)
        if op is None:
            op = self._ops[key] = self._made(plain)
        return op

    def _made(self, plain: Mapping[str, Any]) -> Op:
        cls = op_class(_text(plain["op"]))
        codecs = cls.codecs()
        attributes = {
            name: self._attribute(plain_attribute, codecs[name])
            for name, plain_attribute in plain.items()
            if name != "op"
        }
        return cls(**attributes)

    def _attribute(self, plain: Any, codec: Any) -> Any:
        if isinstance(plain, dict) and _ARRAY in plain:
            return array_of(plain, self._data)
        if isinstance(plain, dict) and _BYTES in plain:
            return base64.b64decode(plain[_BYTES], validate=True)
        if (
            isinstance(plain, list)
            and plain
            and all(isinstance(plain_array, dict) and _ARRAY in plain_array for plain_array in plain)
        ):
            return tuple(array_of(plain_array, self._data) for plain_array in plain)
        return codec.from_plain(plain)


def _info(plain: Mapping[str, Any]) -> TensorInfo | None:
    return info_from_plain(plain["info"]) if "info" in plain else None


def _text(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError(f"expected a text, not {text!r}")
    return text


def _texts(texts: Any) -> tuple[str, ...]:
    return tuple(map(_text, texts))


def _index(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise ValueError(f"expected the number of a value, not {number!r}")
    return number
