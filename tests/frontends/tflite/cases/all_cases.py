"""All cases of single operators."""

from __future__ import annotations

from tests.frontends.tflite.cases import complex, draws, lookups, movement, quantized, sliding, stablehlo, types

CASES = [
    *complex.CASES,
    *draws.CASES,
    *lookups.CASES,
    *movement.CASES,
    *quantized.CASES,
    *sliding.CASES,
    *stablehlo.CASES,
    *types.CASES,
]
