"""Imports every family of operators, so that the table of the front end is full."""

from interposer.frontends.tflite import (  # noqa: F401
    activation,
    blocks,
    control_flow,
    convolution,
    elementwise,
    gather,
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
    selection,
    sequence,
)
