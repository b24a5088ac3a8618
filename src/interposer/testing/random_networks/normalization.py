"""Growers of normalizations and of softmax."""

from __future__ import annotations

from interposer.ir.graph import Value
from interposer.ops import (
    Activation,
    BatchNormalization,
    GroupNormalization,
    Hardmax,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    LogSoftmax,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    RmsNormalization,
    Softmax,
)
from interposer.testing.random_networks.arrays import as_type
from interposer.testing.random_networks.growers import grower
from interposer.testing.random_networks.growth import Growth, Skipped
from interposer.testing.random_networks.random_windows import as_rank, image, layout_for

__all__: list[str] = []

_FLOAT = ("float",)


@grower(4, BatchNormalization, InstanceNormalization, GroupNormalization, kinds=_FLOAT)
def _normalization_of_channels(growth: Growth, value: Value) -> None:
    draw = growth.draw
    x = image(growth, value) if draw.chance(3, 4) else growth.real(as_rank(growth, value, 3))
    layout, dtype = layout_for(growth), x.known.dtype
    channels = x.known.shape[-1 if layout.channels_last else 1]
    op_class = growth.choice((BatchNormalization, InstanceNormalization, GroupNormalization), lambda op: op)
    beta, gamma = (growth.weights((channels,), 1.0, dtype) for _ in range(2))
    if op_class is BatchNormalization:
        mean = growth.weights((channels,), 1.0, dtype)
        variance = growth.constant(as_type(draw.uniform((channels,), 0.25, 2.0), dtype))
        growth.add(BatchNormalization(draw.one_of((1e-5, 1e-3)), layout), x, mean, variance, beta, gamma)
        return
    operands = draw.one_of(((gamma, beta), (gamma, None), (None, None)))
    if op_class is InstanceNormalization:
        growth.add(InstanceNormalization(draw.one_of((1e-5, 1e-2)), layout), x, *operands, reach=3.0)
        return
    group_counts = [count for count in range(1, channels + 1) if channels % count == 0]
    if not group_counts:
        raise Skipped
    growth.add(
        GroupNormalization(draw.one_of(group_counts), draw.one_of((1e-5, 1e-2)), layout), x, *operands, reach=3.0
    )


@grower(6, LayerNormalization, RmsNormalization, kinds=_FLOAT)
def _normalization_of_rows(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    axis, dtype = growth.axis(x), x.known.dtype
    shape = tuple(x.known.shape[axis:])
    gamma = growth.weights(shape, 1.0, dtype) if draw.chance(2, 3) else None
    eps = draw.one_of((1e-5, 1e-3, 1e-2))
    if growth.choice((LayerNormalization, RmsNormalization), lambda op: op) is RmsNormalization:
        growth.add(RmsNormalization(axis, eps), x, gamma, reach=3.0)
        return
    beta = growth.weights(shape, 1.0, dtype) if draw.chance(1, 2) else None
    growth.add(LayerNormalization(axis, eps), x, gamma, beta, reach=3.0)


@grower(4, L2Normalization, Normalization, MeanVarianceNormalization, kinds=_FLOAT)
def _normalization_without_weights(growth: Growth, value: Value) -> None:
    draw = growth.draw
    op_class = growth.choice((L2Normalization, Normalization, MeanVarianceNormalization), lambda op: op)
    x = image(growth, value) if op_class is Normalization else growth.real(value)
    if op_class is L2Normalization:
        growth.add(L2Normalization(1e-6, layout_for(growth), growth.axis(x)), x, reach=1.0)
    elif op_class is Normalization:
        is_within = draw.chance(1, 4)
        channel = NormalizationAlgorithmChannel.WITHIN if is_within else NormalizationAlgorithmChannel.ACROSS
        growth.add(
            Normalization(
                channel, norm_size=draw.integer(1, 5), alpha=draw.one_of((0.5, 1e-3, 1.0)),
                beta=draw.one_of((0.75, 0.5, 1.0)), k=draw.one_of((1.0, 2.0)), data_layout=layout_for(growth),
            ),
            x,
        )  # fmt: skip
    else:
        axes = tuple(sorted(draw.order(x.known.rank)[: draw.integer(1, max(1, x.known.rank))]))
        growth.add(MeanVarianceNormalization(axes, 1e-4), x, reach=3.0)


@grower(8, Softmax, LogSoftmax, Hardmax, kinds=_FLOAT)
def _softmax(growth: Growth, value: Value) -> None:
    draw, x = growth.draw, growth.real(value)
    op_class = growth.choice((Softmax, Softmax, Softmax, LogSoftmax, Hardmax), lambda op: op)
    axis = growth.axis(x)
    beta = draw.weighted((1.0, 0.5, 2.0, -1.0), (6, 1, 1, 1))
    if op_class is Hardmax:
        growth.add(Hardmax(axis), x, reach=1.0, positive=True)
    elif op_class is LogSoftmax:
        growth.add(LogSoftmax(beta, axis), x, reach=growth.reach(x) + 4)
    else:
        probabilities = growth.add(
            Softmax(beta, axis), x, reach=min(1.0, 6 / max(1, x.known.shape[axis])), positive=True
        )
        if draw.chance(1, 6):
            growth.add(Activation(), probabilities, reach=1.0, positive=True)
