"""Reference kernels of large and small float32 numbers: the results are those of float64, rounded once."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.core.schema import Op
from interposer.core.types import DataType, TensorInfo
from interposer.testing import Sample, samples_of
from interposer.testing.known_samples import sampled_ops
from interposer.testing.oracle import reference_outputs
from interposer.testing.sample import Given, given_by, sources_of
from interposer.testing.samples import magnitudes
from interposer.testing.tolerances import Tolerances


def has_extreme_samples(op: type[Op]) -> bool:
    """Return True if the module of such samples has one of the operator; the other samples would take long to make."""
    sources = [source for source in sources_of(op) if source.__module__ == magnitudes.__name__]
    return any(sample.extreme for source in sources for sample in given_by(source, op))


OPERATORS = [*filter(has_extreme_samples, sampled_ops())]


def in_float64(sample: Sample) -> Sample:
    """The sample with float64 in place of float32, whose range is far larger."""
    operands = []
    for operand, array in zip(sample.inputs, sample.arrays(), strict=True):
        assert operand is not None and array is not None
        dtype = DataType.FLOAT64 if operand.info.dtype is DataType.FLOAT32 else operand.info.dtype
        info = TensorInfo(operand.info.shape, dtype)
        operands.append(Given(info, array.astype(dtype.numpy), constant=operand.constant))
    return Sample(sample.op, operands, name=sample.name)


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.op_name())
def test_a_result_that_is_a_float32_number_does_not_overflow_on_the_way(op: type[Op]) -> None:
    problems = {}
    for sample in samples_of(op):
        if sample.extreme:
            network, feeds = sample.network()
            exact_network, exact_feeds = in_float64(sample).network()
            [result] = reference_outputs(network.graph, feeds).values()
            [exact] = reference_outputs(exact_network.graph, exact_feeds).values()
            with np.errstate(over="ignore"):
                exact = exact.astype(result.dtype)
            problem = Tolerances().difference(result, exact, network.graph.layer("layer").output.known)
            problems |= {sample.id: problem} if problem else {}
    assert problems == {}
