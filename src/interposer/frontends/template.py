"""Models whose network depends on their inputs: shapes and values that decide which layers there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np

from interposer.core.conversion import converted
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.ir.network import Network

__all__ = ["Shapes", "Template", "Values", "check_names", "value_of"]

Shapes: TypeAlias = "Mapping[str, int | Sequence[int | str | None]]"
Values: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True, slots=True)
class Template:
    """A model that was read, and that becomes a network once enough is known of its inputs.

    What is enough, only trying tells: `network` raises `UnboundInputError` with what it lacks.

    Args:
        name: the network's name.
        inputs: what the model says of its inputs, in its order.
        outputs: the same of its outputs; None if it says nothing.
        build: gives the network for shapes by name, and for values of inputs, which then are inputs no more. It may be
            called from several threads.
        usual: shapes of inputs that are open, as they were where the model was made.
    """

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo | None]
    build: Callable[[Shapes, Values], Network]
    usual: Shapes = field(default_factory=dict)

    def network(self, shapes: Shapes | None = None, values: Values | None = None) -> Network:
        """Return the network for these shapes and values.

        Raises:
            UnboundInputError: more must be known; says of which inputs, and what.
            InterposerError: whatever else the front end finds.
        """
        return self.build(shapes or {}, values or {})

    def bound(self, values: Values) -> Template:
        """Return the template with values for some inputs, which it has no more then; `network` will check them."""
        rest = {name: info for name, info in self.inputs.items() if name not in values}
        usual = {name: shape for name, shape in self.usual.items() if name not in values}
        build = self.build
        return replace(self, inputs=rest, usual=usual, build=lambda shapes, more: build(shapes, {**values, **more}))


def check_names(values: Values, inputs: Iterable[str]) -> None:
    """Raise `InvalidArgumentError` if one of the values is for what is no input."""
    known = list(inputs)
    for name in values:
        if name not in known:
            hint, names = did_you_mean(str(name), known), ", ".join(known) or "none"
            raise InvalidArgumentError(f"values: the model has no input {name!r}{hint} (it has: {names})")


def value_of(name: str, info: TensorInfo, value: Any) -> Array:
    """What the caller gave as the value of an input, as an array of the input's type; a number for an only element.

    Raises:
        InvalidArgumentError: it is no array, of another kind, or has a shape that the input cannot have.
    """
    if not info.is_tensor:
        raise InvalidArgumentError(f"values: {name!r} is {info}; only tensors can be given values")
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"values: {name!r} cannot be made into an array: {error}") from error
    try:
        array = converted(array, info.dtype, numbers=None if isinstance(value, np.ndarray | np.generic) else value)
    except ValueError as error:
        raise InvalidArgumentError(f"values: {name!r} {error}") from None
    if array.ndim == 0 and info.shape.accepts(TensorShape((1,))):
        array = array.reshape(1)
    if not info.shape.accepts(TensorShape(array.shape)):
        raise InvalidArgumentError(f"values: {name!r} has shape {list(array.shape)}; expected {info.shape}")
    return array
