"""Small model files of different kinds, to be damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.build import code, convolution_model, encode, operator, tensor
from tests.fuzz import onnx_models

ROOT = Path(__file__).resolve().parents[2]


def digits(folder: Path) -> Path:
    """Return the digit classifier of the examples."""
    return Path(shutil.copy(ROOT / "examples/digits/digits.onnx", folder))


def quantized_convolution(folder: Path) -> Path:
    """A quantized convolution and a reshape."""
    return _written(folder, convolution_model())


def keyword_spotting(folder: Path) -> Path:
    """Return a real quantized network with depthwise convolutions, pooling and softmax."""
    source = ROOT.parent / "shared/models/kws_ref_model.tflite"
    if not source.exists():
        pytest.skip("../shared/models is missing")
    return Path(shutil.copy(source, folder))


def float_classifier(folder: Path) -> Path:
    """Depthwise convolution, average pooling, a fully connected layer and softmax, in float32."""
    generator = np.random.default_rng(0)
    depthwise, dense = (generator.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 3, 8), (4, 8)))
    tensors = [
        tensor("x", [1, 16, 16, 4]),
        tensor("dw", [1, 3, 3, 8], buffer=1),
        tensor("a", [1, 16, 16, 8]),
        tensor("p", [1, 1, 1, 8]),
        tensor("w", [4, 8], buffer=2),
        tensor("d", [1, 4]),
        tensor("y", [1, 4]),
    ]
    pool = {"stride_w": 1, "stride_h": 1, "filter_width": 16, "filter_height": 16, "padding": 1}
    depth = {"stride_w": 1, "stride_h": 1, "depth_multiplier": 2, "fused_activation_function": 1}
    return _written(
        folder,
        {
            "version": 3,
            "operator_codes": [
                code(name) for name in ("DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "FULLY_CONNECTED", "SOFTMAX")
            ],
            "buffers": [{}, {"data": depthwise.tobytes()}, {"data": dense.tobytes()}],
            "subgraphs": [
                {
                    "name": "main",
                    "tensors": tensors,
                    "inputs": [0],
                    "outputs": [6],
                    "operators": [
                        operator([0, 1, -1], [2], builtin_options=("DepthwiseConv2DOptions", depth)),
                        operator([2], [3], opcode_index=1, builtin_options=("Pool2DOptions", pool)),
                        operator([3, 4, -1], [5], opcode_index=2, builtin_options=("FullyConnectedOptions", {})),
                        operator([5], [6], opcode_index=3, builtin_options=("SoftmaxOptions", {"beta": 1.0})),
                    ],
                }
            ],
        },
    )


def _written(folder: Path, model: dict[str, Any]) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(encode(model))
    return path


ONNX_MODELS: dict[str, Callable[[Path], Path]] = {
    item.__name__: item for item in (digits, onnx_models.control_flow, onnx_models.functions, onnx_models.quantized)
}
MODELS: dict[str, Callable[[Path], Path]] = ONNX_MODELS | {
    item.__name__: item for item in (quantized_convolution, float_classifier, keyword_spotting)
}
