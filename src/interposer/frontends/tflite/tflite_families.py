"""Imports of all families of converters, which register themselves."""

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
