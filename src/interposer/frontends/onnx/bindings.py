"""The inputs of a model: types, shapes, and the sizes that the caller gives for open dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress

from interposer.core.errors import InvalidArgumentError, ParseError
from interposer.core.types import MAX_RANK, UNRANKED, Dim, ShapeLike, TensorInfo, TensorShape, differ
from interposer.frontends.onnx.proto import Message
from interposer.frontends.onnx.tensors import info_of_type
from interposer.frontends.resizing import LARGEST, is_placeholder, resized
from interposer.frontends.template import Shapes

__all__ = ["Bindings", "declared_info", "declared_shapes"]


class Bindings:
    """Determines the shape of every input of a model from the caller's argument `shapes`.

    `shapes` has sizes by dimension name, and shapes by input name. A shape may change dimensions that the model
    declares, except for the inputs in `values`: their shape is that of their value.
    """

    def __init__(self, shapes: Shapes, values: Mapping[str, Sequence[int]] | None = None) -> None:
        self._values = values or {}
        self._shapes: Shapes = {**shapes, **self._values}

    def infos(self, inputs: Sequence[Message]) -> Iterator[tuple[str, TensorInfo]]:
        """Yield the name and the info of each of `inputs` (a `ValueInfoProto`), with the caller's shapes applied.

        The rank of an input is unknown if neither the model nor the caller gives it a shape.

        Raises:
            ParseError: an input has an unsupported type.
            InvalidArgumentError: `shapes` has an unknown name, or disagrees with the model.
        """
        declared_dims = _with_distinct_unknowns({value.name: _declared(value) for value in inputs}, self._shapes)
        shapes = resized({name: _shape(dims) for name, dims in declared_dims.items()}, self._shapes)
        self._check_values(declared_dims)
        for value in inputs:
            yield value.name, _info(value, shapes[value.name])

    def _check_values(self, declared: Mapping[str, Sequence[int] | None]) -> None:
        for name, shape in self._values.items():
            for axis, (dim, size) in enumerate(zip(declared[name] or (), shape, strict=False)):
                if differ(dim, size):
                    raise InvalidArgumentError(f"shapes: {name!r} has size {dim} along axis {axis}; {size} was given")


def _with_distinct_unknowns(
    declared: Mapping[str, list[int] | None], given_names: Container[str]
) -> dict[str, list[int] | None]:
    """Return the dimensions of all inputs, where two open ones have one name only if it says that they are the same.

    Names that exporters generate for unknown sizes, and words such as ``None``, do not say that. Dimensions that share
    such a name are named after their input and axis instead, unless it is one of `given_names`, to which the caller
    gives a size.
    """
    names = Counter(dim.name for dims in declared.values() for dim in dims or () if isinstance(dim, Dim))
    shared_names = {
        name
        for name, count in names.items()
        if count > 1 and name is not None and name not in given_names and is_placeholder(name)
    }
    return {name: _renamed(name, dims, shared_names) for name, dims in declared.items()}


def _renamed(name: str, dims: list[int] | None, shared_names: Container[str | None]) -> list[int] | None:
    if dims is None:
        return None
    is_shared = [isinstance(dim, Dim) and dim.name in shared_names for dim in dims]
    return [Dim(f"{name}_{axis}") if is_shared[axis] else dim for axis, dim in enumerate(dims)]


def _shape(dims: Sequence[int] | None) -> TensorShape:
    return UNRANKED if dims is None else TensorShape(dims)


def declared_info(value: Message) -> TensorInfo | None:
    """Return the info that the model declares for an output (a `ValueInfoProto`); None if it has no supported type."""
    try:
        dims = _declared(value)
        return _info(value, UNRANKED if dims is None else dims)
    except ParseError:
        return None


def declared_shapes(values: Sequence[Message]) -> dict[str, TensorShape]:
    """Return the shapes that the model declares for some tensors by name; open dimensions have the model's names."""
    shapes: dict[str, TensorShape] = {}
    for value in values:
        with suppress(ParseError, InvalidArgumentError):
            dims = _declared(value)
            shapes |= {} if dims is None else {value.name: TensorShape(dims)}
    return shapes


def _where(value: Message) -> str:
    return f"input {value.name!r}"


def _info(value: Message, shape: ShapeLike) -> TensorInfo:
    try:
        return info_of_type(value.type, shape)
    except (ParseError, InvalidArgumentError) as error:
        message = error.message if isinstance(error, ParseError) else str(error)
        raise ParseError(message, where=_where(value)) from error


def _declared(value: Message) -> list[int] | None:
    """Return the dimensions that the model declares for a tensor (a `ValueInfoProto`), or None if it declares no rank.

    An open dimension is a `Dim` with the model's name for it. Without a name, or with a symbol such as ``?`` instead,
    its name is made of the tensor's name and the axis, such as ``image_0``. Sequences and optionals have one dimension,
    the number of their elements.
    """
    if value.type.WhichOneof("value") != "tensor_type":
        return [Dim(f"{value.name}_0")]
    if not value.type.tensor_type.HasField("shape"):
        return None
    dims = value.type.tensor_type.shape.dim
    if len(dims) > MAX_RANK:
        raise ParseError(f"it has rank {len(dims)}; ranks 0 to {MAX_RANK} are supported", where=_where(value))
    return [_dimension(value, axis, dim) for axis, dim in enumerate(dims)]


def _dimension(value: Message, axis: int, dim: Message) -> int:
    if dim.WhichOneof("value") != "dim_value" or dim.dim_value < 0:
        name = dim.dim_param if isinstance(dim.dim_param, str) else dim.dim_param.decode("utf-8", "replace")
        return Dim(name if any(map(str.isalpha, name)) else f"{value.name}_{axis}")
    if dim.dim_value > LARGEST:
        raise ParseError(f"it has size {dim.dim_value} along axis {axis}; at most {LARGEST} is", where=_where(value))
    return int(dim.dim_value)
