"""The lowest version of a TFLite operator that has the types and options in use; older runtimes refuse the file."""

from __future__ import annotations

from typing import Final

from interposer.core.types import DataType
from interposer.writers.tflite.sheet import Operator

__all__ = ["version_of"]

_SINCE_2: Final = frozenset(
    {
        "ADD", "ARG_MAX", "ARG_MIN", "AVERAGE_POOL_2D", "BATCH_TO_SPACE_ND", "CONCATENATION", "DEQUANTIZE", "EQUAL",
        "GATHER", "GREATER", "GREATER_EQUAL", "L2_NORMALIZATION", "LESS", "LESS_EQUAL", "LOGISTIC", "LOG_SOFTMAX",
        "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM", "MUL", "NOT_EQUAL", "PACK", "PAD", "PADV2", "REDUCE_MAX",
        "REDUCE_MIN", "RELU", "RELU6", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SLICE", "SOFTMAX",
        "SPACE_TO_BATCH_ND", "SPACE_TO_DEPTH", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "SUB", "SUM", "TANH", "TOPK_V2",
        "TRANSPOSE", "TRANSPOSE_CONV",
    }
)  # fmt: skip
"""The operators that accept int8 since version 2."""
_OF_INT8: Final = {"BROADCAST_TO": 3, "CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4}
_OF_INT16: Final = {
    "AVERAGE_POOL_2D": 3,
    "BROADCAST_TO": 3,
    "CONCATENATION": 3,
    "CONV_2D": 4,
    "DEPTHWISE_CONV_2D": 5,
    "FULLY_CONNECTED": 7,
    "LOGISTIC": 3,
    "MAX_POOL_2D": 3,
    "SOFTMAX": 3,
    "TANH": 3,
}
_OF_INT4: Final = {"CONV_2D": 7, "DEPTHWISE_CONV_2D": 7, "FULLY_CONNECTED": 10}
_OTHERWISE: Final = {"BROADCAST_TO": 2}


_RECURRENT: Final = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": (2, 3),
    "BIDIRECTIONAL_SEQUENCE_RNN": (2, 3),
    "LSTM": (3, 4),
    "RNN": (2, 3),
    "SVDF": (2, 4),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (2, 3),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (2, 3),
}
"""The versions of recurrent operators of floats with int8 weights, without and with a zero point of activations."""
_SVDF_OF_INTEGERS: Final = 3


def _version_of_recurrent(operator: Operator) -> int:
    if operator.options.get("kernel_type"):
        return 2
    x, weights = operator.inputs[0], next(filter(None, operator.inputs[1:]))
    if x is not None and x.info.is_quantized:
        return _SVDF_OF_INTEGERS if operator.kind == "SVDF" else 1
    symmetric_version, asymmetric_version = _RECURRENT[operator.kind]
    is_asymmetric = operator.options.get("asymmetric_quantize_inputs")
    return 1 if not weights.info.is_quantized else asymmetric_version if is_asymmetric else symmetric_version


def version_of(operator: Operator) -> int:
    """Return the lowest version of the operator that has the types and options which the operator uses."""
    if operator.kind in _RECURRENT:
        return _version_of_recurrent(operator)
    types = {tensor.dtype for tensor in operator.inputs if tensor is not None}
    version = _OTHERWISE.get(operator.kind, 1)
    if operator.kind == "FULLY_CONNECTED" and operator.options.get("keep_num_dims"):
        version = 5
    if operator.kind == "DEPTHWISE_CONV_2D" and max(operator.options[f"dilation_{axis}_factor"] for axis in "hw") > 1:
        version = 2
    if DataType.INT8 in types:
        version = max(version, _OF_INT8.get(operator.kind, 1 + (operator.kind in _SINCE_2)))
    if DataType.INT16 in types:
        version = max(version, _OF_INT16.get(operator.kind, 1))
    return max(version, _OF_INT4.get(operator.kind, 1)) if DataType.INT4 in types else version
