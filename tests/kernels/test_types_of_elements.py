"""Whatever the type of the elements is: a reference kernel computes, or says that it does not."""

import numpy as np
import pytest

from interposer.core.errors import InvalidArgumentError
from interposer.core.types import QUANTIZABLE, DataType, Quantization, TensorInfo
from interposer.kernels import evaluate
from interposer.ops.activation import Activation, ActivationFunction, LogSoftmax, Softmax
from interposer.ops.elementwise import (
    BinaryOperation,
    Comparison,
    ComparisonOperation,
    ElementwiseBinary,
    ElementwiseUnary,
    Floor,
    Prelu,
    UnaryOperation,
)
from interposer.ops.normalization import (
    BatchNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    Normalization,
)
from interposer.ops.reduction import ArgMinMax, Mean, Reduce, ReduceOperation

OPERATORS = [
    *(ElementwiseBinary(operation).canonical() for operation in BinaryOperation),
    *map(ElementwiseUnary, UnaryOperation),
    *map(Comparison, ComparisonOperation),
    *(Activation(function, 1.0, 1.0) for function in ActivationFunction),
    *(Reduce(operation=operation) for operation in ReduceOperation),
    *(Floor(), Prelu(), Softmax(), LogSoftmax(), Mean(), ArgMinMax()),
    *(BatchNormalization(), InstanceNormalization(), L2Normalization(), LayerNormalization()),
    Normalization(norm_size=1),
]  # fmt: skip
PLAIN = [(dtype, None) for dtype in DataType if not dtype.is_collection]
STORED = [(dtype, Quantization(0.5, 1)) for dtype in DataType if dtype in QUANTIZABLE]
PER_CHANNEL = [(dtype, Quantization([0.5], 0, axis=1)) for dtype in DataType if dtype in QUANTIZABLE]


@pytest.mark.parametrize(("dtype", "quantization"), PLAIN + STORED + PER_CHANNEL, ids=str)
def test_a_kernel_computes_or_says_that_it_does_not(dtype, quantization):
    _compute_all(TensorInfo((2, 1, 1, 1), dtype, quantization))


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,) * 8], ids=str)
@pytest.mark.parametrize(
    ("dtype", "quantization"), [(DataType.FLOAT16, None), (DataType.INT64, None), STORED[0]], ids=str
)
def test_a_kernel_computes_tensors_of_any_rank_and_without_elements(shape, dtype, quantization):
    _compute_all(TensorInfo(shape, dtype, quantization))


def _compute_all(info):
    ones = np.ones(info.shape, info.dtype.numpy)
    for op in OPERATORS:
        count = sum(not operand.optional for operand in op.operands)
        if not op.violations(*[info] * count):
            _compute(op, [ones] * count, [info] * count)


def _compute(op, arrays, infos):
    outputs = op.infer_infos(*infos)
    try:
        [result] = evaluate(op, arrays, infos, outputs)
    except InvalidArgumentError as error:
        assert str(error).startswith(f"{op.op_name()}: ")
    else:
        assert result.shape == outputs[0].shape
        assert result.dtype == outputs[0].dtype.numpy
