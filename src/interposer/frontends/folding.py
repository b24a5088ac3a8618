"""Constant folding during the import, also of shapes whose dimensions are only known by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from interposer.core.containers import refined
from interposer.core.errors import InterposerError, InvalidArgumentError, InvalidValueError
from interposer.core.schema import Op
from interposer.core.types import Array, Dim, TensorInfo
from interposer.ir.graph import Layer, Value
from interposer.kernels import evaluate
from interposer.kernels.operand_values import value_error
from interposer.kernels.value_checks import decisive_operands
from interposer.ops.control import Constant
from interposer.ops.elementwise import BinaryOperation, ElementwiseBinary
from interposer.ops.gather import Gather
from interposer.ops.quantization import Cast
from interposer.ops.rearrange import Concat, Slice, Splitter, Stack, StridedSlice
from interposer.ops.reshape import Reshape

__all__ = ["Folder", "fold_dimensions"]

_FAMILIES: Final = frozenset(
    {
        "activation", "blocks", "containers", "elementwise", "features", "gather", "matrices", "rearrange", "reduction",
        "reshape", "sequence", "strings",
    }
)  # fmt: skip
_SIZED_BY_DATA: Final = frozenset({"containers", "strings"})
_SMALL: Final = 1 << 16
_ALLOWANCE: Final = 64 << 20
_FEW_BITS: Final = 16
_MANY: Final = 32 << 20
_WIDEST: Final = 8
"""Bytes of an element of the widest type of tensors whose size depends on data."""


class Folder:
    """Evaluates operators on constants during the import with the reference kernels, within a budget of memory.

    Expensive families (convolutions ...) are left to run time, and so are results whose total size exceeds the budget:
    64 MiB plus four times the size of the file's own tensors. Small results are always folded. Large tensors of narrow
    types are not unpacked, as they would take several times the memory of the file.
    """

    def __init__(self, file_bytes: int) -> None:
        self._budget_left = _ALLOWANCE + 4 * file_bytes
        self._collections: dict[Value, Array] = {}
        self._elements: dict[Value, Array | None] = {}

    def note(self, value: Value, array: Array) -> None:
        """Record the contents of `value`, a sequence or an optional, so that its consumers can be folded.

        A sequence or an optional cannot be a constant of the network.
        """
        self._collections[value] = array

    def _known(self, value: Value | None) -> Array | None:
        return None if value is None else self._collections.get(value, value.constant)

    @staticmethod
    def takes(op: Op) -> bool:
        """Return True if an operator is evaluated during the import when its operands are known."""
        return op.family in _FAMILIES or isinstance(op, Cast)

    def fold(self, op: Op, values: Sequence[Value | None]) -> list[tuple[TensorInfo, Array]] | None:
        """Return the results of an operator on `values`, each with its info; None if it must be computed at run time.

        That is the case if an operand is not known, or if `Folder` leaves the operator to run time.
        """
        if not (self.takes(op) and (values or op.family in _SIZED_BY_DATA)):
            return None
        arrays: list[Array | None] = []
        for value in values:
            arrays.append(self._known(value))
            if value is not None and arrays[-1] is None:
                return None
        infos: list[TensorInfo | None] = [value.info if value is not None else None for value in values]
        if op.violations(*infos):
            return None
        outputs = [info for info in op.infer_infos(*infos) if info is not None]
        if isinstance(op, Cast) and _unpacks_much(infos[0], outputs[0]):
            return None
        return self._evaluated(op, arrays, infos, outputs) if self._affordable(op, arrays, outputs) else None

    def elements(self, value: Value, around: Mapping[Layer, Value]) -> Array | None:
        """Return the elements of a value if constants determine them within the budget; None if not.

        All layers before the value are evaluated, also those of expensive families. `around` has, for each input layer
        of a region, the value outside the region that it captures.

        Raises:
            InvalidValueError: a layer cannot use the elements of its operands.
        """
        layers: list[Layer] = []
        stack, seen_layers = [(value.producer, False)], set[Layer]()
        while stack:
            layer, is_ready = stack.pop()
            if is_ready:
                layers.append(layer)
            elif layer not in seen_layers and not (
                isinstance(layer.op, Constant) or self._elements.keys() & layer.outputs
            ):
                seen_layers.add(layer)
                sources = [around[layer]] if layer in around else layer.values
                if not sources or layer.regions or not layer.op.pure:
                    return None
                stack += [(layer, True), *((source.producer, False) for source in sources)]
        return self._elements.get(value, value.constant) if self._compute(layers, around) else None

    def _compute(self, layers: Sequence[Layer], around: Mapping[Layer, Value]) -> bool:
        """Add the results of these layers, which are in running order, to `_elements`; False if one has none."""
        known_elements = self._elements
        for layer in layers:
            sources = [around[layer]] if layer in around else layer.inputs
            operands = [
                None if source is None else known_elements.get(source, self._known(source)) for source in sources
            ]
            if layer in around:
                known_elements[layer.output] = operands[0]
                continue
            infos = [
                None if source is None or array is None else refined(source.known, array).with_constant(array)
                for source, array in zip(sources, operands, strict=True)
            ]
            if errors := layer.op.violations(*infos):
                raise _refusal(layer, _violation(layer, "; ".join(errors), operands))
            outputs = [info for info in layer.op.infer_infos(*infos) if info is not None]
            if not self._spend(layer.op, operands, outputs):
                return False
            try:
                results = evaluate(layer.op, operands, infos, outputs)
            except InvalidValueError as error:
                raise _refusal(layer, error) from error
            except InterposerError:
                return False
            known_elements.update(zip(layer.outputs, results, strict=True))
        return True

    def _affordable(self, op: Op, arrays: Sequence[Array | None], outputs: Sequence[TensorInfo]) -> bool:
        return (_are_sized(outputs) or op.family in _SIZED_BY_DATA) and self._spend(op, arrays, outputs)

    def _spend(self, op: Op, arrays: Sequence[Array | None], outputs: Sequence[TensorInfo]) -> bool:
        """Subtract the bytes of the operands and results of an operator from the budget; False if they exceed it."""
        operands = [array for array in arrays if array is not None]
        cost = sum(map(_bytes, operands))
        if _are_sized(outputs):
            cost += sum(map(_bytes_of_result, outputs))
        elif op.family in _SIZED_BY_DATA:
            cost *= 2
        else:  # such as the positions of elements, with a number for each axis
            cost += sum(array.size * max(array.ndim, 1) for array in operands) * _WIDEST * len(outputs)
        if cost <= _SMALL:
            return True
        if cost > self._budget_left:
            return False
        self._budget_left -= cost
        return True

    def _evaluated(
        self,
        op: Op,
        arrays: Sequence[Array | None],
        infos: Sequence[TensorInfo | None],
        outputs: Sequence[TensorInfo],
    ) -> list[tuple[TensorInfo, Array]] | None:
        try:
            folded_arrays = evaluate(op, arrays, infos, outputs)
        except InterposerError:
            return None
        return [(refined(info, array), array) for info, array in zip(outputs, folded_arrays, strict=True)]


def _violation(layer: Layer, problem: str, operands: Sequence[Array | None]) -> InvalidValueError:
    """Return the error for operands that a layer does not accept; it names the one that has indices or sizes."""
    decisive_indices = decisive_operands(layer.op, len(operands))
    named_operands = [
        (layer.op.operand_name(index), array) for index, array in enumerate(operands) if index in decisive_indices
    ]
    present_operands = [(name, array) for name, array in named_operands if array is not None]
    return value_error(problem, InvalidArgumentError(problem), present_operands)


def _refusal(layer: Layer, error: InvalidValueError) -> InvalidValueError:
    return error.of_layer(str(layer), layer=layer.name, backend="", tensor=layer.tensor_of(error.operand))


def _bytes(array: Array) -> int:
    """Return the size of an array in bytes, for the budget.

    An empty array counts by its other sizes, and a string once for every reference to it.
    """
    own_bytes: int = math.prod(max(dim, 1) for dim in array.shape) * array.itemsize
    if array.dtype != object:
        return own_bytes
    element_bytes: int = sum(
        _bytes(element) if isinstance(element, np.ndarray) else array.size * len(element) for element in array.flat
    )
    return own_bytes + element_bytes


def _are_sized(outputs: Sequence[TensorInfo]) -> bool:
    return all(info.is_tensor and info.is_concrete for info in outputs)


def _bytes_of_result(info: TensorInfo) -> int:
    return math.prod(max(dim, 1) for dim in info.shape) * info.dtype.itemsize


def _unpacks_much(source: TensorInfo | None, target: TensorInfo) -> bool:
    """Return True if folding a cast of `source` to `target` would turn a large constant of few bits into wider ones."""
    has_few_bits = source is not None and source.dtype.bits < _FEW_BITS
    return has_few_bits and target.is_concrete and target.num_bytes > _MANY


def _elementwise(op: Any, a: Array, b: Array) -> Array:
    functions: dict[BinaryOperation, Callable[[Any, Any], Any]] = {
        BinaryOperation.ADD: np.add,
        BinaryOperation.SUB: np.subtract,
        BinaryOperation.MUL: np.multiply,
        BinaryOperation.DIV: np.floor_divide,
        BinaryOperation.FLOOR_DIV: np.floor_divide,
    }
    function = functions.get(op.operation)
    return np.array(function(a, b), object) if function else _unknown(np.broadcast_shapes(a.shape, b.shape))


def _unknown(shape: tuple[int, ...]) -> Array:
    """Return an array of unknown dimensions; NumPy's `full` would make the number -1 of each."""
    dimensions = np.empty(shape, object)
    dimensions.fill(Dim())
    return dimensions


_ON_DIMENSIONS: Final[dict[type[Op], Callable[..., Array | list[Array]]]] = {
    Cast: lambda op, x: x,
    Concat: lambda op, *xs: np.concatenate(xs, op.axis),
    ElementwiseBinary: _elementwise,
    Gather: lambda op, x, indices: x.take(indices.astype(np.int64), op.axis),
    Reshape: lambda op, x: x.reshape(op.target_shape),
    Slice: lambda op, x: x[tuple(slice(b, b + n) for b, n in zip(op.begin, op.sizes(x.shape), strict=True))],
    Splitter: lambda op, x: np.split(x, np.cumsum(op.sizes[:-1]), op.axis),
    Stack: lambda op, *xs: np.stack(xs, op.axis),
    StridedSlice: lambda op, x: x[op.index(x.ndim)],
}


def fold_dimensions(op: Op, operands: Sequence[Array | None]) -> list[Array] | None:
    """Return the results of an operator that computes with dimensions, or None if it is not one of the few that can.

    Dimensions are the elements of a shape that the model computes: arrays of integers and, for unknown sizes, of `Dim`.
    An operand is None if its elements are not known in this sense.
    """
    function = next((_ON_DIMENSIONS[base] for base in type(op).__mro__ if base in _ON_DIMENSIONS), None)
    if function is None or any(operand is None for operand in operands):
        return None
    results = function(op, *operands)
    return [np.asarray(array, object) for array in (results if isinstance(results, list) else [results])]
