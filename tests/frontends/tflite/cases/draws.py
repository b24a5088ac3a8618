"""Cases of random numbers and of the selection of boxes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.tflite.cases.case import Case, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T

SEEDS = [(1, 0), (0, 7), (123456789012345, -5), (-3, 2**40 + 1)]


def fills() -> Iterator[Case]:
    for seed, seed2 in SEEDS:
        options = ("RandomOptions", {"seed": seed, "seed2": seed2})
        for shape in ((2, 3), (7,), (0, 3), (4, 4, 5), ()):
            for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
                yield case(name, f"{seed} {seed2} {shape}", [fixed(np.int32(shape), "int32")], [T(shape)], options)
        for count in (1, 5, 8):
            for dtype in ("int32", "int64"):
                inputs = [fed(numbers((3, 6), high=1, low=-2)), fixed(count)]
                label = f"{seed} {seed2} {count} {dtype}"
                yield case("MULTINOMIAL", label, inputs, [T((3, count), dtype)], options)
    options = ("RandomOptions", {"seed": 1})
    uniform = [[0.81269646, 0.07857466, 0.8916855]]
    yield case("RANDOM_UNIFORM", "worked", [fixed([3])], [T((3,))], options, expected=uniform)
    expected = [[0.3052047, 0.5671378]]
    yield case("RANDOM_STANDARD_NORMAL", "worked", [fixed([2])], [T((2,))], options, expected=expected)
    logits = fed([[-np.inf, 0.0, -np.inf]], "float32")
    yield case("MULTINOMIAL", "worked", [logits, fixed(2)], [T((1, 2), "int64")], options, expected=[[[1, 1]]])


def suppressions() -> Iterator[Case]:
    for seed in range(60):
        state = np.random.RandomState(seed)
        count, limit = int(state.randint(1, 40)), int(state.randint(0, 15))
        corner = state.rand(count, 2) * 10
        turned = state.choice([0, 1, -1], (count, 1), p=[0.1, 0.7, 0.2])
        boxes = fed(np.concatenate([corner, corner + state.rand(count, 2) * 4 * turned], 1), "float32")
        scores = fed(state.rand(count) if seed % 2 else state.randint(0, 5, count) / 4, "float32")
        overlap = fixed(state.choice([0.1, 0.3, 0.5, 0.9, 0.0, 1.0]), "float32")
        least = fixed(state.choice([0, -1e9, 0.3]), "float32")
        sigma = fixed(state.choice([0, 0.5, 0.1]), "float32")
        most = fixed(limit) if seed % 4 else fed(limit, "int32")
        inputs = [boxes, scores, most, overlap, least]
        indices, kept, number = T((limit,), "int32"), T((limit,)), T((), "int32")
        yield case("NON_MAX_SUPPRESSION_V4", f"seed {seed}", inputs, [indices, number])
        yield case("NON_MAX_SUPPRESSION_V5", f"seed {seed}", [*inputs, sigma], [indices, kept, number])
    boxes = fed([[0, 0, 1, 1], [0, 0, 1, 0.75], [0, 2, 1, 3]], "float32")
    inputs = [boxes, fed([0.5, 0.75, 0.25], "float32"), fixed(3), fixed(0.5, "float32"), fixed(0.0, "float32")]
    indices, kept, number = T((3,), "int32"), T((3,)), T((), "int32")
    yield case("NON_MAX_SUPPRESSION_V4", "worked", inputs, [indices, number], expected=[[1, 2, 0], 2])
    inputs, results = [*inputs, fixed(0.0, "float32")], [[1, 2, 0], [0.75, 0.25, 0], 2]
    yield case("NON_MAX_SUPPRESSION_V5", "worked", inputs, [indices, kept, number], expected=results)


CASES = [*fills(), *suppressions()]
