"""A network under construction: the values that a layer may take, the limits, and what all growers need."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.kernels import KernelInfo, reference
from interposer.ops import Cast, Dequantize, Quantize, Reshape
from interposer.schema import Op
from interposer.testing.random_networks.arrays import drawn, spoiled
from interposer.testing.random_networks.drawing import Draw
from interposer.types import Array, DataLayout, DataType, Quantization, TensorInfo, integer_range

__all__ = [
    "EIGHT_BITS",
    "GROWERS",
    "MAX_ELEMENTS",
    "MAX_ELEMENTS_OF_LARGE",
    "MAX_OPERATIONS",
    "MAX_OPERATIONS_OF_LARGE",
    "REAL",
    "Grower",
    "Growth",
    "Skipped",
    "grower",
]

MAX_ELEMENTS: Final = 4096
"""The number of elements that no tensor of an ordinary network exceeds."""
MAX_OPERATIONS: Final = 1_000_000
"""The number of arithmetic operations that one run of an ordinary network does not exceed (see `Op.operations`)."""
MAX_ELEMENTS_OF_LARGE: Final = 1 << 17
"""The number of elements that no tensor of a large network exceeds; one network in `LARGE_EVERY` is large."""
MAX_OPERATIONS_OF_LARGE: Final = 40_000_000
"""The number of arithmetic operations that one run of a large network does not exceed."""
LARGE_EVERY: Final = 24

REAL: Final = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64)
EIGHT_BITS: Final = (DataType.INT8, DataType.UINT8)
_MAX_RANK: Final = 6
_T = TypeVar("_T")


class Skipped(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a grower that can add nothing to this value; the layers that it added are removed again."""


@dataclass(eq=False)
class Growth:
    """The state of a network under construction.

    `values` are those that a layer may take. `reach` holds, for a value, about the largest magnitude that its elements
    have; it is an estimate, from which scales and weights are chosen. `positive` holds the values without negative
    elements.
    """

    draw: Draw
    kind: str
    network: Network
    favoured: frozenset[type[Op]] = frozenset()
    values: list[Value] = field(default_factory=list)
    feeds: dict[int, Array] = field(default_factory=dict)
    reaches: dict[Value, float] = field(default_factory=dict)
    positive: set[Value] = field(default_factory=set)

    def __post_init__(self) -> None:
        draw = self.draw
        large = draw.chance(1, LARGE_EVERY)
        self.room = MAX_ELEMENTS_OF_LARGE if large else MAX_ELEMENTS
        self.operations_left = MAX_OPERATIONS_OF_LARGE if large else MAX_OPERATIONS
        self.large = large
        self.layout = draw.one_of((DataLayout.NCHW, DataLayout.NHWC))
        self.real_type = draw.weighted(REAL, (88, 5, 3, 4))
        self.stored_type = draw.weighted((*EIGHT_BITS, DataType.INT16), (60, 30, 10))
        self.with_empty = draw.chance(1, 40)
        self.with_special = draw.chance(1, 20) and self.kind == "float"

    # --- sizes and shapes ---------------------------------------------------------------------------------------------

    def shape(self, rank: int, most: int = 65, room: int | None = None) -> tuple[int, ...]:
        """Return a shape of that rank, with `room` elements at most; the sizes are drawn in random order of axes."""
        left = self.room // 4 if room is None else room
        sizes = [1] * rank
        for axis in self.draw.order(rank):
            sizes[axis] = self.draw.size(min(most, max(left, 1)))
            left //= sizes[axis]
        if self.with_empty and rank and self.draw.chance(1, 3):
            sizes[self.draw.below(rank)] = 0
        return tuple(sizes)

    def image_shape(self, layout: DataLayout | None = None) -> tuple[int, ...]:
        """Return the shape of a batch of images; one image in five has a single channel."""
        draw, layout = self.draw, layout or self.layout
        channels = 1 if draw.chance(1, 5) else draw.size(min(65, self.room // 8))
        batch = draw.weighted((1, 2, 3), (8, 2, 1))
        left = max(1, self.room // (2 * channels * batch))
        side = math.isqrt(left) * (1 if draw.chance(1, 2) else 2)
        height = draw.size(min(65, max(side, 1)))
        width = draw.size(min(65, max(left // height, 1)))
        if self.with_empty and draw.chance(1, 4):
            batch = 0
        return (batch, height, width, channels) if layout.channels_last else (batch, channels, height, width)

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if a tensor of that shape is within the limits of this network."""
        return math.prod(shape) <= self.room and len(shape) <= _MAX_RANK

    # --- values -------------------------------------------------------------------------------------------------------

    def take(self) -> Value:
        """Return a value for the next layer: often the newest one, else any, later ones being more likely."""
        if self.draw.chance(1, 2):
            return self.values[-1]
        count = len(self.values)
        return self.values[max(self.draw.below(count), self.draw.below(count))]

    def reach(self, value: Value) -> float:
        """Return about the largest magnitude of the value's elements."""
        return self.reaches.get(value, 4.0)

    def another(self, accept: Callable[[Value], bool]) -> Value | None:
        """Return one of the values that `accept` holds for, later ones first, or None."""
        found = [value for value in self.values if accept(value)]
        return self.draw.one_of(found) if found else None

    def input(self, info: TensorInfo, reach: float | None = None) -> Value:
        """Add an input to the network, with an array to run it on."""
        reach = reach or self.draw.one_of((1.0, 2.0, 2.0, 4.0, 8.0))
        array = drawn(self.draw, info, reach)
        if self.with_special and info.dtype.is_float and self.draw.chance(2, 3):
            array = spoiled(self.draw, array)
        value = self.fed(array, info)
        self.note(value, reach)
        self.values.append(value)
        return value

    def fed(self, array: Array, info: TensorInfo) -> Value:
        """Add an input with that array to the network, which no other grower takes: indices, lengths and the like."""
        number = len(self.feeds)
        self.feeds[number] = array
        return self.network.add_input_layer(number, info).output

    def note(self, value: Value, reach: float, positive: bool = False) -> None:
        """Remember how large the elements of a value are, and whether none is negative."""
        q = value.known.quantization
        if q is not None and not q.per_axis:
            lowest, highest = integer_range(value.known.dtype)
            reach = min(reach, max(highest - q.zero_point, q.zero_point - lowest) * q.scale)
        self.reaches[value] = min(max(reach, 1e-3), 1e6)
        if positive:
            self.positive.add(value)

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, array: Array, q: Quantization | None = None) -> Value:
        """Add a constant to the network."""
        return self.network.add_constant_layer(array, q).output

    def weights(self, shape: Sequence[int], reach: float = 1.0, dtype: DataType | None = None) -> Value:
        """Return a value of real numbers from ``-reach`` to `reach`: mostly a constant, else an input."""
        if math.prod(shape) > self.room:
            raise Skipped
        info = TensorInfo(shape, dtype or self.real_type)
        if self.draw.chance(1, 16):
            return self.input(info, reach)
        value = self.constant(drawn(self.draw, info, reach))
        if self.draw.chance(1, 12):
            value = self._computed(value)
        self.note(value, reach)
        return value

    def _computed(self, value: Value) -> Value:
        """Return the result of a layer on a constant, which has the same shape and type: a constant subgraph."""
        return self.network.add_layer(Reshape(tuple(value.known.shape)), value).output

    # --- layers -------------------------------------------------------------------------------------------------------

    def add(
        self,
        op: Op,
        *values: Value | None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        reach: float | None = None,
        positive: bool = False,
    ) -> Value:
        """Add a layer and return its first result; `reach` is that of the results, by default that of the operands.

        Raises:
            Skipped: the operator does not take these operands, no reference kernel computes it on them, or the network
                would exceed its limits.
        """
        layer = self.network.add_layer(op, *values, outputs=outputs)
        self._check(layer)
        if reach is None:
            reach = max((self.reach(value) for value in layer.values), default=1.0)
        for value in layer.outputs:
            self.note(value, reach, positive)
        self.values.extend(layer.outputs)
        return layer.outputs[0]

    def _check(self, layer: Layer) -> None:
        infos = [value.info for value in layer.outputs]
        known = [info for info in infos if info is not None and info.is_concrete]
        if len(known) < len(infos) or not all(self.fits(info.shape) for info in known):
            raise Skipped
        operations = layer.op.operations(layer.input_infos, known)
        if operations > self.operations_left:
            raise Skipped
        if reference().find(layer.op, KernelInfo.of(layer.op, layer.input_infos, known)) is None:
            raise Skipped
        self.operations_left -= operations

    def choice(self, choices: Sequence[_T], op_of: Callable[[_T], type[Op]]) -> _T:
        """Return one of the choices, of those whose operator is favoured where there is any."""
        return self.draw.one_of([one for one in choices if op_of(one) in self.favoured] or choices)

    def undo(self, layers: int, values: int) -> None:
        """Remove all layers but the first ones, and the values and feeds that came with them."""
        graph = self.network.graph
        for layer in list(graph)[: layers - 1 if layers else None : -1]:
            graph.erase(layer)
        for value in self.values[values:]:
            self.reaches.pop(value, None)
            self.positive.discard(value)
        del self.values[values:]
        kept = self.network.inputs
        for number in [number for number in self.feeds if number not in kept]:
            del self.feeds[number]

    # --- changes of type ----------------------------------------------------------------------------------------------

    def real(self, value: Value) -> Value:
        """Return the value as floating-point numbers, through a layer where it has another type."""
        info = value.known
        if info.is_quantized:
            return self.add(Dequantize(self.real_type), value)
        return value if info.dtype in REAL else self.add(Cast(self.real_type), value)

    def of_type(self, value: Value, dtype: DataType) -> Value:
        """Return a value of real numbers as another floating-point type."""
        value = self.real(value)
        return value if value.known.dtype is dtype else self.add(Cast(dtype), value)

    def stored(self, value: Value) -> Value:
        """Return the value as quantized integers of 8 or 16 bits, through a layer where it has another type."""
        info = value.known
        if info.is_quantized and not _per_axis(info) and info.dtype in (*EIGHT_BITS, DataType.INT16):
            return value
        value = value if info.is_quantized else self.real(value)
        q = self.quantization(self.stored_type, self.reach(value), value in self.positive)
        return self.add(Quantize(self.stored_type), value, outputs=TensorInfo(value.known.shape, self.stored_type, q))

    def quantization(self, dtype: DataType, reach: float, positive: bool = False) -> Quantization:
        """Return a quantization for numbers of that magnitude: an odd scale, and often an extreme zero point.

        Where numbers of both signs meet a zero point at the end of its range, half of them saturate, as behind a ReLU.
        """
        lowest, highest = integer_range(dtype)
        point = self._zero_point(lowest, highest, positive)
        steps = highest - point if positive else max(highest - point, point - lowest)
        factor = self.draw.integer(97, 257) / 128
        return Quantization(float(np.float32(reach / steps * factor)), point)

    def _zero_point(self, lowest: int, highest: int, positive: bool) -> int:
        if highest > 255:
            return 0
        middle = (lowest + highest + 1) // 2
        points = (
            lowest,
            highest,
            middle,
            self.draw.integer(middle - 9, middle + 9),
            self.draw.integer(lowest, highest),
        )
        if positive:
            return self.draw.one_of((lowest, lowest, middle - self.draw.below(120)))
        return self.draw.weighted(points, (4, 2, 3, 6, 5))


def _per_axis(info: TensorInfo) -> bool:
    return info.quantization is not None and info.quantization.per_axis


@dataclass(frozen=True)
class Grower:
    """A function that adds layers after a value: how often it is drawn, and the operators that it may add."""

    function: Callable[[Growth, Value], Any]
    weight: int
    ops: frozenset[type[Op]]
    kinds: tuple[str, ...]

    def weight_for(self, kind: str, favoured: Collection[type[Op]]) -> int:
        """Return how often it is drawn for a network of that kind."""
        weight = self.weight if kind in self.kinds else (self.weight + 7) // 8
        return weight * 40 if not self.ops.isdisjoint(favoured) else weight


GROWERS: Final[list[Grower]] = []
"""All growers, in the order of their modules."""

_Function = Callable[[Growth, Value], Any]


def grower(
    weight: int, *ops: type[Op], kinds: tuple[str, ...] = ("float", "quantized")
) -> Callable[[_Function], _Function]:
    """Register the decorated function, which adds layers after a value.

    Args:
        weight: how often it is drawn in networks of the given kinds; in those of other kinds, an eighth of it.
        ops: the operators that it may add.
        kinds: the kinds of networks that it is for.
    """

    def register(function: _Function) -> _Function:
        GROWERS.append(Grower(function, weight, frozenset(ops), kinds))
        return function

    return register
