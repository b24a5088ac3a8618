"""Print how many instructions each helper of CpuAcc's kernels takes on Arm, from code that a cross compiler made.

    python tools/arm_helpers.py            # a table, as docs/on-arm.md has it

Each helper is compiled as a function of its own. Its return, loads of operands and constants, and moves between
registers are not counted: a loop has constants in registers, and loads operands once for several helpers.
It needs ``apt install g++-aarch64-linux-gnu``.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).resolve().parent.parent / "native"
PREFIX: Final = "aarch64-linux-gnu-"
COMPILER: Final = f"{PREFIX}g++"
LEVELS: Final = {
    "neon": "armv8-a",
    "dotprod": "armv8.2-a+dotprod",
    "i8mm": "armv8.2-a+dotprod+i8mm",
}
"""The levels of CpuAcc on Arm, and the architecture that each is compiled for, as in native/cpuacc/CMakeLists.txt."""
FLAGS: Final = (
    "-std=gnu++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-schedule-insns", "-w",
    "-DISA_NS=neon",
)  # fmt: skip
INCLUDES: Final = (f"-I{NATIVE}", f"-I{NATIVE.parent / 'src' / 'interposer' / 'include'}")
HEADERS: Final = ("simd.hpp", "activations.hpp", "half_precision.hpp")
NOT_COUNTED: Final = re.compile(
    r"(ret|nop|adrp|movi|mvni|mov|fmov)\b|add\tx\d+, x\d+, #0x0|dup\tv\d+\.4s, w|ld[rp]\t[dqs]\d"
)
"""The return, loads of operands and constants, and moves between registers."""
BRANCH: Final = re.compile(r"b$|b\.|cbn?z|tbn?z")
OF_LANES: Final = re.compile(r"(umov|smov|bl|ins)\t|mov\tv\d+\.[bhs]\[\d+\], ")
"""Instructions that move single lanes, or call a function."""

HELPERS: Final[Mapping[str, tuple[str, str, int]]] = {
    "at_least": ("Vec", "Vec a, Vec b", 4), "at_most": ("Vec", "Vec a, Vec b", 4),
    "greatest_lane": ("float", "Vec a", 4), "sum_of_lanes": ("float", "Vec a", 4),
    "any_lane": ("bool", "IntVec a", 4),
    "exclusive_or": ("Ints", "Ints a, Ints b", 16), "add": ("Ints", "Ints a, Ints b", 4),
    "subtract": ("Ints", "Ints a, Ints b", 4), "multiply": ("Ints", "Ints a, Ints b", 4),
    "shift_left<3>": ("Ints", "Ints a", 4),
    "fixed_point": ("Ints", "Ints a, Ints b, Ints c", 4),
    "low8": ("Ints", "Ints a, Ints b", 16), "high8": ("Ints", "Ints a, Ints b", 16),
    "low16": ("Ints", "Ints a, Ints b", 8), "high16": ("Ints", "Ints a, Ints b", 8),
    "to_shorts": ("Ints", "Ints a, Ints b", 8), "add_shorts": ("Ints", "Ints a, Ints b", 8),
    "to_bytes": ("Ints", "Ints a, Ints b", 16), "clamp_bytes": ("Ints", "Ints a, Ints b, Ints c", 16),
    "floats": ("Vec", "Ints a", 4), "truncated": ("Ints", "Vec a", 4), "nearest": ("Ints", "Vec a", 4),
    "fused": ("Vec", "Vec a, Vec b, Vec c", 4), "fused_by_lane<1>": ("Vec", "Vec a, Vec b, Vec c", 4),
    "with_sign": ("Vec", "Vec a, Vec b", 4),
    "difference": ("Vec", "Vec a, Vec b", 4), "larger_size": ("Vec", "Vec a, Vec b", 4),
    "exceeds": ("bool", "Vec a, float b", 4),
    "scaled_wide": ("Ints", "Ints a, const double* b, const double* c", 4),
    "scaled_wide_even": ("Ints", "Ints a, const double* b, const double* c", 4),
    "dot": ("DotSums", "DotSums a, Ints b, Ints c", 16),
    "store_low_bytes": ("void", "uint8_t* a, Ints b", 4),
    "load_some": ("Ints", "const uint8_t* a, int64_t b", 16),
    "store_some": ("void", "uint8_t* a, Ints b, int64_t c", 16),
    "load_piece": ("Ints", "Ints a, const uint8_t* b, int c, int d", 16),
    "store_piece": ("void", "uint8_t* a, Ints b, int c, int d", 16),
    "load_half": ("Vec", "const uint16_t* a", 4), "load_brain": ("Vec", "const uint16_t* a", 4),
    "select": ("Vec", "IntVec a, Vec b, Vec c", 4), "absolute": ("Vec", "Vec a", 4),
    "square_root": ("Vec", "Vec a", 4), "exponential": ("Vec", "Vec a", 4),
    "exponential_below_zero": ("Vec", "Vec a", 4), "sigmoid": ("Vec", "Vec a", 4),
    "hyperbolic_tangent": ("Vec", "Vec a", 4), "soft_relu": ("Vec", "Vec a", 4),
    "error_function": ("Vec", "Vec a", 4), "mish": ("Vec", "Vec a", 4),
}  # fmt: skip
"""Helpers by name: the type of the result, the parameters, and how many elements a call computes."""
OTHERS: Final = frozenset({
    "load", "store", "load_bytes", "store_bytes", "load_pair", "prefetch_line", "broadcast", "splat", "bytes",
    "shorts", "byte_numbers", "lowest_bytes", "as_u8", "as_s8", "as_s16", "as_ints", "packed", "rows_of", "rounded",
    "shuffled", "rotated", "dot_sums", "total", "low_wide", "high_wide", "narrow", "load_few", "store_few",
    "unaligned", "interleaved", "bounded", "first_lanes",
})  # fmt: skip
"""Functions of simd.hpp that are loads, stores, constants, other views of a register, or pieces of `HELPERS`."""


@dataclass(frozen=True)
class Cost:
    """What a helper takes: the instructions in the order of its code, and the elements of a call."""

    instructions: tuple[str, ...]
    elements: int
    has_branches: bool

    @property
    def per_element(self) -> float:
        return len(self.instructions) / self.elements


def main() -> int:
    """Print the table; exit with 1 without a cross compiler."""
    if shutil.which(COMPILER) is None:
        print(f"{COMPILER} is not installed (apt install g++-aarch64-linux-gnu)", file=sys.stderr)
        return 1
    print("\n".join(table({level: costs(level) for level in LEVELS})))
    return 0


def table(by_level: Mapping[str, Mapping[str, Cost]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| helper | elements | {' | '.join(f'`{level}`' for level in by_level)} | instructions at the highest |"
    yield f"|---|---|{'---|' * len(by_level)}---|"
    for name in HELPERS:
        costs_of_name = [by_level[level][name] for level in by_level]
        numbers = [f"{len(cost.instructions)} ({cost.per_element:.2f})" for cost in costs_of_name]
        last = costs_of_name[-1]
        names = "branches" if last.has_branches else ", ".join(dict.fromkeys(map(str.upper, last.instructions)))
        yield f"| `{name}` | {last.elements} | {' | '.join(numbers)} | {names} |"


def costs(level: str) -> dict[str, Cost]:
    """Compile all helpers for a level, and return the cost of each."""
    bodies = _disassembled(level)
    return {name: _cost(bodies[f"helper{n}"], HELPERS[name][2]) for n, name in enumerate(HELPERS)}


def loops_over_lanes(level: str) -> list[str]:
    """Return the helpers that move single lanes or call functions."""
    bodies = _disassembled(level)
    return [name for n, name in enumerate(HELPERS) if any(map(OF_LANES.match, bodies[f"helper{n}"]))]


def _cost(lines: list[str], elements: int) -> Cost:
    counted = [line.split("\t")[0] for line in lines if not NOT_COUNTED.match(line)]
    return Cost(tuple(counted), elements, any(map(BRANCH.match, counted)))


def _disassembled(level: str) -> dict[str, list[str]]:
    """Return the instructions of each helper by the name of its function, as ``name<tab>operands``."""
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "helpers.cpp"), Path(folder, "helpers.o")
        source.write_text("\n".join(_source()), encoding="utf-8")
        _output(COMPILER, *FLAGS, f"-march={LEVELS[level]}", *INCLUDES, "-c", source, "-o", made)
        text = _output(f"{PREFIX}objdump", "-d", "--no-show-raw-insn", "--no-addresses", made)
    functions = re.findall(r"^<(\w+)>:\n((?:.+\n?)*)", text, re.MULTILINE)
    return {name: [line.strip() for line in body.splitlines()] for name, body in functions}


def declared() -> set[str]:
    """Return the names of the functions of simd.hpp."""
    text = (NATIVE / "cpuacc" / "kernels" / "simd.hpp").read_text(encoding="utf-8")
    return set(re.findall(r"^CPUACC_INLINE [\w ]+?(\w+)\(", text, re.MULTILINE))


def _source() -> Iterator[str]:
    yield from (f'#include "cpuacc/kernels/{header}"' for header in HEADERS)
    yield "namespace cpuacc::neon {"
    for n, (name, (result, parameters, _)) in enumerate(HELPERS.items()):
        arguments = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        yield f'extern "C" {result} helper{n}({parameters}) {{ return {name}({arguments}); }}'
    yield "}"


def _output(*words: str | Path) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
