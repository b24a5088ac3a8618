"""The instruction sets of CpuAcc, in ascending order, and which of them the installed build has."""

from __future__ import annotations

import os
import platform
from functools import cache
from typing import Final
from unittest import mock

import pytest

import interposer as ip

__all__ = ["INSTRUCTION_SETS", "needs_instruction_set"]

IS_ARM: Final = platform.machine() in ("aarch64", "arm64")
INSTRUCTION_SETS: Final = (
    ["neon", "dotprod", "i8mm"] if IS_ARM else ["baseline", "avx2", "avx512", "avx512vnni", "avx512bf16", "amx"]
)
"""A set that the processor lacks means its best one, so a test may ask for any."""


def needs_instruction_set(*names: str) -> None:
    """Skip the test if CpuAcc was built without one of these sets, as a build for this machine only is."""
    built = _built_sets()
    highest = max(map(INSTRUCTION_SETS.index, built))
    absent = [name for name in names if name not in built and INSTRUCTION_SETS.index(name) < highest]
    if absent:
        pytest.skip(f"CpuAcc was built without {', '.join(absent)}; INTERPOSER_NATIVE_SETS=all builds all sets")


@cache
def _built_sets() -> list[str]:
    with mock.patch.dict(os.environ, {"INTERPOSER_DISABLED_BACKENDS": ""}), ip.Runtime() as runtime:
        return str(runtime.registry.get("CpuAcc").capabilities.get("InstructionSets")).split(", ")
