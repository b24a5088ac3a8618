"""Samples of deformable convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from interposer.ops import DeformableConvolution2d
from interposer.testing.sample import Sample, given, of, samples, weights
from interposer.testing.samples.common import FLOATS, f32

__all__: list[str] = []


@samples(DeformableConvolution2d)
def deformable() -> Iterator[Sample]:
    """Yield DeformableConvolution2d samples.

    They cover every type, strides, padding, groups of channels and of offsets, a bias, a mask, and an empty batch.
    """
    for dtype in FLOATS:
        operands = [
            given((1, 2, 5, 4), dtype),
            weights((3, 2, 2, 2), dtype),
            given((1, 8, 4, 3), dtype, low=-2, high=2),
        ]
        yield Sample(DeformableConvolution2d(), operands, name=str(dtype))
    with_groups = DeformableConvolution2d(1, 0, 0, 1, 2, 1, 1, 2, groups=2, offset_groups=2)
    image, kernels = given((2, 4, 6, 5)), weights((6, 2, 3, 2))
    offset, mask = given((2, 24, 3, 3), low=-3, high=3), given((2, 12, 3, 3), low=0, high=1)
    yield Sample(with_groups, [image, kernels, offset], name="groups")
    yield Sample(with_groups, [image, kernels, offset, weights((6,)), mask], name="bias-and-mask")
    empty_operands = [given((0, 1, 3, 3)), weights((1, 1, 2, 2)), given((0, 8, 2, 2))]
    yield Sample(DeformableConvolution2d(), empty_operands, name="empty")
    offsets = of([[[[0, 0, 0]], [[0, 0.25, 2]]]])
    expected = [f32([[[[10, 22.5, 0]]]])]
    worked = [of([[[[1, 2, 3]]]]), of([[[[10]]]]), offsets]
    yield Sample(DeformableConvolution2d(), worked, name="worked", expected=expected)
