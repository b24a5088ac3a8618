"""`compute`: one operator on arrays, its infos worked out."""

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import DataType, Quantization
from interposer.kernels import compute
from interposer.ops import (
    Addition,
    Concat,
    Constant,
    Convolution2d,
    Dequantize,
    FullyConnected,
    Gather,
    Input,
    Quantize,
    ReverseV2,
    Shape,
    Softmax,
    Splitter,
    Where,
)


def test_one_result_comes_as_it_is_and_several_as_a_tuple():
    assert compute(Softmax(), [0.0, 0.0]).tolist() == [0.5, 0.5]
    first, rest = compute(Splitter(axis=0, sizes=(1, 2)), [1, 2, 3])
    assert (first.tolist(), rest.tolist()) == ([1], [2, 3])


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        ([1.0, 2.0], DataType.FLOAT32),
        ([1, -2], DataType.INT32),
        ([1, 2**40], DataType.INT64),
        ([True, False], DataType.BOOL),
        (["a", "bc"], DataType.STRING),
        (np.array(["a", "bc"]), DataType.STRING),
        (np.float64([1, 2]), DataType.FLOAT64),
        (np.int64([1, 2]), DataType.INT64),
    ],
    ids=str,
)
def test_arrays_keep_their_type_and_other_things_get_a_usual_one(given, dtype):
    result = compute(ReverseV2(axis=(0,)), given)
    assert DataType.of(result.dtype) is dtype
    assert result.tolist() == list(given)[::-1]


def test_operands_come_by_position_or_by_name():
    by_name = compute(FullyConnected(), weights=[[1.0], [2.0]], input=[[3.0, 4.0]])
    mixed = compute(FullyConnected(), [[3.0, 4.0]], [[1.0], [2.0]], bias=None)
    assert by_name.tolist() == mixed.tolist() == [[11.0]]


def test_any_number_of_operands_may_follow_where_the_operator_takes_them():
    assert compute(Concat(axis=0), [1], [2, 3], [4]).tolist() == [1, 2, 3, 4]


def test_quantization_is_told_by_the_names_of_operands_and_results():
    half, whole = Quantization(0.5), Quantization(1.0, 128)
    a, b = np.uint8([2, 4]), np.uint8([6, 8])
    assert compute(Addition(), a, b, quantization={"a": half, "b": half, "output": whole}).tolist() == [132, 134]
    assert compute(Quantize(), [0.5, -1.0], quantization={"output": Quantization(0.5, 10)}).tolist() == [11, 8]
    assert compute(Dequantize(), a, quantization={"input": half}).tolist() == [1.0, 2.0]


def test_a_quantization_holds_for_each_of_any_number_of_operands():
    half = Quantization(0.5)
    result = compute(Concat(axis=0), np.uint8([2]), np.uint8([4]), quantization={"inputs": half, "output": half})
    assert result.tolist() == [2, 4]


def test_results_whose_shape_is_data_are_computed():
    assert compute(ip.ops.Fill(value=7.0), [2, 1]).tolist() == [[7.0], [7.0]]
    assert compute(Shape(), np.zeros((4, 0, 2))).tolist() == [4, 0, 2]


def test_it_is_at_hand_in_the_package():
    assert ip.compute is compute


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: compute(Softmax, [1.0]),
            "expected an operator, such as Maximum(), not <class 'interposer.ops.activation.Softmax'>",
        ),
        (lambda: compute(Softmax(), [1.0], [2.0]), "Softmax takes at most 1 inputs, but 2 were given"),
        (lambda: compute(Constant(np.int32(1)), 1), "Constant takes at most 0 inputs, but 1 were given"),
        (lambda: compute(Gather(), [1.0]), "Gather: indices is not connected"),
        (
            lambda: compute(Gather(), [1.0], indexes=[0]),
            "Gather takes no operand by name 'indexes'; did you mean 'indices'?",
        ),
        (lambda: compute(Gather(), [1.0], [0], params=[1.0]), "Gather: params is given twice"),
        (lambda: compute(Concat(), inputs=[1.0]), "Concat takes no operand by name 'inputs'"),
        (lambda: compute(Where(), [True], [1], [2.0]), "Where: b is float32; expected int32, the type of a"),
        (lambda: compute(Softmax(), ["a"]), "Softmax: input is string; takes"),
        (lambda: compute(Softmax(), [{}]), "{} cannot be an element of a tensor"),
        (lambda: compute(Softmax(), [2**70]), "1180591620717411303424 cannot be an element of a tensor"),
        (lambda: compute(Softmax(), [[1.0], [2.0, 3.0]]), "an operand cannot be made into an array: "),
        (lambda: compute(Softmax(), [1j]), "unknown data type 'complex128'"),
        (lambda: compute(Input()), "Input: nothing is known of output"),
        (
            lambda: compute(Quantize(), [1.0], quantization={"outputs": Quantization(1.0)}),
            "Quantize has no operand or result 'outputs'; did you mean 'output'?",
        ),
        (
            lambda: compute(Quantize(), [1.0], quantization=Quantization(1.0)),
            "quantization maps names of operands and results, but is Quantization(1.0, 0)",
        ),
        (
            lambda: compute(Softmax(), [1.0], quantization={"input": Quantization(1.0)}),
            "a tensor of type float32 cannot be quantized",
        ),
        (
            lambda: compute(Convolution2d(), np.zeros((1, 2, 3, 3)), np.zeros((1, 1, 2, 2))),
            "Convolution2d: input has 2 channels, but weights have 1",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused_with_a_reason(call, text):
    with pytest.raises(InvalidArgumentError) as caught:
        call()
    assert str(caught.value).startswith(text)
