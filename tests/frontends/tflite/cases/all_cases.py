"""All cases of single operators."""

from __future__ import annotations

from tests.frontends.tflite.cases import complex, lookups

CASES = [*complex.CASES, *lookups.CASES]
