"""Cases of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from tests.frontends.onnx.contrib.case import Case, fed, fixed, forms, integers, normal, whole

STANDARD = "ai.onnx"
FORMS = (
    {}, {"pads": [1, 1, 1, 1]}, {"pads": [0, 2, 1, 0]}, {"strides": [2, 1]},
    {"dilations": [2, 2], "pads": [2, 2, 2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"},
)  # fmt: skip
PARAMETERS = {
    "Relu": [], "Sigmoid": [], "Tanh": [], "LeakyRelu": [0.2], "Clip": [-0.5, 1.5], "HardSigmoid": [0.3, 0.4],
    "Elu": [0.5], "": [],
}  # fmt: skip


def convolutions() -> Iterator[Case]:
    x, w, b = fed(normal((2, 4, 7, 6))), fixed(normal((8, 4, 3, 3), seed=1)), fixed(normal((8,), seed=2))
    for name, numbers in PARAMETERS.items():
        attributes = {"activation": name, "activation_params": numbers} if numbers else {"activation": name}
        attributes = attributes if name else {}
        yield from forms(
            Case(
                "FusedConv", name or "plain", [x, w, b], attributes=attributes, tolerance=1e-4, overrides=name == "Elu"
            )
        )
        added = fed(normal((2, 8, 5, 4), seed=3))
        operands = [x, w, b, added]
        yield Case(
            "FusedConv",
            f"{name or 'plain'} with sum",
            operands,
            attributes=attributes,
            tolerance=1e-4,
            overrides=name == "Elu",
        )
    for attributes in FORMS:
        more = attributes | {"activation": "Relu"}
        yield from forms(Case("FusedConv", f"{attributes}", [x, w], attributes=more, tolerance=1e-4))
        grouped = [x, fixed(normal((8, 2, 3, 3))), b]
        yield Case("FusedConv", f"{attributes} groups", grouped, attributes=more | {"group": 2}, tolerance=1e-4)
    line = [fed(normal((2, 4, 9))), fixed(normal((8, 4, 3))), None, fed(normal((2, 8, 7), seed=3))]
    yield Case("FusedConv", "of a line with sum", line, attributes={"activation": "Relu"}, tolerance=1e-4)
    for pads in ([0, 0, 0, 0], [1, 0, 0, 1], None):
        operands = [fed(normal((1, 3, 4, 5))), fixed(normal((3, 2, 3, 3))), pads and fixed(pads), fixed(normal((2,)))]
        for steps in ([1, 1], [2, 2]):
            label = f"{pads} {steps}"
            yield Case(
                "ConvTransposeWithDynamicPads",
                label,
                operands,
                attributes={"strides": steps},
                tolerance=1e-4,
                overrides=pads is None,
            )


def quantized_convolutions() -> Iterator[Case]:
    for (dtype, weights), last, group in product(
        ((np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.int8)), (0, 1), (1, 4)
    ):
        shape = (2, 6, 5, 4) if last else (2, 4, 6, 5)
        w = fixed(whole((8, 4 // group, 3, 3), weights, 1))
        for columns in (False, True):
            scale = fixed(np.linspace(0.01, 0.02, 8), "f4") if columns else fixed(0.02, "f4")
            point = fixed(np.zeros(8) if columns else 3, weights)
            operands = [fed(whole(shape, dtype)), fixed(0.03, "f4"), fixed(5, dtype), w, scale, point]
            operands += [fixed(0.4, "f4"), fixed(2, dtype), fixed(integers((8,), np.int32, 3, -999, 999))]
            label = f"{np.dtype(dtype)} {np.dtype(weights)} {last} {group} {columns}"
            attributes = {"channels_last": last, "group": group, "pads": [1, 0, 0, 1]}
            yield from forms(Case("QLinearConv", label, operands, [dtype], attributes, steps=1))


def _is_wide(attributes: dict[str, Any]) -> bool:
    """Return True if a pad is as large as the window of 3 x 2, which ONNX Runtime refuses."""
    return any(pad >= size for pad, size in zip(attributes.get("pads", ()), (3, 2, 3, 2), strict=False))


def pools() -> Iterator[Case]:
    for dtype, attributes in product((np.uint8, np.int8), FORMS):
        kernel = attributes | {"kernel_shape": [3, 2]}
        yield from forms(
            Case(
                "NhwcMaxPool",
                f"{np.dtype(dtype)} {attributes}",
                [fed(whole((2, 7, 6, 3), dtype))],
                attributes=kernel,
                overrides=_is_wide(attributes),
            )
        )
        if "dilations" in attributes:
            continue
        for last, included, ceil in product((0, 1), (0, 1), (0, 1)):
            shape = (2, 7, 6, 3) if last else (2, 3, 7, 6)
            operands = [fed(whole(shape, dtype)), fixed(0.1, "f4"), fixed(3, dtype), fixed(0.07, "f4"), fixed(1, dtype)]
            more = kernel | {"channels_last": last, "count_include_pad": included, "ceil_mode": ceil}
            label = f"{np.dtype(dtype)} {attributes} {last} {included} {ceil}"
            yield Case("QLinearAveragePool", label, operands, attributes=more, steps=1, overrides=_is_wide(attributes))
        for last in (0, 1):
            shape = (2, 7, 6, 3) if last else (2, 3, 7, 6)
            operands = [fed(whole(shape, dtype)), fixed(0.1, "f4"), fixed(3, dtype), fixed(0.07, "f4"), fixed(1, dtype)]
            label, more = f"{np.dtype(dtype)} {attributes} {last}", {"channels_last": last}
            yield Case("QLinearGlobalAveragePool", label, operands, attributes=more, steps=1)
    for shape, kernel in (((2, 5, 3), [2]), ((2, 5, 4, 4, 3), [2, 2, 2])):
        yield Case("NhwcMaxPool", f"{list(shape)}", [fed(whole(shape))], attributes={"kernel_shape": kernel})


CEILED = (
    ((1, 2, 5), [6], [2], [0, 0]), ((1, 2, 5), [7], [3], [0, 0]), ((1, 2, 5), [8], [4], [1, 0]),
    ((1, 2, 5, 4), [6, 3], [2, 2], [0, 0, 0, 0]), ((1, 2, 5, 4), [6, 5], [3, 3], [0, 0, 0, 0]),
    ((1, 2, 5, 4), [8, 3], [4, 2], [1, 1, 1, 1]), ((2, 2, 3, 4, 5), [4, 2, 6], [2, 2, 2], [0, 0, 0, 0, 0, 0]),
    ((1, 1, 6, 6), [4, 4], [3, 3], [1, 1, 1, 1]), ((1, 1, 1, 1), [2, 2], [2, 2], [0, 0, 0, 0]),
)  # fmt: skip


def ceiled() -> Iterator[Case]:
    for shape, kernel, strides, pads in CEILED:
        x, rank = fed(normal(shape)), len(shape) - 2
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1}
        label = f"{list(shape)} {kernel} {strides} {pads}"
        more = {"domain": STANDARD, "opset": 22}
        for included in (0, 1):
            given = attributes | {"count_include_pad": included}
            yield from forms(Case("AveragePool", f"{label} {included}", [x], attributes=given, **more))
            if not any(pads) and 2 * kernel[-1] - 1 - shape[-1] < strides[-1]:
                yield Case("AveragePool", f"{label} {included} dilated", [x],
                           attributes=given | {"dilations": [1] * (rank - 1) + [2]}, **more)  # fmt: skip
        yield from forms(Case("MaxPool", label, [x], attributes=attributes, **more))
        yield Case("MaxPool", f"{label} places", [x], ["f4", "i8"], attributes, **more)
        yield Case("LpPool", label, [x], attributes=attributes, **more)


def padded() -> Iterator[Case]:
    """Windows that contain nothing but padding, and averages whose last windows exceed the padded image."""
    more = {"domain": STANDARD, "opset": 22}
    for dtype, (shape, strides, ceil) in product(
        ("f4", "f2", "i1", "u1"), (((1, 2, 2), [1], 0), ((1, 2, 2, 3), [2, 1], 1), ((1, 1, 2, 4, 2), [1, 3, 1], 0))
    ):
        rank = len(shape) - 2
        attributes = {"kernel_shape": [2] * rank, "dilations": [3] * rank, "pads": [1] * (2 * rank)}
        given = attributes | {"strides": strides, "ceil_mode": ceil}
        x = fed(
            (normal(shape, scale=20) - (0 if dtype == "u1" else 50)).clip(0 if dtype == "u1" else -128).astype(dtype)
        )
        yield from forms(Case("MaxPool", f"dilated {dtype} {list(shape)} {strides}", [x], attributes=given, **more))
    for dtype, (size, stride, pads) in product(
        (np.uint8, np.int8), ((8, 2, [0, 0, 1, 0]), (6, 2, [0, 0, 0, 0]), (5, 3, [1, 1, 0, 1]), (7, 3, [0, 1, 1, 1]))
    ):
        x = [fed(whole((2, 2, size, size + 1), dtype)), fixed(0.05, "f4"), fixed(9, dtype)]
        given = {"kernel_shape": [2, 3], "strides": [stride, stride], "pads": pads, "ceil_mode": 1}
        for included in (0, 1):
            yield Case("QLinearAveragePool", f"{np.dtype(dtype)} ceiled {size} {stride} {pads} {included}",
                       [*x, fixed(0.04, "f4"), fixed(1, dtype)],
                       attributes=given | {"count_include_pad": included}, steps=1)  # fmt: skip


CASES = [*padded(), *convolutions(), *quantized_convolutions(), *pools(), *ceiled()]
