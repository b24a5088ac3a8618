"""Operators of ONNX Runtime that are refused, each with the reason and with what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NoReturn

from interposer.frontends.onnx.node import Node
from interposer.frontends.onnx.onnx_converters import operator
from interposer.frontends.onnx.operator_names import MICROSOFT

__all__ = ["REFUSED"]

_SEARCH: Final = (
    "it runs a decoder until a text is complete; load the decoder alone, and choose each token in a program"
)
_GPU: Final = "ONNX Runtime has it for GPUs only; optimize the model for the CPU"
_PAGES: Final = "its cache is divided into pages; export the model with GroupQueryAttention"
_SPARSE: Final = "it attends to selected blocks of keys; export the model with GroupQueryAttention"

REFUSED: Final = {
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
    "QMoE": "the weights of its experts have few bits; use MoE",
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


def _refuser(reason: str) -> Callable[[Node], NoReturn]:
    def refuse(node: Node) -> NoReturn:
        node.unsupported(reason)

    return refuse


for _name, _reason in REFUSED.items():
    operator(_name, domain=MICROSOFT)(_refuser(_reason))
