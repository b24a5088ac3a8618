"""The inputs of a model: types, shapes, and the sizes that the caller gives for open dimensions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import index
from typing import Final, SupportsIndex

from interposer.core.errors import InvalidArgumentError, ParseError, did_you_mean
from interposer.core.types import MAX_RANK, UNRANKED, Dim, ShapeLike, TensorInfo, differ
from interposer.frontends.onnx.elements import info_of_type
from interposer.frontends.onnx.proto import Message
from interposer.frontends.template import Shapes

__all__ = ["Bindings", "declared_info"]

_LARGEST: Final = 2**31 - 1


class Bindings:
    """The caller's argument `shapes`: sizes by dimension name, and shapes by input name.

    A shape may change dimensions that the model declares, except for the inputs in `values`: their shape is that of
    their value.
    """

    def __init__(self, shapes: Shapes, values: Mapping[str, Sequence[int]] | None = None) -> None:
        self._values = values or {}
        self._shapes = {name: _plain(name, value) for name, value in {**shapes, **self._values}.items()}
        self._dimensions: dict[str, int] = {}

    def infos(self, inputs: Sequence[Message]) -> Iterator[tuple[str, TensorInfo]]:
        """Yield the name and the info of every input.

        Raises:
            ParseError: an input has an unsupported type or no shape.
            InvalidArgumentError: `shapes` has an unknown name, or disagrees with the model.
        """
        declared = {value.name: _declared(value) for value in inputs}
        self._check_names(declared)
        for name, dims in declared.items():
            self._learn(name, dims)
        for value in inputs:
            dims = declared[value.name]
            arguments = self._given(value.name)
            if dims is None and arguments is None:
                raise ParseError(
                    f"it has no shape; give one with shapes={{{value.name!r}: (...)}}", where=_where(value)
                )
            shape = [self._bound(dim) for dim in _merged(dims, arguments)]
            yield value.name, _info(value, shape)

    def _given(self, name: str) -> tuple[int | str | None, ...] | None:
        value = self._shapes.get(name)
        return None if isinstance(value, int) else value

    def _check_names(self, declared: Mapping[str, Sequence[int] | None]) -> None:
        sizes = {dim.name for dims in declared.values() for dim in dims or () if isinstance(dim, Dim) and dim.name}
        for name, value in self._shapes.items():
            known = sizes if isinstance(value, int) else set(declared)
            if name not in known:
                kind = "dimension" if isinstance(value, int) else "input"
                hint, names = did_you_mean(str(name), known), ", ".join(sorted(known)) or "none"
                raise InvalidArgumentError(f"shapes: the model has no {kind} {name!r}{hint} (it has: {names})")
            if isinstance(value, int):
                self._bind(name, value)

    def _learn(self, name: str, dims: Sequence[int] | None) -> None:
        """Record the sizes that a shape from the caller gives to the named dimensions of an input."""
        value = self._given(name)
        if value is None or dims is None:
            return
        if len(value) != len(dims):
            raise InvalidArgumentError(f"shapes: {name!r} has rank {len(dims)} in the model; {value} was given")
        for axis, (dim, requested) in enumerate(zip(dims, value, strict=True)):
            if isinstance(requested, int) and differ(dim, requested) and name in self._values:
                raise InvalidArgumentError(f"shapes: {name!r} has size {dim} along axis {axis}; {requested} was given")
            if isinstance(dim, Dim) and dim.name and isinstance(requested, int):
                self._bind(dim.name, requested)

    def _bind(self, name: str, size: int) -> None:
        if not 0 <= size <= _LARGEST:
            raise InvalidArgumentError(f"shapes: {name!r} is {size}; expected 0 to {_LARGEST}")
        if self._dimensions.setdefault(name, size) != size:
            raise InvalidArgumentError(f"shapes: {name!r} is both {self._dimensions[name]} and {size}")

    def _bound(self, dim: int | str | None) -> int | str | None:
        return self._dimensions.get(dim.name or "", dim) if isinstance(dim, Dim) else dim


def declared_info(value: Message) -> TensorInfo | None:
    """Return the info that the model declares for an output; None if it declares none."""
    try:
        dims = _declared(value)
        return _info(value, UNRANKED if dims is None else dims)
    except ParseError:
        return None


def _plain(name: str, number: int | Sequence[int | str | None]) -> int | tuple[int | str | None, ...]:
    if isinstance(number, SupportsIndex):
        return index(number)
    if isinstance(number, str) or not isinstance(number, Iterable):
        raise InvalidArgumentError(
            f"shapes: {name!r} is {number!r}; expected a shape, or a number for a named dimension"
        )
    dims = tuple(index(dim) if isinstance(dim, SupportsIndex) else dim for dim in number)
    for dim in dims:
        if not isinstance(dim, int | str | None):
            raise InvalidArgumentError(
                f"shapes: {name!r} has the dimension {dim!r}; expected a number, or None for any"
            )
    return dims


def _merged(dims: Sequence[int] | None, numbers: Sequence[int | str | None] | None) -> Sequence[int | str | None]:
    if dims is None or numbers is None:
        return dims or numbers or ()
    return [requested if isinstance(requested, int) else dim for dim, requested in zip(dims, numbers, strict=True)]


def _where(value: Message) -> str:
    return f"input {value.name!r}"


def _info(value: Message, shape: ShapeLike) -> TensorInfo:
    try:
        return info_of_type(value.type, shape)
    except (ParseError, InvalidArgumentError) as error:
        text = error.message if isinstance(error, ParseError) else str(error)
        raise ParseError(text, where=_where(value)) from error


def _declared(value: Message) -> list[int] | None:
    """Return the declared dimensions, None if no rank is declared; unnamed open dimensions are named after the input.

    Sequences and optionals have one dimension, the number of their elements.
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
        return Dim(dim.dim_param or f"{value.name}_{axis}")
    if dim.dim_value > _LARGEST:
        raise ParseError(f"it has size {dim.dim_value} along axis {axis}; at most {_LARGEST} is", where=_where(value))
    return int(dim.dim_value)
