"""All cases of single operators."""

from __future__ import annotations

from tests.frontends.tflite.cases import complex, draws, lookups, sliding, stablehlo

CASES = [*complex.CASES, *draws.CASES, *lookups.CASES, *sliding.CASES, *stablehlo.CASES]
