"""Imports of all families of converters, which register themselves."""

from interposer.frontends.nnapi import (  # noqa: F401
    activation,
    blocks,
    choice,
    control_flow,
    convolution,
    detection,
    elementwise,
    embedding,
    gather,
    matmul,
    normalization,
    pooling,
    quantization,
    rearrange,
    recurrent,
    reduction,
    regions,
    reshape,
    resize,
)
