"""A backend that only computes: it has a few kernels in a table, and inherits everything else.

>>> import interposer as ip
>>> runtime = ip.Runtime()
>>> runtime.registry.register("Tiny", TinyBackend)
>>> network = ip.Network("layer")
>>> x = network.add_input_layer(0, ip.TensorInfo((1, 2)), name="x")
>>> w = network.add_constant_layer(np.float32([[1, -1], [2, -2]]), name="w")
>>> product = network.add_batch_mat_mul_layer(x, w, name="product")
>>> y = network.add_activation_layer(product, function=ActivationFunction.RELU, name="relu")
>>> _ = network.add_output_layer(0, y)
>>> model = ip.load(network, backends=["Tiny"], runtime=runtime)
>>> model.run([[[3, 4]]])
[array([[11.,  0.]], dtype=float32)]
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from interposer.backend import Backend, KernelInfo, KernelTable
from interposer.ops import Activation, ActivationFunction, Addition, BatchMatMul
from interposer.types import DataType

F32 = NDArray[np.float32]
kernel = KernelTable()


@kernel(Addition, dtypes={DataType.FLOAT32})
def addition(op: Addition, a: F32, b: F32, *, out: F32) -> None:
    """`out` is the memory of the result; a kernel that cannot write to it returns an array instead."""
    np.add(a, b, out=out)


def only_plain(op: BatchMatMul, info: KernelInfo) -> str | None:
    """Return the reason for a refusal, which `explain` shows, or None if the kernel accepts the layer."""
    return None if op == BatchMatMul() else "matrices are not transposed here"


@kernel(BatchMatMul, dtypes={DataType.FLOAT32}, when=only_plain)
def matmul(op: BatchMatMul, a: F32, b: F32, *, out: F32) -> None:
    np.matmul(a, b, out=out)


def only_relu(op: Activation, info: KernelInfo) -> str | None:
    return None if op.function is ActivationFunction.RELU else f"{op.function.name} is not RELU"


@kernel(Activation, dtypes={DataType.FLOAT32}, when=only_relu)
def relu(op: Activation, x: F32, *, out: F32) -> None:
    np.maximum(x, 0, out=out)


class TinyBackend(Backend):
    """Supports the layers that its table has a kernel for.

    `Backend` provides support, workloads, handles and memory.
    """

    id: ClassVar = "Tiny"
    kernels: ClassVar = kernel
