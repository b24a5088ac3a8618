"""Imports every family of kernels, so that the reference table is full."""

from interposer.kernels import (  # noqa: F401
    activation,
    blocks,
    control,
    convolution,
    elementwise,
    gather,
    matmul,
    normalization,
    pooling,
    quantization,
    rearrange,
    reduction,
    reshape,
    resize,
)
