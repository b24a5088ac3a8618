"""All cases of operators other than attention."""

from __future__ import annotations

from tests.frontends.onnx.contrib import activations, few_bits, images, normalizations, products, quantized

CASES = [
    *activations.CASES,
    *few_bits.CASES,
    *images.CASES,
    *normalizations.CASES,
    *products.CASES,
    *quantized.CASES,
]
