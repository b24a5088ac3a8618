"""Imports of all families of converters, which register themselves."""

from interposer.frontends.tensorflow import (  # noqa: F401
    activation,
    blocks,
    control_flow,
    convolution,
    detection,
    elementwise,
    gather,
    lists,
    matmul,
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
    variables,
)
