"""One layer of the network as its writer sees it, and the operators that are written for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType, Dim, Quantization, TensorInfo, integer_range
from interposer.ir.graph import Layer
from interposer.ops.axes import transposed
from interposer.writers.legalization import origin
from interposer.writers.operands import Operands
from interposer.writers.refusals import refuse
from interposer.writers.tflite.sheet import Operator, Sheet, Tensor
from interposer.writers.tflite.takes import data_operands, gives_others, needs_zero, taken, wider

__all__ = ["Draft"]

_INT32: Final = DataType.INT32


class Draft(Operands[Tensor]):
    """Writes one layer: it has the layer's operands as tensors, and collects the operators that writer functions add.

    `results` are the infos of the layer's outputs. The operators become part of the file in `finish`.

    Raises from all methods:
        RefusedError: the format cannot express the requested operator or value.
    """

    def __init__(self, sheet: Sheet, layer: Layer, operands: Sequence[Tensor | None]) -> None:
        super().__init__(layer, operands)
        self.sheet = sheet
        self._operators: list[Operator] = []

    def widened(self) -> Draft:
        """Return a new draft for the same layer, whose float16 and bfloat16 operands are cast to float32.

        The infos of the layer's inputs and outputs are changed alike.
        """
        operands = [operand and self.cast(operand, _wide(operand.dtype)) for operand in self._operands]
        draft = Draft(self.sheet, self.layer, operands)
        draft.infos = tuple(info and _wide_info(info) for info in self.infos)
        draft.results = tuple(_wide_info(info) for info in self.results)
        return draft

    def take_over(self, draft: Draft) -> None:
        """Add the operators of another draft of the same layer to this one."""
        self._operators += draft._operators

    # --- operands -----------------------------------------------------------------------------------------------------

    def concrete(self, x: Tensor, title: str = "its input") -> tuple[int, ...]:
        """Return the shape of a tensor; refuse the layer if a dimension is unknown.

        `title` names the tensor in the message.
        """
        if not x.shape.is_concrete:
            refuse(f"{title} has the shape {x.shape}; its dimensions must be known")
        return tuple(x.shape)

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, values: Any, dtype: DataType, name: str = "constant", q: Quantization | None = None) -> Tensor:
        """Return a constant of type `dtype` with the quantization `q`; `name` is appended to the layer's name."""
        with np.errstate(all="ignore"):
            array = np.asarray(values).astype(dtype.numpy)
        return self.sheet.constant(array, q, f"{self.layer.name}/{name}")

    def ints(self, values: Any, name: str = "constant") -> Tensor:
        """Return an int32 constant of `values`: a vector, a matrix or a scalar; numbers out of range are clamped."""
        low, high = integer_range(_INT32)
        return self.constant(np.clip(np.asarray(values, np.int64), low, high), _INT32, name)

    def like(self, number: float, tensor: Tensor) -> Tensor:
        """Return a constant scalar `number` of the type of `tensor`."""
        return self.constant(number, tensor.dtype)

    # --- operators ----------------------------------------------------------------------------------------------------

    def finals(self, kind: str, *inputs: Tensor | None, **options: Any) -> list[Tensor]:
        """Add the TFLite operator `kind` that computes all results of the layer, and return them."""
        return self.nodes(kind, *inputs, giving=self.results, **options)

    def final(self, kind: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Add the TFLite operator `kind` that computes the layer's only result, and return it."""
        return self.nodes(kind, *inputs, giving=[self.result], **options)[0]

    def node(self, kind: str, *inputs: Tensor | None, giving: TensorInfo, **options: Any) -> Tensor:
        """Add the TFLite operator `kind`, and return its single result, whose info is `giving`."""
        return self.nodes(kind, *inputs, giving=[giving], **options)[0]

    def nodes(self, kind: str, *inputs: Tensor | None, giving: Sequence[TensorInfo], **options: Any) -> list[Tensor]:
        """Add the TFLite operator `kind`, and return its results, whose infos are `giving`.

        Operands of types that the operator does not accept are cast to wider types, and the results are cast back.
        """
        if any(
            operand is not None and operand.array is not None and operand.dtype is DataType.STRING for operand in inputs
        ):
            refuse("it takes constant texts, which are not written")
        if kind != "RESHAPE" and any(operand is not None and _is_empty_constant(operand) for operand in inputs):
            refuse(f"{kind} would take a constant without elements, of which TFLite has none")
        data_indices = set(data_operands(kind, len(inputs)))
        wide_types = self._widths(
            kind, [operand.info for index, operand in enumerate(inputs) if operand and index in data_indices], giving
        )
        operands = [
            self.cast(operand, wide_types.get(operand.dtype, operand.dtype))
            if operand and index in data_indices
            else operand
            for index, operand in enumerate(inputs)
        ]
        while operands and operands[-1] is None:
            operands.pop()
        infos = [TensorInfo(info.shape, info.dtype, info.quantization) for info in giving]
        widths = {} if gives_others(kind) else wide_types
        wide_infos = [info.with_dtype(widths[info.dtype]) if info.dtype in widths else info for info in infos]
        results = [Tensor(self.sheet.names.free(f"{self.layer.name}/{kind}"), info) for info in wide_infos]
        self._operators.append(Operator(kind, operands, results, options, origin(self.layer)))
        return [self.cast(result, info.dtype) for result, info in zip(results, infos, strict=True)]

    def recurrent(
        self,
        kind: str,
        inputs: Sequence[Tensor | None],
        giving: Sequence[TensorInfo],
        intermediates: Sequence[Tensor],
        **options: Any,
    ) -> list[Tensor]:
        """Add a recurrent operator with all its operands, also absent ones, as they are, and return its results.

        `intermediates` are tensors that have the scales of values inside of the operator.
        """
        infos = [TensorInfo(info.shape, info.dtype, info.quantization) for info in giving]
        results = [Tensor(self.sheet.names.free(f"{self.layer.name}/{kind}"), info) for info in infos]
        operator = Operator(kind, list(inputs), results, options, origin(self.layer), list(intermediates))
        self._operators.append(operator)
        return results

    def _widths(
        self, kind: str, data_infos: Sequence[TensorInfo], giving: Sequence[TensorInfo]
    ) -> dict[DataType, DataType]:
        """Return a wider type for each type of the data that the operator `kind` does not accept.

        The keys are the types to replace. `data_infos` are the infos of the operands that are data; without any, those
        of the results (`giving`) count. The layer is refused if no accepted type is wide enough, or if the data is
        quantized, also if it is int16 with a zero point that the operator does not subtract.
        """
        if needs_zero(kind, [*data_infos, *giving]):
            refuse(f"{kind} takes int16 with the zero point 0 only")
        widths: dict[DataType, DataType] = {}
        for info in [*data_infos, *([] if data_infos else giving)]:
            if taken(kind, info) or info.dtype in widths:
                continue
            width = None if info.is_quantized else wider(kind, info.dtype)
            if width is None:
                refuse(f"{kind} takes no {_described(info)}")
            widths[info.dtype] = width
        return widths

    # --- what every family needs --------------------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: DataType) -> Tensor:
        """Return `x` cast to the type `dtype`; integers that are out of its range keep their low bits."""
        if x.dtype is dtype:
            return x
        if x.array is not None:
            return self.sheet.constant(_converted(x.array, dtype), None, f"{x.name}/{dtype}")
        return self.node("CAST", x, giving=x.info.with_dtype(dtype), in_data_type=x.dtype, out_data_type=dtype)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Return `x` with its axes in the order `permutation`; a constant is permuted without an operator."""
        order = tuple(permutation)
        if order == tuple(range(len(order))):
            return x
        if x.array is not None:
            return x.transposed(order, self.sheet.names.free(f"{x.name}/transposed"))
        return self.node("TRANSPOSE", x, self.ints(order, "order"), giving=transposed(x.info, order))

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return `x` with the shape `shape`, of which at most one dimension may be unknown."""
        if tuple(x.shape) == tuple(shape):
            return x
        q = x.info.quantization
        if q is not None and q.per_axis:
            refuse("its shape changes, but it has several scales")
        if x.array is not None:
            return Tensor(
                self.sheet.names.free(f"{x.name}/reshaped"), TensorInfo(shape, x.dtype, q), x.array.reshape(shape)
            )
        return self.reshape_to(x, TensorInfo(shape, x.dtype, q))

    def reshape_to(self, x: Tensor, info: TensorInfo) -> Tensor:
        """Return `x` with the shape and the quantization of `info`; at most one dimension may be unknown."""
        if sum(isinstance(size, Dim) for size in info.shape) > 1:
            refuse(f"its result has the shape {info.shape}; more than one dimension is not known")
        shape = [-1 if isinstance(size, Dim) else size for size in info.shape]
        if 0 in shape and -1 in shape:
            refuse(f"its result has the shape {info.shape}, whose open dimension does not follow from 0 elements")
        shape_tensor = self.constant(np.array(shape, np.int64), _INT32, "shape")
        return self.node("RESHAPE", x, shape_tensor, giving=info, new_shape=shape)

    def broadcast(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the tensor `x` broadcast to `shape`; a constant is broadcast without an operator."""
        if tuple(x.shape) == tuple(shape):
            return x
        info = TensorInfo(shape, x.dtype, x.info.quantization)
        sizes = self.concrete(Tensor("", info), "its result")
        if x.array is not None:
            return self.sheet.constant(np.broadcast_to(x.array, sizes), info.quantization, f"{x.name}/broadcast")
        return self.node("BROADCAST_TO", x, self.ints(sizes, "shape"), giving=info)

    def pad(self, x: Tensor, pairs: Sequence[tuple[int, int]], fill: float | None = None) -> Tensor:
        """Return a tensor with `pairs` of cells (before, after) added along each axis.

        The new elements are zeros, or `fill`, which for a quantized tensor is a quantized value.
        """
        if not any(map(any, pairs)):
            return x
        shape = [size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True)]
        info, pads = TensorInfo(shape, x.dtype, x.info.quantization), self.ints(pairs, "pads")
        if fill is None:
            return self.node("PAD", x, pads, giving=info)
        return self.node("PADV2", x, pads, self.constant(fill, x.dtype, "pad", x.info.quantization), giving=info)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, results: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
        """Add the operators of the layer to the sheet, and return the results under their final names.

        `names` are the requested names of the results. A result that no operator of this layer computes, such as an
        operand that is passed on, has its own name.
        """
        computed = {output for operator in self._operators for output in operator.outputs}
        renamed: dict[Tensor, Tensor] = {}
        for result, name in zip(results, names, strict=True):
            if result in computed and result not in renamed:
                renamed[result] = Tensor(name, result.info)
        self.sheet.operators += [operator.with_tensors(renamed) for operator in self._operators]
        return [renamed.get(tensor, tensor) for tensor in results]


def _is_empty_constant(x: Tensor) -> bool:
    return x.array is not None and not x.array.size


def _wide(dtype: DataType) -> DataType:
    return DataType.FLOAT32 if dtype in (DataType.FLOAT16, DataType.BFLOAT16) else dtype


def _wide_info(info: TensorInfo) -> TensorInfo:
    return info if _wide(info.dtype) is info.dtype else TensorInfo(info.shape, _wide(info.dtype))


def _described(info: TensorInfo) -> str:
    if info.quantization is None:
        return str(info.dtype)
    return f"{'several scales of ' if info.quantization.per_axis else 'quantized '}{info.dtype}"


def _converted(array: Array, dtype: DataType) -> Array:
    with np.errstate(all="ignore"):
        wide_array = array.astype(np.int64) if DataType.of(array.dtype).is_integer else array
        converted: Array = wide_array.astype(dtype.numpy)
    return converted
