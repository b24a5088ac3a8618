"""All cases of single operators."""

from __future__ import annotations

from tests.frontends.tflite.cases import complex, draws, lookups, sliding

CASES = [*complex.CASES, *draws.CASES, *lookups.CASES, *sliding.CASES]
