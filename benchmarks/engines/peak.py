"""The measured peak performance of the machine, as a reference for the reached performance."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

__all__ = ["Peak", "measure_peaks"]

SOURCE: Final = Path(__file__).with_name("peak.c")
SECONDS: Final = 0.5


@dataclass(frozen=True)
class Peak:
    """Operations per second with a number of threads: of float32, and of 8-bit integers (0 if unknown)."""

    float32: float
    int8: float
    how: str

    def of(self, quantized: bool) -> float:
        """Return the peak for float32 or for quantized networks."""
        return self.int8 if quantized else self.float32


def measure_peaks(threads: list[int]) -> dict[int, Peak]:
    """Return the peak for each number of threads; without a C compiler, that of NumPy's matrix product for all."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder, "peak"))
        words = [str(compiler), "-O2", "-march=native", "-ffp-contract=fast", "-o", program, str(SOURCE), "-lpthread"]
        if compiler is not None and subprocess.run(words, capture_output=True, check=False).returncode == 0:
            return {count: _run(program, count) for count in threads}
    product = Peak(_numpy(), 0.0, "NumPy's matrix product, in as many threads as it takes")
    return dict.fromkeys(threads, product)


def _run(program: str, threads: int) -> Peak:
    words = [program, str(threads), str(SECONDS)]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    return Peak(float(said[0]), float(said[1]), "fused multiplications and additions in registers")


def _numpy(size: int = 1024) -> float:
    a = np.ones((size, size), np.float32)
    best = 0.0
    for _ in range(10):
        start = time.perf_counter()
        a @ a
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best
