"""The samples of all operators, in one file for each family."""

from interposer.testing.samples import activation  # noqa: F401
