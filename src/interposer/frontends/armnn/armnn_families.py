"""Imports of all families of converters, which register themselves."""

from interposer.frontends.armnn import (  # noqa: F401
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
