"""Imports of all families of layer writers, which register themselves."""

from interposer.writers.armnn import (  # noqa: F401
    activation,
    blocks,
    control,
    convolution,
    detection,
    elementwise,
    gather,
    matmul,
    normalization,
    pooling,
    quantization,
    rearrange,
    recurrent,
    reduction,
    reshape,
    resize,
    slices,
)
