"""Operators of torchvision, whose package is not needed: regions of images, boxes and deformable convolution."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

import interposer as ip

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")
BACKENDS = ("CpuRef",), ("CpuAcc", "CpuRef")
SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)


def shape_of_nms(boxes: Any, scores: Any, threshold: float) -> Any:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def shape_of_regions(x: Any, regions: Any, scale: float, height: int, width: int, *_: Any) -> Any:
    return x.new_empty(len(regions), x.shape[1], height, width)


def shapes_of_pools(*operands: Any) -> Any:
    return shape_of_regions(*operands), shape_of_regions(*operands)


def shape_of_convolution(x: Any, weights: Any, offset: Any, *_: Any) -> Any:
    return x.new_empty(len(x), len(weights), *offset.shape[2:])


@pytest.fixture(scope="module", autouse=True)
def operators() -> Any:
    """Declare the operators of torchvision, unless it is installed."""
    if find_spec("torchvision"):
        __import__("torchvision")
        yield
        return
    with torch.library._scoped_library("torchvision", "FRAGMENT") as library:
        shapes = (shape_of_nms, shape_of_regions, shapes_of_pools, shape_of_convolution)
        for schema, shape in zip(SCHEMAS, shapes, strict=True):
            library.define(schema)
            torch.library.register_fake(f"torchvision::{schema.partition('(')[0]}", shape, lib=library)
        yield


def results(function: Callable[..., Any], *inputs: Any) -> Any:
    """Yield the results of a program that calls the function, on each list of backends."""

    class Module(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
        def forward(self, *args: Any) -> Any:
            return function(*args)

    program = torch.export.export(Module().eval(), inputs, strict=False)
    for backends in BACKENDS:
        yield ip.load(program, backends)(*inputs)


def test_boxes_that_overlap_a_better_one_are_dropped() -> None:
    boxes = torch.tensor([[0.0, 0, 4, 4], [0, 0, 4, 5], [5, 5, 9, 9], [0, 1, 4, 5], [5, 5, 9, 10]])
    scores = torch.tensor([0.5, 0.9, 0.3, 0.8, 0.4])
    for kept in results(lambda b, s: torch.ops.torchvision.nms(b, s, 0.5), boxes, scores):
        assert kept.tolist() == [1, 4]


def test_regions_are_sampled_at_the_centers_of_their_bins() -> None:
    image = torch.arange(8.0).expand(2, 1, 8, 8) + torch.tensor([0.0, 100.0]).reshape(2, 1, 1, 1)
    regions = torch.tensor([[1.0, 4, 4, 12, 12], [0.0, 2, 2, 10, 14]])
    for result in results(lambda x, r: torch.ops.torchvision.roi_align(x, r, 0.5, 2, 4, 2, True), image, regions):
        assert result[0, 0].tolist() == [[102, 103, 104, 105]] * 2
        assert result[1, 0].tolist() == [[1, 2, 3, 4]] * 2


def test_regions_are_pooled_to_their_maxima() -> None:
    image = torch.arange(64.0).reshape(1, 1, 8, 8)
    regions = torch.tensor([[0.0, 0, 0, 6, 6]])
    for result in results(lambda x, r: torch.ops.torchvision.roi_pool(x, r, 0.5, 2, 2)[0], image, regions):
        assert result[0, 0].tolist() == [[9, 11], [25, 27]]


@pytest.mark.parametrize("has_mask", [False, True])
def test_deformed_windows_are_shifted_by_their_offsets(has_mask: bool) -> None:
    image, weights, bias = torch.randn(2, 4, 7, 8), torch.randn(6, 2, 3, 3), torch.randn(6)
    offset = torch.tensor([1.0, -2.0]).repeat(2 * 9).reshape(1, 36, 1, 1).expand(2, 36, 4, 8).contiguous()
    mask = torch.full((2, 18, 4, 8), 0.5) if has_mask else torch.zeros(2, 1)

    def module(x: Any, o: Any, m: Any) -> Any:
        numbers = 2, 1, 1, 2, 1, 2, 2, 2
        return torch.ops.torchvision.deform_conv2d(x, weights, o, m, bias, *numbers, has_mask)

    shifted = torch.nn.functional.pad(image, (4, 0, 0, 2))  # rows move by 1 - 1, columns by -2 - 2
    expected = torch.nn.functional.conv2d(shifted, weights * (0.5 if has_mask else 1), bias, (2, 1), 0, (1, 2), 2)
    for result in results(module, image, offset, mask):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
