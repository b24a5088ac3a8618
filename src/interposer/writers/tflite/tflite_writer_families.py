"""Imports of all families of layer writers, which register themselves."""

from interposer.writers.tflite import (  # noqa: F401
    activation,
    blocks,
    control_flow,
    convolution,
    dynamic,
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
