"""What to import from a TFLite file: names, and the shapes of inputs from the file or from the caller."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from interposer.core.errors import ParseError
from interposer.core.records import dataclass
from interposer.core.types import Dim, TensorInfo, TensorShape
from interposer.frontends.resizing import resized
from interposer.frontends.template import Values
from interposer.frontends.tflite.contents import Model, Signature, Subgraph
from interposer.frontends.tflite.tensors import tensor_info

__all__ = ["Inputs", "Request", "Shapes", "input_ports", "output_ports"]

Shapes: TypeAlias = Mapping[str, Sequence[int | str | None] | int]


@dataclass(frozen=True)
class Request:
    """What to import from a file: subgraph `number` of `model`, with these shapes and values of its inputs.

    `file` is the name of the file in messages. With a `signature`, which calls the subgraph, inputs and outputs have
    the signature's names. With `dynamic`, dimensions that are dynamic in the file stay open. With `stand_in`, unknown
    custom operators become `StandIn` layers.
    """

    model: Model
    file: str
    number: int = 0
    signature: Signature | None = None
    shapes: Shapes = field(default_factory=dict)
    values: Values = field(default_factory=dict)
    dynamic: bool = False
    stand_in: bool = False

    @property
    def subgraph(self) -> Subgraph:
        """The subgraph to import."""
        return self.model.subgraphs[self.number]

    def of_called(self, number: int) -> Request:
        """Return the request for subgraph `number`, which an operator calls; its dynamic dimensions stay open."""
        return Request(self.model, self.file, number, dynamic=True, stand_in=self.stand_in)


class Inputs:
    """The inputs of a subgraph: `indices` has the tensor index of each input by name.

    `is_dynamic` is True if dimensions that are dynamic in the file are open, also of other tensors. `is_resized` is
    True if the caller gives an input a shape that the file's ``shape_signature`` does not allow; the file's shapes of
    other tensors are then not valid.
    """

    def __init__(self, request: Request) -> None:
        self.indices = input_ports(request.subgraph, request.signature)
        self._tensors = request.subgraph.tensors
        self._shapes = request.shapes
        self.is_dynamic = request.dynamic or any(map(_is_open, request.shapes.values()))
        self._bound_shapes = self._shapes_of_caller() if request.shapes else {}
        self.is_dynamic |= bool(self._bound_shapes)
        self.is_resized = any(not self._signature(name).accepts(shape) for name, shape in self._bound_shapes.items())

    def infos(self) -> dict[str, TensorInfo]:
        """Return the infos of the inputs by name: types from the file, and shapes from the caller or the file."""
        return {name: self.info(name) for name in self.indices}

    def info(self, name: str) -> TensorInfo:
        """Return the info of an input: the type from the file, and the shape from the caller or the file."""
        info = tensor_info(self._tensors[self.indices[name]], "inputs", dynamic=self.is_dynamic)
        return info.with_shape(self._bound_shapes.get(name) or _titled(name, info.shape))

    def usual_shapes(self) -> dict[str, TensorShape]:
        """Return the shapes that the file was exported with, for those inputs that have open dimensions."""
        exported_shapes = self._exported_shapes()
        closed_shapes = {
            name: _closed(info.shape, exported_shapes[name])
            for name, info in self.infos().items()
            if info.rank == exported_shapes[name].rank and not info.is_concrete
        }
        return {name: shape for name, shape in closed_shapes.items() if shape.is_concrete}

    def _shapes_of_caller(self) -> dict[str, TensorShape]:
        """Return the shapes of all inputs by name, with the caller's shapes applied.

        A dimension that is dynamic in the file stays open if the caller asks for it, or gives the input a shape;
        otherwise it has the size that the file was exported with.
        """
        signatures = {name: _titled(name, self._signature(name)) for name in self.indices}
        usual_shapes, shapes = self._exported_shapes(), resized(signatures, self._shapes)
        stays_open = {name for name in shapes if self.is_dynamic or isinstance(self._shapes.get(name), Sequence)}
        return {
            name: shape if name in stays_open else _closed(shape, usual_shapes[name]) for name, shape in shapes.items()
        }

    def _exported_shapes(self) -> dict[str, TensorShape]:
        """Return the shapes of all inputs by name as the file was exported, without open dimensions."""
        return {name: tensor_info(self._tensors[index], "inputs").shape for name, index in self.indices.items()}

    def _signature(self, name: str) -> TensorShape:
        """Return the file's ``shape_signature`` of an input, whose dynamic dimensions are open."""
        return tensor_info(self._tensors[self.indices[name]], "inputs", dynamic=True).shape


def _is_open(shape: Sequence[int | str | None] | int) -> bool:
    """Return True if a caller's shape has an open dimension; the file's shapes of other tensors may then not hold."""
    return isinstance(shape, Sequence) and any(size is None or isinstance(size, str | Dim) for size in shape)


def _titled(name: str, shape: TensorShape) -> TensorShape:
    """Return the shape of input `name` with its open dimensions named after it, as in ``image_0`` for axis 0."""
    return TensorShape(Dim(f"{name}_{axis}") if isinstance(size, Dim) else size for axis, size in enumerate(shape))


def _closed(shape: TensorShape, usual_shape: TensorShape) -> TensorShape:
    """Return the shape with each open dimension replaced by the size that `usual_shape` has along the same axis."""
    sizes = zip(shape, usual_shape, strict=True)
    return TensorShape(usual_size if isinstance(size, Dim) else size for size, usual_size in sizes)


# --- names of inputs and outputs --------------------------------------------------------------------------------------


def input_ports(subgraph: Subgraph, signature: Signature | None) -> dict[str, int]:
    """Return the tensor index of each input by name: those of the signature first, then the rest of the subgraph's.

    A number is appended to repeated names. `ParseError` is raised if a tensor of the signature is no input of the
    subgraph.
    """
    index_of_name = {} if signature is None else dict(signature.inputs)
    for name, index in index_of_name.items():
        if signature is not None and index not in subgraph.inputs:
            message = f"its input {name!r} is tensor {index}, which is no input of subgraph {signature.subgraph}"
            raise ParseError(message, where=f"signature {signature.key!r}")
    unnamed_inputs = [index for index in subgraph.inputs if index not in index_of_name.values()]
    return _named(
        [*index_of_name.items(), *((subgraph.tensors[index].name, index) for index in unnamed_inputs)], "input"
    )


def output_ports(subgraph: Subgraph, signature: Signature | None) -> dict[str, int]:
    """Return the tensor index of each output by name; a number is appended to repeated names."""
    if signature is not None:
        return _named(signature.outputs.items(), "output")
    return _named(((subgraph.tensors[index].name, index) for index in subgraph.outputs), "output")


def _named(pairs: Iterable[tuple[str, int]], kind: str) -> dict[str, int]:
    ports = dict[str, int]()
    for number, (name, index) in enumerate(pairs):
        ports[_unique(name or f"{kind}_{number}", ports)] = index
    return ports


def _unique(name: str, taken_names: Container[str]) -> str:
    candidates = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
    return next(candidate for candidate in candidates if candidate not in taken_names)
