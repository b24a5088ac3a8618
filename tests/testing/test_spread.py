"""Which results of a network the judge of random networks explains by rounding."""

from dataclasses import replace

import numpy as np
import pytest

import interposer as ip
from interposer.core.types import Quantization, TensorInfo
from interposer.ops import BinaryOperation, ElementwiseBinary, ElementwiseUnary, Quantize, TopK, UnaryOperation
from interposer.testing.judge.spread import spreads
from interposer.testing.oracle import reference_values
from interposer.testing.tolerances import Tolerances


def divided(operation, dividend, divisor, *, computed):
    """The spread of a division, of operands that are computed or are inputs."""
    network, info = ip.Network("division"), TensorInfo((len(dividend),), "float32")
    operands = [network.add_input_layer(n, info) for n in range(2)]
    if computed:
        operands = [network.add_layer(ElementwiseUnary(UnaryOperation.SQRT), operand) for operand in operands]
    layer = network.add_layer(ElementwiseBinary(operation), *operands)
    network.add_output_layer(0, layer)
    feeds = {n: (array**2 if computed else array).astype(np.float32) for n, array in enumerate((dividend, divisor))}
    values = reference_values(network.graph, feeds)
    return spreads(network.graph, feeds, values, Tolerances())[layer.output]


@pytest.mark.parametrize(
    ("operation", "sides"),
    [
        (BinaryOperation.MOD, (0.0, 3.0)),
        (BinaryOperation.FMOD, (0.0, 3.0)),
        (BinaryOperation.FLOOR_DIV, (3.0, 4.0)),
    ],
    ids=str,
)
def test_a_quotient_of_computed_numbers_near_a_whole_one_may_be_on_either_side_of_it(operation, sides):
    spread = divided(operation, np.full(500, 12.0), np.full(500, 3.0), computed=True)
    for side in sides:
        assert not spread.wrong(np.full(500, side, np.float32)).any()


@pytest.mark.parametrize("operation", [BinaryOperation.MOD, BinaryOperation.FMOD, BinaryOperation.FLOOR_DIV], ids=str)
def test_a_quotient_of_inputs_or_far_from_a_whole_number_is_sure(operation):
    of_inputs = divided(operation, np.full(50, 12.0), np.full(50, 3.0), computed=False)
    far = divided(operation, np.full(50, 10.0), np.full(50, 3.0), computed=True)
    for spread in (of_inputs, far):
        assert spread.wrong(spread.reference + np.float32(0.5)).all()


@pytest.mark.parametrize(("dtype", "low", "high"), [("int4", -8, 7), ("uint4", 0, 15), ("int8", -128, 127)])
def test_a_quantized_result_may_be_off_by_the_allowed_steps_in_every_type(dtype, low, high):
    network, info = ip.Network("quantized"), TensorInfo((200,), "float32")
    x = network.add_input_layer(0, info)
    codes = TensorInfo((200,), dtype, Quantization(0.5, 1))
    layer = network.add_layer(Quantize(dtype=codes.dtype), x, outputs=[codes])
    network.add_output_layer(0, layer)
    feeds = {0: np.linspace(-100, 100, 200, dtype=np.float32)}
    values = reference_values(network.graph, feeds)
    spread = spreads(network.graph, feeds, values, replace(Tolerances(), steps=2))[layer.output]
    assert not spread.wrong(values[layer.output]).any()
    assert spread.wrong(np.where(values[layer.output] == high, low, high).astype(codes.dtype.numpy)).any()


def test_the_square_of_a_small_difference_may_be_less_than_the_reference_computes():
    network, info = ip.Network("squared"), TensorInfo((3,), "float32")
    a, b = (network.add_input_layer(number, info) for number in range(2))
    product = network.add_multiplication_layer(b, b)
    layer = network.add_layer(ElementwiseBinary(operation=BinaryOperation.SQ_DIFF), a, product)
    network.add_output_layer(0, layer)
    root = np.full(3, np.sqrt(0.5), np.float32)
    feeds = {0: root * root + np.float32(2e-5), 1: root}
    values = reference_values(network.graph, feeds)
    spread = spreads(network.graph, feeds, values, Tolerances())[layer.output]
    exact = values[layer.output]
    assert not spread.wrong(exact * np.float32(0.997)).any()  # the product is off by its rounding
    assert not spread.wrong(exact * np.float32(1.003)).any()
    assert spread.wrong(exact * np.float32(1e6)).all()


@pytest.mark.parametrize("size", [2, 3, 40])
def test_any_of_equal_numbers_may_be_found_the_largest(size):
    network = ip.Network("tie")
    root = network.add_layer(
        ElementwiseUnary(UnaryOperation.SQRT), network.add_input_layer(0, TensorInfo((50, size), "float32"))
    )
    top = network.add_layer(TopK(k=1), root)
    network.add_output_layer(0, top.outputs[1])
    values = np.ones((50, size), np.float32)
    values[:, 1:-1] = 0.5  # the first and the last are equal
    reference = reference_values(network.graph, {0: values})
    spread = spreads(network.graph, {0: values}, reference, Tolerances())[top.outputs[1]]
    assert not spread.wrong(np.full_like(reference[top.outputs[1]], size - 1)).any()
    assert not spread.wrong(np.zeros_like(reference[top.outputs[1]])).any()
