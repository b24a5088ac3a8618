"""Clean-up of all operators: fuse activations, and remove unused operators."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.writers.emission import live
from interposer.writers.tflite.sheet import Operator, Sheet, Tensor

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
    """Fuse activations, and remove operators that neither the outputs nor the variables depend on."""
    effects = [operator for operator in sheet.operators if operator.has_effect]
    needed = [tensor for operator in effects for tensor in (*operator.inputs, *operator.outputs)]
    kept_operators = {*live(sheet.operators, [*sheet.outputs, *needed]), *effects}
    sheet.operators = [operator for operator in sheet.operators if operator in kept_operators]
    _fuse_activations(sheet)


def _fuse_activations(sheet: Sheet) -> None:
    """Fuse each activation operator of a sheet into the operator before it, as the option fused_activation_function.

    This requires that nothing else uses the result of the operator before it.
    """
    num_uses: dict[Tensor | None, int] = dict.fromkeys(sheet.outputs, 1)
    for tensor in (operand for operator in sheet.operators for operand in operator.inputs):
        num_uses[tensor] = num_uses.get(tensor, 0) + 1
    producers = {operator.outputs[0]: operator for operator in sheet.operators if operator.kind in _FUSING}
    kept_operators = []
    for operator in sheet.operators:
        producer = producers.get(operator.inputs[0]) if operator.kind in _FUSED and operator.inputs[0] else None
        if producer is None or num_uses[producer.outputs[0]] > 1 or not _is_fusible(producer, operator):
            kept_operators.append(operator)
            continue
        producer.options["fused_activation_function"] = _FUSED[operator.kind]
        producer.outputs = operator.outputs
    sheet.operators = kept_operators


def _is_fusible(producer: Operator, activation: Operator) -> bool:
    input_info, output_info = producer.outputs[0].info, activation.outputs[0].info
    if producer.options.get("fused_activation_function") or output_info.dtype not in _FUSIBLE_TYPES:
        return False
    return input_info.quantization == output_info.quantization and input_info.is_quantized == (
        not output_info.dtype.is_float
    )
