"""Clean-up of all operators: fuse activations, and remove unused operators."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.writers.tflite.sheet import Sheet, Step, Tensor

__all__ = ["clean"]

_FUSED: Final = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
_FUSING: Final = frozenset(
    {
        "ADD", "AVERAGE_POOL_2D", "CONV_2D", "CONV_3D", "DEPTHWISE_CONV_2D", "DIV", "FULLY_CONNECTED", "MAX_POOL_2D",
        "MUL", "SUB",
    }
)  # fmt: skip
_FUSIBLE_TYPES: Final = frozenset({DataType.FLOAT32, DataType.INT8, DataType.UINT8, DataType.INT16})


def clean(sheet: Sheet) -> None:
    """Fuse activations, and remove operators that the outputs do not depend on."""
    drop_dead(sheet)
    _fuse_activations(sheet)


def drop_dead(sheet: Sheet) -> None:
    """Remove the operators of a sheet that its outputs do not depend on."""
    needed: set[Tensor | None] = set(sheet.outputs)
    cached = []
    for step in reversed(sheet.steps):
        if needed.intersection(step.outputs):
            needed.update(step.inputs)
            cached.append(step)
    sheet.steps = cached[::-1]


def _fuse_activations(sheet: Sheet) -> None:
    """Fuse each activation operator of a sheet into the operator before it, as the option fused_activation_function.

    This requires that nothing else uses the result of the operator before it.
    """
    uses: dict[Tensor | None, int] = dict.fromkeys(sheet.outputs, 1)
    for item in (element for step in sheet.steps for element in step.inputs):
        uses[item] = uses.get(item, 0) + 1
    makers = {step.outputs[0]: step for step in sheet.steps if step.kind in _FUSING}
    cached = []
    for step in sheet.steps:
        maker = makers.get(step.inputs[0]) if step.kind in _FUSED and step.inputs[0] else None
        if maker is None or uses[maker.outputs[0]] > 1 or not _is_fusible(maker, step):
            cached.append(step)
            continue
        maker.options["fused_activation_function"] = _FUSED[step.kind]
        maker.outputs = step.outputs
    sheet.steps = cached


def _is_fusible(maker: Step, activation: Step) -> bool:
    before, after = maker.outputs[0].info, activation.outputs[0].info
    if maker.options.get("fused_activation_function") or after.dtype not in _FUSIBLE_TYPES:
        return False
    return before.quantization == after.quantization and before.is_quantized == (not after.dtype.is_float)
