"""Print what llvm-mca predicts for the inner loops of CpuAcc's kernels on Arm.

    python tools/arm.py build
    python tools/arm_loops.py            # a table, as docs/on-arm.md has it

A loop is the code between a backward branch and its target, without a branch inside, that multiplies most. The peak of
a processor is what llvm-mca predicts for multiplications that do not depend on each other, except for `PEAKS`. It needs
``apt install binutils-aarch64-linux-gnu llvm-19``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

OBJECTS: Final = Path(__file__).resolve().parent.parent / "build" / "arm" / "native" / "cpuacc" / "CMakeFiles"
OBJDUMP: Final = "aarch64-linux-gnu-objdump"
MODEL: Final = "llvm-mca-19"
PROCESSORS: Final = ("cortex-a55", "neoverse-n1", "neoverse-v1")
ITERATIONS: Final = 100
PRODUCTS: Final = {"fmla": 4, "sdot": 16, "smmla": 32, "smull": 8, "smull2": 8, "smlal": 8, "smlal2": 8}
"""Multiplications of each instruction on vectors of 16 bytes."""
INDEPENDENT: Final = {
    "fmla": "fmla v{n}.4s, v30.4s, v31.4s",
    "sdot": "sdot v{n}.4s, v30.16b, v31.16b",
    "smmla": "smmla v{n}.4s, v30.16b, v31.16b",
    "smull": "smull v{n}.8h, v30.8b, v31.8b",
}
"""Instructions whose throughput is the peak of a processor."""

PEAKS: Final = {("cortex-a55", "fmla"): 4}
"""Peaks that differ from the model. By Arm's guide, a Cortex-A55 begins one FMLA of 16 bytes in a cycle."""


@dataclass(frozen=True)
class Kernel:
    """A kernel: its title, its level and source, its demangled name, and the instruction that multiplies."""

    title: str
    level: str
    source: str
    function: str
    instruction: str


KERNELS: Final = (
    Kernel("float32 tile, 5 pixels x 16", "neon", "matmul_f32", "micro_kernel<5, 4, 16>", "fmla"),
    Kernel("float32 vector x matrix", "neon", "matmul_f32", "gemv_panel<2, false>", "fmla"),
    Kernel("LSTM, hidden states", "neon", "lstm", "step_by_lane", "fmla"),
    Kernel("GRU, hidden states", "neon", "lstm", "multiply_gates<3, false>", "fmla"),
    Kernel("bytes, `neon`, 4 pixels x 8", "neon", "q8", "neon_tile<4, 2, false, true>", "smull"),
    Kernel("bytes, `dotprod`, 5 pixels x 16", "dotprod", "q8", "neon_tile<5, 4, false, false>", "sdot"),
    Kernel("bytes, `dotprod`, 8 pixels x 8", "dotprod", "q8", "neon_tile<8, 2, false, false>", "sdot"),
    Kernel("bytes, `i8mm`, 6 pixels x 16", "i8mm", "q8", "neon_tile<6, 4, false, false>", "smmla"),
    Kernel("bytes, `i8mm`, 8 pixels x 8", "i8mm", "q8", "neon_tile<8, 2, false, false>", "smmla"),
)


def main() -> int:
    """Print the table; exit with 1 if something is missing."""
    for program, package in ((OBJDUMP, "binutils-aarch64-linux-gnu"), (MODEL, "llvm-19")):
        if shutil.which(program) is None:
            print(f"{program} is not installed (apt install {package})", file=sys.stderr)
            return 1
    if not OBJECTS.is_dir():
        print(f"no objects in {OBJECTS} (python tools/arm.py build)", file=sys.stderr)
        return 1
    print("\n".join(_table()))
    return 0


def _table() -> Iterator[str]:
    yield f"| inner loop | instructions for each multiplication | {' | '.join(PROCESSORS)} |"
    yield f"|---|---|{'---|' * len(PROCESSORS)}"
    for kernel in KERNELS:
        loop = _loop(kernel)
        shares = [_share(loop, kernel.instruction, processor) for processor in PROCESSORS]
        yield f"| {kernel.title} | {len(loop) / _products(loop):.3f} | {' | '.join(shares)} |"


def _share(loop: Sequence[str], instruction: str, processor: str) -> str:
    """Return multiplications in a cycle and their share of the peak, or a dash for an instruction that is absent."""
    if instruction == "smmla" and processor in ("cortex-a55", "neoverse-n1"):
        return "-"
    rate = _products(loop) / _cycles(tuple(loop), processor)
    independent = tuple(INDEPENDENT[instruction].format(n=n) for n in range(16))
    peak = PEAKS.get((processor, instruction)) or _products(independent) / _cycles(independent, processor)
    return f"{rate:.1f} of {peak:.0f} ({rate / peak:.0%})"


@lru_cache
def _cycles(code: tuple[str, ...], processor: str) -> float:
    """Return the cycles that the model predicts for an iteration."""
    words = [MODEL, "-march=aarch64", f"-mcpu={processor}", "-mattr=+dotprod,+i8mm", f"-iterations={ITERATIONS}"]
    text = "loop:\n" + "\n".join(code) + "\n"
    done = subprocess.run([*words, "-instruction-info=0"], input=text, check=True, capture_output=True, text=True)
    found = re.search(r"^Total Cycles:\s+(\d+)", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    return int(found[1]) / ITERATIONS


def _products(code: Sequence[str]) -> int:
    return sum(PRODUCTS.get(line.split()[0], 0) for line in code)


def _loop(kernel: Kernel) -> list[str]:
    """Return the inner loop of a kernel that multiplies most."""
    lines = _code(kernel)
    addresses = {address: n for n, (address, _) in enumerate(lines)}
    loops = []
    for end, (_, text) in enumerate(lines):
        branch = re.match(r"(?:b\.\w+|cbn?z|tbn?z)\t.*?\b([0-9a-f]+) <", text)
        start = addresses.get(int(branch[1], 16), end + 1) if branch else end + 1
        if start <= end:
            loops.append((start, end))
    inner = [(a, b) for a, b in loops if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)]
    bodies = [[_without_address(text) for _, text in lines[start : end + 1]] for start, end in inner]
    return max(bodies, key=_products)


def _without_address(text: str) -> str:
    return re.sub(r"\b[0-9a-f]+ <.*", "loop", re.sub(r"\s*//.*", "", text))


def _code(kernel: Kernel) -> list[tuple[int, str]]:
    """Return the addresses and instructions of a kernel."""
    made = OBJECTS / f"cpuacc_{kernel.level}.dir" / "kernels" / f"{kernel.source}.cpp.o"
    words = [OBJDUMP, "--disassemble", "--demangle", "--no-show-raw-insn", str(made)]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    for name, body in re.findall(r"^[0-9a-f]+ <(.+)>:\n((?:.+\n)*)", text, re.MULTILINE):
        if f"::{kernel.function}(" in name:
            return [
                (int(address, 16), code)
                for address, code in re.findall(r"^\s*([0-9a-f]+):\s+(.+)$", body, re.MULTILINE)
            ]
    raise LookupError(f"no function {kernel.function} in {made.name} of {kernel.level}")


if __name__ == "__main__":
    sys.exit(main())
