"""Imports every family of operators, so that the table of the front end is full."""

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
