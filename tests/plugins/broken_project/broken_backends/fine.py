"""A backend that works, and one that works but takes a name that is taken."""

from typing import ClassVar

import numpy as np

from interposer.backend import Backend, KernelTable
from interposer.ops import Addition

kernel = KernelTable()


@kernel(Addition)
def add(op, a, b, *, out):
    np.add(a, b, out=out)


class FineBackend(Backend):
    id: ClassVar = "Fine"
    kernels: ClassVar = kernel


class FalseReference(Backend):
    id: ClassVar = "CpuRef"
    kernels: ClassVar = kernel
