"""A network under construction: its values, its limits, and the operations that all growers need."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Final, TypeVar

import numpy as np

from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.core.types import Array, DataLayout, DataType, Quantization, TensorInfo, integer_range
from interposer.ir.graph import Layer, Value
from interposer.ir.network import Network
from interposer.kernels import KernelInfo, reference
from interposer.ops import (
    Activation,
    ActivationFunction,
    Cast,
    Dequantize,
    Multiplication,
    Quantize,
    Reshape,
    Transpose,
)
from interposer.testing.drawing import Draw
from interposer.testing.random_networks.arrays import drawn, spoiled, stored

__all__ = [
    "EIGHT_BITS",
    "MAX_ELEMENTS",
    "MAX_ELEMENTS_OF_LARGE",
    "MAX_OPERATIONS",
    "MAX_OPERATIONS_OF_LARGE",
    "REAL",
    "Growth",
    "Skipped",
]

MAX_ELEMENTS: Final = 4096
"""The maximum number of elements of a tensor in an ordinary network."""
MAX_OPERATIONS: Final = 1_000_000
"""The maximum number of arithmetic operations of one run of an ordinary network (see `Op.operations`)."""
MAX_ELEMENTS_OF_LARGE: Final = 1 << 17
"""The maximum number of elements of a tensor in a large network; one network in `LARGE_EVERY` is large."""
MAX_OPERATIONS_OF_LARGE: Final = 40_000_000
"""The maximum number of arithmetic operations of one run of a large network."""
LARGE_EVERY: Final = 24

REAL: Final = (DataType.FLOAT32, DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT64)
EIGHT_BITS: Final = (DataType.INT8, DataType.UINT8)
_MAX_RANK: Final = 6
_T = TypeVar("_T")


class Skipped(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a grower that cannot add its layers after a value.

    Layers that it has added so far are removed again.
    """


@dataclass(eq=False)
class Growth:
    """A random network under construction, with the methods by which growers add layers to it.

    `draw` is the source of random choices, and `kind` is "float" or "quantized". `values` are those that following
    layers may read, and `feeds` are the input arrays by binding id. The reach of a value is an estimate of the largest
    magnitude of its elements, from which scales and weights are chosen. `positive` holds the values without negative
    elements, and `negative` those without positive ones. `room` is the largest number of elements of a tensor, and
    `operations_left` the number of operations that further layers may have.
    """

    draw: Draw
    kind: str
    network: Network
    favoured: frozenset[type[Op]] = frozenset()
    values: list[Value] = field(default_factory=list)
    feeds: dict[int, Array] = field(default_factory=dict)
    reaches: dict[Value, float] = field(default_factory=dict)
    positive: set[Value] = field(default_factory=set)
    negative: set[Value] = field(default_factory=set)
    _weights: dict[TensorInfo, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        draw = self.draw
        is_large = draw.chance(1, LARGE_EVERY)
        self.room = MAX_ELEMENTS_OF_LARGE if is_large else MAX_ELEMENTS
        self.operations_left = MAX_OPERATIONS_OF_LARGE if is_large else MAX_OPERATIONS
        self.large = is_large
        self.layout = draw.one_of((DataLayout.NCHW, DataLayout.NHWC))
        self.real_type = draw.weighted(REAL, (88, 5, 3, 4))
        self.stored_type = draw.weighted((*EIGHT_BITS, DataType.INT16), (60, 30, 10))
        self.with_empty = draw.chance(1, 40)
        self.with_special = draw.chance(1, 20) and self.kind == "float"

    # --- sizes and shapes ---------------------------------------------------------------------------------------------

    def shape(self, rank: int, most: int = 65, room: int | None = None) -> tuple[int, ...]:
        """Return a random shape of this rank with sizes up to `most`.

        It has at most `room` elements, by default a quarter of the limit of the network. In some networks, a size may
        be 0.
        """
        room_left = self.room // 4 if room is None else room
        sizes = [1] * rank
        for axis in self.draw.order(rank):
            sizes[axis] = self.draw.size(min(most, max(room_left, 1)))
            room_left //= sizes[axis]
        if self.with_empty and rank and self.draw.chance(1, 3):
            sizes[self.draw.below(rank)] = 0
        return tuple(sizes)

    def image_shape(self, layout: DataLayout | None = None) -> tuple[int, ...]:
        """Return a random shape for a batch of images, in this layout or else in the usual one of the network.

        One image in five has a single channel.
        """
        draw, layout = self.draw, layout or self.layout
        channels = 1 if draw.chance(1, 5) else draw.size(min(65, self.room // 8))
        batch = draw.weighted((1, 2, 3), (8, 2, 1))
        pixels_left = max(1, self.room // (2 * channels * batch))
        side = math.isqrt(pixels_left) * (1 if draw.chance(1, 2) else 2)
        height = draw.size(min(65, max(side, 1)))
        width = draw.size(min(65, max(pixels_left // height, 1)))
        if self.with_empty and draw.chance(1, 4):
            batch = 0
        return (batch, height, width, channels) if layout.channels_last else (batch, channels, height, width)

    def fits(self, shape: Sequence[int]) -> bool:
        """Return True if a tensor of this shape has not too many elements and dimensions for the network."""
        return math.prod(shape) <= self.room and len(shape) <= _MAX_RANK

    def axis(self, value: Value) -> int:
        """Return a random axis, counted from the front or from the end; mostly one whose size is not 1.

        Raises:
            Skipped: the value is a scalar.
        """
        draw, shape = self.draw, value.known.shape
        if not shape:
            raise Skipped
        long_axes = [axis for axis, size in enumerate(shape) if size > 1]
        axis = draw.one_of(long_axes) if long_axes and draw.chance(7, 8) else draw.below(len(shape))
        axis = len(shape) - 1 if shape[-1] > 1 and draw.chance(1, 3) else axis
        return axis - len(shape) if draw.chance(1, 2) else axis

    # --- values -------------------------------------------------------------------------------------------------------

    def take(self) -> Value:
        """Choose the value that the next layer reads: often the newest or an unused one, else mostly a recent one."""
        if self.draw.chance(1, 2):
            return self.values[-1]
        unused_values = [value for value in self.values if not value.uses]
        if unused_values and self.draw.chance(1, 3):
            return self.draw.one_of(unused_values)
        count = len(self.values)
        return self.values[max(self.draw.below(count), self.draw.below(count))]

    def reach(self, value: Value) -> float:
        """Return an estimate of the largest magnitude of the value's elements."""
        return self.reaches.get(value, 4.0)

    def sign(self, value: Value) -> int:
        """Return 1 if no element of the value is negative, -1 if none is positive, else 0."""
        return 1 if value in self.positive else -1 if value in self.negative else 0

    def another(self, accept: Callable[[Value], bool]) -> Value | None:
        """Return one of the values that `accept` returns True for, preferably a recent one; None if there is none."""
        accepted_values = [value for value in self.values if accept(value)]
        return self.draw.one_of(accepted_values) if accepted_values else None

    def input(self, info: TensorInfo, reach: float | None = None) -> Value:
        """Add an input with a random array, and return its value, which other layers may read.

        `reach` is the largest magnitude of the elements; None draws one.
        """
        reach = reach or self.draw.one_of((1.0, 2.0, 2.0, 4.0, 8.0))
        array = drawn(self.draw, info, reach)
        if self.with_special and info.dtype.is_float and self.draw.chance(2, 3):
            array = spoiled(self.draw, array)
        value = self.fed(array, info)
        self.note(value, reach)
        self.values.append(value)
        return value

    def fed(self, array: Array, info: TensorInfo) -> Value:
        """Add an input with this array, and return its value, which is not offered to other growers.

        It is for indices, lengths and other values that must not be changed.
        """
        binding_id = len(self.feeds)
        self.feeds[binding_id] = array
        return self.network.add_input_layer(binding_id, info).output

    def note(self, value: Value, reach: float, is_positive: bool = False) -> None:
        """Record the reach of a value, limited by its quantization; with `is_positive`, that no element is negative."""
        quantization = value.known.quantization
        if quantization is not None and not quantization.per_axis:
            lowest, highest = integer_range(value.known.dtype)
            reach = min(
                reach, max(highest - quantization.zero_point, quantization.zero_point - lowest) * quantization.scale
            )
            is_positive = is_positive or quantization.zero_point == lowest
            if quantization.zero_point == highest:
                self.negative.add(value)
        self.reaches[value] = min(max(reach, 1e-3), 1e6)
        if is_positive:
            self.positive.add(value)

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, array: Array, q: Quantization | None = None) -> Value:
        """Add a constant with this array and the quantization `q` to the network, and return its value."""
        return self.network.add_constant_layer(array, q).output

    def weights(self, shape: Sequence[int], reach: float = 1.0, dtype: DataType | None = None) -> Value:
        """Return float values of magnitude up to `reach`: mostly a constant, else an input.

        The constant may be one that other layers read too. It may also be the result of a layer on constants, which an
        optimizer can fold.

        Raises:
            Skipped: the shape has too many elements.
        """
        if math.prod(shape) > self.room:
            raise Skipped
        info = TensorInfo(shape, dtype or self.real_type)
        if self.draw.chance(1, 16):
            return self.input(info, reach)
        shared_weights = self._weights.get(info)
        if shared_weights is not None and self.draw.chance(1, 4):
            return shared_weights
        array = drawn(self.draw, info, reach)
        if self.with_special and self.draw.chance(1, 8) and info.dtype.is_float:
            array = spoiled(self.draw, array)
        value = _computed(self, array) if self.draw.chance(1, 12) else self.constant(array)
        self.note(value, reach)
        self._weights[info] = value
        if self.draw.chance(1, 60):
            self.values.append(value)
        return value

    # --- layers -------------------------------------------------------------------------------------------------------

    def add(
        self,
        op: Op,
        *values: Value | None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        reach: float | None = None,
        positive: bool = False,
    ) -> Value:
        """Add a layer with these operands, and return its first result; following layers may read all of its results.

        Args:
            op: the operator.
            values: its operands.
            outputs: the declared infos of the results, where they cannot be inferred.
            reach: the largest magnitude of the results; None means that of the operands.
            positive: whether no element of the results is negative.

        Raises:
            Skipped: the operator does not accept these operands, no reference kernel supports them, or the network
                would exceed its limits.
        """
        layer = self.network.add_layer(op, *values, outputs=outputs)
        self._check(layer)
        if reach is None:
            reach = max((self.reach(value) for value in layer.values), default=1.0)
        for value in layer.outputs:
            self.note(value, reach, positive)
        self.values.extend(value for value in layer.outputs if value.known.is_tensor)
        return layer.outputs[0]

    def hidden(self, op: Op, *values: Value) -> Value:
        """Add a layer and return its result, which is not offered to other growers; raises `Skipped` as `add` does."""
        layer = self.network.add_layer(op, *values)
        self._check(layer)
        return layer.output

    def _check(self, layer: Layer) -> None:
        infos = [value.info for value in layer.outputs]
        concrete_infos = [info for info in infos if info is not None and info.is_concrete]
        if len(concrete_infos) < len(infos) or not all(self.fits(info.shape) for info in concrete_infos):
            raise Skipped
        operations = layer.op.operations(layer.input_infos, concrete_infos)
        if operations > self.operations_left:
            raise Skipped
        if reference().find(layer.op, KernelInfo.of(layer.op, layer.input_infos, concrete_infos)) is None:
            raise Skipped
        self.operations_left -= operations

    def choice(self, choices: Sequence[_T], op_of: Callable[[_T], type[Op]]) -> _T:
        """Return one of the choices at random; if the operators of some choices are favoured, one of these.

        `op_of` returns the operator class that a choice leads to.
        """
        return self.draw.one_of([choice for choice in choices if op_of(choice) in self.favoured] or choices)

    def perhaps(self, op: type[Op], part: int, whole: int) -> bool:
        """Return True with the probability `part` / `whole`, and always if the operator is favoured."""
        return self.draw.chance(part, whole) or op in self.favoured

    def undo(self, layers: int, values: int) -> None:
        """Remove what a grower has added: all but the first `layers` layers and `values` values, and their inputs."""
        graph = self.network.graph
        removed_layers = list(graph)[: layers - 1 if layers else None : -1]
        erased_values = {value for layer in removed_layers for value in layer.outputs}
        for layer in removed_layers:
            graph.erase(layer)
        self._weights = {info: value for info, value in self._weights.items() if value not in erased_values}
        for value in self.values[values:]:
            self.reaches.pop(value, None)
            self.positive.discard(value)
            self.negative.discard(value)
        del self.values[values:]
        remaining_inputs = self.network.inputs
        for binding_id in [binding_id for binding_id in self.feeds if binding_id not in remaining_inputs]:
            del self.feeds[binding_id]

    # --- changes of type ----------------------------------------------------------------------------------------------

    def real(self, value: Value) -> Value:
        """Return the value as floats, converted by a layer if it has another type; `Skipped` is raised for texts."""
        info = value.known
        if info.dtype is DataType.STRING:
            raise Skipped
        if info.is_quantized:
            return self.add(Dequantize(self.real_type), value)
        return value if info.dtype in REAL else self.add(Cast(self.real_type), value)

    def stored(self, value: Value) -> Value:
        """Return the value as quantized 8- or 16-bit integers, converted by a layer if it has another type."""
        info = value.known
        if info.is_quantized and not _per_axis(info) and info.dtype in (*EIGHT_BITS, DataType.INT16):
            return value
        value = value if info.is_quantized else self.real(value)
        quantization = self.quantization(self.stored_type, self.reach(value), self.sign(value))
        return self.add(
            Quantize(self.stored_type), value, outputs=TensorInfo(value.known.shape, self.stored_type, quantization)
        )

    def quantization(self, dtype: DataType, reach: float, sign: int = 0) -> Quantization:
        """Return a quantization for numbers of magnitude up to `reach`: an odd scale, and often an extreme zero point.

        `sign` is 1 if no number is negative, -1 if none is positive, else 0. If numbers of both signs get a zero point
        at the end of its range, half of them saturate, as after a ReLU.
        """
        lowest, highest = integer_range(dtype)
        zero_point = self._zero_point(lowest, highest, sign)
        steps = max(highest - zero_point if sign >= 0 else 0, zero_point - lowest if sign <= 0 else 0)
        factor = self.draw.integer(97, 257) / 128
        return Quantization(float(np.float32(reach / steps * factor)), zero_point)

    def _zero_point(self, lowest: int, highest: int, sign: int) -> int:
        if highest > 255:
            return 0
        middle = (lowest + highest + 1) // 2
        zero_points = (
            lowest,
            highest,
            middle,
            self.draw.integer(middle - 9, middle + 9),
            self.draw.integer(lowest, highest),
        )
        if sign:
            extreme_point = lowest if sign > 0 else highest
            return self.draw.one_of((extreme_point, extreme_point, middle - sign * self.draw.below(120)))
        return self.draw.weighted(zero_points, (4, 2, 3, 6, 5))


def _per_axis(info: TensorInfo) -> bool:
    return info.quantization is not None and info.quantization.per_axis


def _computed(growth: Growth, array: Array) -> Value:
    """Add layers on constants whose result is nearly `array`, and return that result; an optimizer may fold them."""
    draw = growth.draw
    variant = draw.below(6)
    if variant == 5 and array.dtype == np.float32 and array.size:
        return _stored_constant(growth, array)
    if variant == 0:
        return growth.hidden(Reshape(array.shape), growth.constant(array.reshape(-1)))
    if variant == 1:
        permutation = draw.order(array.ndim)
        transposed = array.transpose([permutation.index(axis) for axis in range(array.ndim)])
        return growth.hidden(Transpose(permutation), growth.constant(np.ascontiguousarray(transposed)))
    if variant == 2:
        factors = (growth.constant(np.array(draw.one_of((0.5, 1.0, -1.0)), array.dtype)), growth.constant(array))
        return growth.hidden(Multiplication(), *(factors if draw.chance(1, 2) else factors[::-1]))
    if variant == 3:
        half_precision = array.astype(np.float16)
        return growth.hidden(Cast(DataType.of(array.dtype)), growth.constant(half_precision))
    return growth.hidden(Activation(ActivationFunction.LEAKY_RELU, 0.5), growth.constant(array))


def _stored_constant(growth: Growth, array: Array) -> Value:
    """Add an int8 constant and a Dequantize, as in files with 8-bit weights; return the result, nearly `array`."""
    largest = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
    quantization = Quantization(float(np.float32(max(largest, 1e-6) / 127)))
    info = TensorInfo(array.shape, DataType.INT8, quantization)
    return growth.hidden(Dequantize(), growth.constant(stored(np.nan_to_num(array), info), quantization))
