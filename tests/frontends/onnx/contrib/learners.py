"""Cases of classical models of ai.onnx.ml, and of the rest of ONNX's own operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.frontends.onnx.contrib.case import Case, fed, fixed, forms, normal

ML = "ai.onnx.ml"


def _machine(counts: list[int], kernel: str, seed: int = 0) -> dict[str, Any]:
    random, total, classes = np.random.default_rng(seed), sum(counts), len(counts)
    lists = {
        "support_vectors": random.standard_normal(total * 3),
        "coefficients": random.standard_normal((classes - 1) * total),
        "rho": random.standard_normal(classes * (classes - 1) // 2),
    }
    more = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 2.0], "vectors_per_class": counts}
    return {name: array.astype(np.float32).tolist() for name, array in lists.items()} | more


def machines() -> Iterator[Case]:
    for counts in ([2, 3], [2, 1, 3], [1, 2, 2, 3]):
        for kernel in ("LINEAR", "POLY", "RBF", "SIGMOID"):
            for dtype in (np.float32, np.float64, np.int64):
                attributes = _machine(counts, kernel) | {"classlabels_ints": list(range(10, 10 + len(counts)))}
                x = fed((normal((6, 3)) * 2).astype(dtype))
                label = f"{counts} {kernel} {np.dtype(dtype)}"
                yield from forms(Case("SVMClassifier", label, [x], ["i8", "f4"], attributes, ML, tolerance=1e-3))
        texts = _machine(counts, "RBF") | {"classlabels_strings": [f"c{i}" for i in range(len(counts))]}
        operands = [fed(normal((6, 3)))]
        yield Case("SVMClassifier", f"{counts} strings", operands, [object, "f4"], texts, ML, tolerance=1e-3)
        texts = texts | {"post_transform": "LOGISTIC"}
        yield Case("SVMClassifier", f"{counts} LOGISTIC", operands, [object, "f4"], texts, ML, tolerance=1e-3)
        pairs = len(counts) * (len(counts) - 1) // 2
        texts = _machine(counts, "RBF") | {"classlabels_ints": list(range(len(counts)))}
        texts |= {"prob_a": [-0.5] * pairs, "prob_b": [0.1] * pairs}
        yield Case("SVMClassifier", f"{counts} probabilities", operands, ["i8", "f4"], texts, ML, tolerance=5e-3)


def mappers() -> Iterator[Case]:
    attributes = {"cats_strings": ["a", "b", "c"], "cats_int64s": [7, 3, 5]}
    for more in ({}, {"default_int64": 9, "default_string": "none"}):
        label = "default" if more else "no default"
        texts = fed(np.array([["a", "x"], ["c", "b"]], object))
        yield Case("CategoryMapper", f"strings {label}", [texts], ["i8"], attributes | more, ML)
        yield Case("CategoryMapper", f"integers {label}", [fed([[3, 4], [5, 7]])], [object], attributes | more, ML)


def regions() -> Iterator[Case]:
    boxes = [[0, 0, 0, 3, 3], [1, 1.4, 0.6, 6, 4], [0, 5, 5, 2, 2], [1, -2, -3, 20, 20], [0, 3, 3, 3, 3]]
    for scale in (1.0, 0.5):
        for shape in ([1, 1], [2, 3], [7, 7]):
            operands = [fed(normal((2, 3, 7, 8))), fixed(boxes, "f4")]
            attributes = {"pooled_shape": shape, "spatial_scale": scale}
            yield from forms(Case("MaxRoiPool", f"{scale} {shape}", operands, attributes=attributes, domain="ai.onnx"))


CASES = [*machines(), *mappers(), *regions()]
