"""The weights of recurrent layers: `LstmInputParams` and `QuantizedLstmInputParams`."""

from __future__ import annotations

from typing import Any

from pyarmnn._arguments import Kind
from pyarmnn._descriptor import Descriptor, Field
from pyarmnn._tensors import ConstTensor

__all__ = ["LstmInputParams", "QuantizedLstmInputParams"]


def _tensor_or_none(value: Any) -> ConstTensor | None:
    if value is not None and not isinstance(value, ConstTensor):
        raise TypeError
    return value


CONSTANT = Kind("armnn::ConstTensor const *", _tensor_or_none, "armnn::ConstTensor const *")


class LstmInputParams(Descriptor):
    """The weights of an LSTM layer as constant tensors; None is a tensor that is absent."""

    m_InputToInputWeights = Field(CONSTANT, None)
    m_InputToForgetWeights = Field(CONSTANT, None)
    m_InputToCellWeights = Field(CONSTANT, None)
    m_InputToOutputWeights = Field(CONSTANT, None)
    m_RecurrentToInputWeights = Field(CONSTANT, None)
    m_RecurrentToForgetWeights = Field(CONSTANT, None)
    m_RecurrentToCellWeights = Field(CONSTANT, None)
    m_RecurrentToOutputWeights = Field(CONSTANT, None)
    m_CellToInputWeights = Field(CONSTANT, None)
    m_CellToForgetWeights = Field(CONSTANT, None)
    m_CellToOutputWeights = Field(CONSTANT, None)
    m_InputGateBias = Field(CONSTANT, None)
    m_ForgetGateBias = Field(CONSTANT, None)
    m_CellBias = Field(CONSTANT, None)
    m_OutputGateBias = Field(CONSTANT, None)
    m_ProjectionWeights = Field(CONSTANT, None)
    m_ProjectionBias = Field(CONSTANT, None)
    m_InputLayerNormWeights = Field(CONSTANT, None)
    m_ForgetLayerNormWeights = Field(CONSTANT, None)
    m_CellLayerNormWeights = Field(CONSTANT, None)
    m_OutputLayerNormWeights = Field(CONSTANT, None)


class QuantizedLstmInputParams(Descriptor):
    """The weights and biases of a quantized LSTM layer as constant tensors; all are needed."""

    m_InputToInputWeights = Field(CONSTANT, None)
    m_InputToForgetWeights = Field(CONSTANT, None)
    m_InputToCellWeights = Field(CONSTANT, None)
    m_InputToOutputWeights = Field(CONSTANT, None)
    m_RecurrentToInputWeights = Field(CONSTANT, None)
    m_RecurrentToForgetWeights = Field(CONSTANT, None)
    m_RecurrentToCellWeights = Field(CONSTANT, None)
    m_RecurrentToOutputWeights = Field(CONSTANT, None)
    m_InputGateBias = Field(CONSTANT, None)
    m_ForgetGateBias = Field(CONSTANT, None)
    m_CellBias = Field(CONSTANT, None)
    m_OutputGateBias = Field(CONSTANT, None)
