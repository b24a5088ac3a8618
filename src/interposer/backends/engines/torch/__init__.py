"""Torch: PyTorch on the CPU or on a CUDA device.

There is a torch function for each operator (in the family files: elements, convolutions, sums, moves). A subgraph is
traced to one module. Torch is imported on the first query of the backend.
"""

from interposer.backends.engines.torch.backend import Torch

__all__ = ["Torch"]
