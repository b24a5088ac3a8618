"""Imports every family of kernels, so that the reference table is full."""

from interposer.kernels import control  # noqa: F401
