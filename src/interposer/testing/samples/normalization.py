"""Samples of normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from interposer.core.schema import Op
from interposer.core.types import DataLayout, DataType, Quantization, TensorInfo
from interposer.ops import (
    BatchNormalization,
    GroupNormalization,
    InstanceNormalization,
    L2Normalization,
    LayerNormalization,
    MeanVarianceNormalization,
    Normalization,
    NormalizationAlgorithmChannel,
    RmsNormalization,
)
from interposer.testing.sample import Given, Sample, given, of, samples, weights
from interposer.testing.samples.common import BYTES, FLOATS, QUANTIZED, SMALL_FLOATS, f32, image_shape

__all__: list[str] = []

NHWC, NCHW = DataLayout.NHWC, DataLayout.NCHW
LAYOUTS: Final = {"nhwc": NHWC, "nchw": NCHW}
ACROSS, WITHIN = NormalizationAlgorithmChannel.ACROSS, NormalizationAlgorithmChannel.WITHIN
Bare = Callable[[Given], Sample]


def _in_all_types(shape: tuple[int, ...], sample: Bare) -> Iterator[Sample]:
    """Yield one sample for each float and quantized type.

    `sample` is a function that creates a sample from an input, which has this shape. Quantized samples get an output
    whose scale is twice that of the input.
    """
    for dtype in (*FLOATS, *SMALL_FLOATS):
        unnamed_sample = sample(given(shape, dtype))
        yield Sample(unnamed_sample.op, unnamed_sample.inputs, name=f"{unnamed_sample.name}-{dtype}")
    for dtype, quantization in QUANTIZED.items():
        unnamed_sample = sample(given(shape, dtype, quantization))
        output = TensorInfo(shape, dtype, Quantization(quantization.scale * 2, quantization.zero_point))
        yield Sample(unnamed_sample.op, unnamed_sample.inputs, [output], f"{unnamed_sample.name}-quantized-{dtype}")


def _parameters(x: Given, count: int) -> list[Given]:
    """Return two constants of `count` elements for gamma and beta, with the type and quantization of `x`."""
    info = TensorInfo((count,), x.info.dtype, x.info.quantization)
    return [Given(info, low=0.5, high=2, constant=True), Given(info, low=-1, high=1, constant=True)]


# --- batch, instance, layer -------------------------------------------------------------------------------------------


@samples(BatchNormalization)
def batch_normalization() -> Iterator[Sample]:
    """Yield BatchNormalization samples: both layouts, all types, ranks from 2, and statistics that are inputs."""
    for label, layout in LAYOUTS.items():
        op = BatchNormalization(data_layout=layout, eps=0.01)

        def one(x: Given, op: BatchNormalization = op, label: str = label) -> Sample:
            (variance, mean), (gamma, beta) = _parameters(x, 3), _parameters(x, 3)
            return Sample(op, [x, mean, variance, beta, gamma], name=label)

        yield from _in_all_types(image_shape(layout, 2, 3, 2, 3), one)
        for shape in ((4, 3), (2, 3, 3), (2, 3, 2, 2, 3), (0, 3, 2, 3)):
            title = f"{label}-{'x'.join(map(str, shape))}"
            yield Sample(op, [given(shape), *_statistics(constant=True)], name=title)
        yield Sample(op, [given((2, 3, 3, 3)), *_statistics(constant=False)], name=f"{label}-given-statistics")


def _statistics(*, constant: bool) -> list[Given]:
    operand = weights if constant else given
    return [operand((3,), low=-1, high=1), operand((3,), low=0.5, high=2), operand((3,)), operand((3,))]


@samples(BatchNormalization)
def worked_batch_normalization() -> Iterator[Sample]:
    """Yield a worked BatchNormalization example: (x - mean) / 2 * gamma + beta in two channels."""
    constants = [of(row, constant=True) for row in ([1, 2], [4, 4], [10, 20], [1, 2])]
    op = BatchNormalization(eps=0, data_layout=NHWC)
    yield Sample(op, [of([[3, 4], [1, 0]]), *constants], name="worked", expected=[f32([[11, 22], [10, 18]])])


@samples(InstanceNormalization)
def instance_normalization() -> Iterator[Sample]:
    """Yield InstanceNormalization samples: both layouts, all types, several ranks, and absent parameters."""
    for label, layout in LAYOUTS.items():
        op = InstanceNormalization(eps=0.01, data_layout=layout)

        def one(x: Given, op: Op = op, label: str = label) -> Sample:
            return Sample(op, [x, *_parameters(x, 3)], name=label)

        yield from _in_all_types(image_shape(layout, 2, 3, 4, 3), one)
        for shape in ((2, 3, 3), (2, 3, 2, 2, 3)):
            title = f"{label}-{'x'.join(map(str, shape))}"
            yield Sample(op, [given(shape), weights((3,)), weights((3,))], name=title)
        image = given(image_shape(layout, 2, 3, 4, 3))
        yield Sample(op, [image], name=f"{label}-bare")
        yield Sample(op, [image, weights((3,))], name=f"{label}-gamma")
        yield Sample(op, [image, None, weights((3,))], name=f"{label}-beta")
        yield Sample(op, [image, weights((1,)), weights((1,))], name=f"{label}-single")
    expected = f32([[[-1, 1], [-1, 1]]])
    worked = [of([[[1, 3], [10, 30]]])]
    yield Sample(InstanceNormalization(eps=0), worked, name="worked", expected=[expected])


@samples(LayerNormalization)
def layer_normalization() -> Iterator[Sample]:
    """Yield LayerNormalization samples.

    They cover normalizations from every axis on, in all types, with and without parameters.
    """
    for axis, shape in {-1: (4,), 1: (3, 4), 0: (2, 3, 4)}.items():
        op = LayerNormalization(axis=axis, eps=0.01)

        def one(x: Given, op: LayerNormalization = op, shape: tuple[int, ...] = shape) -> Sample:
            info = TensorInfo(shape, x.info.dtype, x.info.quantization)
            parameters = [Given(info, low=0.5, high=2, constant=True), Given(info, low=-1, high=1, constant=True)]
            return Sample(op, [x, *parameters], name=f"axis-{op.axis}")

        yield from _in_all_types((2, 3, 4), one)
        yield Sample(op, [given((2, 3, 4))], name=f"axis-{axis}-bare")
        yield Sample(op, [given((2, 3, 4)), None, weights((4,))], name=f"axis-{axis}-beta")
    yield Sample(LayerNormalization(), [given((0, 4)), weights((4,))], name="empty")
    worked = [of([[1, 3], [10, 30]])]
    expected = [f32([[-1, 1], [-1, 1]])]
    yield Sample(LayerNormalization(eps=0), worked, name="worked", expected=expected)


@samples(RmsNormalization)
def rms_normalization() -> Iterator[Sample]:
    """Yield RmsNormalization samples: normalizations from every axis on, in all types, with and without gamma."""
    for axis, shape in {-1: (4,), 1: (3, 4), 0: (2, 3, 4)}.items():
        op = RmsNormalization(axis=axis, eps=0.01)

        def one(x: Given, op: RmsNormalization = op, shape: tuple[int, ...] = shape) -> Sample:
            info = TensorInfo(shape, x.info.dtype, x.info.quantization)
            return Sample(op, [x, Given(info, low=0.5, high=2, constant=True)], name=f"axis-{op.axis}")

        yield from _in_all_types((2, 3, 4), one)
        yield Sample(op, [given((2, 3, 4))], name=f"axis-{axis}-bare")
    yield Sample(RmsNormalization(), [given((0, 4)), weights((4,))], name="empty")
    worked = [of([[1, 7], [5, 5]]), of([1, 2], constant=True)]
    yield Sample(RmsNormalization(eps=0), worked, name="worked", expected=[f32([[0.2, 2.8], [1, 2]])])


@samples(GroupNormalization)
def group_normalization() -> Iterator[Sample]:
    """Yield GroupNormalization samples.

    They cover both layouts, all types, several ranks, from one group to one per channel, and absent parameters.
    """
    for label, layout in LAYOUTS.items():
        for groups in (1, 2, 4):
            op = GroupNormalization(groups, eps=0.01, data_layout=layout)

            def one(x: Given, op: GroupNormalization = op, label: str = label) -> Sample:
                return Sample(op, [x, *_parameters(x, 4)], name=f"{label}-{op.num_groups}")

            yield from _in_all_types(image_shape(layout, 2, 3, 2, 4), one)
        op = GroupNormalization(2, data_layout=layout)
        for shape in ((2, 4), (2, 4, 4), (2, 4, 2, 2, 4), (0, 4, 2, 4)):
            yield Sample(op, [given(shape), weights((4,)), weights((1,))], name=f"{label}-{'x'.join(map(str, shape))}")
        yield Sample(op, [given(image_shape(layout, 2, 3, 2, 4))], name=f"{label}-bare")
    worked = [of([[1, 3, 10, 30]])]
    yield Sample(GroupNormalization(2, eps=0), worked, name="worked", expected=[f32([[-1, 1, -1, 1]])])


@samples(MeanVarianceNormalization)
def mean_variance_normalization() -> Iterator[Sample]:
    """Yield MeanVarianceNormalization samples: normalizations over several sets of axes, in all types."""
    for axes in ((0, 2, 3), (1,), (-1, -2), ()):
        op = MeanVarianceNormalization(axes)
        yield from _in_all_types((2, 3, 2, 4), _named(op, f"axes-{'-'.join(map(str, axes)) or 'none'}"))
    yield Sample(MeanVarianceNormalization(), [given((2, 0, 2, 2))], name="empty")
    op = MeanVarianceNormalization((1,), eps=0)
    yield Sample(op, [of([[1, 3], [10, 30]])], name="worked", expected=[f32([[-1, 1], [-1, 1]])])


# --- length and neighbours --------------------------------------------------------------------------------------------


@samples(L2Normalization)
def l2_normalization() -> Iterator[Sample]:
    """Yield L2Normalization samples.

    They cover both layouts, an explicit axis, all types, and outputs with the scale that TFLite prescribes.
    """
    for label, op in {
        "nhwc": L2Normalization(data_layout=NHWC),
        "nchw": L2Normalization(),
        "axis": L2Normalization(axis=2),
    }.items():
        yield from _in_all_types((2, 3, 4, 3), _named(op, label))
        for dtype, zero in {DataType.INT8: 0, DataType.UINT8: 128}.items():
            output = TensorInfo((2, 3, 4, 3), dtype, Quantization(1 / 128, zero))
            yield Sample(op, [given((2, 3, 4, 3), dtype, BYTES[dtype])], [output], f"{label}-prescribed-{dtype}")
    for shape in ((5,), (2, 5), (0, 5), (2, 2, 2, 2, 3)):
        yield Sample(L2Normalization(axis=-1), [given(shape)], name="x".join(map(str, shape)))
    worked = [of([[3, 4], [0, 0]])]
    expected = [f32([[0.6, 0.8], [0, 0]])]
    yield Sample(L2Normalization(axis=1), worked, name="worked", expected=expected)


@samples(Normalization)
def local_response_normalization() -> Iterator[Sample]:
    """Yield Normalization samples.

    They cover windows across and within channels, of odd and even size, both layouts, and all types.
    """
    for label, layout in LAYOUTS.items():
        for kind in (ACROSS, WITHIN):
            for size in (1, 2, 3, 5):
                op = Normalization(kind, norm_size=size, alpha=0.3, beta=0.75, k=1, data_layout=layout)
                yield Sample(op, [given((2, 4, 3, 5))], name=f"{label}-{kind.name.lower()}-{size}")
            three = Normalization(kind, norm_size=3, alpha=0.3, beta=0.5, k=1, data_layout=layout)
            yield from _in_all_types((1, 3, 4, 5), _named(three, f"{label}-{kind.name.lower()}"))
    for shape in ((5,), (2, 5), (0, 5), (2, 2, 2, 2, 3)):
        op = Normalization(norm_size=3, alpha=0.5, beta=1, k=1, axis=-1)
        yield Sample(op, [given(shape)], name="x".join(map(str, shape)))
    for label, layout in LAYOUTS.items():
        yield Sample(Normalization(norm_size=4, data_layout=layout), [given((1, 2, 0, 3))], name=f"{label}-empty")
    op = Normalization(norm_size=3, alpha=1, beta=1, k=1, axis=1)
    expected = [f32([[1 / 6, 2 / 15, 3 / 14]])]
    yield Sample(op, [of([[1, 2, 3]])], name="worked", expected=expected)


def _named(op: Op, name: str) -> Bare:
    return lambda x: Sample(op, [x], name=name)
