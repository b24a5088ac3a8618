"""Imports of all families of converters, which register themselves."""

from interposer.frontends.torch import (  # noqa: F401
    activation,
    attention,
    control_flow,
    convolution,
    counting,
    creation,
    distances,
    elementwise,
    indexing,
    matmul,
    normalization,
    pooling,
    quantization,
    recurrent,
    reduction,
    regions,
    resize,
    shaping,
    spectral,
    symbols,
)
