"""The samples of an operator try every type of tensor that a reference kernel takes."""

from __future__ import annotations

import pytest

from interposer.core.schema import Op, registered_ops
from interposer.kernels.evaluation import reference
from interposer.kernels.table import KernelInfo
from interposer.testing import Sample, samples_of
from interposer.testing.untried_types import untried_kinds

MOST = 40
OPERATORS = [op for op in registered_ops().values() if op.executable and op.operands]


def is_taken(sample: Sample) -> bool:
    """Whether a reference kernel takes a sample."""
    inputs = [None if operand is None else operand.info for operand in sample.inputs]
    outputs = [info for info in sample.outputs if info is not None]
    return not reference().reasons(sample.op, KernelInfo.of(sample.op, inputs, outputs))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.op_name())
def test_every_type_that_the_reference_takes_has_a_sample(op: type[Op]) -> None:
    assert untried_kinds(samples_of(op), is_taken, MOST) == []
