"""All cases of operators other than attention."""

from __future__ import annotations

from tests.frontends.onnx.contrib import activations, few_bits, normalizations, products

CASES = [
    *activations.CASES,
    *few_bits.CASES,
    *normalizations.CASES,
    *products.CASES,
]
