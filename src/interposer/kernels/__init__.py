"""The reference arithmetic: NumPy functions, in one file per family of operators.

`reference` returns the table of all kernels. CpuRef, constant folding and the tests use it.
"""

from interposer.kernels.evaluation import compute, evaluate, reference, refusals
from interposer.kernels.table import Kernel, KernelInfo, KernelTable, empty

__all__ = ["Kernel", "KernelInfo", "KernelTable", "compute", "empty", "evaluate", "reference", "refusals"]
