"""Cases of operators on data types, ranks and computed operands that are less common."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.tflite.cases.case import Case, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T

DTYPES = ("float32", "int32", "uint8", "int64", "bool", "int16", "int8")
SHAPES = ((), (1,), (0,), (3,), (2, 0, 3), (1, 2, 3), (2, 1, 3, 2), (1, 2, 2, 3, 2), (1, 2, 1, 2, 3, 2))
PAIRS = (
    ((), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 1)), ((2, 3, 4, 5), (1, 4, 1)), ((2, 1, 2, 1, 3), (1, 2, 1, 2, 1)),
    ((1, 2, 1, 2, 1, 3), (2, 1, 2, 1, 2, 1)), ((0, 3), (1, 3)),
)  # fmt: skip


def indices() -> Iterator[Case]:
    for dtype in DTYPES:
        x = fed(numbers((2, 3, 4), dtype))
        for index in ("int16", "int32", "int64"):
            options, places = ("GatherOptions", {"axis": 1}), fed([2, 0], index)
            yield case("GATHER", f"{dtype} {index}", [x, places], [T((2, 2, 4), dtype)], options)
            rows = fed([[1, 2], [0, 0]], index)
            yield case("GATHER_ND", f"{dtype} {index}", [x, rows], [T((2, 4), dtype)])
        inputs = [fed([[1], [0], [1]], "int32"), fed(numbers((3, 2), dtype)), fixed([3, 2])]
        yield case("SCATTER_ND", dtype, inputs, [T((3, 2), dtype)])


def paddings() -> Iterator[Case]:
    for dtype in DTYPES:
        inputs = [fed(numbers((2, 3, 4), dtype)), fixed([[0, 1], [1, 0], [2, 2]]), fed(1, dtype)]
        yield case("PADV2", f"{dtype} with a computed value", inputs, [T((3, 4, 8), dtype)])


def reductions() -> Iterator[Case]:
    x = fed(numbers((2, 3, 4), "bool"))
    for name in ("SUM", "REDUCE_PROD", "REDUCE_ANY", "REDUCE_ALL", "REDUCE_MAX", "REDUCE_MIN"):
        yield case(name, "bool", [x, fixed([1])], [T((2, 4), "bool")], ("ReducerOptions", {}))


def broadcasts() -> Iterator[Case]:
    names = {"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div", "MAXIMUM": "", "MINIMUM": "", "POW": "",
             "SQUARED_DIFFERENCE": "", "FLOOR_MOD": "", "FLOOR_DIV": ""}  # fmt: skip
    for name, table in names.items():
        options = (f"{table}Options", {}) if table else None
        for a, b in PAIRS:
            inputs, output = [fed(numbers(a, low=1)), fed(numbers(b, seed=1, low=1))], T(np.broadcast_shapes(a, b))
            yield case(name, f"{a} {b}", inputs, [output], options)
    for a, b in PAIRS:
        both = [fed(numbers(a, high=1, low=0)), fed(numbers(b, seed=1, high=1, low=0))]
        for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
            yield case(name, f"{a} {b}", both, [T(np.broadcast_shapes(a, b), "bool")])


def ranks() -> Iterator[Case]:
    for shape in SHAPES:
        x, rank = fed(numbers(shape)), len(shape)
        for name in ("ABS", "EXP", "TANH", "RELU", "FLOOR", "ZEROS_LIKE"):
            yield case(name, f"{shape}", [x], [T(shape)])
        yield case("SHAPE", f"{shape}", [x], [T((rank,), "int32")], ("ShapeOptions", {"out_type": 2}))
        yield case("RESHAPE", f"{shape}", [x, fixed([-1])], [T((int(np.prod(shape)),))])
        if rank:
            yield from _along(shape)


def _along(shape: tuple[int, ...]) -> Iterator[Case]:
    x, rank = fed(numbers(shape)), len(shape)
    yield case("TRANSPOSE", f"{shape}", [x, fixed(list(range(rank))[::-1])], [T(shape[::-1])])
    yield case("SUM", f"{shape}", [x, fixed([0])], [T(shape[1:])], ("ReducerOptions", {}))
    yield case("TILE", f"{shape}", [x, fixed([2] * rank)], [T(tuple(2 * size for size in shape))])
    yield case("PAD", f"{shape}", [x, fixed([[1, 0]] * rank)], [T(tuple(1 + size for size in shape))])
    yield case("SLICE", f"{shape}", [x, fixed([0] * rank), fixed([-1] * rank)], [T(shape)])
    yield case("CUMSUM", f"{shape}", [x, fixed(-1)], [T(shape)], ("CumsumOptions", {}))
    joined = T((2 * shape[0], *shape[1:]))
    yield case("CONCATENATION", f"{shape}", [x, x], [joined], ("ConcatenationOptions", {"axis": 0}))


def casts() -> Iterator[Case]:
    for before in (*DTYPES, "float64", "float16", "uint32"):
        for after in (*DTYPES, "float64", "float16", "uint32"):
            x = fed(numbers((2, 3), before, low=0))
            yield case("CAST", f"{before} to {after}", [x], [T((2, 3), after)], ("CastOptions", {}))


CASES = [*indices(), *paddings(), *reductions(), *broadcasts(), *ranks(), *casts()]
