"""Imports every family of operators, so that the table is full."""

from interposer.frontends.onnx import (  # noqa: F401
    activation,
    attention,
    convolution,
    elementwise,
    grid,
    matmul,
    matrices,
    normalization,
    pooling,
    quantization,
    rearrange,
    reduction,
    reshape,
    resize,
    scatter,
    sequence,
)
