"""The text form of a graph: one line per layer, made to be read, compared and parsed back exactly.

`docs/text-form.md` describes it. Golden files of rewrites and placements are written in it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final

from interposer.core.codec import Codec, array_to_plain, codec_of, same_constant
from interposer.core.errors import VerificationError
from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo, TensorShape
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.literals import array_of, number
from interposer.ops.control import Constant, Input

__all__ = ["print_graph"]

NUMBERS: Final = 32
"""Arrays of more elements are written in base64."""
_WORD: Final = re.compile(r"(?!(?:inf|nan|_)$)[A-Za-z_][A-Za-z0-9_.]*")
_NAME: Final = re.compile(r"[A-Za-z0-9_.$/-]+")
_ANY: Final = codec_of(Any)
_ARRAY: Final = codec_of(Array)
_SIMPLE: Final = (bool, int, float, str, type(None))


def print_graph(graph: Graph, *, elide: int | None = None) -> str:
    """Return the graph as text: layers in running order, without attributes that have their default value.

    With `elide`, an array of more elements is shown as its shape and a short hash of its content. Such text can be
    compared, but not parsed back.
    """
    return "\n".join(_Printer(elide).graph(graph))


class _Printer:
    def __init__(self, elide: int | None) -> None:
        self.elide = elide

    def graph(self, graph: Graph) -> Iterable[str]:
        yield f"graph {_quoted(graph.name)} {{" if graph.name else "graph {"
        for layer in _in_order(graph):
            yield from _indented(self.layer(layer))
        yield "}"

    def layer(self, layer: Layer) -> Iterable[str]:
        results_and_kind = f"{', '.join(map(_value, layer.outputs))} = {layer.kind}" if layer.outputs else layer.kind
        line = " ".join(filter(None, [results_and_kind + self.attributes(layer), *self.tail(layer)]))
        if not layer.regions:
            yield line
            return
        yield f"{line} {{"
        for region in layer.regions:
            yield from _indented(self.graph(region))
        yield "}"

    def attributes(self, layer: Layer) -> str:
        codecs = layer.op.codecs()
        texts = [f"{name}={self.value(value, codecs[name])}" for name, value in layer.op.changed_attributes().items()]
        return f"({', '.join(texts)})" if texts else ""

    def tail(self, layer: Layer) -> Iterable[str]:
        yield ", ".join(_operands(layer))
        if layer.backend is not None:
            yield f"@{_word(layer.backend)}"
        if layer.hint is not None:
            yield f"hint {_word(layer.hint)}"
        if not layer.outputs:
            yield f"as {_quoted(layer.name)}"
        if any(value.info or value.declared for value in layer.outputs):
            yield f": {', '.join(map(self.output, layer.outputs))}"
        if layer.source:
            yield f"from {_quoted(layer.source)}"
        if layer.replaced:
            yield f"replacing {', '.join(map(_quoted, layer.replaced))}"

    def output(self, value: Value) -> str:
        op, info, declared_info = value.producer.op, value.info, value.declared
        op_array = op.value if isinstance(op, Constant) else None
        text = self.info(info, op_array)
        if declared_info is None:
            return f"{text} declared _" if isinstance(op, Input) else text
        if info == declared_info and same_constant(info, declared_info):
            return text if isinstance(op, Input) else f"{text} declared"
        return f"{text} declared {self.info(declared_info)}"

    def info(self, info: TensorInfo | None, omitted: Array | None = None) -> str:
        if info is None:
            return "_"
        text = f"{info.dtype}[{_dimensions(info.shape)}]"
        if info.quantization:
            text += f" {_quantization(info.quantization)}"
        if info.element is not None:
            return f"{text} of {self.info(info.element)}"
        if info.constant is None or info.constant is omitted:
            return text
        constant = self.array(info.constant)
        return f"{text} = {constant[constant.index('{') :] if info.is_concrete else constant}"

    def value(self, value: Any, codec: Codec) -> str:
        if codec is _ANY and type(value) not in _SIMPLE:
            return "<opaque>"
        if isinstance(value, tuple):
            return self.items(value, codec)
        if isinstance(value, Enum):
            return str(value) if isinstance(value, DataType) else value.name
        if isinstance(value, str):
            return _quoted(value)
        if isinstance(value, Quantization):
            return _quantization(value)
        return repr(value) if isinstance(value, (int, float, type(None))) else self.array(value)

    def items(self, values: Sequence[Any], codec: Codec) -> str:
        values_text = ", ".join(self.value(value, codec) for value in values)
        return f"({values_text},)" if len(values) == 1 else f"({values_text})"

    def array(self, array: Array) -> str:
        array = _ARRAY.coerce(array)
        type_and_shape = f"{DataType.of(array.dtype)}[{', '.join(map(str, array.shape))}]"
        if self.elide is not None and array.size > self.elide:
            return f"{type_and_shape}{{... {_hash(array)}}}"
        content = _content(array, NUMBERS if self.elide is None else self.elide)
        return f"{type_and_shape}{{{content}}}"


def _in_order(graph: Graph) -> list[Layer]:
    """Return the layers in topological order, or in order of addition if the graph has a cycle."""
    try:
        return graph.topological()
    except (VerificationError, KeyError):
        return list(graph)


def _indented(lines: Iterable[str]) -> Iterable[str]:
    return (f"  {line}" for line in lines)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=not text.isprintable())


def _word(text: str | None) -> str:
    if text is None:
        return "?"
    return text if _WORD.fullmatch(text) else _quoted(text)


def _dimensions(shape: TensorShape) -> str:
    if not shape.is_ranked:
        return "..."
    return ", ".join(_word(dim.name) if isinstance(dim, Dim) else str(dim) for dim in shape)


def _operands(layer: Layer) -> list[str]:
    """Return each input of a layer as text, ``_`` if it is absent.

    Absent inputs at the end are left out, because they have no meaning.
    """
    operand_texts = ["_" if value is None else _value(value) for value in layer.inputs]
    while operand_texts and operand_texts[-1] == "_":
        operand_texts.pop()
    return operand_texts


def _value(value: Value) -> str:
    name = value.producer.name
    text = f"%{name if _NAME.fullmatch(name) else _quoted(name)}"
    return text if len(value.producer.outputs) == 1 else f"{text}:{value.index}"


def _quantization(quantization: Quantization) -> str:
    if quantization.axis is None:
        return f"q({quantization.scale!r}, {quantization.zero_point})"
    return f"q({list(quantization.scales)}, {list(quantization.zero_points)}, axis={quantization.axis})"


def _content(array: Array, max_elements: int) -> str:
    """Return the elements of an array as text from which the parser reads the same bits.

    Up to `max_elements` elements are written as numbers, unless an element (such as most NaNs) has no exact number;
    then, and for larger arrays, in base64. Strings are always listed.
    """
    if array.dtype.kind == "O":
        return ", ".join(map(_quoted, array.ravel()))
    if array.size <= max_elements:
        texts = list(map(_number, array.ravel()))
        if _ARRAY.equal(array_of(DataType.of(array.dtype), array.shape, list(map(_element, texts))), array):
            return ", ".join(texts)
    return f'base64 "{array_to_plain(array)["base64"]}"'


def _element(text: str) -> Any:
    return text == "True" if text in ("True", "False") else number(text)


def _number(element: Any) -> str:
    """Return the shortest decimal number that is read back as the same element."""
    data_type = DataType.of(element.dtype)
    if not data_type.is_float:
        return str(bool(element)) if data_type is DataType.BOOL else str(int(element))
    shortest_number = float(str(element))
    return repr(shortest_number if data_type.numpy.type(shortest_number) == element else float(element))


def _hash(array: Array) -> str:
    content = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
    return hashlib.sha256(content).hexdigest()[:8]
