"""Cases of quantized operators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import ml_dtypes
import numpy as np

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, integers, normal, whole

PAIRS = (((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((), (2, 3)), ((2, 1), (1, 3)), ((0, 3), (1, 3)), ((1, 5), (1,)))


def _scaled(shape: tuple[int, ...], dtype: type, seed: int = 0, scale: float = 0.05, point: int = 3) -> list[Operand]:
    return [fed(whole(shape, dtype, seed)), fixed(scale, "f4"), fixed(point, dtype)]


def elementwise() -> Iterator[Case]:
    for dtype in (np.uint8, np.int8):
        output = [fixed(0.1, "f4"), fixed(7, dtype)]
        for a, b in PAIRS:
            operands = [*_scaled(a, dtype), *_scaled(b, dtype, 1, 0.03, 9), *output]
            for name in ("QLinearAdd", "QLinearMul"):
                yield from forms(Case(name, f"{np.dtype(dtype)} {a} {b}", operands, steps=1))
            absent = [operands[0], operands[1], None, operands[3], operands[4], None, output[0]]
            yield Case("QLinearAdd", f"{np.dtype(dtype)} {a} {b} no points", absent, steps=1, overrides=True)
            condition = fed(integers((3, 1), np.int64, 4, 0, 1).astype(bool))
            if a == (2, 3, 4):
                yield from forms(Case("QLinearWhere", f"{np.dtype(dtype)} {b}", [condition, *operands], [dtype]))
        for shape in ((2, 3, 17), (), (0, 3)):
            operands = [*_scaled(shape, dtype), *output]
            yield from forms(
                Case(
                    "QLinearSigmoid",
                    f"{np.dtype(dtype)} {shape}",
                    [*operands[:3], fixed(1 / 256, "f4"), output[1]],
                )
            )
            yield from forms(
                Case("QLinearLeakyRelu", f"{np.dtype(dtype)} {shape}", operands, attributes={"alpha": 0.2})
            )
            yield Case("QLinearLeakyRelu", f"{np.dtype(dtype)} {shape} default", operands)
        for axis, opset in product((0, 1, 2, -1), (11, 13)):
            operands = [
                *_scaled((2, 3, 4), dtype),
                fixed(1 / 256, "f4"),
                fixed(0 if dtype == np.uint8 else -128, dtype),
            ]
            more = {"axis": axis, "opset": opset}
            yield from forms(Case("QLinearSoftmax", f"{np.dtype(dtype)} {axis} {opset}", operands, attributes=more))
        for axis in (0, 1, -1):
            shapes = [(2, 3, 4)] * 3
            shapes[1] = tuple(5 if i == axis % 3 else n for i, n in enumerate(shapes[1]))
            parts = [part for i, shape in enumerate(shapes) for part in _scaled(shape, dtype, i, 0.05 + 0.02 * i, i)]
            yield from forms(
                Case("QLinearConcat", f"{np.dtype(dtype)} {axis}", [*output, *parts], [dtype], {"axis": axis})
            )
        for axes, count in product(([0], [1, 2], [-1]), (0, 1)):
            operands = [*_scaled((2, 3, 4), dtype), *output]
            more = {"axes": axes, "keepdims": count}
            yield Case(
                "QLinearReduceMean", f"{np.dtype(dtype)} {axes} {count}", operands, attributes=more, overrides=True
            )


def gemms() -> Iterator[Case]:
    for (a, b), left, right in product(((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)), (0, 1), (0, 1)):
        shapes = [(4, 3) if left else (3, 4), (5, 4) if right else (4, 5)]
        x = _scaled(shapes[0], a)
        for columns in (False, True):
            scale = fixed(np.linspace(0.01, 0.02, 5), "f4") if columns else fixed(0.02, "f4")
            point = fixed(np.zeros(5) if columns else 3, b)
            operands = [*x, fixed(whole(shapes[1], b, 1)), scale, point]
            label = f"{np.dtype(a)} {np.dtype(b)} {left} {right} {columns}"
            attributes = {"transA": left, "transB": right, "alpha": 0.5}
            output = [fixed(0.4, "f4"), fixed(2, a)]
            yield Case("QGemm", f"{label} float", operands, ["f4"], attributes, tolerance=1e-4)
            yield from forms(Case("QGemm", label, [*operands, None, *output], [a], attributes, steps=1))
            for c in ((5,), (3, 5), (1, 5), (3, 1)):
                bias = fixed(integers(c, np.int32, 3, -999, 999))
                yield Case("QGemm", f"{label} {c}", [*operands, bias, *output], [a], attributes, steps=1)
                yield Case("QGemm", f"{label} {c} float", [*operands, bias], ["f4"], attributes, tolerance=1e-4)


def linear() -> Iterator[Case]:
    kinds = {name: np.dtype(name) for name in ("uint8", "int8", "uint16", "int16")}
    kinds |= {name: np.dtype(getattr(ml_dtypes, name)) for name in ("int4", "uint4")}
    for name, dtype in kinds.items():
        point, cast = fixed(np.array(1).astype(dtype)), 22 if name == "int4" else 21 if name == "uint4" else dtype
        x = fed(normal((2, 3, 4), scale=3))
        count = 3 if dtype.kind in "iu" else 2  # ONNX Runtime takes no inputs of 4-bit types from Python
        yield from islice(forms(Case("QuantizeLinear", name, [x, fixed(0.1, "f4"), point], [cast])), count)
        columns = [fixed([0.1, 0.2, 0.3], "f4"), fixed(np.array([1, 2, 3]).astype(dtype))]
        for axis in (1, -2):
            yield from islice(
                forms(Case("QuantizeLinear", f"{name} {axis}", [x, *columns], [cast], {"axis": axis})), count
            )
        stored = fixed(integers((2, 3, 4), np.int8, 0, 0, 7).astype(dtype))
        yield Case("DequantizeLinear", name, [stored, fixed(0.1, "f4"), point], ["f4"])
        yield Case("DequantizeLinear", f"{name} without point", [stored, fixed(0.1, "f4")], ["f4"])
        yield Case("DequantizeLinear", f"{name} columns", [stored, *columns], ["f4"], {"axis": 1})
    wide = fed(integers((2, 3), np.int32, 0, -999, 999))
    yield Case("DequantizeLinear", "int32", [wide, fixed(0.1, "f4")], ["f4"])
    yield Case("QuantizeLinear", "without point", [fed(normal((2, 3))), fixed(0.1, "f4")], [np.uint8])


CASES = [*elementwise(), *gemms(), *linear()]
