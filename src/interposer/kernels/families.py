"""Imports every family of kernels, so that the reference table is full."""

from interposer.kernels import (  # noqa: F401
    activation,
    blocks,
    control,
    convolution,
    convolution3d,
    elementwise,
    gather,
    lstm,
    matmul,
    normalization,
    pooling,
    pooling3d,
    quantization,
    quantized_recurrent,
    rearrange,
    recurrent,
    recurrent_sequence,
    reduction,
    reshape,
    resize,
)
