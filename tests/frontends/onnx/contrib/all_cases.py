"""All cases of operators of ONNX Runtime's own domain."""

from __future__ import annotations

from tests.frontends.onnx.contrib import attention_kinds, grouped_queries, other_cases

CASES = [
    *attention_kinds.CASES,
    *grouped_queries.CASES,
    *other_cases.CASES,
]
