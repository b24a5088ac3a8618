"""Evaluation of single operators, for which only the kernels of their family are imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interposer.core.schema import Op, registered_ops
from interposer.kernels.evaluation import reference

TABLE = reference()


@pytest.mark.parametrize("name", registered_ops())
def test_all_kernels_of_an_operator_are_in_the_module_of_its_family(name):
    op = registered_ops()[name]
    families = {f"interposer.kernels.{base.family}" for base in op.__mro__ if issubclass(base, Op) and base is not Op}
    if op.__module__.startswith("interposer."):
        assert {kernel.function.__module__ for kernel in TABLE.kernels(op)} <= families


def test_evaluating_an_operator_imports_no_other_families():
    program = """
        import sys
        from interposer.kernels import compute
        from interposer.ops import Transpose
        print(compute(Transpose((1, 0)), [[1, 2, 3]]).tolist())
        print([name in sys.modules for name in ("interposer.kernels.rearrange", "interposer.kernels.lstm")])
    """
    lines = [line.strip() for line in program.strip().splitlines()]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[[1], [2], [3]]", "[True, False]"]
