"""The samples of all operators, in one file for each family."""

from interposer.testing.samples import (  # noqa: F401
    activation,
    blocks,
    control,
    convolution,
    convolution3d,
    elementwise,
    gather,
    matmul,
    normalization,
    pooling,
    pooling3d,
    quantization,
    rearrange,
    reduction,
    reshape,
    resize,
)
