"""Cases of normalizations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import TensorProto

from tests.frontends.onnx.contrib.case import Case, Operand, fed, fixed, forms, normal

NAMES = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
BRANCHES = (
    ((2, 3, 4, 8), {}), ((2, 12), {"num_branches": 3}), ((4, 8), {}), ((6,), {"num_branches": 2}), ((0, 4, 8), {}),
    ((8,), {}), ((2, 10), {"num_branches": 3}),
)  # fmt: skip


def simplified() -> Iterator[Case]:
    name, domain = "SimplifiedLayerNormalization", "ai.onnx"
    for shape in ((4,), (2, 3, 16), (1, 1), (0, 8), (2, 3, 4, 5)):
        operands = [fed(normal(shape)), fixed(normal(shape[-1:], seed=1))]
        yield from forms(Case(name, f"{list(shape)}", operands, domain=domain))
        yield Case(name, f"{list(shape)} inverse", operands, [np.float32, np.float32], domain=domain)
    for axis in (0, 1, 2, -2):
        operands = [fed(normal((2, 3, 4))), fixed(normal((2, 3, 4)[axis:], seed=1))]
        attributes = {"axis": axis, "epsilon": 0.1, "stash_type": 1}
        yield Case(name, f"axis {axis}", operands, attributes=attributes, domain=domain)
        yield Case(name, f"axis {axis} inverse", operands, ["f4", "f4"], attributes, domain=domain)
    for dtype in (np.float16, np.float64):
        operands = [fed(normal((2, 3, 16), dtype)), fixed(normal((16,), dtype, 1))]
        yield Case(name, f"{np.dtype(dtype)}", operands, domain=domain)
    for opset in (11, 15, 17):
        operands = [fed(normal((2, 8))), fixed(normal((8,), seed=1)), fixed(normal((8,), seed=2))]
        yield Case("LayerNormalization", f"of opset {opset}", operands, domain=domain, opset=opset)


def _skip(name: str, label: str, operands: list[Operand | None], outputs: Any = (), **more: Any) -> Case:
    return Case(name, label, operands, outputs, more, overrides="float64" in label)


def skips() -> Iterator[Case]:
    for name in NAMES:
        full = name == NAMES[0]
        for shape in ((2, 3, 16), (3, 8), (1, 1, 1), (0, 3, 8), (2, 5, 33)):
            size = shape[-1:]
            x, skip, gamma = fed(normal(shape)), fed(normal(shape, seed=1)), fixed(normal(size, seed=2))
            beta = [fixed(normal(size, seed=3))] if full else []
            bias = fixed(normal(size, seed=4))
            yield from forms(_skip(name, f"{list(shape)}", [x, skip, gamma, *beta]))
            yield from forms(
                _skip(name, f"{list(shape)} with bias", [x, skip, gamma, *beta, bias], ["f4", "", "", "f4"])
            )
            yield _skip(name, f"{list(shape)} with sum", [x, skip, gamma, *beta], ["f4", "", "", "f4"], epsilon=0.5)
            if full:
                yield _skip(name, f"{list(shape)} without beta", [x, skip, gamma, None, bias])
        for skip_shape in ((1, 3, 8), (3, 8), (8,), (2, 1, 8), (1, 1, 8), (2, 3, 1)):
            operands = [fed(normal((2, 3, 8))), fed(normal(skip_shape, seed=1)), fixed(normal((8,), seed=2))]
            yield _skip(name, f"skip {list(skip_shape)}", operands, ["f4", "", "", "f4"])
        for wrong in ((7,), (1,), (2, 8)):
            operands = [fed(normal((2, 3, 8))), fed(normal((2, 3, 8), seed=1)), fixed(normal(wrong, seed=2))]
            yield _skip(name, f"gamma {list(wrong)}", operands)
        for rank in ((8,), (1, 2, 3, 8)):
            yield _skip(name, f"input {list(rank)}", [fed(normal(rank)), fed(normal(rank)), fixed(normal((8,)))])
        for dtype in (np.float16, np.float64):
            operands = [fed(normal((2, 3, 8), dtype, i)) for i in range(2)]
            fixed_ones = [fixed(normal((8,), dtype, i)) for i in range(3 if full else 2)]
            yield _skip(name, f"{np.dtype(dtype)}", [*operands, *fixed_ones], [dtype, "", "", dtype])
        cast = TensorProto.BFLOAT16
        operands = [Operand(normal((2, 3, 8), seed=i), cast=cast) for i in range(2)]
        yield Case(name, "bfloat16", [*operands, Operand(normal((8,)), True, cast)], [cast], tolerance=0.02)


def branches() -> Iterator[Case]:
    name = "BranchwiseRMSNorm"
    for shape, attributes in BRANCHES:
        x, count = fed(normal(shape)), attributes.get("num_branches")
        c, h = (count, shape[-1] // count) if count else (shape[-2] if len(shape) > 1 else 1, shape[-1])
        yield from forms(Case(name, f"{list(shape)}", [x], attributes=attributes))
        for scale in ((c * h,), (c, h), (h,)):
            operands = [x, fixed(normal(scale, seed=1))]
            yield Case(name, f"{list(shape)} scale {list(scale)}", operands, attributes=attributes | {"epsilon": 0.2})
    for scale in (np.float16, np.float32):
        yield Case(name, f"float16 {np.dtype(scale)}", [fed(normal((2, 3, 8), np.float16)), fixed(normal((8,), scale))])


def groups() -> Iterator[Case]:
    for last in (1, 0):
        shape = (2, 3, 4, 8) if last else (2, 8, 3, 4)
        x, gamma, beta = fed(normal(shape)), fixed(normal((8,), seed=1)), fixed(normal((8,), seed=2))
        for activation in (0, 1):
            attributes = {"groups": 4, "activation": activation, "channels_last": last}
            yield Case("GroupNorm", f"{last} {activation}", [x, gamma, beta], attributes=attributes, overrides=True)
            for skip in (shape, (2, 8)):
                operands = [x, gamma, beta, fed(normal(skip, seed=3)), fixed(normal((8,), seed=4))]
                label = f"{last} {activation} {list(skip)}"
                yield Case("SkipGroupNorm", label, operands, ["f4", "f4"], attributes, overrides=True)


CASES = [*simplified(), *skips(), *branches(), *groups()]
