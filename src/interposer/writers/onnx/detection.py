"""Refusals of layers that ONNX has no operators for: detections, heatmap keypoints, and integer recurrent layers."""

from __future__ import annotations

from typing import Any, Final

from interposer.ops.detection import AxisAlignedBboxTransform, BoxWithNmsLimit, DetectionPostProcess, GenerateProposals
from interposer.ops.quantized_recurrent import QLstm, QuantizedLstm
from interposer.ops.regions import HeatmapMaxKeypoint, RoiPooling
from interposer.writers.onnx.draft import Draft
from interposer.writers.onnx.onnx_layer_writers import writer
from interposer.writers.onnx.tensor import Tensor
from interposer.writers.refusals import refuse

__all__: list[str] = []

_REASONS: Final = {
    AxisAlignedBboxTransform: "ONNX has no operator that moves boxes",
    BoxWithNmsLimit: "ONNX has no suppression that lowers scores",
    DetectionPostProcess: "ONNX has no operator that decodes boxes and keeps the best of them",
    GenerateProposals: "ONNX has no operator that proposes regions",
    HeatmapMaxKeypoint: "ONNX has no operator that finds points in heatmaps",
    QLstm: "ONNX has no recurrent layers that compute in integers",
    QuantizedLstm: "ONNX has no recurrent layers that compute in integers",
    RoiPooling: "ONNX does not say how its MaxRoiPool rounds the borders of regions",
}


@writer(*_REASONS, also_quantized=True)
def refused(draft: Draft, op: Any) -> Tensor:
    """Refuse the layer, as ONNX has no operators for it; the reason is listed by operator."""
    refuse(_REASONS[type(op)])
