"""The operands of a layer that is written, as the drafts of all formats see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from interposer.core.types import Dim, TensorInfo
from interposer.ir.graph import Layer
from interposer.writers.refusals import refuse

__all__ = ["Operands"]

TensorT = TypeVar("TensorT")
"""The tensors of one format."""


class Operands(Generic[TensorT]):
    """The operands of a layer that is being written, as tensors of the format, and the infos of its inputs and outputs.

    `infos` are those of the inputs, and `results` those of the outputs. It is the base of the formats' drafts.
    """

    def __init__(self, layer: Layer, operands: Sequence[TensorT | None]) -> None:
        self.layer = layer
        self.infos: tuple[TensorInfo | None, ...] = layer.input_infos
        self.results: tuple[TensorInfo, ...] = layer.output_infos
        self._operands = tuple(operands)

    def optional(self, index: int) -> TensorT | None:
        """Return operand `index` of the layer as a tensor of the format, or None if it is absent."""
        return self._operands[index] if index < len(self._operands) else None

    def operand(self, index: int) -> TensorT:
        """Return operand `index` of the layer, which must be present, as a tensor of the format."""
        tensor = self.optional(index)
        assert tensor is not None, "violations() comes first"
        return tensor

    def tensors(self) -> list[TensorT]:
        """Return all operands of the layer, all of which must be present, as tensors of the format."""
        return [self.operand(index) for index in range(len(self._operands))]

    def info(self, index: int) -> TensorInfo:
        """Return the info of operand `index`, which must be present."""
        info = self.infos[index]
        assert info is not None, "violations() comes first"
        return info

    @property
    def result(self) -> TensorInfo:
        """The info of the layer's first result."""
        return self.results[0]

    @property
    def is_quantized(self) -> bool:
        """True if any operand or result of the layer is quantized."""
        return any(info is not None and info.is_quantized for info in (*self.infos, *self.results))

    @property
    def keeps_scales(self) -> bool:
        """True if all quantized operands have one quantization, and the results have the one that follows from it."""
        quantizations = {info.quantization for info in self.infos if info is not None and info.is_quantized}
        inferred_and_results = zip(self.layer.op.infer_infos(*self.infos), self.results, strict=False)
        return len(quantizations) <= 1 and all(
            expected is None or expected.quantization == actual.quantization
            for expected, actual in inferred_and_results
        )

    @property
    def rank(self) -> int:
        """The rank of the first operand."""
        return self.info(0).rank

    def known(self, size: int, title: str) -> int:
        """Return a size; refuse the layer if it is an unknown dimension. `title` names the size in the message."""
        if isinstance(size, Dim):
            refuse(f"the {title} is not known")
        return size
