"""Layer support: which layers the backend can run."""

from __future__ import annotations

from interposer.backend import LayerSupport, Support
from interposer.ir.graph import Layer
from interposer.ops import Addition
from interposer.types import DataType


class CustomLayerSupport(LayerSupport):
    """Supports additions of float32 tensors; a refusal has reasons, which users read."""

    def is_layer_supported(self, layer: Layer) -> Support:
        """Return whether the backend can run one layer, whose tensor infos are known."""
        if not isinstance(layer.op, Addition):
            return Support.no(f"{layer.kind} is not Addition")
        names = [layer.op.operand_name(index) for index in range(len(layer.inputs))]
        wrong = [
            f"{name} is {info.dtype}; only float32 can be added"
            for name, info in zip(names, layer.input_infos, strict=True)
            if info is not None and info.dtype is not DataType.FLOAT32
        ]
        return Support.of(wrong)
