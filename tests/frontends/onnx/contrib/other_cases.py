"""All cases of operators other than attention."""

from __future__ import annotations

from tests.frontends.onnx.contrib import (
    activations,
    arrays,
    few_bits,
    images,
    learners,
    normalizations,
    products,
    quantized,
)

CASES = [
    *activations.CASES,
    *arrays.CASES,
    *few_bits.CASES,
    *images.CASES,
    *learners.CASES,
    *normalizations.CASES,
    *products.CASES,
    *quantized.CASES,
]
