"""The samples of an operator try every type of tensor that a reference kernel takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from interposer.core.errors import InterposerError
from interposer.core.schema import Op, registered_ops
from interposer.core.types import ANY_TYPE, DataType, Quantization, TensorInfo
from interposer.kernels.evaluation import reference
from interposer.kernels.table import KernelInfo
from interposer.testing import Sample, samples_of

FAMILIES = {
    "activation", "blocks", "control", "convolution", "elementwise", "gather", "matmul", "normalization", "pooling",
    "quantization", "rearrange", "reduction", "reshape", "resize",
}  # fmt: skip
OPERATORS = [op for op in registered_ops().values() if op.executable and op.family in FAMILIES]
Kind = tuple[DataType, bool]


def first_kind(sample: Sample) -> Kind:
    """The type of the first operand, and whether it is quantized."""
    info = next(operand.info for operand in sample.inputs if operand is not None)
    return info.dtype, info.is_quantized


def retyped(sample: Sample, dtype: DataType, q: Quantization | None) -> Iterator[TensorInfo | None]:
    """The operands' infos, those of the first one's type in another one."""
    old, _ = first_kind(sample)
    for operand in sample.inputs:
        if operand is None:
            yield None
        else:
            yield TensorInfo(operand.info.shape, dtype, q) if operand.info.dtype is old else operand.info


def takes(sample: Sample, dtype: DataType, quantized: bool) -> bool:
    """Whether a reference kernel would take the sample in another type."""
    q = Quantization(0.5) if quantized else None
    try:
        infos = list(retyped(sample, dtype, q))
        if sample.op.violations(*infos):
            return False
        outputs = [info.with_quantization(q) if info.dtype is dtype else info for info in sample.op.infer_infos(*infos)]
    except InterposerError:
        return False
    return not reference().reasons(sample.op, KernelInfo.of(sample.op, infos, outputs))


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.op_name())
def test_every_type_that_the_reference_takes_has_a_sample(op: type[Op]) -> None:
    samples = samples_of(op)
    tried = {first_kind(sample) for sample in samples}
    some = {type(sample.op).__name__ + repr(sample.op): sample for sample in samples if first_kind(sample)[0].is_float}
    plain = list(some.values())[:40] or list(samples[:10])
    sizes = op.operands[0].dtypes == {DataType.INT32, DataType.INT64}  # these stand for no float values
    expected = {
        (dtype, quantized) for dtype in ANY_TYPE for quantized in ((False,) if sizes else (False, True))
    } - tried
    missing = [kind for kind in expected if any(takes(sample, *kind) for sample in plain)]
    assert sorted(f"{'quantized ' if quantized else ''}{dtype}" for dtype, quantized in missing) == []
