"""Imports of all families of converters, which register themselves."""

from interposer.frontends.caffe import (  # noqa: F401
    activation,
    convolution,
    detection,
    elementwise,
    matmul,
    normalization,
    pooling,
    rearrange,
    recurrent,
    reduction,
)
