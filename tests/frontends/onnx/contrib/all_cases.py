"""All cases of operators of ONNX Runtime's own domain."""

from __future__ import annotations

from tests.frontends.onnx.contrib import attention_kinds, embeddings, grouped_queries, other_cases, sequence_models

CASES = [
    *attention_kinds.CASES,
    *embeddings.CASES,
    *grouped_queries.CASES,
    *other_cases.CASES,
    *sequence_models.CASES,
]
