"""Imports every family of operators, so that the table is full."""

from interposer.frontends.onnx import (  # noqa: F401
    activation,
    attention,
    choice,
    convolution,
    elementwise,
    grid,
    loss,
    matmul,
    matrices,
    normalization,
    pooling,
    quantization,
    rearrange,
    recurrent,
    reduction,
    reshape,
    resize,
    scatter,
    selection,
    sequence,
)
