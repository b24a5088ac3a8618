"""Run in a process of its own: the conformance kit on CpuAcc, as exact as docs/cpuacc.md promises.

Arguments: a pattern of cases, every how many samples one is tried, and "fast" for fast math, with its bound. Prints the
report.
"""

from __future__ import annotations

import sys

from interposer.core.schema import registered_ops
from interposer.core.types import DataType
from interposer.ops import FullyConnected
from interposer.testing import Settings, Tolerance, Tolerances, check_backend, samples_of

EXACT = Tolerances({DataType.FLOAT32: Tolerance(0.0, 1e-5)}, steps=0)
FAST = Tolerances({DataType.FLOAT32: Tolerance(0.0, 3e-2)}, steps=0)

WEIGHTS_AS_INPUTS = "FullyConnected-long-float32"
"""A sample whose weights CpuAcc also takes as inputs, as it says of itself."""


def main(only: str, every: str, mode: str = "exact") -> int:
    samples = [one for op in registered_ops().values() for one in samples_of(op)][:: int(every)]
    samples += [sample for sample in samples_of(FullyConnected) if sample.id == WEIGHTS_AS_INPUTS]
    settings = Settings(tolerances=EXACT, examples=10)
    if mode == "fast":
        settings = Settings({"FastMathEnabled": True}, FAST, examples=10)
    report = check_backend("CpuAcc", only=only, samples=samples, settings=settings)
    print(report)
    return 0 if report.ok and report.counts["pass"] else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
