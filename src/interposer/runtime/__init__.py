"""The runtime: loading, running and unloading of optimized networks."""

from interposer.runtime.options import CreationOptions
from interposer.runtime.runtime import NetworkId, Runtime

__all__ = ["CreationOptions", "NetworkId", "Runtime"]
