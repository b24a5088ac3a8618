"""A small detector of objects as a TensorFlow Lite file: convolutions, two heads, and TFLite_Detection_PostProcess."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from tests.frontends.tflite.build import code, encode, operator, tensor

SIZE, CELLS, CLASSES = 64, 8, 3
OPTIONS = {
    "max_detections": 10, "max_classes_per_detection": 1, "detections_per_class": 10, "use_regular_nms": False,
    "nms_score_threshold": 0.55, "nms_iou_threshold": 0.5, "num_classes": CLASSES,
    "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip


def detector(path: Path) -> str:
    """Write a detector with fixed pseudo-random weights; its input is a float image of shape (1, 64, 64, 3)."""
    path.write_bytes(encode(_model()))
    return str(path)


def _model() -> dict[str, Any]:
    random, count = np.random.RandomState(5), CELLS * CELLS
    step = SIZE // CELLS

    def weights(outputs: int, size: int, inputs: int) -> np.ndarray[Any, Any]:
        return random.normal(0, (size * size * inputs) ** -0.5, (outputs, size, size, inputs)).astype(np.float32)

    constants = {
        "w0": weights(16, step, 3), "b0": np.zeros(16, np.float32),
        "w1": weights(4, 1, 16), "b1": np.zeros(4, np.float32),
        "w2": 4 * weights(CLASSES + 1, 1, 16), "b2": np.zeros(CLASSES + 1, np.float32),
        "anchors": _anchors(),
    }  # fmt: skip
    buffers = [{}, *({"data": array.tobytes()} for array in constants.values())]
    fixed = [tensor(name, list(array.shape), buffer=n) for n, (name, array) in enumerate(constants.items(), 1)]
    cells = [1, CELLS, CELLS]
    others = {
        "image": [1, SIZE, SIZE, 3], "features": [*cells, 16], "boxes": [*cells, 4], "flat_boxes": [1, count, 4],
        "logits": [*cells, CLASSES + 1], "flat_logits": [1, count, CLASSES + 1], "chances": [1, count, CLASSES + 1],
        "detection_boxes": [1, 10, 4], "detection_classes": [1, 10], "detection_scores": [1, 10], "detections": [1],
    }  # fmt: skip
    tensors = [*fixed, *(tensor(name, shape) for name, shape in others.items())]
    at = {entry["name"]: number for number, entry in enumerate(tensors)}

    def convolution(source: str, number: int, output: str, stride: int, activation: int) -> dict[str, Any]:
        options = {"stride_w": stride, "stride_h": stride, "fused_activation_function": activation, "padding": 1}
        operands = [at[source], at[f"w{number}"], at[f"b{number}"]]
        return operator(operands, [at[output]], opcode_index=0, builtin_options=("Conv2DOptions", options))

    def reshape(source: str, output: str) -> dict[str, Any]:
        options = ("ReshapeOptions", {"new_shape": others[output]})
        return operator([at[source]], [at[output]], opcode_index=1, builtin_options=options)

    results = [at[name] for name in ("detection_boxes", "detection_classes", "detection_scores", "detections")]
    operands = [at[name] for name in ("flat_boxes", "chances", "anchors")]
    operators = [
        convolution("image", 0, "features", step, 1),
        convolution("features", 1, "boxes", 1, 0),
        reshape("boxes", "flat_boxes"),
        convolution("features", 2, "logits", 1, 0),
        reshape("logits", "flat_logits"),
        operator([at["flat_logits"]], [at["chances"]], opcode_index=2),
        operator(operands, results, opcode_index=3, custom_options=bytes(flexbuffers.Dumps(OPTIONS))),
    ]
    graph = {"tensors": tensors, "inputs": [at["image"]], "outputs": results, "operators": operators}
    codes = [
        code("CONV_2D"),
        code("RESHAPE"),
        code("LOGISTIC"),
        code("CUSTOM", custom_code="TFLite_Detection_PostProcess"),
    ]
    return {"version": 3, "operator_codes": codes, "buffers": buffers, "subgraphs": [graph]}


def _anchors() -> np.ndarray[Any, Any]:
    """Return a square of a quarter of the image around the center of each cell: y, x, height, width."""
    centers = (np.arange(CELLS, dtype=np.float32) + 0.5) / CELLS
    y, x = np.meshgrid(centers, centers, indexing="ij")
    sides = np.full(CELLS * CELLS, 0.25, np.float32)
    return np.stack([y.ravel(), x.ravel(), sides, sides], axis=1)
