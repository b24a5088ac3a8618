"""Operators of ONNX Runtime that are refused, each with the reason and with what to do instead."""

from __future__ import annotations

from typing import Final

from interposer.frontends.onnx.onnx_converters import Refusal, operator
from interposer.frontends.onnx.operator_names import MICROSOFT

__all__ = ["REFUSED"]

_SEARCH: Final = (
    "it runs a decoder until a text is complete; load the decoder alone, and choose each token in a program"
)
_HASHES: Final = "it computes hashes of integers; compute them before the model is called"
_TEXTS: Final = "it divides or hashes texts; compute its result before the model is called"
_GPU: Final = "ONNX Runtime has it for GPUs only; optimize the model for the CPU"
_PAGES: Final = "its cache is divided into pages; export the model with GroupQueryAttention"
_SPARSE: Final = "it attends to selected blocks of keys; export the model with GroupQueryAttention"

REFUSED: Final = {
    "AttnLSTM": "its LSTM attends to another sequence; export the steps of the decoder as LSTM and Attention",
    "BifurcationDetector": _SEARCH,
    "BiasDropout": _GPU,
    "BitmaskBiasDropout": _GPU,
    "BitmaskDropout": _GPU,
    "ComplexMul": _GPU,
    "ComplexMulConj": _GPU,
    "CropAndResize": "it samples boxes of images; export the model with RoiAlign",
    "DequantizeBFP": _GPU,
    "DequantizeWithOrder": _GPU,
    "DynamicTimeWarping": "the length of its result depends on a path through the data; compute it after the model",
    "EPContext": "it holds a network that was compiled for another engine; load the model from which it was made",
    "GemmFastGelu": _GPU,
    "GemmFloat8": _GPU,
    "Irfft": _GPU,
    "IsAllFinite": _GPU,
    "MatMulBlockQuantizedFp4Weight": _GPU,
    "MatMulBlockQuantizedFp8Weight": _GPU,
    "MatMulNBitsMlp": _GPU,
    "MatMulNBitsQkv": _GPU,
    "MaxpoolWithMask": "its windows end at elements of a mask; multiply with the mask, and use MaxPool",
    "MurmurHash3": _TEXTS,
    "NGramHashMapping": _HASHES,
    "NGramRepeatBlock": _SEARCH,
    "QOrderedGelu": _GPU,
    "QOrderedLayerNormalization": _GPU,
    "QOrderedMatMul": _GPU,
    "QuantizeBFP": _GPU,
    "QuantizeWithOrder": _GPU,
    "Rfft": _GPU,
    "Snpe": "it holds a network that was compiled for another engine; load the model from which it was made",
    "SparseToDenseMatMul": "its first operand is a sparse tensor; export the model with dense tensors",
    "Tokenizer": _TEXTS,
    "TorchEmbedding": _GPU,
    "VarlenNGramHashMapping": _HASHES,
    "WordConvEmbedding": "it convolves the characters of words; export the model with Gather, Conv and ReduceMax",
    "BeamSearch": _SEARCH,
    "DecoderAttention": _GPU,
    "DecoderMaskedSelfAttention": _GPU,
    "DynamicSparseAttention": _SPARSE,
    "GatedDeltaNet": _GPU,
    "GatedRelativePositionBias": _GPU,
    "GemmaRotaryEmbedding": _GPU,
    "GreedySearch": _SEARCH,
    "LongformerAttention": _GPU,
    "PackedAttention": _GPU,
    "PackedMultiHeadAttention": _GPU,
    "PackedSparseAttentionIndexer": _SPARSE,
    "PagedAttention": _PAGES,
    "QOrderedAttention": _GPU,
    "QOrderedLongformerAttention": _GPU,
    "RelativePositionBias": _GPU,
    "RemovePadding": _GPU,
    "RestorePadding": _GPU,
    "Sampling": _SEARCH,
    "SparseAttention": _SPARSE,
    "SparseAttentionIndexer": _SPARSE,
    "SparsePagedAttention": _PAGES,
    "VarlenCausalConvWithState": _GPU,
    "WhisperBeamSearch": _SEARCH,
}
"""The reason for each operator that is refused."""


for _name, _reason in REFUSED.items():
    operator(_name, domain=MICROSOFT)(Refusal(_reason))
