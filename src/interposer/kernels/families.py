"""Imports every family of kernels, so that the reference table is full."""

from interposer.kernels import (  # noqa: F401
    blocks,
    control,
    convolution,
    gather,
    matmul,
    pooling,
    quantization,
    rearrange,
    reshape,
    resize,
)
