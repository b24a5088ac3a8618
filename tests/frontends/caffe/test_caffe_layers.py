"""Every layer of Caffe gives the results that its documentation says, and those of OpenCV where it is installed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

import interposer as ip
from interposer.frontends import caffe
from tests.frontends.caffe.build import caffemodel, inputs_text, outputs_of_opencv, random_array, weights_for


class Case(NamedTuple):
    """A layer: its type, parameters, the shapes of its bottoms and weights, and the number of its tops.

    `differs` says why OpenCV's result is not compared.
    """

    type: str
    parameters: str = ""
    shapes: Sequence[Sequence[int]] = ((2, 4, 7, 9),)
    weights: Sequence[Sequence[int]] = ()
    differs: str = ""
    tops: int = 1


FIELDS = {
    "ArgMax": "argmax_param",
    "BatchNorm": "batch_norm_param",
    "Clip": "clip_param",
    "Concat": "concat_param",
    "Convolution": "convolution_param",
    "Crop": "crop_param",
    "Deconvolution": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "Dropout": "dropout_param",
    "ELU": "elu_param",
    "Eltwise": "eltwise_param",
    "Exp": "exp_param",
    "Flatten": "flatten_param",
    "InnerProduct": "inner_product_param",
    "Interp": "interp_param",
    "LRN": "lrn_param",
    "Log": "log_param",
    "MVN": "mvn_param",
    "Normalize": "norm_param",
    "PReLU": "prelu_param",
    "Permute": "permute_param",
    "Pooling": "pooling_param",
    "Power": "power_param",
    "PriorBox": "prior_box_param",
    "ReLU": "relu_param",
    "Reduction": "reduction_param",
    "Reshape": "reshape_param",
    "SPP": "spp_param",
    "Scale": "scale_param",
    "ShuffleChannel": "shuffle_channel_param",
    "Slice": "slice_param",
    "Softmax": "softmax_param",
    "Swish": "swish_param",
    "Threshold": "threshold_param",
    "Tile": "tile_param",
    "Upsample": "upsample_param",
}
IMAGE = (2, 4, 7, 9)
CASES = {
    "conv": Case("Convolution", "num_output: 6 kernel_size: 3 pad: 1", weights=[(6, 4, 3, 3), (6,)]),
    "conv-no-bias": Case("Convolution", "num_output: 6 kernel_size: 3 bias_term: false", weights=[(6, 4, 3, 3)]),
    "conv-groups": Case("Convolution", "num_output: 6 kernel_size: 3 group: 2 stride: 2", weights=[(6, 2, 3, 3), (6,)]),
    "conv-depthwise": Case("Convolution", "num_output: 8 kernel_size: 3 group: 4 pad: 1", weights=[(8, 1, 3, 3), (8,)]),
    "conv-sides": Case(
        "Convolution",
        "num_output: 5 kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0",
        weights=[(5, 4, 3, 1), (5,)],
    ),
    "conv-pairs": Case(
        "Convolution",
        "num_output: 5 kernel_size: 3 kernel_size: 2 stride: 2 stride: 1 pad: 1 pad: 0 dilation: 2",
        weights=[(5, 4, 3, 2), (5,)],
    ),
    "conv-legacy-weights": Case("Convolution", "num_output: 6 kernel_size: 1", weights=[(6, 4, 1, 1), (1, 1, 1, 6)]),
    "depthwise-type": Case(
        "DepthwiseConvolution",
        "num_output: 4 kernel_size: 3 pad: 1",
        weights=[(4, 1, 3, 3), (4,)],
        differs="it has no such layer",
    ),
    "conv-3d": Case(
        "Convolution",
        "num_output: 3 kernel_size: [2, 2, 2] pad: [1, 0, 1] stride: [2, 1, 2]",
        [(1, 2, 4, 5, 6)],
        [(3, 2, 2, 2, 2), (3,)],
    ),
    "conv-1d": Case(
        "Convolution",
        "num_output: 3 kernel_size: 3 pad: 1",
        [(2, 4, 9)],
        [(3, 4, 3), (3,)],
        differs="it reads 1-D convolutions of Caffe as 2-D ones",
    ),
    "deconv": Case("Deconvolution", "num_output: 3 kernel_size: 4 stride: 2 pad: 1", weights=[(4, 3, 4, 4), (3,)]),
    "deconv-groups": Case(
        "Deconvolution",
        "num_output: 4 kernel_size: 4 stride: 2 pad: 1 group: 4 bias_term: false",
        weights=[(4, 1, 4, 4)],
    ),
    "pool-max": Case("Pooling", "kernel_size: 3 stride: 2"),
    "pool-max-pad": Case("Pooling", "kernel_size: 3 stride: 2 pad: 1"),
    "pool-average": Case("Pooling", "pool: AVE kernel_size: 3 stride: 2"),
    "pool-average-pad": Case("Pooling", "pool: AVE kernel_size: 3 stride: 2 pad: 1"),
    "pool-average-beyond": Case("Pooling", "pool: AVE kernel_size: 4 stride: 3 pad: 2"),
    "pool-sides": Case("Pooling", "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 1"),
    "pool-global": Case("Pooling", "pool: AVE global_pooling: true"),
    "pool-floor": Case("Pooling", "kernel_size: 2 stride: 2 ceil_mode: false"),
    "relu": Case("ReLU"),
    "relu-slope": Case("ReLU", "negative_slope: 0.1"),
    "prelu": Case("PReLU", weights=[(4,)]),
    "prelu-shared": Case("PReLU", "channel_shared: true", weights=[(1,)]),
    "elu": Case("ELU", "alpha: 0.5"),
    "sigmoid": Case("Sigmoid"),
    "tanh": Case("TanH"),
    "abs": Case("AbsVal"),
    "bnll": Case("BNLL"),
    "power": Case("Power", "power: 2 scale: 0.5 shift: 3"),
    "power-linear": Case("Power", "scale: 0.5 shift: 3"),
    "exp": Case("Exp", "base: 2 scale: 0.5 shift: 0.1", differs="it has no such layer for Caffe"),
    "log": Case("Log", "base: 10 shift: 2", differs="it has no such layer for Caffe"),
    "threshold": Case("Threshold", "threshold: 0.25", differs="it has no such layer"),
    "clip": Case("Clip", "min: -0.5 max: 0.25", differs="it names the parameters otherwise"),
    "swish": Case("Swish", "beta: 1"),
    "relu6": Case("ReLU6", differs="it names the parameters otherwise"),
    "softmax": Case("Softmax"),
    "softmax-axis": Case("Softmax", "axis: -1"),
    "lrn": Case("LRN", "local_size: 3 alpha: 0.5 beta: 0.75"),
    "lrn-k": Case("LRN", "local_size: 5 k: 2", differs="it ignores k"),
    "lrn-within": Case("LRN", "local_size: 3 alpha: 0.5 beta: 0.75 norm_region: WITHIN_CHANNEL"),
    "inner-product": Case("InnerProduct", "num_output: 5", weights=[(5, 252), (5,)]),
    "inner-product-legacy": Case("InnerProduct", "num_output: 5", weights=[(1, 1, 5, 252), (1, 1, 1, 5)]),
    "inner-product-axis": Case("InnerProduct", "num_output: 5 axis: 2", weights=[(5, 63), (5,)]),
    "inner-product-transposed": Case(
        "InnerProduct",
        "num_output: 5 transpose: true bias_term: false",
        weights=[(252, 5)],
        differs="it ignores transpose",
    ),
    "sum": Case("Eltwise", shapes=[IMAGE] * 3),
    "sum-coefficients": Case("Eltwise", "coeff: 1 coeff: -2", [IMAGE] * 2),
    "product": Case("Eltwise", "operation: PROD", [IMAGE] * 2),
    "maximum": Case("Eltwise", "operation: MAX", [IMAGE] * 3),
    "concat": Case("Concat", shapes=[IMAGE, (2, 3, 7, 9)]),
    "concat-axis": Case("Concat", "axis: -1", [IMAGE, (2, 4, 7, 3)]),
    "concat-dim": Case("Concat", "concat_dim: 2", [IMAGE, (2, 4, 3, 9)], differs="it ignores concat_dim"),
    "batch-norm": Case("BatchNorm", "eps: 0.001", weights=[(4,), (4,), (1,)]),
    "scale": Case("Scale", "bias_term: true", weights=[(4,), (4,)]),
    "scale-axes": Case("Scale", "axis: 1 num_axes: 2", weights=[(4, 7)], differs="it scales by channels"),
    "scale-bottoms": Case("Scale", "axis: 0", [IMAGE, (2, 4)], differs="it broadcasts otherwise"),
    "bias": Case("Bias", weights=[(4,)], differs="it has no such layer for Caffe"),
    "dropout": Case("Dropout", "dropout_ratio: 0.4"),
    "split": Case("Split", tops=2),
    "flatten": Case("Flatten"),
    "flatten-axes": Case("Flatten", "axis: 0 end_axis: 1"),
    "reshape": Case("Reshape", "shape { dim: 0 dim: 2 dim: -1 }"),
    "reshape-axes": Case("Reshape", "shape { dim: 3 dim: 3 } axis: 3 num_axes: 1"),
    "permute": Case("Permute", "order: 0 order: 2 order: 3 order: 1"),
    "slice": Case("Slice", tops=2),
    "slice-points": Case("Slice", "axis: 2 slice_point: 1 slice_point: 4", tops=3),
    "crop": Case("Crop", "axis: 2 offset: 1 offset: 2", [IMAGE, (2, 4, 5, 6)]),
    "crop-one-offset": Case("Crop", "offset: 1", [IMAGE, (2, 4, 5, 6)]),
    "tile": Case("Tile", "axis: 2 tiles: 3", differs="it has no such layer for Caffe"),
    "mvn": Case("MVN"),
    "mvn-across": Case("MVN", "across_channels: true"),
    "mvn-mean": Case("MVN", "normalize_variance: false"),
    "normalize": Case("Normalize", "across_spatial: false channel_shared: false", weights=[(4,)]),
    "normalize-image": Case("Normalize", weights=[(1,)]),
    "reduction": Case("Reduction", "axis: 2 operation: MEAN coeff: 2", differs="it has other parameters"),
    "reduction-asum": Case("Reduction", "operation: ASUM", differs="it has other parameters"),
    "arg-max": Case("ArgMax", "axis: 1", differs="it has no such layer for Caffe"),
    "arg-max-values": Case("ArgMax", "top_k: 3 out_max_val: true", differs="it has no image's places"),
    "shuffle": Case("ShuffleChannel", "group: 2"),
    "interp": Case("Interp", "height: 13 width: 17"),
    "interp-zoom": Case("Interp", "zoom_factor: 2"),
    "axpy": Case("Axpy", shapes=[(2, 4, 1, 1), IMAGE, IMAGE], differs="it has no such layer"),
    "spp": Case("SPP", "pyramid_height: 3", differs="it has no such layer"),
    "upsample": Case("Upsample", "scale: 2", differs="it has no such layer"),
    "prior-box": Case(
        "PriorBox",
        "min_size: 3 max_size: 5 aspect_ratio: 2 aspect_ratio: 3 flip: true clip: true "
        "variance: 0.1 variance: 0.1 variance: 0.2 variance: 0.2",
        [(1, 4, 3, 4), (1, 3, 30, 32)],
    ),
    "prior-box-step": Case(
        "PriorBox",
        "min_size: 3 min_size: 4 aspect_ratio: 2 flip: false clip: false step: 8 variance: 0.1",
        [(1, 4, 3, 4), (1, 3, 30, 32)],
    ),
}


def built(name: str, case: Case) -> tuple[str, bytes, dict[str, Any]]:
    """Return the prototxt of a network of one layer, its weights, and its inputs."""
    shapes = {f"x{i}": shape for i, shape in enumerate(case.shapes)}
    bottoms = " ".join(f'bottom: "{x}"' for x in shapes)
    tops = " ".join(f'top: "y{i}"' for i in range(case.tops))
    parameters = f"{FIELDS[case.type]} {{ {case.parameters} }}" if case.parameters else ""
    text = f'name: "{name}"\n{inputs_text(shapes)}'
    text += f'layer {{ name: "y0" type: "{case.type}" {bottoms} {tops} {parameters} }}\n'
    if case.tops > 1:
        layers = (f'layer {{ name: "z{i}" type: "Power" bottom: "y{i}" top: "z{i}" }}\n' for i in range(case.tops))
        text += "".join(layers)
    model = caffemodel(text, {"y0": weights_for(name, case.weights)})
    return text, model, {x: random_array(x, shape) for x, shape in shapes.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_layer_agrees_with_opencv(name: str) -> None:
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    case = CASES[name]
    if case.differs:
        pytest.skip(f"OpenCV: {case.differs}")
    text, model, inputs = built(name, case)
    network = caffe.load(text.encode(), weights=model)
    results = ip.load(network, ["CpuRef"]).run(inputs)
    names = [f"z{i}" for i in range(case.tops)] if case.tops > 1 else ["y0"]
    for result, expected in zip(results, outputs_of_opencv(text, model, inputs, names), strict=True):
        assert result.size == expected.size
        np.testing.assert_allclose(result, expected.reshape(result.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_layer_runs_on_the_native_backend_as_on_the_reference(name: str) -> None:
    text, model, inputs = built(name, CASES[name])
    network = caffe.load(text.encode(), weights=model)
    results = [ip.load(network, backends).run(inputs) for backends in (["CpuRef"], None)]
    for reference, other in zip(*results, strict=True):
        np.testing.assert_allclose(other, reference, rtol=1e-4, atol=1e-5)
