"""Imports of all families of converters, which register themselves."""

from interposer.frontends.torch import (  # noqa: F401
    activation,
    attention,
    convolution,
    creation,
    elementwise,
    indexing,
    matmul,
    normalization,
    reduction,
    shaping,
    symbols,
)
