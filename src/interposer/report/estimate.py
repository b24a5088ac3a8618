"""Estimates of the memory and of the number of operations that a run of a graph needs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from interposer.core.records import dataclass
from interposer.core.types import Dim, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.regions import places
from interposer.ops.control import Constant, Input, Output
from interposer.ops.control_flow import ControlFlow, If, Loop

__all__ = ["Estimate", "estimate", "operations", "operations_of"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of one run.

    `peak_bytes` is the largest total size of tensors that are alive at the same time, including padded copies of
    images. `operations` is the sum of the operators' own counts.
    """

    peak_bytes: int
    constant_bytes: int
    operations: int


def estimate(graph: Graph) -> Estimate:
    """Estimate a run of a graph without allocating anything; a tensor of unknown shape counts as 0.

    Regions count once per iteration, or once if the number of iterations is only known at run time, such as that of a
    loop that ends when its body says so. Of two branches, the more expensive one counts.
    """
    order = graph.topological()
    sizes = {value: value.known.num_bytes for layer in order for value in layer.outputs}
    open_values = {value for value, size in sizes.items() if isinstance(size, Dim)}
    sizes.update(dict.fromkeys(open_values, 0))
    constant_sizes = [sizes[layer.output] for layer in order if isinstance(layer.op, Constant)]
    region_estimates = {layer: [estimate(region) for region in layer.regions] for layer in order if layer.regions}
    constant_bytes = sum(constant_sizes) + sum(
        region_estimate.constant_bytes for estimates in region_estimates.values() for region_estimate in estimates
    )
    peaks = {
        layer: max(region_estimate.peak_bytes - region_estimate.constant_bytes for region_estimate in estimates)
        for layer, estimates in region_estimates.items()
    }
    counted_layers = [layer for layer in order if layer not in region_estimates and not isinstance(layer.op, _FREE)]
    num_operations = sum([_operations(layer, open_values) for layer in counted_layers])
    num_operations += sum(
        _of_regions(layer, (region_estimate.operations for region_estimate in estimates))
        for layer, estimates in region_estimates.items()
    )
    return Estimate(constant_bytes + _peak(order, sizes, peaks), constant_bytes, num_operations)


_FREE: Final = (Input, Output, Constant)


def operations(layer: Layer) -> int:
    """Return the number of operations of one layer; 0 if a shape is unknown."""
    if isinstance(layer.op, _FREE):
        return 0
    inputs, outputs = layer.input_infos, layer.output_infos
    for info in (*inputs, *outputs):
        if info is not None and not info.shape.is_concrete:
            return 0
    return int(layer.op.operations(inputs, outputs))


def _operations(layer: Layer, open_values: set[Value]) -> int:
    """Return the number of operations of one layer; `open_values` are the values of unknown sizes."""
    if not open_values:
        return int(layer.op.operations(layer.input_infos, layer.output_infos))
    return operations(layer)


def operations_of(graph: Graph) -> dict[str, int]:
    """Return the number of operations of each layer by name, with the layers of regions."""
    return {place.name: operations(place.layer) for place in places(graph)}


def _of_regions(layer: Layer, counts: Iterable[int]) -> int:
    if isinstance(layer.op, If):
        return max(counts)
    iterations = layer.op.iterations(layer.op.arguments(layer.input_infos)) if isinstance(layer.op, ControlFlow) else 1
    if iterations is None or (iterations and _may_end_early(layer)):
        iterations = 1
    return sum(counts) * iterations


def _may_end_early(layer: Layer) -> bool:
    """Return True if the body of a Loop computes whether the loop continues, so that its trip count is only a limit."""
    return isinstance(layer.op, Loop) and layer.regions[0].outputs[0].values[0].known.constant is None


def _peak(order: list[Layer], sizes: dict[Value, int], region_peaks: dict[Layer, int]) -> int:
    """Return the largest total size in bytes of tensors that are alive at the same time during a run.

    `order` are the layers in running order, `sizes` are those of all values in bytes, and `region_peaks` has the peak
    of the regions of each control flow layer.
    """
    computed_layers = [layer for layer in order if not isinstance(layer.op, Constant)]
    last_reader = {value: layer for layer in computed_layers for value in layer.inputs}
    freed_bytes = dict.fromkeys(computed_layers, 0)
    for value in [value for layer in computed_layers for value in layer.outputs]:
        freed_bytes[last_reader.get(value, value.producer)] += sizes[value]
    live_bytes = peak_bytes = 0
    for layer in computed_layers:
        live_bytes += sum([sizes[value] for value in layer.outputs])
        scratch = _scratch(layer) if "data_layout" in layer.op.attributes else 0
        peak_bytes = max(peak_bytes, live_bytes + region_peaks.get(layer, 0) + scratch)
        live_bytes -= freed_bytes[layer]
    return peak_bytes


_PADS: Final = {"H": ("pad_top", "pad_bottom"), "W": ("pad_left", "pad_right"), "D": ("pad_front", "pad_back")}


def _scratch(layer: Layer) -> int:
    """Return the bytes of temporary memory that a kernel may need for a layer on images; 0 without padding.

    These are a padded copy of the image, and the windows of one output row.
    """
    layout = layer.op.data_layout  # type: ignore[attr-defined]
    pads = {axis: sum(getattr(layer.op, name, 0) for name in names) for axis, names in _PADS.items()}
    if not any(pads.values()):
        return 0
    image = (layer.output_infos if "Transpose" in layer.kind else layer.input_infos)[0]
    if image is None or not image.is_concrete or len(image.shape) != len(layout.value):
        return 0
    sizes = [int(size) + pads.get(axis, 0) for axis, size in zip(layout.value, image.shape, strict=True)]
    return math.prod(sizes) * _computed_itemsize(layer, image) + _row(layer)


def _computed_itemsize(layer: Layer, image: TensorInfo) -> int:
    """Return the bytes of an element of a layer's padded image: pooling sums in 64 bits, convolutions in 32 or more."""
    pools = getattr(layer.op, "pool_type", None)
    if pools is not None:
        return image.dtype.itemsize if pools.name == "MAX" else 8
    return max(4, image.dtype.itemsize)


def _row(layer: Layer) -> int:
    """Return the bytes of the windows of one output row of a layer with windows, such as a convolution.

    This is the smallest copy that an im2col convolution makes.
    """
    weights = layer.operand("weights") if layer.kind in ("Convolution2d", "Convolution3d") else None
    output = layer.output_infos[0]
    if weights is None or not (weights.known.is_concrete and output.is_concrete):
        return 0
    width = output.shape[layer.op.data_layout.value.index("W")]  # type: ignore[attr-defined]
    return int(width) * math.prod(map(int, weights.known.shape[1:])) * getattr(layer.op, "groups", 1) * 4
