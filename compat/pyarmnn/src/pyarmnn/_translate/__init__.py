"""From a network of this interface to a network of Interposer."""

from pyarmnn._translate.networks import translated

__all__ = ["translated"]
