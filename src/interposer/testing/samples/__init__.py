"""The samples of all operators, in one file for each family."""

from interposer.testing.samples import (  # noqa: F401
    activation,
    attention,
    convolution3d,
    pooling3d,
)
