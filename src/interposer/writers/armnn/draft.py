"""One layer of the network as its writer sees it, and the layers of Arm NN that are written for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interposer.core.types import Array, DataType, Quantization, TensorInfo
from interposer.ir.graph import Layer
from interposer.writers.armnn.releases import SINCE, since_type
from interposer.writers.armnn.sheet import Sheet, Step, Tensor
from interposer.writers.armnn.types import dimensions, problem, type_name
from interposer.writers.operands import Operands
from interposer.writers.refusals import refuse

__all__ = ["Draft"]


class Draft(Operands[Tensor]):
    """Writes one layer: it has the layer's operands as tensors, and collects the layers that writer functions add.

    `results` are the infos of the layer's outputs. The layers become part of the file in `finish`.

    Raises from all methods:
        RefusedError: the format cannot express the requested layer or value.
    """

    def __init__(self, sheet: Sheet, layer: Layer, operands: Sequence[Tensor | None]) -> None:
        super().__init__(layer, operands)
        self.sheet = sheet
        self.release = sheet.release
        self._steps: list[Step] = []

    # --- constants ----------------------------------------------------------------------------------------------------

    def constant(self, values: Any, dtype: DataType, name: str = "constant", q: Quantization | None = None) -> Tensor:
        """Return a constant of type `dtype` with the quantization `q`; `name` is appended to the layer's name."""
        array = np.ascontiguousarray(np.asarray(values).astype(dtype.numpy)).reshape(np.shape(values))
        return Tensor(TensorInfo(array.shape, dtype, q), array, f"{self.layer.name}/{name}")

    def array(self, index: int, title: str) -> Array:
        """Return the value of an operand that must be a constant; `title` names it in the message."""
        array = self.operand(index).array
        return (
            array
            if array is not None
            else refuse(f"the operand {title} is computed while running; Arm NN has it as a constant")
        )

    def stored(self, tensor: Tensor, title: str) -> Tensor:
        """Return a tensor that is stored as a part of a layer, so that it must be a constant; `title` is its name."""
        return (
            tensor
            if tensor.array is not None
            else refuse(f"the operand {title} is computed while running; Arm NN has it as a constant")
        )

    # --- layers -------------------------------------------------------------------------------------------------------

    def final(self, kind: str, *inputs: Tensor, **fields: Any) -> Tensor:
        """Add the layer of Arm NN that computes the layer's only result, and return it; `fields` are those of `nodes`.

        The Arm NN layer has the name of the layer.
        """
        return self.finals(kind, *inputs, **fields)[0]

    def finals(self, kind: str, *inputs: Tensor, **fields: Any) -> list[Tensor]:
        """Add the layer of Arm NN that computes all results of the layer, and return them."""
        return self.nodes(kind, *inputs, giving=self.results, name=self.layer.name, **fields)

    def node(self, kind: str, *inputs: Tensor, giving: TensorInfo, **fields: Any) -> Tensor:
        """Add a layer of Arm NN, and return its single result, whose info is `giving`."""
        return self.nodes(kind, *inputs, giving=[giving], **fields)[0]

    def nodes(
        self,
        kind: str,
        *inputs: Tensor,
        giving: Sequence[TensorInfo],
        name: str = "",
        descriptor: Mapping[str, Any] | None = None,
        constants: Mapping[str, Tensor] | None = None,
        parameters: Mapping[str, Tensor] | None = None,
    ) -> list[Tensor]:
        """Add a layer of Arm NN, and return its results, whose infos are `giving`.

        Args:
            kind: the kind of layer, such as ``Softmax``.
            inputs: the tensors that its input slots read.
            giving: the infos of its results.
            name: its name; by default the layer's name with the kind appended.
            descriptor: the fields of its descriptor; vectors are sequences of numbers.
            constants: the constants of its table by field.
            parameters: the constants of a recurrent layer by field.
        """
        self.need(SINCE.get(kind, "20.08"), f"the layer {kind}")
        tensors = [*inputs, *(constants or {}).values(), *(parameters or {}).values()]
        for info in [*(tensor.info for tensor in tensors), *giving]:
            self._check(info)
        outputs = [Tensor(TensorInfo(dimensions(info), info.dtype, info.quantization)) for info in giving]
        step = Step(
            kind, name or f"{self.layer.name}/{kind}", list(inputs), outputs, descriptor, constants or {}, parameters
        )
        self._steps.append(step)
        return outputs

    def need(self, since: str, title: str) -> None:
        """Refuse the layer if the file is for a release before `since`; `title` names what that release added."""
        if not self.release.has(since):
            refuse(f"{title} exists since Arm NN {since}, and the file is for {self.release.target}")
        self.release.use(since)

    def _check(self, info: TensorInfo) -> None:
        reason = problem(info)
        if reason is not None:
            refuse(reason)
        name = type_name(info)
        self.need(since_type(name), f"the type {name}")

    # --- what every family needs --------------------------------------------------------------------------------------

    def reshape(self, x: Tensor, shape: Sequence[int], *, final: bool = False) -> Tensor:
        """Return `x` with another shape; a constant is reshaped without a layer.

        With `final`, the result is that of the layer, and has its info.
        """
        shape = tuple(shape) or (1,)
        if final:
            return self.final("Reshape", x, descriptor={"targetShape": dimensions(self.result)})
        if dimensions(x.info) == shape:
            return x
        q = x.info.quantization
        if q is not None and q.per_axis:
            refuse("its shape changes, but it has several scales")
        info = TensorInfo(shape, x.dtype, q)
        if x.array is not None:
            return Tensor(info, x.array.reshape(shape), x.name)
        return self.node("Reshape", x, giving=info, descriptor={"targetShape": shape})

    def transpose(self, x: Tensor, order: Sequence[int], *, final: bool = False) -> Tensor:
        """Return `x` with its axes in another order; with `final`, the result is that of the layer."""
        if final:
            return self.final("Transpose", x, descriptor={"dimMappings": order})
        shape = dimensions(x.info)
        if x.array is not None:
            array = np.ascontiguousarray(x.array.reshape(shape).transpose(order))
            return Tensor(TensorInfo(array.shape, x.dtype, x.info.quantization), array, x.name)
        info = TensorInfo([shape[axis] for axis in order], x.dtype, x.info.quantization)
        return self.node("Transpose", x, giving=info, descriptor={"dimMappings": order})

    def binary(self, kind: str, a: Tensor, b: Tensor, *, giving: TensorInfo | None = None) -> Tensor:
        """Return the result of a layer such as ``Addition`` on two tensors, the smaller of which gets more axes.

        Without `giving`, it is the layer's result.
        """
        first, second = self.aligned(a, b)
        if giving is None:
            return self.final(kind, first, second)
        return self.node(kind, first, second, giving=giving)

    def aligned(self, *tensors: Tensor) -> list[Tensor]:
        """Return tensors with as many axes as the one that has most, by axes of size 1 at the front."""
        rank = max(len(dimensions(tensor.info)) for tensor in tensors)
        shapes = [dimensions(tensor.info) for tensor in tensors]
        return [
            self.reshape(tensor, (1,) * (rank - len(shape)) + shape)
            for tensor, shape in zip(tensors, shapes, strict=True)
        ]

    def number(self, number: float, like: Tensor, name: str = "constant") -> Tensor:
        """Return a constant number of the type of a tensor that is not quantized, with as many axes."""
        return self.constant(np.full((1,) * len(dimensions(like.info)), number), like.dtype, name)

    def activation(
        self, function: int, x: Tensor, a: float = 0.0, b: float = 0.0, *, giving: TensorInfo | None = None
    ) -> Tensor:
        """Return the result of the activation function with this number; without `giving`, it is the layer's result."""
        descriptor = {"activationFunction": function, "a": a, "b": b}
        if giving is None:
            return self.final("Activation", x, descriptor=descriptor)
        return self.node("Activation", x, giving=giving, descriptor=descriptor)

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Add the layers that were written to the sheet."""
        self.sheet.steps += self._steps
