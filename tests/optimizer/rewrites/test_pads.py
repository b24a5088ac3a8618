"""Pads that the padding of a window takes over, and those that it cannot."""

import itertools

import numpy as np
import pytest

from interposer.core.types import DataLayout, Quantization, TensorInfo
from interposer.ir.network import Network
from interposer.ops import (
    Activation,
    ActivationFunction,
    Convolution2d,
    DepthwiseConvolution2d,
    OutputShapeRounding,
    Pad,
    PaddingMethod,
    Pooling2d,
    PoolingAlgorithm,
)
from interposer.optimizer.passes import RewritePass, run_passes
from interposer.optimizer.rewrites.pads import PADS
from tests.optimizer.rewriting import assert_becomes, assert_same_results, assert_stays


def test_a_pad_is_added_to_what_the_convolution_pads_itself():
    assert_becomes(
        """
        graph {
          %x = Input : float32[1, 4, 5, 1]
          %w = Constant(value=float32[2, 2, 2, 1]{1, 2, 3, 4, 5, 6, 7, 8})
          %p = Pad(pad_list=((0, 0), (1, 2), (0, 3), (0, 0))) %x
          %c = Convolution2d(pad_left=1, stride_x=2, data_layout=NHWC) %p, %w
          Output %c as "y"
        }
        """,
        """
        %w = Constant(value=float32[2, 2, 2, 1]{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0})
        %c = Convolution2d(pad_left=1, pad_right=3, pad_top=1, pad_bottom=2, stride_x=2, data_layout=NHWC) %x, %w \
replacing "p", "c"
        Output %c as "y"
        """,
        *PADS,
    )


def test_a_pad_of_quantized_numbers_is_folded_to_the_bit_and_stays_for_its_other_user():
    assert_becomes(
        """
        graph {
          %x = Input : uint8[1, 1, 4, 5] q(0.5, 3)
          %w = Constant(value=uint8[1, 2, 2, 1]{1, 2, 3, 4}, quantization=q(0.25, 2))
          %p = Pad(pad_list=((0, 0), (0, 0), (1, 1), (1, 1))) %x
          %c = DepthwiseConvolution2d %p, %w : _ declared uint8[1, 1, 5, 6] q(1.0, 100)
          Output %c as "y"
          Output(binding_id=1) %p as "z"
        }
        """,
        """
        %w = Constant(value=uint8[1, 2, 2, 1]{1, 2, 3, 4}, quantization=q(0.25, 2))
        %p = Pad(pad_list=((0, 0), (0, 0), (1, 1), (1, 1))) %x
        Output(binding_id=1) %p as "z"
        %c = DepthwiseConvolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1) %x, %w
        Output %c as "y"
        """,
        *PADS,
    )


@pytest.mark.parametrize(
    "pad",
    [
        "Pad(pad_list=((0, 0), (1, 1), (1, 1), (0, 0)), pad_value=1.0)",
        "Pad(pad_list=((0, 0), (1, 1), (1, 1), (0, 1)))",
        "Pad(pad_list=((1, 0), (0, 0), (0, 0), (0, 0)))",
        "Pad(pad_list=((0, 0), (1, 1), (1, 1), (0, 0)), padding_mode=REFLECT)",
    ],
    ids=["not of zeros", "of channels", "of batches", "of mirrored pixels"],
)
def test_another_pad_stays_before_the_convolution(pad):
    assert_stays(
        f"""
        graph {{
          %x = Input : float32[1, 4, 5, 1]
          %w = Input(binding_id=1) : float32[1, 2, 2, {2 if "(0, 1)))" in pad else 1}]
          %p = {pad} %x
          %c = Convolution2d(data_layout=NHWC) %p, %w
          Output %c as "y"
        }}
        """,
        *PADS,
    )


def pooled(pool: Pooling2d, pads: tuple[int, ...], value: float = 0.0, relu: bool = False, quantized: bool = False):
    """A network that pads and pools, before and after folding."""
    q = Quantization(0.5, 100) if quantized else None
    network = Network()
    x = network.add_input_layer(0, TensorInfo((1, 5, 6, 2), "uint8" if quantized else "float32", q), name="x")
    x = network.add_layer(Activation(ActivationFunction.RELU), x, outputs=x.output.info) if relu else x
    padded = network.add_layer(Pad(((0, 0), pads[:2], pads[2:], (0, 0)), value), x, outputs=None, name="p")
    network.add_output_layer(0, network.add_layer(pool, padded, name="pool"))
    network.validate()
    before = network.graph.clone()
    run_passes(network.graph, [RewritePass("test", PADS)])
    return before, network.graph


WINDOW = {"pool_width": 3, "pool_height": 2, "stride_x": 2, "stride_y": 2, "data_layout": DataLayout.NHWC}


@pytest.mark.parametrize(
    ("pool_type", "own", "method", "rounding"),
    list(itertools.product(PoolingAlgorithm, (0, 1), PaddingMethod, OutputShapeRounding)),
)
def test_a_pooling_gives_the_same_with_and_without_the_pad_that_it_takes_over(pool_type, own, method, rounding):
    pool = Pooling2d(pool_type, pad_left=own, padding_method=method, output_shape_rounding=rounding, **WINDOW)
    folded = 0
    for pads in itertools.product((0, 1), (0, 1), (0, 1, 2), (0, 1)):
        before, after = pooled(pool, pads, relu=pool_type is PoolingAlgorithm.MAX)
        assert_same_results(before, after, rtol=1e-6, atol=1e-6)
        folded += len(after) < len(before)
    excluded = pool_type is not PoolingAlgorithm.MAX and own and method is PaddingMethod.EXCLUDE
    assert (folded == 0) == bool(excluded)


@pytest.mark.parametrize(
    ("value", "relu", "quantized", "folds"),
    [
        (0.0, True, False, True),
        (0.0, False, False, False),
        (-np.inf, False, False, True),
        (0.0, True, True, True),
        (0.0, False, True, False),
        (-60.0, False, True, True),
        (0.5, True, True, False),
    ],
)
def test_a_maximum_takes_over_a_pad_that_never_wins(value, relu, quantized, folds):
    before, after = pooled(Pooling2d(**WINDOW), (1, 1, 1, 1), value, relu, quantized)
    assert (len(after) < len(before)) == folds
    assert_same_results(before, after)


@pytest.mark.parametrize(
    ("pool", "pads"),
    [
        (Pooling2d(**WINDOW), (2, 0, 0, 0)),
        (Pooling2d(**WINDOW), (0, 0, 0, 3)),
        (Pooling2d(**WINDOW, dilation_x=2), (0, 0, 1, 0)),
        (Pooling2d(data_layout=DataLayout.NHWC), (1, 1, 1, 1)),
        (Pooling2d(PoolingAlgorithm.AVERAGE, data_layout=DataLayout.NHWC), (1, 1, 1, 1)),
    ],
    ids=["rows of padding only", "columns of padding only", "dilated", "global maximum", "global mean"],
)
def test_a_pad_stays_where_a_window_could_miss_the_image_or_has_no_size(pool, pads):
    before, after = pooled(pool, pads, relu=True)
    assert len(after) == len(before)


def test_a_mean_of_quantized_numbers_keeps_its_pad():
    before, after = pooled(Pooling2d(PoolingAlgorithm.AVERAGE, **WINDOW), (1, 0, 1, 0), quantized=True)
    assert len(after) == len(before)


@pytest.mark.parametrize("op", [Convolution2d, DepthwiseConvolution2d])
@pytest.mark.parametrize("layout", [DataLayout.NHWC, DataLayout.NCHW])
def test_a_convolution_gives_the_same_in_both_layouts(op, layout):
    height, width, _ = layout.axes()
    pads = [(0, 0)] * 4
    pads[height], pads[width] = (1, 2), (3, 0)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((2, 5, 5, 5)))
    w = network.add_constant_layer(
        np.arange(5 * 9 * 5, dtype=np.float32).reshape(5, 3, 3, 5)[: 1 if "De" in op.__name__ else 5]
    )
    if op is Convolution2d:
        weights = np.ones((4, 3, 3, 5) if layout.channels_last else (4, 5, 3, 3), np.float32)
        w = network.add_constant_layer(weights)
    y = network.add_layer(op(pad_top=1, dilation_y=2, data_layout=layout), network.add_layer(Pad(tuple(pads)), x), w)
    network.add_output_layer(0, y)
    network.validate()
    before = network.graph.clone()
    [record] = run_passes(network.graph, [RewritePass("test", PADS)])
    assert record.counts == {"fold_pad_into_convolution": 1}
    assert_same_results(before, network.graph)
