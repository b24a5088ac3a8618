"""3D convolution: the sum of matrix products with the weights of all window elements."""

from __future__ import annotations

import numpy as np

from interposer.core.types import Array
from interposer.kernels.accumulation import Plan, Scaling, centered, constant_plan, plan, summable_types
from interposer.kernels.layout import from_nhwc, to_nhwc
from interposer.kernels.reference import kernel
from interposer.kernels.sliding import cell_slices
from interposer.kernels.table import KernelInfo
from interposer.ops.convolution3d import Convolution3d

__all__: list[str] = []


@kernel(Convolution3d, when=summable_types)
def convolution3d(
    op: Convolution3d, x: Array, weights: Array, bias: Array | None, *, info: KernelInfo, prepared: Plan | None
) -> Array:
    """Compute `Convolution3d` by one product for each weight position; internally, volumes are (N, D, H, W, C).

    `prepared` holds the weights and the epilogue if weights and bias are constants, else None.
    """
    w, epilogue = prepared or _plan(op, info, weights, bias)
    volume = to_nhwc(centered(x, info.input, w.dtype), op.data_layout)
    n, *sizes, _ = volume.shape
    windows = op.windows(*w.shape[:3])
    output_sizes = [window.places(size) for window, size in zip(windows, sizes, strict=True)]
    sums = np.zeros((n, *output_sizes, w.shape[4]), w.dtype)
    for tap in np.ndindex(w.shape[:3]):
        axis_slices = [
            cell_slices(*axis_parameters) for axis_parameters in zip(windows, tap, sizes, output_sizes, strict=True)
        ]
        target, source = ((slice(None), *slices) for slices in zip(*axis_slices, strict=True))
        sums[target] += _product(volume[source], w[tap], op.groups)
    return from_nhwc(epilogue(sums), op.data_layout)


def _product(cells: Array, weights: Array, groups: int) -> Array:
    """Multiply cells (..., I) with weights (I / groups, O) for each group of channels; the result is (..., O)."""
    *positions, channels = cells.shape
    group_channels, output_channels = channels // groups, weights.shape[1]
    grouped_cells = cells.reshape(*positions, groups, 1, group_channels)
    filters = np.moveaxis(weights.reshape(group_channels, groups, output_channels // groups), 0, 1)
    sums: Array = np.matmul(grouped_cells, filters).reshape(*positions, output_channels)
    return sums


def _plan(op: Convolution3d, info: KernelInfo, weights: Array, bias: Array | None) -> Plan:
    return plan(info, weights, bias, 4, Scaling.FIXED_POINT.of(op.requantization))


kernel.prepare(convolution3d)(constant_plan(_plan))
