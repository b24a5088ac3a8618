"""Samples of 3D convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import Convolution3d
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import FLOATS, INTEGERS, SMALL_FLOATS, TINY_INTEGERS, plain

__all__: list[str] = []

QUANTIZED: Final = {
    DataType.UINT8: (Quantization(1 / 32, 128), DataType.INT32),
    DataType.INT8: (Quantization(1 / 32, -3), DataType.INT32),
    DataType.INT16: (Quantization(1 / 4096), DataType.INT64),
}
WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "plain": {},
    "strides": {"stride_x": 2, "stride_y": 3, "stride_z": 2},
    "pads": {"pad_left": 1, "pad_bottom": 2, "pad_front": 1, "pad_back": 2, "stride_y": 2},
    "dilations": {"dilation_z": 2, "dilation_x": 2, "pad_top": 1, "pad_right": 2},
}
DIMENSIONS: Final = (4, 5, 5)


def _given(op: Convolution3d, dtype: DataType, quantization: Quantization | None = None) -> Given:
    is_last = op.data_layout.channels_last
    return given((2, *DIMENSIONS, 4) if is_last else (2, 4, *DIMENSIONS), dtype, quantization)


@samples(Convolution3d)
def floats() -> Iterator[Sample]:
    """Yield Convolution3d samples: every type and layout with each kind of window, with and without groups and bias."""
    for name, window in WINDOWS.items():
        for layout in (DataLayout.NDHWC, DataLayout.NCDHW):
            op = Convolution3d(**window, data_layout=layout, groups=2 if name == "strides" else 1)
            for dtype in FLOATS:
                operands = [_given(op, dtype), weights((2, 3, 2, 4 // op.groups, 6), dtype)]
                operands += [] if name == "plain" else [weights((6,), dtype)]
                yield Sample(op, operands, name=f"{name}-{layout}-{dtype}")
    for dtype in (*SMALL_FLOATS, *INTEGERS, *TINY_INTEGERS):
        operands = [plain((1, 2, 3, 3, 2), dtype), weights((1, 2, 2, 2, 3), dtype)]
        yield Sample(Convolution3d(), operands, name=f"type-{dtype}")


@samples(Convolution3d)
def quantized() -> Iterator[Sample]:
    """Yield Convolution3d samples: quantized weights with one scale, and with one for each output channel."""
    for dtype, (q, bias) in QUANTIZED.items():
        base_dtype = DataType.UINT8 if dtype is DataType.UINT8 else DataType.INT8
        quantization = Quantization(1 / 64, 120 if base_dtype is DataType.UINT8 else 0)
        for name, scales in (("one-scale", quantization), ("per-axis", Quantization([0.01, 0.02, 0.03], axis=4))):
            for layout in (DataLayout.NDHWC, DataLayout.NCDHW):
                op = Convolution3d(pad_front=1, pad_left=1, stride_y=2, data_layout=layout)
                weights_dtype = DataType.INT8 if scales.per_axis else base_dtype
                operands = [
                    _given(op, dtype, q),
                    weights((2, 2, 2, 4, 3), weights_dtype, scales),
                    _bias(q, scales, bias),
                ]
                [info] = op.infer_infos(*(operand.info for operand in operands))
                assert info is not None
                output = info.with_quantization(Quantization(q.scale * 4, q.zero_point))
                yield Sample(op, operands, [output], f"{name}-{layout}-{dtype}")


def _bias(input: Quantization, weights_: Quantization, dtype: DataType) -> Given:
    scales = [input.scale * scale for scale in weights_.scales]
    return weights((3,), dtype, Quantization(scales, 0, 0) if weights_.per_axis else Quantization(scales[0]))


@samples(Convolution3d)
def worked() -> Iterator[Sample]:
    """Yield worked Convolution3d examples: sums over cubes of two by two by two cells, with and without a bias."""
    x, ones = np.arange(27.0).reshape(1, 3, 3, 3, 1), np.ones((2, 2, 2, 1, 1))
    sums = np.array([52, 60, 76, 84, 124, 132, 148, 156], np.float32).reshape(1, 2, 2, 2, 1)
    yield Sample(Convolution3d(), [of(x), of(ones, constant=True)], name="worked-sums", expected=[sums])
    yield Sample(
        Convolution3d(),
        [of(x), of(ones, constant=True), of([1], constant=True)],
        [TensorInfo(sums.shape)],
        "worked-bias",
        expected=[sums + 1],
    )
