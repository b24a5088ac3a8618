"""Torch: PyTorch on the processor or on a CUDA device.

There is a function of torch for each operator (in family files: elements, windows, sums, moves); a part is one module,
to which they are traced. Torch is imported when the backend is first asked.
"""

from interposer.backends.engines.torch.backend import Torch

__all__ = ["Torch"]
