"""Cases of complex numbers and Fourier transforms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.frontends.tflite.cases.case import Case, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T

C = "complex64"


def _complex(shape: tuple[int, ...], dtype: str = C) -> np.ndarray:
    return (numbers(shape) + 1j * numbers(shape, seed=1)).astype(dtype)


def selected_parts() -> Iterator[Case]:
    for dtype, part in ((C, "float32"), ("complex128", "float64")):
        x = _complex((2, 3), dtype)
        for name in ("REAL", "IMAG", "COMPLEX_ABS"):
            yield case(name, dtype, [fed(x)], [T((2, 3), part)])
            yield case(name, f"{dtype} constant", [fixed(x, dtype)], [T((2, 3), part)])
    for name, expected in (("REAL", 3.0), ("IMAG", -4.0), ("COMPLEX_ABS", 5.0)):
        yield case(name, "worked", [fed([3 - 4j], C)], [T((1,))], expected=[[expected]])


def moves() -> Iterator[Case]:
    x = fed(_complex((2, 3)))
    steps: list[tuple[str, tuple[int, ...], list[Any], Any]] = [
        ("RESHAPE", (3, 2), [fixed([3, -1])], None),
        ("TRANSPOSE", (3, 2), [fixed([1, 0])], None),
        ("EXPAND_DIMS", (2, 3, 1), [fixed(-1)], None),
        ("EXPAND_DIMS", (1, 2, 3), [fixed(0)], None),
        ("SLICE", (2, 2), [fixed([0, 1]), fixed([2, -1])], None),
        ("TILE", (2, 6), [fixed([1, 2])], None),
        ("STRIDED_SLICE", (2, 2), [fixed([0, 0]), fixed([2, 2]), fixed([1, 1])], ("StridedSliceOptions", {})),
        (
            "STRIDED_SLICE", (2,), [fixed([1, 0]), fixed([2, 2]), fixed([1, 1])],
            ("StridedSliceOptions", {"shrink_axis_mask": 1}),
        ),
        ("MUL", (2, 3), [fed(_complex((3,)))], ("MulOptions", {})),
    ]  # fmt: skip
    for name, shape, more, options in steps:
        yield case(name, f"complex {shape}", [x, *more], [T(shape, C)], options)
    one = fed(_complex((1, 2, 3)))
    yield case("SQUEEZE", "complex", [one], [T((2, 3), C)], ("SqueezeOptions", {}))
    for dtype in ("float32", "int64"):
        yield case("CAST", f"{dtype} to complex", [fed([2, -3], dtype)], [T((2,), C)], ("CastOptions", {}))
        yield case("CAST", f"complex to {dtype}", [x], [T((2, 3), dtype)], ("CastOptions", {}))


def transforms() -> Iterator[Case]:
    sizes = [((4, 8), (4, 8)), ((2, 4, 8), (4, 8)), ((4, 8), (2, 4)), ((3, 5), (4, 8)), ((1, 16), (1, 16)),
             ((4, 4), (1, 2)), ((2, 3, 4, 8), (8, 16)), ((4, 2), (4, 2))]  # fmt: skip
    for shape, lengths in sizes:
        output = T((*shape[:-2], lengths[0], lengths[1] // 2 + 1), C)
        inputs = [fed(numbers(shape)), fixed(lengths)]
        yield case("RFFT2D", f"{list(shape)} {list(lengths)}", inputs, [output], ("Rfft2dOptions", {}))
    worked = [fed([[1.0, 2.0, 3.0, 4.0]], "float32"), fixed([1, 4])]
    yield case("RFFT2D", "worked", worked, [T((1, 3), C)], expected=[[[[10, 0], [-2, 2], [-2, 0]]]])


CASES = [*selected_parts(), *moves(), *transforms()]
