"""All cases of operators of ONNX Runtime's own domain."""

from __future__ import annotations

from tests.frontends.onnx.contrib import activations, attention_kinds, grouped_queries

CASES = [
    *activations.CASES,
    *attention_kinds.CASES,
    *grouped_queries.CASES,
from tests.frontends.onnx.contrib import activations, few_bits, normalizations, products

CASES = [
    *activations.CASES,
    *few_bits.CASES,
    *normalizations.CASES,
    *products.CASES,
]
