"""Cases of windows: transposed convolutions of volumes, dilation, and reductions of windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.frontends.tflite.cases.case import Case, case, fed, fixed, numbers
from tests.frontends.tflite.one_operator import T


def volumes() -> Iterator[Case]:
    steps = [(1, 1, 1), (2, 2, 2), (2, 1, 3)]
    for padding in (0, 1):
        for stride in steps:
            for dilation in ((1, 1, 1), (1, 2, 1)):
                sizes, kernel = (2, 3, 4), (2, 3, 2)
                reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
                full = [(n - 1) * s + r for n, s, r in zip(sizes, stride, reach, strict=True)]
                shape = [n * s for n, s in zip(sizes, stride, strict=True)] if padding == 0 else full
                names = [
                    f"{kind}_{axis}{end}" for kind, end in (("stride", ""), ("dilation", "_factor")) for axis in "dhw"
                ]
                options = dict(zip(names, (*stride, *dilation), strict=True)) | {"padding": padding}
                x, weights = fed(numbers((2, *sizes, 3))), fixed(numbers((*kernel, 4, 3), seed=1), "float32")
                for bias in (None, fixed(numbers((4,), seed=2), "float32")):
                    inputs = [fixed([2, *shape, 4]), weights, x, *([bias] if bias else [])]
                    label = f"padding {padding} stride {stride} dilation {dilation}{' bias' if bias else ''}"
                    output = T((2, *shape, 4))
                    yield case("CONV_3D_TRANSPOSE", label, inputs, [output], ("Conv3DOptions", options))
    one = {"stride_d": 1, "stride_h": 1, "stride_w": 2, "padding": 1}
    inputs = [fixed([1, 1, 1, 4, 1]), fixed(np.float32([1, 10]).reshape(1, 1, 2, 1, 1), "float32"),
              fed(np.float32([1, 2]).reshape(1, 1, 1, 2, 1))]  # fmt: skip
    expected = [np.reshape([1, 10, 2, 20], (1, 1, 1, 4, 1))]
    options = ("Conv3DOptions", one)
    yield case("CONV_3D_TRANSPOSE", "worked", inputs, [T((1, 1, 1, 4, 1))], options, expected=expected)


def dilations() -> Iterator[Case]:
    for dtype in ("float32", "int32", "int64", "int8", "uint8", "int16"):
        for factors in ((1, 1), (2, 3), (1, 4)):
            shape = tuple((n - 1) * d + 1 for n, d in zip((3, 2), factors, strict=True))
            inputs = [fed(numbers((3, 2), dtype)), fixed(list(factors)), fixed(5, dtype)]
            yield case("DILATE", f"{dtype} {factors}", inputs, [T(shape, dtype)], ("DilateOptions", {}))
    inputs = [fed([1, 2, 3], "int32"), fixed([2]), fixed(-1)]
    yield case("DILATE", "worked", inputs, [T((5,), "int32")], ("DilateOptions", {}), expected=[[1, -1, 2, -1, 3]])


def windows() -> Iterator[Case]:
    for function in (1, 2, 3, 4):
        for dtype in ("float32", "int32", "int64"):
            x, start = fed(numbers((7, 6), dtype, low=1, high=3)), fixed(2, dtype)
            for window, strides, dilation in (
                ((2, 3), (1, 1), (1, 1)),
                ((3, 2), (2, 4), (1, 1)),
                ((3, 1), (1, 1), (3, 1)),
            ):
                spans = [
                    (n - (w - 1) * d - 1) // s + 1 for n, w, s, d in zip((7, 6), window, strides, dilation, strict=True)
                ]
                inputs = [x, start, *(fixed(list(column), "int64") for column in (window, strides, dilation))]
                options = ("ReduceWindowOptions", {"reduce_function": function})
                label = f"{function} {dtype} {window} {strides} {dilation}"
                yield case("REDUCE_WINDOW", label, inputs, [T(tuple(spans), dtype)], options)
    columns = [fixed([column], "int64") for column in (3, 1, 1)]
    options = ("ReduceWindowOptions", {"reduce_function": 1})
    inputs = [fed([1, 2, 3, 4], "int32"), fixed(10), *columns]
    yield case("REDUCE_WINDOW", "worked", inputs, [T((2,), "int32")], options, expected=[[16, 19]])


CASES = [*volumes(), *dilations(), *windows()]
