"""Encoding of graphs, operators and infos as JSON-compatible messages; arrays are transferred by shared memory.

Both ends use this module. Data from a child are not trusted: decoding raises `WireError` if they are not valid, and the
decoded result is then checked like the result of any backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

import numpy as np

from interposer.core.codec import codec_of, info_from_plain, info_to_plain
from interposer.core.errors import (
    BackendContractError,
    BackendError,
    InterposerError,
    InvalidValueError,
    LimitExceededError,
    OptionError,
    error_text,
)
from interposer.core.schema import Op, op_class, registered_ops
from interposer.core.types import Array, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.subgraph import SubgraphView
from interposer.ops.control import Constant, Input, Output, StandIn

__all__ = [
    "Packer",
    "Plain",
    "Reader",
    "Replica",
    "WireError",
    "crossing_problem",
    "is_described",
    "problem_from_plain",
    "problem_to_plain",
    "reading",
]

Plain: TypeAlias = dict[str, Any]
Tokens = Callable[[Op], "Plain | None"]
_ANY: Final = codec_of(Any)
_SIMPLE: Final = (bool, int, str, type(None))


class WireError(BackendContractError):
    """Raised if data from the other process are not valid."""


@contextmanager
def reading(subject: str) -> Iterator[None]:
    """Convert errors inside the block into `WireError`; `subject` names the data in the message."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError, InterposerError) as error:
        raise WireError(f"{subject} cannot be read: {type(error).__name__}: {error}") from error


def crossing_problem(layer: Layer) -> str | None:
    """Return the reason why a layer cannot be sent to another process, or None if it can.

    It cannot if it has subgraphs, or tensors such as strings that cannot lie in shared memory.
    """
    if layer.regions:
        return "a layer with regions does not cross into another process"
    for value in (*layer.values, *layer.outputs):
        if value.info is not None and not value.info.dtype.bits:
            return f"{value.name!r} holds {value.info.dtype}, which cannot be stored in shared memory"
    return None


def problem_to_plain(error: BaseException) -> Plain:
    """Return the error of a request as JSON-compatible data.

    Errors that the caller has caused, by an option or by a value of the inputs, stay what they are; see
    `problem_from_plain`.
    """
    text = error_text(error)
    plain: Plain = {"text": text, "is_option": isinstance(error, OptionError)}
    if isinstance(error, InvalidValueError):
        value = error.value if isinstance(error.value, int | float | str | list) else None
        named_facts = {"layer": error.layer, "operand": error.operand, "tensor": error.tensor, "reason": error.reason}
        return plain | {"value": {**named_facts, "position": error.position, "value": value, "allowed": error.allowed}}
    if isinstance(error, LimitExceededError):
        return plain | {"limit": [error.what, error.needed, error.limit]}
    return plain


def problem_from_plain(plain: Plain, backend: str) -> InterposerError:
    """Return the error that `problem_to_plain` encoded, as an error of the backend unless the caller has caused it."""
    text = str(plain.get("text"))
    if plain.get("is_option"):
        return OptionError(text)
    if "value" in plain:
        facts = plain["value"]
        position, allowed_range = facts["position"], facts["allowed"]
        error = InvalidValueError(
            str(facts["reason"]), layer=str(facts["layer"]), backend=backend, operand=str(facts["operand"]),
            tensor=str(facts["tensor"]), position=None if position is None else tuple(map(int, position)),
            value=facts["value"], allowed=None if allowed_range is None else (allowed_range[0], allowed_range[1]),
        )  # fmt: skip
        error.args = (text,)
        return error
    if "limit" in plain:
        what, needed, limit = plain["limit"]
        return LimitExceededError(str(what), float(needed), float(limit), "", text)
    return BackendError(text, backend=backend)


class Packer:
    """Encodes graphs; `arrays` collects the arrays, which the encoded data refer to by index.

    `tokens` returns a replacement for operators that must not be encoded, or None for all others.
    """

    def __init__(self, tokens: Tokens = lambda op: None) -> None:
        self.arrays: list[Array] = []
        self._numbers: dict[int, int] = {}
        self._tokens = tokens

    def array(self, array: Array) -> int:
        """Add an array to `arrays`, unless it is there, and return its index, which stands for it in the data."""
        if id(array) not in self._numbers:
            self._numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)
        return self._numbers[id(array)]

    def info(self, info: TensorInfo | None) -> Plain | None:
        """Return an info as JSON-compatible data.

        The array of a constant is added to `arrays`. None is encoded as None.
        """
        if info is None:
            return None
        constant = info.constant
        return info_to_plain(info) | ({} if constant is None else {"constant": self.array(constant)})

    def op(self, op: Op) -> Plain:
        """Return an operator as JSON-compatible data: its name, module and attributes, or a token in place of it."""
        token = self._tokens(op)
        if token is not None:
            return token
        codecs, values = op.codecs(), op.changed_attributes()
        arrays = {name: self.array(value) for name, value in values.items() if _is_plain_array(value)}
        attributes = {name: codecs[name].to_plain(value) for name, value in values.items() if name not in arrays}
        return {"op": op.op_name(), "module": type(op).__module__, "attributes": attributes, "arrays": arrays}

    def layer(self, layer: Layer, places: Mapping[Value, Sequence[int]]) -> Plain:
        """Return an encoded layer; `places` has the layer number and output index of each input value."""
        return {
            "op": self.op(layer.op),
            "name": layer.name,
            "inputs": [None if value is None else places[value] for value in layer.inputs],
            "infos": [self.info(value.info) for value in layer.outputs],
            "declared": [self.info(value.declared) for value in layer.outputs],
            "source": layer.source,
            "replaced": layer.replaced,
        }

    def graph(self, graph: Graph) -> list[Plain]:
        """Return all layers of a graph, encoded in execution order."""
        places: dict[Value, Sequence[int]] = {}
        rows = []
        for number, layer in enumerate(graph.topological()):
            rows.append(self.layer(layer, places))
            places |= {value: (number, value.index) for value in layer.outputs}
        return rows


def _is_plain_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind != "O"


class Replica:
    """A copy of a view, encoded for the child, in which the view is a network of its own.

    Its inputs are Input and Constant layers, and its outputs are Output layers. `layers` and `values` map the numbers
    of layers and values in messages to those in the graph of the view.
    """

    def __init__(self, view: SubgraphView, packer: Packer) -> None:
        self.plain: list[Plain] = []
        self.layers: dict[int, Layer] = {}
        self.values: dict[tuple[int, int], Value] = {}
        self._packer = packer
        self._places: dict[Value, Sequence[int]] = {}
        for value in view.operands:
            self._add_border(value)
        first = len(self.plain)
        for layer in view:
            self.layers[len(self.plain)] = layer
            self._add(packer.layer(layer, self._places), layer.outputs)
        self.view = [first, len(self.plain)]
        for number, value in enumerate(view.outputs):
            self._add(self._border(Output(number), f"{value.name} out", [self._places[value]]))

    def _add(self, plain: Plain, outputs: Sequence[Value] = ()) -> None:
        number = len(self.plain)
        self.plain.append(plain)
        for index, value in enumerate(outputs):
            self._places[value] = (number, index)
            self.values[number, index] = value

    def _add_border(self, value: Value) -> None:
        op = value.producer.op if isinstance(value.producer.op, Constant) else Input(len(self.plain))
        plain = self._border(op, value.name, [])
        info = self._packer.info(value.info)
        self._add(plain | {"infos": [info], "declared": [None if isinstance(op, Constant) else info]}, [value])

    def _border(self, op: Op, name: str, inputs: list[Sequence[int]]) -> Plain:
        plain = {"op": self._packer.op(op), "name": name, "inputs": inputs, "source": "", "replaced": []}
        return plain | {"infos": [], "declared": []}

    def part(self, view: SubgraphView, numbers: Iterable[Any]) -> SubgraphView:
        """Return the layers with these numbers, as a part of the view."""
        return view.part([self.layers[int(number)] for number in numbers])


class Reader:
    """Decodes the data of a `Packer`, with its arrays.

    `tokens` returns the operator for a token. If `lenient`, unknown operators become a StandIn, and `unknown` maps
    their layer numbers to reasons; otherwise they are an error. If `importing`, the module that declares an operator is
    imported.
    """

    def __init__(
        self,
        arrays: Sequence[Array],
        tokens: Callable[[Plain], Op],
        *,
        importing: bool = False,
        lenient: bool = False,
    ) -> None:
        self.unknown: dict[int, str] = {}
        self._arrays, self._tokens = arrays, tokens
        self._importing, self._lenient = importing, lenient

    def info(self, plain: Plain | None) -> TensorInfo | None:
        """Return the info that `Packer.info` encoded, including its constant; None for None."""
        if plain is None:
            return None
        info = info_from_plain(plain)
        return info.with_constant(self._arrays[plain["constant"]]) if plain.get("constant") is not None else info

    def op(self, plain: Plain) -> Op:
        """Return the operator that `Packer.op` encoded."""
        if "op" not in plain:
            return self._tokens(plain)
        op_type = self._kind(plain)
        codecs = op_type.codecs()
        arrays = {name: self._arrays[number] for name, number in plain["arrays"].items()}
        attributes = {name: codecs[name].from_plain(value) for name, value in plain["attributes"].items()}
        return op_type(**arrays, **attributes)

    def _kind(self, plain: Plain) -> type[Op]:
        name = str(plain["op"])
        if self._importing and name not in registered_ops():
            importlib.import_module(str(plain["module"]))
        return op_class(name)

    def graph(self, plain: Sequence[Plain]) -> tuple[Graph, list[Layer]]:
        """Return the graph that `Packer.graph` encoded, and its layers in the order of their numbers in messages."""
        graph, layers = Graph(), list[Layer]()
        for number, row in enumerate(plain):
            op = self._op_of(number, row)
            inputs = [None if source is None else layers[source[0]].outputs[source[1]] for source in row["inputs"]]
            declared_infos = [self.info(info) for info in row["declared"]]
            layer = graph.add(op, inputs, name=str(row["name"]), outputs=declared_infos, source=str(row["source"]))
            layer.replaced = tuple(map(str, row["replaced"]))
            for value, info in zip(layer.outputs, row["infos"], strict=True):
                value.info = self.info(info)
            layers.append(layer)
        return graph, layers

    def _op_of(self, number: int, plain: Plain) -> Op:
        try:
            return self.op(plain["op"])
        except (InterposerError, ImportError) as error:
            if not self._lenient:
                raise
            self.unknown[number] = f"its operator cannot be made in the child process: {error}"
            return StandIn(num_outputs=len(plain["infos"]), description=str(plain["op"]["op"]))


def is_described(op: Op) -> bool:
    """Return True if `Packer.op` encodes an operator completely: every attribute is a plain value or an array."""
    codecs = op.codecs()
    return all(codecs[name] is not _ANY or type(value) in _SIMPLE for name, value in op.changed_attributes().items())
