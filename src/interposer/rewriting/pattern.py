"""The form of a rewrite: a pure function from a layer to a replacement for its output.

The function returns an existing value, or a `New` that describes a layer on values and on other new layers, or a
`Moved` that changes the order of axes; None means no replacement. The function changes nothing. The driver changes the
graph, and checks that the replacement has exactly the info (shape, type, quantization) of the replaced value::

    @rewrite(Transpose)
    def drop_inverse_transposes(op: Transpose, layer: Layer) -> Replacement:
        \"\"\"Replace a Transpose that undoes another one by the other one's input.\"\"\"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, overload

import numpy as np

from interposer.core.constants import share
from interposer.core.errors import UnknownRankError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.traits import Trait
from interposer.core.types import Array, Quantization, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.ir.inference import inferred_for
from interposer.ops.control import Constant
from interposer.ops.rearrange import Transpose

__all__ = [
    "INSERTED",
    "Moved",
    "New",
    "Producer",
    "Replacement",
    "Rewrite",
    "above",
    "above_with",
    "constant",
    "gives",
    "info_of",
    "inverse",
    "keeps_codes",
    "rewrite",
    "scalar",
    "transpose",
]

INSERTED: Final = "inserted to convert between types"
"""The `Layer.source` of conversions that the optimizer inserted, and that replace no layer of the original network."""
_O_co = TypeVar("_O_co", bound=Op, covariant=True)
_A = TypeVar("_A", bound=Op)
_B = TypeVar("_B", bound=Op)
_C = TypeVar("_C", bound=Op)


@dataclass(frozen=True, eq=False)
class New:
    """The description of a layer, usually with one output, that a rewrite wants to create.

    The layer that replaces the old one gets its info, and also its name unless `name` is set. With `like`, it stands
    for that layer, and gets its source, its hint, and its name unless `name` is set. Other new layers get `info`, or an
    inferred info.
    """

    op: Op
    inputs: Sequence[Value | New | None] = ()
    name: str = ""
    like: Layer | None = None
    info: TensorInfo | None = None

    @cached_property
    def inferred(self) -> TensorInfo | None:
        """The inferred info of the only output, for the inputs as they first were; None if they do not fit."""
        return self.op.info if type(self.op) is Constant else gives(self.op, self.inputs)


@dataclass(frozen=True, eq=False)
class Moved:
    """A layer that stays where it is, but with the axes of its results in another order.

    It gets the operator `op` and other `inputs`. Axis i of its result number n is then axis ``permutations[n][i]`` of
    the result before. The users of the result read it through a new Transpose that restores the order of the axes.
    """

    op: Op
    inputs: Sequence[Value | New | None]
    permutations: Sequence[tuple[int, ...]]


Replacement: TypeAlias = "Value | New | tuple[Value | New, ...] | Moved | None"
"""The replacement of a layer's only output, or of each of its outputs; None for no replacement."""


@dataclass(frozen=True)
class Rewrite:
    """A rewrite rule: a function that returns the replacement of a layer if a pattern matches, else None.

    `ops` are the operators whose layers it is tried on, and `name` is its name in records. With `traits`, it is tried
    only on operators that have one of these traits.
    """

    name: str
    ops: tuple[type[Op], ...]
    function: Callable[[Any, Layer], Replacement]
    traits: Trait | None = None

    def __call__(self, layer: Layer) -> Replacement:
        """Return the replacement of the layer's outputs, or None; also None if the rewrite needs an unknown rank."""
        if not isinstance(layer.op, self.ops) or not self.applies_to(layer.op):
            return None
        try:
            return self.function(layer.op, layer)
        except UnknownRankError:
            return None

    def may_apply_to(self, kind: type[Op]) -> bool:
        """Return True if the rewrite is tried on operators of this class."""
        return issubclass(kind, self.ops) and (self.traits is None or kind.may_have(self.traits))

    def applies_to(self, op: Op) -> bool:
        """Return True if the rewrite names no traits, or if the operator has one of them."""
        return self.traits is None or op.traits.overlaps(self.traits)


def rewrite(*ops: type[Op], having: Trait | None = None) -> Callable[[Callable[[Any, Layer], Replacement]], Rewrite]:
    """Return a decorator that makes a function a rewrite of layers of these operators and their subclasses.

    With `having`, the rewrite is tried on operators that have one of these traits only; `ops` are then all operators
    unless some are given.
    """

    def made(function: Callable[[Any, Layer], Replacement]) -> Rewrite:
        return Rewrite(function.__name__, ops or (Op,), function, having)

    return made


class Producer(NamedTuple, Generic[_O_co]):
    """The result of matching the producer of a value: its operator and its layer."""

    op: _O_co
    layer: Layer


_producer: Final = partial(tuple.__new__, Producer)
"""Makes a `Producer` of a pair; a fast path, as every try of a rewrite makes some."""


@overload
def above(value: Value | None, a: type[_A], /) -> Producer[_A] | None: ...
@overload
def above(value: Value | None, a: type[_A], b: type[_B], /) -> Producer[_A | _B] | None: ...
@overload
def above(value: Value | None, a: type[_A], b: type[_B], c: type[_C], /) -> Producer[_A | _B | _C] | None: ...
@overload
def above(value: Value | None, *kinds: type[Op]) -> Producer[Op] | None: ...
def above(value: Value | None, *kinds: type[Op]) -> Producer[Any] | None:
    """Return the producer of a value if its operator is of one of these classes, else None."""
    if value is None or not isinstance(value.producer.op, kinds):
        return None
    return _producer((value.producer.op, value.producer))


def above_with(value: Value | None, traits: Trait) -> Producer[Op] | None:
    """Return the producer of a value if its operator has all of these traits, else None."""
    if value is None or traits not in value.producer.op.traits:
        return None
    return _producer((value.producer.op, value.producer))


def info_of(source: Value | New | None) -> TensorInfo | None:
    """Return the info of a value or of a new layer."""
    if isinstance(source, Value):
        return source.info
    return None if source is None else source.info or source.inferred


def gives(op: Op, inputs: Sequence[Value | New | None]) -> TensorInfo | None:
    """Return the info of the operator's only output for these inputs; None if it does not accept them."""
    infos = [info_of(source) for source in inputs]
    if None in infos and any([info is None and source is not None for info, source in zip(infos, inputs, strict=True)]):
        return None
    inferred_infos = inferred_for(op, infos)
    return None if inferred_infos is None else inferred_infos[0]


def keeps_codes(layer: Layer) -> bool:
    """Return True if a layer that moves elements, such as a Transpose, leaves quantized values as they are.

    That is the case if its output has the quantization that follows from its input.
    """
    if not layer.output.known.is_quantized and not layer.values[0].known.is_quantized:
        return True
    inferred_info = layer.op.infer_infos(*layer.input_infos)[0]
    return inferred_info is not None and inferred_info.quantization == layer.output.known.quantization


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes another one."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


@cache
def transpose(permutation: tuple[int, ...]) -> Transpose:
    """Return the Transpose with this permutation; equal ones are created once."""
    return Transpose(permutation)


def scalar(value: Value | None) -> float | None:
    """Return the float value of a constant with a single element; None for any other value."""
    if value is None or not value.is_constant or value.known.num_elements != 1:
        return None
    info = value.known
    if not (info.dtype.is_float or info.dtype.is_integer):
        return None
    number = float(np.asarray(value.constant).astype(np.float64).item())
    return (number - info.zero_point) * info.scale if info.is_quantized else number


def constant(value: Array, quantization: Quantization | None = None, name: str = "") -> New:
    """Return the description of a new Constant layer with this array, quantization and name."""
    return New(Constant.of(share(value) if value.base is None else value, quantization), name=name)
