"""Cases of matrix products."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from tests.frontends.onnx.contrib.case import Case, fed, fixed, forms, normal, whole

SHAPES = (
    ((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)),
    ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((1, 1), (1, 1)), ((2, 1, 3, 4), (5, 4, 2)), ((17, 33), (33, 19)),
)  # fmt: skip
INTEGERS = (
    ((3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (4, 5)), ((0, 4), (4, 5)), ((1, 65), (65, 17))
)  # fmt: skip


def _swapped(shape: tuple[int, ...], *, swap: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if swap and len(shape) > 1 else shape


def fused() -> Iterator[Case]:
    for a, b in SHAPES:
        for left, right in product((0, 1), repeat=2):
            if left and len(b) == 1 < len(a):  # ONNX Runtime reads the matrix as if it were not transposed
                continue
            x, y = normal(_swapped(a, swap=bool(left))), normal(_swapped(b, swap=bool(right)), seed=1)
            attributes = {"transA": left, "transB": right, "alpha": 0.5}
            for name in ("FusedMatMul", "TransposeMatMul"):
                cases = forms(
                    Case(name, f"{list(a)} {list(b)} {left} {right}", [fed(x), fixed(y)], attributes=attributes)
                )
                yield from cases if name == "FusedMatMul" else [next(cases)]
    for left, right in product((0, 1), repeat=2):
        for ta, tb in product((0, 1), repeat=2):
            a, b = [2, 3, 4], [2, 4, 5]
            a, b = _swapped(tuple(a), swap=bool(ta)), _swapped(tuple(b), swap=bool(tb))
            a = (a[1], a[0], a[2]) if left else a
            b = (b[1], b[0], b[2]) if right else b
            attributes = {"transBatchA": left, "transBatchB": right, "transA": ta, "transB": tb}
            yield from forms(Case("FusedMatMul", f"batch {left} {right} {ta} {tb}",
                                  [fed(normal(a)), fixed(normal(b, seed=1))], attributes=attributes))  # fmt: skip
    shapes = ((3, 2, 5, 4), (2, 3, 4, 6))
    operands = [fed(normal((2, 5, 3, 4))), fed(normal(shapes[1], seed=1))]
    yield Case("FusedMatMul", "batch of rank 4", operands, attributes={"transBatchA": 1})
    for dtype in (np.float64, np.float16):
        yield Case("FusedMatMul", f"{np.dtype(dtype)}", [fed(normal((3, 4), dtype)), fixed(normal((4, 5), dtype))],
                   attributes={"alpha": 2.0}, overrides=dtype is np.float16)  # fmt: skip
    yield Case("FusedMatMul", "wrong sizes", [fed(normal((3, 4))), fed(normal((5, 4)))])
    for alpha in (0.0, -1.0, float("inf")):
        yield Case(
            "FusedMatMul", f"alpha {alpha}", [fed(normal((3, 4))), fed(normal((4, 5)))], attributes={"alpha": alpha}
        )


ACTIVATIONS = {
    "Relu": {}, "Sigmoid": {}, "Tanh": {}, "Softplus": {}, "Softsign": {}, "": {},
    "LeakyRelu": {"activation_alpha": 0.2}, "Elu": {"activation_alpha": 0.5},
    "ThresholdedRelu": {"activation_alpha": 0.5},
    "HardSigmoid": {"activation_alpha": 0.3, "activation_beta": 0.4}, "Gelu": {},
    "Selu": {"activation_alpha": 1.5, "activation_gamma": 1.1},
}  # fmt: skip


def gemms() -> Iterator[Case]:
    for name, more in ACTIVATIONS.items():
        attributes = {"activation": name, **more} if name else {}
        operands = [fed(normal((3, 4))), fixed(normal((4, 5), seed=1)), fixed(normal((5,), seed=2))]
        yield from forms(Case("FusedGemm", name or "plain", operands, attributes=attributes, overrides=not name))
    for left, right in product((0, 1), repeat=2):
        for bias in ((5,), (1, 5), (3, 1), (3, 5), (), None):
            shapes = [_swapped((3, 4), swap=bool(left)), _swapped((4, 5), swap=bool(right))]
            operands = [fed(normal(shapes[0])), fixed(normal(shapes[1], seed=1))]
            operands += [] if bias is None else [fed(normal(bias, seed=2))]
            attributes = {"transA": left, "transB": right, "alpha": 0.5, "beta": 2.0, "activation": "Relu"}
            yield Case("FusedGemm", f"{left} {right} {bias}", operands, attributes=attributes)


def integers() -> Iterator[Case]:
    for a, b in ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8), (np.int8, np.uint8)):
        for shapes in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (2, 4, 5)),
            ((2, 3, 4), (4, 5)),
            ((0, 4), (4, 5)),
            ((1, 65), (65, 17)),
        ):
            x, y = fed(whole(shapes[0], a)), fixed(whole(shapes[1], b, seed=1))
            n = shapes[1][-1]
            label = f"{np.dtype(a)} {np.dtype(b)} {shapes[0]} {shapes[1]}"
            scales = [fixed(0.02, "f4"), fixed(0.1, "f4")]
            name = "MatMulIntegerToFloat"
            more = {"tolerance": 1e-4, "overrides": (a, b) == (np.int8, np.uint8)}
            yield from forms(Case(name, label, [x, y, *scales], ["f4"], **more))
            points = [fixed(3, a), fixed(5, b)]
            bias = fixed(normal((n,), seed=4))
            yield from forms(Case(name, f"{label} points", [x, y, *scales, *points, bias], ["f4"], **more))
            columns = [fixed(np.linspace(0.1, 0.3, n), "f4"), None, fixed(whole((n,), b, seed=3))]
            if len(shapes[1]) == 2:
                yield Case(name, f"{label} columns", [x, y, scales[0], *columns], ["f4"], **more)
    for b in (np.uint8, np.int8):
        for shapes in (
            ((3, 4), (4, 5)),
            ((2, 3, 4), (2, 4, 5)),
            ((2, 3, 4), (4, 5)),
            ((0, 4), (4, 5)),
            ((1, 65), (65, 17)),
            ((4,), (4, 5)),
        ):
            x, y, n = fed(normal(shapes[0])), fixed(whole(shapes[1], b, seed=1)), shapes[1][-1]
            label, name = f"{np.dtype(b)} {shapes[0]} {shapes[1]}", "DynamicQuantizeMatMul"
            scale, bias = fixed(0.02, "f4"), fixed(normal((n,), seed=4))
            yield from forms(Case(name, label, [x, y, scale], tolerance=1e-4))
            yield from forms(Case(name, f"{label} point", [x, y, scale, fixed(7, b), bias], tolerance=1e-4))
            if len(shapes[1]) == 2:
                columns = [fixed(np.linspace(0.1, 0.3, n), "f4"), fixed(whole((n,), b, seed=3))]
                yield Case(name, f"{label} columns", [x, y, *columns, bias], tolerance=1e-4)
                yield Case(name, f"{label} columns without points", [x, y, columns[0], None, bias], tolerance=1e-4)
    for shapes in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((0, 4), (4, 5))):
        operands = [fed(whole(shapes[0], np.int16) // 8), fixed(whole(shapes[1], np.int16, 1) // 8)]
        yield from forms(Case("MatMulInteger16", f"{shapes}", operands, [np.int32]))


CASES = [*fused(), *gemms(), *integers()]
