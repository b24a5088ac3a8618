"""Models whose network depends on their inputs: shapes and values of inputs decide which layers exist."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np

from interposer.core.conversion import converted
from interposer.core.errors import BindingError, InvalidArgumentError, did_you_mean
from interposer.core.masks import plain_array
from interposer.core.records import dataclass
from interposer.core.types import Array, TensorInfo, TensorShape
from interposer.ir.network import Network

__all__ = ["Metadata", "Shapes", "Template", "Values", "check_names", "value_of"]

Shapes: TypeAlias = Mapping[str, int | Sequence[int | str | None]]
Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed model that becomes a network once enough shapes and values of its inputs are known.

    Call `network` to find out what is required: it raises `UnboundInputError` with the missing shapes and values.

    Args:
        name: the network's name.
        inputs: the info that the model declares for each input, in the model's order.
        outputs: the info that the model declares for each output; None if it declares nothing.
        build: function of shapes and values, both by name, that returns the network. Inputs that have a value become
            constants. It may be called from several threads.
        usual: shapes of the inputs with open dimensions, as recorded when the model was exported.
        signatures: for each signature of the file (a named way to call the model), a function that returns the template
            of the network that it calls.
        metadata: function that returns what the file says about itself; None if its format has no metadata.
        has_states: False if no network of the model has states.
        example: function that returns the network for shapes that the model allows; None if they are not known.
        cuts_at_shapes: True if a shape may also be given for a value inside the model, which then becomes an input.
    """

    name: str
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo | None]
    build: Callable[[Shapes, Values], Network]
    usual: Shapes = field(default_factory=dict)
    signatures: Mapping[str, Callable[[], Template]] = field(default_factory=dict)
    metadata: Callable[[], Metadata] | None = None
    has_states: bool = True
    example: Callable[[], Network] | None = None
    cuts_at_shapes: bool = False

    def network(self, shapes: Shapes | None = None, values: Values | None = None) -> Network:
        """Return the network for these shapes and values.

        Raises:
            UnboundInputError: more shapes or values are required; the message lists them.
            InterposerError: any other error that the front end reports.
        """
        return self.build(shapes or {}, values or {})

    def bound(self, values: Values) -> Template:
        """Return a template in which the inputs named in `values` have these values, and are no inputs any more.

        The values are checked when `network` is called.
        """
        remaining_inputs = {name: info for name, info in self.inputs.items() if name not in values}
        usual_shapes = {name: shape for name, shape in self.usual.items() if name not in values}
        build = self.build
        return replace(
            self,
            inputs=remaining_inputs,
            usual=usual_shapes,
            build=lambda shapes, more_shapes: build(shapes, {**values, **more_shapes}),
        )


def check_names(values: Values, inputs: Iterable[str]) -> None:
    """Raise `InvalidArgumentError` if `values` has a name that is not an input of the model."""
    known_names = list(inputs)
    for name in values:
        if name not in known_names:
            hint, names = did_you_mean(str(name), known_names), ", ".join(known_names) or "none"
            raise InvalidArgumentError(f"values: the model has no input {name!r}{hint} (it has: {names})")


def value_of(name: str, info: TensorInfo, value: Any) -> Array:
    """Return a caller's value for the input `name` as an array of the input's type.

    A single number also fits an input of one element with rank 1.

    Raises:
        InvalidArgumentError: the value cannot be converted to the input's type, or does not fit its shape.
    """
    if not info.is_tensor:
        raise InvalidArgumentError(f"values: {name!r} is {info}; only tensors can be given values")
    try:
        array = plain_array(value, f"values: {name!r}")
    except BindingError as error:
        raise InvalidArgumentError(str(error)) from None
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


# --- metadata ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metadata:
    """Texts and files inside a model file.

    Args:
        description: the description of the model, or an empty text.
        entries: the content of each named entry, such as ``min_runtime_version``.
        files: the content of each file that is stored in the model file, such as lists of labels, by file name.
    """

    description: str = ""
    entries: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
