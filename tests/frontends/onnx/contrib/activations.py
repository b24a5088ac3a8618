"""Cases of activation functions and of additions with a bias."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.onnx.contrib.case import Case, fed, fixed, forms, normal

SHAPES = ((), (5,), (0, 4), (1, 1), (2, 3, 17), (1, 2, 3, 4, 5))


def gelus() -> Iterator[Case]:
    for shape in SHAPES:
        x = fed(normal(shape, scale=3))
        for name in ("Gelu", "FastGelu", "QuickGelu"):
            yield from forms(Case(name, f"{list(shape)}", [x], overrides=not shape))
        if shape:
            bias = normal(shape[-1:], seed=1)
            for name in ("BiasGelu", "FastGelu"):
                yield from forms(Case(name, f"{list(shape)} with bias", [x, fixed(bias)]))
    special = fed([np.nan, np.inf, -np.inf, 0, -0.0, 1e30, -1e30, 1e-30], np.float32)
    for name in ("Gelu", "FastGelu", "QuickGelu"):
        yield Case(name, "special values", [special])
        for dtype in (np.float16, np.float64):
            yield Case(name, f"{np.dtype(dtype)}", [fed(normal((3, 5), dtype))], overrides=True)
    for alpha in (0.5, 1.0, 1.702, -1.0, 0.0):
        yield Case("QuickGelu", f"alpha {alpha}", [fed(normal((3, 5)))], attributes={"alpha": alpha})
    for bias in ((2,), (3, 5), (1,)):
        yield Case("BiasGelu", f"bias of shape {bias}", [fed(normal((3, 5))), fixed(normal(bias))])
    yield Case("BiasGelu", "without bias", [fed(normal((3, 5)))])


CASES = [*gelus()]
