"""One layer of the network as its writer sees it, and the nodes that are written for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from interposer.core.types import Array, DataType, Dim, Quantization, TensorShape
from interposer.ir.graph import Layer
from interposer.writers.onnx.forms import Form, form, widened
from interposer.writers.onnx.protos import type_of
from interposer.writers.onnx.sheet import Node, Sheet
from interposer.writers.onnx.tensor import Tensor, turned
from interposer.writers.operands import Operands
from interposer.writers.refusals import refuse

__all__ = ["NARROW", "Draft", "fits"]

NARROW: Final = frozenset(dtype for dtype in DataType if dtype.is_float and dtype.bits <= 8)
"""The floating-point types of 8 bits and fewer."""

_SAFE: Final = 2**31
"""The magnitude above which ONNX Runtime 1.31 clips 64-bit integers to wrong bounds."""
_MOVING: Final = frozenset(
    {"Cast", "Concat", "Expand", "Gather", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)


class Draft(Operands[Tensor]):
    """Writes one layer: it has the layer's operands as tensors, and collects the nodes that writer functions add.

    `results` are the infos of the layer's outputs. The nodes become part of the model in `finish`.

    Raises from all methods:
        RefusedError: the format cannot express the requested node or value.
    """

    def __init__(self, sheet: Sheet, layer: Layer, operands: Sequence[Tensor | None]) -> None:
        super().__init__(layer, operands)
        self.sheet, self.opset, self.exact = sheet, sheet.opset, sheet.exact
        self._nodes: list[Node] = []

    def again(self, operands: Sequence[Tensor | None]) -> Draft:
        """Return a new draft without nodes for the same layer with other operands, to write it in another way."""
        draft = Draft(self.sheet, self.layer, operands)
        draft.infos, draft.results = self.infos, self.results
        return draft

    def take_over(self, draft: Draft) -> None:
        """Add the nodes of another draft of the same layer to this one."""
        self._nodes += draft._nodes

    # --- operands -----------------------------------------------------------------------------------------------------

    @property
    def operands(self) -> tuple[Tensor | None, ...]:
        """All operands of the layer as tensors; None for absent ones."""
        return self._operands

    def shape(self, index: int) -> tuple[int, ...]:
        """Return the shape of operand `index`; refuse the layer if a dimension is unknown."""
        shape = self.info(index).shape
        if not shape.is_concrete:
            name = self.layer.op.operand_name(index)
            refuse(f"{name} has the shape {shape}; its dimensions must be known")
        return tuple(shape)

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, values: Any, dtype: DataType, name: str = "constant") -> Tensor:
        """Return a constant tensor of type `dtype`; `name` is appended to the layer's name."""
        return Tensor(f"{self.layer.name}/{name}", dtype, np.asarray(values).astype(dtype.numpy))

    def ints(self, values: Sequence[int] | int, name: str = "constant") -> Tensor:
        """Return an int64 constant of `values`: a vector, or a scalar for one number."""
        return self.constant(np.array(values, np.int64), DataType.INT64, name)

    def like(self, number: float, tensor: Tensor) -> Tensor:
        """Return a constant scalar `number` of the type of `tensor`."""
        return self.constant(number, tensor.dtype)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, kind: str, *inputs: Tensor | None, giving: DataType | None = None, **attributes: Any) -> Tensor:
        """Add a node of the ONNX operator `kind`, and return its first result.

        `giving` is the result's type if it does not follow from the operands, as for Cast.
        """
        return self.nodes(kind, *inputs, giving=giving, **attributes)[0]

    def nodes(
        self, kind: str, *inputs: Tensor | None, count: int = 1, giving: DataType | None = None, **attributes: Any
    ) -> list[Tensor]:
        """Add a node of the ONNX operator `kind`, and return its `count` results.

        Attributes that are None are left out.

        Operands of types that the operator does not accept are cast to wider types, and the results are cast back.
        `giving` is the type of the first result if it does not follow from the operands.
        """
        signature = form(kind, self.opset)
        if signature is None:
            refuse(f"opset {self.opset} has no {kind}")
        narrow_types, wide_types = self._types(kind, signature, inputs)
        operands = [
            operand and self.cast(operand, wide_types.get(signature.operand(index), operand.dtype))
            for index, operand in enumerate(inputs)
        ]
        while operands and operands[-1] is None:
            operands.pop()
        result_types = [self._result_type(kind, signature, index, narrow_types, giving) for index in range(count)]
        names = [self.sheet.names.free(f"{self.layer.name}/{kind}") for _ in range(count)]
        attributes = {key: attribute for key, attribute in attributes.items() if attribute is not None}
        for unknown_attribute in sorted(attributes.keys() - signature.attributes):
            refuse(f"{kind} of opset {self.opset} has no attribute {unknown_attribute}")
        inputs_by_name = [self.name_of(operand) if operand else "" for operand in operands]
        self._nodes.append(Node(kind, inputs_by_name, names, attributes))
        results = []
        for index, (name, dtype) in enumerate(zip(names, result_types, strict=True)):
            type_variable = signature.result(index)
            result_type = wide_types.get(type_variable) or widened(signature, type_variable, dtype) or dtype
            results.append(self.cast(Tensor(name, result_type), dtype))
        return results

    def put(self, node: Node, types: Sequence[DataType]) -> list[Tensor]:
        """Add a node that was created elsewhere, name its results, and return them; `types` are the results' types."""
        node.outputs = [self.sheet.names.free(f"{self.layer.name}/{node.kind}") for _ in types]
        self._nodes.append(node)
        return [Tensor(name, dtype) for name, dtype in zip(node.outputs, types, strict=True)]

    def _types(
        self, kind: str, signature: Form, inputs: Sequence[Tensor | None]
    ) -> tuple[dict[str, DataType], dict[str, DataType]]:
        """Return the types of the operands, and the types to cast them to; both are keyed by type variable (such as T).

        An accepted type stays the same. The layer is refused if no accepted type holds all values of an operand.
        """
        narrow_types: dict[str, DataType] = {}
        wide_types: dict[str, DataType] = {}
        for index, operand in enumerate(inputs):
            if operand is None:
                continue
            if not signature.has_operand(index):
                refuse(f"{kind} of opset {self.opset} has no operand number {index + 1}")
            name = signature.operand(index)
            if name in narrow_types:
                continue
            accepted_type = widened(signature, name, operand.dtype)
            if accepted_type is None:
                refuse(f"{kind} of ONNX (since opset {signature.since}) takes no {operand.dtype}")
            narrow_types[name], wide_types[name] = operand.dtype, accepted_type
        return narrow_types, wide_types

    def _result_type(
        self, kind: str, signature: Form, index: int, narrow: dict[str, DataType], dtype: DataType | None
    ) -> DataType:
        name = signature.result(index)
        if name in narrow:
            return narrow[name]
        allowed_types = signature.allowed.get(name, frozenset({name}))
        if len(allowed_types) == 1:
            return type_of(next(iter(allowed_types)))
        assert dtype is not None, f"{kind}: the type of result {index} does not follow from the operands"
        if widened(signature, name, dtype) is None:
            refuse(f"{kind} of ONNX (since opset {signature.since}) gives no {dtype}")
        return dtype

    def takes(self, kind: str, dtype: DataType) -> bool:
        """Return True if the ONNX operator `kind` accepts a first operand of this type without a cast."""
        known_form = form(kind, self.opset)
        return known_form is not None and known_form.takes(known_form.operand(0), dtype)

    def gives(self, kind: str, dtype: DataType) -> bool:
        """Return True if the ONNX operator `kind` can return a tensor of this type without a cast."""
        known_form = form(kind, self.opset)
        return known_form is not None and known_form.takes(known_form.result(0), dtype)

    def name_of(self, tensor: Tensor) -> str:
        """Return the name of a tensor in the model; a constant is added to the model at the first call for it."""
        if tensor.array is None:
            return tensor.name
        if tensor not in self.sheet.placed:
            self.sheet.placed[tensor] = self._placed(tensor, tensor.array)
        return self.sheet.placed[tensor]

    def _placed(self, tensor: Tensor, array: Array) -> str:
        if tensor.quantization is None:
            return self.sheet.constant(array, tensor.name)
        stored_tensor = Tensor(tensor.name, DataType.of(array.dtype), array)
        return self.name_of(self.dequantized(stored_tensor, tensor.quantization, tensor.dtype))

    # --- scales -------------------------------------------------------------------------------------------------------

    def scale(self, q: Quantization, dtype: DataType, zero: DataType) -> tuple[Tensor, Tensor]:
        """Return the scale (of type `dtype`) and the zero point (of type `zero`) as constants.

        They are scalars, or vectors for per-channel quantization.
        """
        values = np.array(q.scales if q.per_axis else q.scale)
        points = np.array(q.zero_points if q.per_axis else q.zero_point)
        return self.constant(values, dtype, "scale"), self.constant(points, zero, "zero_point")

    def dequantized(self, x: Tensor, q: Quantization, dtype: DataType = DataType.FLOAT32) -> Tensor:
        """Return the integers `x`, which have the quantization `q`, dequantized to floats of type `dtype`."""
        scale, zero_point = self.scale(q, dtype, x.dtype)
        has_zero_point = any(q.zero_points) or x.dtype is not DataType.INT32
        floats = self.node(
            "DequantizeLinear", x, scale, zero_point if has_zero_point else None, giving=dtype, axis=q.axis
        )
        return replace(floats, integers=x, quantization=q)

    def quantized(self, x: Tensor, q: Quantization, dtype: DataType) -> Tensor:
        """Return the floats `x` quantized with `q` to integers of type `dtype`, ties to even."""
        scale, point = self.scale(q, x.dtype, dtype)
        return self.node("QuantizeLinear", x, scale, point, axis=q.axis)

    # --- what every family needs --------------------------------------------------------------------------------------

    def cast(self, x: Tensor, dtype: DataType) -> Tensor:
        """Return `x` cast to the type `dtype`; integers that are out of its range keep their low bits."""
        if x.dtype is dtype:
            return x
        if x.array is not None and x.quantization is None and DataType.STRING not in (x.dtype, dtype):
            return replace(x, name=f"{x.name}/{dtype}", dtype=dtype, array=_converted(x.array, dtype))
        saturate = 0 if dtype in NARROW else None
        return self.node("Cast", x, giving=dtype, to=dtype, saturate=saturate)

    def transpose(self, x: Tensor, permutation: Sequence[int]) -> Tensor:
        """Return `x` with its axes in the order `permutation`; a constant is permuted without a node."""
        order = tuple(permutation)
        if order == tuple(range(len(order))):
            return x
        if x.array is not None:
            return x.transposed(order)
        if x.integers is not None and x.quantization is not None:  # transposed integers are fused by more engines
            return self.dequantized(
                self.transpose(x.integers, order), turned(x.quantization, order) or x.quantization, x.dtype
            )
        return self.node("Transpose", x, perm=order)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return `x` with the shape `shape`, of which at most one dimension may be -1 or unknown."""
        if sum(isinstance(dim, Dim) or dim == -1 for dim in shape) > 1:
            refuse(f"it would give a tensor the shape {TensorShape(shape)}, of which several dimensions are not known")
        sizes = tuple(-1 if isinstance(dim, Dim) else int(dim) for dim in shape)
        reshaped = x.reshaped(sizes) if x.array is not None and not (0 in sizes and -1 in sizes) else None
        allow_zero = 1 if 0 in sizes else None
        return reshaped or self.node("Reshape", x, self.ints(sizes, "shape"), allowzero=allow_zero)

    def unsqueeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return `x` with new axes of size 1 at the positions `axes`, counted in the result."""
        return self.node("Unsqueeze", x, self.ints(axes, "axes")) if axes else x

    def squeeze(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return `x` without those of its axes that are in `axes`, which must have size 1."""
        return self.node("Squeeze", x, self.ints(axes, "axes")) if axes else x

    def reduce(self, kind: str, x: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """Return `x` reduced by the ONNX operator `kind`, such as ReduceSum, over `axes`; an empty list means all axes.

        With `keep`, reduced axes have size 1 in the result; otherwise they are removed.
        """
        if self.opset >= 18 or kind == "ReduceSum":
            numbers = self.ints(axes, "axes") if axes else None
            return self.node(kind, x, numbers, keepdims=int(keep))
        return self.node(kind, x, axes=list(axes) or None, keepdims=int(keep))

    def slice(
        self,
        x: Tensor,
        starts: Sequence[int],
        ends: Sequence[int],
        axes: Sequence[int],
        steps: Sequence[int] | None = None,
    ) -> Tensor:
        """Return the slice of `x` from `starts` to `ends` along `axes`, by default with steps of 1."""
        if not axes:
            return x
        numbers = [self.ints(bounds, "slice") for bounds in (starts, ends, axes)]
        return self.node("Slice", x, *numbers, None if steps is None else self.ints(steps, "slice"))

    def concat(self, parts: Sequence[Tensor], axis: int) -> Tensor:
        """Return the tensors `parts` concatenated along an axis."""
        return parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=axis)

    def clip(self, x: Tensor, low: float | None, high: float | None) -> Tensor:
        """Return `x` clipped to the range from `low` to `high`; None stands for no bound."""
        bound_tensors = [None if bound is None else self.like(bound, x) for bound in (low, high)]
        if low is None and high is None:
            return x
        if x.dtype is DataType.INT64 and max(abs(low or 0), abs(high or 0)) > _SAFE:
            x = x if bound_tensors[0] is None else self.node("Max", x, bound_tensors[0])
            return x if bound_tensors[1] is None else self.node("Min", x, bound_tensors[1])
        return self.node("Clip", x, *bound_tensors)

    @property
    def arithmetic(self) -> int:
        """The number of nodes in this draft that compute something, instead of moving or converting elements."""
        return sum(node.kind not in _MOVING for node in self._nodes)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, results: Sequence[Tensor], names: Sequence[str]) -> list[Tensor]:
        """Add the nodes of the layer to the sheet, and return the results under their final names.

        `names` are the requested names of the results. A result that no node of this layer computes, such as an operand
        that is passed on, has its own name.
        """
        makers = {name: node for node in self._nodes for name in node.outputs}
        final_names: dict[str, str] = {}
        for result, name in zip(results, names, strict=True):
            if result.array is None and result.name in makers and result.name not in final_names:
                final_names[result.name] = name
        self._name_nodes({makers[name].outputs[0] for name in final_names})
        for node in self._nodes:
            node.rename(lambda name: final_names.get(name, name))
        self.sheet.nodes += self._nodes
        self.sheet.domains |= {node.domain for node in self._nodes if node.domain}
        return [
            replace(tensor, name=final_names.get(tensor.name, tensor.name)) if tensor.array is None else tensor
            for tensor in results
        ]

    def _name_nodes(self, last_outputs: set[str]) -> None:
        for node in self._nodes:
            node_name = self.layer.name if node.outputs[0] in last_outputs else f"{self.layer.name}/{node.kind}"
            node.name, node.source = self.sheet.node_names.free(node_name), self.layer.source


def fits(x: Tensor, *numbers: float) -> bool:
    """Return True if `numbers` can be attributes of an operator on `x` without loss of precision.

    Attributes are float32, so that this may be False if `x` is float64.
    """
    return x.dtype is not DataType.FLOAT64 or all(float(np.float32(number)) == number for number in numbers)


def _converted(array: Array, dtype: DataType) -> Array:
    with np.errstate(all="ignore"):
        wide_array = array.astype(np.int64) if DataType.of(array.dtype).is_integer else array
        converted: Array = wide_array.astype(dtype.numpy)
    return converted
