"""Cases of embeddings with a layer normalization."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, integers, normal, whole

RESULTS = (np.float32, np.int32)
IDS, SEGMENTS = fed(integers((2, 3), np.int32)), fed(integers((2, 3), np.int32, high=1))
MASK = fed([[1, 0, 1], [2, 1, 0]], np.int32)


def tables(rows: int = 5) -> list[Operand]:
    return [fixed(normal(shape, seed=n)) for n, shape in enumerate(((10, 8), (rows, 8), (2, 8), (8,), (8,)))]


def embedded(label: str, *operands: Operand | None, attributes: dict | None = None) -> Case:
    return Case("EmbedLayerNormalization", label, list(operands), RESULTS, attributes or {})


def floats() -> Iterator[Case]:
    words, positions, segments, gamma, beta = tables()
    every = (IDS, SEGMENTS, words, positions, segments, gamma, beta)
    yield from forms(embedded("plain", *every))
    yield replace(embedded("sum", *every), outputs=(*RESULTS, np.float32))
    yield embedded("epsilon", *every, attributes={"epsilon": 0.5})
    yield embedded("without segments", IDS, None, words, positions, None, gamma, beta)
    yield embedded("without segment_ids", IDS, None, words, positions, segments, gamma, beta)
    yield embedded("without a table of segments", IDS, SEGMENTS, words, positions, None, gamma, beta)
    yield embedded("mask", *every, MASK)
    yield embedded("position_ids", *every, None, fed([[2, 0, 4], [1, 1, 3]], np.int32))
    yield embedded("common position_ids", *every, None, fed([[2, 0, 4]], np.int32))
    yield embedded("index out of range", fed(IDS.array + 9), *every[1:])
    yield embedded("index below 0", fed(IDS.array - 9), *every[1:])
    yield embedded("more tokens than positions", IDS, SEGMENTS, words, *tables(2)[1:])


def integers_of_8_bits() -> Iterator[Case]:
    names = ((10, 8), (5, 8), (2, 8), (8,), (8,))
    for dtype in (np.uint8, np.int8):
        words, positions, segments, gamma, beta = (fixed(whole(shape, dtype, n)) for n, shape in enumerate(names))
        scales = [fixed(0.01 * (n + 1), np.float32) for n in range(5)]
        points = [fixed(n * 9 + (100 if dtype is np.uint8 else 0), dtype) for n in range(5)]
        every = [IDS, SEGMENTS, words, positions, segments, gamma, beta, None, *scales, *points]
        case = Case("QEmbedLayerNormalization", np.dtype(dtype).name, every, RESULTS, tolerance=5e-5)
        yield from forms(case)
        masked = [*every[:7], MASK, *every[8:]]
        yield replace(case, label=f"{case.label}, mask", inputs=masked)
        absent = [None if n in (1, 4, 10, 15) else operand for n, operand in enumerate(every)]
        yield replace(case, label=f"{case.label}, without segments", inputs=absent)
        yield replace(case, label=f"{case.label}, without segment_ids", inputs=[every[0], None, *every[2:]])


CASES = [*floats(), *integers_of_8_bits()]
