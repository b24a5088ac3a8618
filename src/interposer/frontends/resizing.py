"""Shapes that a caller gives for the inputs of a model: a shape by input name, or a size by dimension name."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from numbers import Integral
from operator import index
from typing import Any, Final, TypeAlias

from interposer.core.errors import InvalidArgumentError, UnboundInputError, did_you_mean
from interposer.core.types import Dim, TensorShape

__all__ = ["LARGEST", "Resizes", "check_shapes", "is_placeholder", "resized"]

LARGEST: Final = 2**31 - 1
"""The largest size of a dimension."""

_PLACEHOLDERS: Final = re.compile(
    r"none|null|nan|na|any|unk|unknown|undefined|dyn|dynamic"  # words for a size that is not known
    r"|unk__\d+|unknown_?\d+|dyn(amic)?_?\d+"  # names that converters count
    r"|.*_dynamic_axes_\d+|dynamicdimension\.\d+",
    re.IGNORECASE,
)

Resizes: TypeAlias = Mapping[str, Sequence[int | str | None] | int]


def resized(inputs: Mapping[str, TensorShape], shapes: Resizes) -> dict[str, TensorShape]:
    """Return the shapes of all inputs, with the caller's shapes applied.

    A shape from the caller must have the rank of the input. It may change a known dimension; None keeps the model's. A
    named dimension has the same size in every input. A number is the shape of an input of rank 1 or of unknown rank, if
    it is given by the name of the input.

    Raises:
        InvalidArgumentError: an unknown input or dimension, a different rank, or two sizes for one
            dimension name.
    """
    shapes = {name: _of_rank_one(name, shape, inputs) for name, shape in shapes.items()}
    _check_names(inputs, shapes)
    shapes_of_inputs = {name: _given(name, shape, shapes.get(name)) for name, shape in inputs.items()}
    sizes = {name: _size(name, size) for name, size in shapes.items() if isinstance(size, Integral)}
    for name, shape in inputs.items():
        _learn(sizes, shape, shapes_of_inputs[name])
    return {name: _filled(shape, sizes) for name, shape in shapes_of_inputs.items()}


def is_placeholder(name: str) -> bool:
    """Return True for a dimension name that says no more than that the size is unknown.

    Such names are symbols without a letter, such as ``?`` or ``-1``, words such as ``None``, and names that exporters
    generate, such as ``unk__12``. Two dimensions of such a name may have different sizes.

    >>> [is_placeholder(name) for name in ("?", "None", "unk__12", "x_dynamic_axes_1", "batch")]
    [True, True, True, True, False]
    """
    return not any(map(str.isalpha, name)) or _PLACEHOLDERS.fullmatch(name.strip()) is not None


def check_shapes(missing: Sequence[str]) -> None:
    """Raise `UnboundInputError` that lists the inputs in `missing`, whose shapes nobody has given, if there are any."""
    if not missing:
        return
    shapes = ", ".join(f"{name!r}: (...)" for name in missing)
    notes = {"Input": f"{', '.join(map(repr, missing))}: no shape; give shapes={{{shapes}}}"}
    raise UnboundInputError({"Input": len(missing)}, (), shapes=True, notes=notes)


def _of_rank_one(name: str, shape: Any, inputs: Mapping[str, TensorShape]) -> Any:
    """Return the shape of rank 1 that a number by the name of an input stands for; other arguments are unchanged."""
    if not isinstance(shape, Integral) or name not in inputs or name in _dimension_names(inputs):
        return shape
    declared_shape = inputs[name]
    return (shape,) if not declared_shape.is_ranked or len(declared_shape) == 1 else shape


def _dimension_names(inputs: Mapping[str, TensorShape]) -> set[str | None]:
    return {dim.name for shape in inputs.values() if shape.is_ranked for dim in shape if isinstance(dim, Dim)}


def _check_names(inputs: Mapping[str, TensorShape], shapes: Resizes) -> None:
    sizes = _dimension_names(inputs)
    for name, shape_or_size in shapes.items():
        is_size = isinstance(shape_or_size, Integral)
        if name in sizes and name not in inputs and (not is_size or isinstance(shape_or_size, bool)):
            raise InvalidArgumentError(
                f"shapes: {name!r} is a dimension; expected its size, a whole number, not {shape_or_size!r}"
            )
        known_names = sorted(filter(None, sizes)) if is_size else list(inputs)
        if name not in known_names:
            kind, names = "dimension" if is_size else "input", ", ".join(known_names) or "none"
            hint = did_you_mean(str(name), known_names)
            if is_size and name in inputs:
                message = (
                    f"shapes: {name!r} is an input of the shape {inputs[name]}; give all its dimensions, "
                    f"not {shape_or_size}"
                )
                raise InvalidArgumentError(message)
            if is_size and not known_names:
                raise InvalidArgumentError(f"shapes: the network has no dimension {name!r}; {_unnamed(inputs)}")
            raise InvalidArgumentError(f"shapes: the network has no {kind} {name!r}{hint} (it has: {names})")


def _unnamed(inputs: Mapping[str, TensorShape]) -> str:
    """Return the text that no dimension of these inputs has a name, with the shapes that can be given instead."""
    shapes = ", ".join(f"{name!r} {shape}" for name, shape in inputs.items()) or "none"
    return f"its dimensions have no names, so give the whole shape of an input (inputs: {shapes})"


def _size(name: str, size: Any) -> int:
    if not 0 <= index(size) <= LARGEST:
        raise InvalidArgumentError(f"shapes: {name!r} is {size}; expected 0 to {LARGEST}")
    return index(size)


def _given(name: str, declared_shape: TensorShape, value: Any) -> TensorShape:
    if value is None or isinstance(value, Integral):
        return declared_shape
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise InvalidArgumentError(f"shapes: {name!r} is {value!r}; expected a shape, such as (1, 3, 8)")
    try:
        shape = TensorShape(value)
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"shapes: {name!r}: {error}") from error
    too_large = [size for size in shape if size > LARGEST] if shape.is_ranked else []
    if too_large:
        raise InvalidArgumentError(f"shapes: {name!r} has the size {too_large[0]}; expected 0 to {LARGEST}")
    if not declared_shape.is_ranked:
        return shape
    if len(shape) != len(declared_shape):
        message = f"shapes: {name!r} has the shape {declared_shape}; {shape} was given, which has another rank"
        raise InvalidArgumentError(message)
    return TensorShape(dim if isinstance(size, Dim) else size for dim, size in zip(declared_shape, shape, strict=True))


def _learn(sizes: dict[str, int], declared_shape: TensorShape, tensor_shape: TensorShape) -> None:
    """Record in `sizes`, by dimension name, the sizes that a caller's shape gives to named dimensions of an input.

    `declared_shape` is the model's shape of the input. `InvalidArgumentError` is raised if a dimension gets two sizes.
    """
    if not declared_shape.is_ranked:
        return
    for dim, size in zip(declared_shape, tensor_shape, strict=True):
        if not isinstance(dim, Dim) or isinstance(size, Dim) or dim.name is None:
            continue
        if sizes.setdefault(dim.name, size) != size:
            raise InvalidArgumentError(f"shapes: {dim.name!r} is both {sizes[dim.name]} and {size}")


def _filled(shape: TensorShape, sizes: Mapping[str, int]) -> TensorShape:
    if not shape.is_ranked:
        return shape
    return TensorShape(sizes.get(dim.name or "", dim) if isinstance(dim, Dim) else dim for dim in shape)
