"""The samples of all operators, in one file for each family."""

from interposer.testing.samples import (  # noqa: F401
    activation,
    convolution3d,
    pooling3d,
)
