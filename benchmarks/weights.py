"""`python benchmarks/run.py weights`: products of a few rows with constant weights of 4 and 8 bits.

CpuAcc, ONNX Runtime and OpenVINO run each product (DequantizeLinear with blocks of 32, and MatMul) on one thread, with
float32 rows. A name ends with the megabytes of integers and scales.
The first line has the bandwidth of a thread that reads memory, in gigabytes per second (megabytes per millisecond).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from benchmarks.single_layers import run

__all__ = ["Product", "main", "read_bandwidth"]

SIZES: Final = ((4096, 4096), (4096, 11008), (11008, 4096), (768, 3072))
_random = np.random.default_rng(0)


@dataclass(frozen=True)
class Product:
    """A matrix product of some rows with weights that have a scale for each block."""

    rows: int
    depth: int
    columns: int
    bits: int = 4
    block: int = 32

    @property
    def megabytes(self) -> float:
        """The size of the integers and the scales."""
        return self.depth * self.columns * (self.bits / 8 + 4 / self.block) / 1e6

    def layer(self) -> tuple[Any, Sequence[Any]]:
        """Return the ONNX model and its inputs."""
        from onnx import TensorProto, helper, numpy_helper  # noqa: PLC0415 - it is optional

        weights, scales = self._weights()
        constants = [numpy_helper.from_array(weights, "weights"), numpy_helper.from_array(scales, "scales")]
        nodes = [
            helper.make_node("DequantizeLinear", ["weights", "scales"], ["real"], axis=0, block_size=self.block),
            helper.make_node("MatMul", ["x", "real"], ["y"]),
        ]
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [self.rows, self.depth])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [self.rows, self.columns])
        graph = helper.make_graph(nodes, "product", [x], [y], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return model, [_random.uniform(-1, 1, (self.rows, self.depth)).astype(np.float32)]

    def _weights(self) -> tuple[Any, Any]:
        import ml_dtypes  # noqa: PLC0415 - it is optional

        high = 2 ** (self.bits - 1)
        integers = _random.integers(-high, high, (self.depth, self.columns))
        scales = _random.uniform(0.01, 0.02, (self.depth // self.block, self.columns))
        return integers.astype(ml_dtypes.int4 if self.bits == 4 else np.int8), scales.astype(np.float32)


def read_bandwidth(megabytes: int = 256) -> float:
    """Return the gigabytes per second that one thread reads from memory."""
    numbers = np.ones(megabytes << 18, np.int32)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        numbers.max()
        times.append(time.perf_counter() - start)
    return numbers.nbytes / min(times) / 1e9


def _cases() -> Mapping[str, Product]:
    products = [Product(1, depth, columns, bits) for bits in (4, 8) for depth, columns in SIZES]
    products += [Product(rows, 4096, 4096) for rows in (4, 8, 16, 128)]
    return {f"int{p.bits} {p.rows} x {p.depth} x {p.columns} {p.megabytes:.1f} MB": p for p in products}


def main(words: Sequence[str] | None = None) -> int:
    """Measure the products whose names match a pattern."""
    print(f"a thread reads {read_bandwidth():.1f} GB/s")
    cases = {name: product.layer for name, product in _cases().items()}
    return run("weights", __doc__, cases, words)
