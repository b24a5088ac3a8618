"""All cases of operators of ONNX Runtime's own domain."""

from __future__ import annotations

from tests.frontends.onnx.contrib import activations

CASES = [
    *activations.CASES,
]
