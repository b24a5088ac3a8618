"""Networks of today's kinds in PyTorch, small and with random weights, and their exports to ONNX by both exporters."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - its name everywhere
from torch import Tensor, nn


@dataclass(frozen=True)
class Example:
    """A network, its inputs, and the dimensions (input -> axis -> name) that an export leaves open."""

    module: nn.Module
    inputs: tuple[Tensor, ...]
    names: tuple[str, ...] = ("x",)
    open_dimensions: dict[str, dict[int, str]] | None = None


def _conv(source: int, target: int, size: int = 3, stride: int = 1, groups: int = 1, act: bool = True) -> nn.Sequential:
    layers = [nn.Conv2d(source, target, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(target)]
    return nn.Sequential(*layers, *([nn.ReLU6()] if act else []))


class InvertedResidual(nn.Module):
    """Expand, depthwise, project; with squeeze and excitation, and hard swish, as MobileNetV3 has them."""

    def __init__(self, source: int, target: int, stride: int) -> None:
        super().__init__()
        wide = source * 4
        self.expand, self.depthwise = _conv(source, wide, 1), _conv(wide, wide, 3, stride, groups=wide)
        self.squeeze, self.excite = nn.Conv2d(wide, wide // 4, 1), nn.Conv2d(wide // 4, wide, 1)
        self.project = _conv(wide, target, 1, act=False)
        self.residual = stride == 1 and source == target

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(self.expand(x))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        y = self.project(F.hardswish(y * scale))
        return x + y if self.residual else y


def mobilenet() -> Example:
    blocks = [InvertedResidual(16, 16, 1), InvertedResidual(16, 24, 2), InvertedResidual(24, 24, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(24, 10)]
    module = nn.Sequential(_conv(3, 16, 3, 2), *blocks, *head)
    return Example(module, (torch.randn(2, 3, 32, 32),), open_dimensions={"x": {0: "batch"}})


class Bottleneck(nn.Module):
    """The three convolutions of a ResNet with a shortcut around them."""

    def __init__(self, source: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _conv(source, inner, 1), _conv(inner, inner, 3, stride), _conv(inner, inner * 4, 1, act=False)
        )
        self.shortcut = _conv(source, inner * 4, 1, stride, act=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet() -> Example:
    stem = [nn.Conv2d(3, 16, 7, 2, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(1), nn.Linear(64, 10), nn.Softmax(-1)]
    module = nn.Sequential(*stem, Bottleneck(16, 8, 1), Bottleneck(32, 16, 2), *head)
    return Example(module, (torch.randn(1, 3, 48, 48),))


class UNet(nn.Module):
    """Down, across and up again: one transposed convolution, one interpolation, two joins."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.deep = _conv(1, 8), _conv(8, 16), _conv(16, 32)
        self.up = nn.ConvTranspose2d(32, 16, 2, 2)
        self.join, self.last = _conv(32, 16), _conv(24, 8)
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x)
        second = self.second(F.max_pool2d(first, 2))
        up = self.join(torch.cat([self.up(self.deep(F.max_pool2d(second, 2))), second], 1))
        wide = F.interpolate(up, scale_factor=2, mode="bilinear", align_corners=False)
        return torch.sigmoid(self.head(self.last(torch.cat([wide, first], 1))))


def unet() -> Example:
    return Example(UNet(), (torch.randn(1, 1, 32, 40),))


class Encoder(nn.Module):
    """Embedding, positions, two encoder layers with a padding mask, and a pooled result."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(50, 32), nn.Embedding(16, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.pooler = nn.LayerNorm(32), nn.Linear(32, 8)

    def forward(self, ids: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        x = self.norm(self.layers(x, src_key_padding_mask=padding))
        return x, torch.tanh(self.pooler(x[:, 0]))


def encoder() -> Example:
    padding = torch.zeros(2, 12, dtype=torch.bool)
    padding[1, 9:] = True
    axes = {0: "batch"}
    return Example(
        Encoder(), (torch.randint(0, 50, (2, 12)), padding), ("ids", "padding"), {"ids": axes, "padding": axes}
    )


class Decoder(nn.Module):
    """One step of a decoder: rotary positions, grouped heads, RMS norm, and keys and values of the steps before."""

    heads, kv_heads, width = 4, 2, 8

    def __init__(self) -> None:
        super().__init__()
        size = self.heads * self.width
        self.scale = nn.Parameter(torch.rand(size))
        self.query = nn.Linear(size, size, bias=False)
        self.key, self.value = (nn.Linear(size, self.kv_heads * self.width, bias=False) for _ in range(2))
        self.out, self.gate, self.up = nn.Linear(size, size), nn.Linear(size, 64), nn.Linear(size, 64)
        self.down = nn.Linear(64, size)

    def _turned(self, x: Tensor, positions: Tensor) -> Tensor:
        rates = 10000.0 ** (-torch.arange(0, self.width, 2, dtype=torch.float32) / self.width)
        angles = positions[:, None].to(torch.float32) * rates
        even, odd = x[..., ::2], x[..., 1::2]
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.width)).transpose(1, 2)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        past, new = keys.shape[2], x.shape[1]
        positions = torch.arange(past, past + new)
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        query = self._turned(self._split(self.query(y), self.heads), positions)
        key = self._turned(self._split(self.key(y), self.kv_heads), positions)
        keys = torch.cat([keys, key], 2)
        values = torch.cat([values, self._split(self.value(y), self.kv_heads)], 2)
        wide_keys, wide_values = (item.repeat_interleave(self.heads // self.kv_heads, 1) for item in (keys, values))
        mask = torch.arange(past + new)[None, :] <= positions[:, None]
        attended = F.scaled_dot_product_attention(query, wide_keys, wide_values, attn_mask=mask)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.gate(x)) * self.up(x)), keys, values


def decoder() -> Example:
    inputs = (torch.randn(1, 3, 32), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))
    cache = {2: "past"}
    return Example(Decoder(), inputs, ("x", "keys", "values"), {"keys": cache, "values": cache})


class Lstm(nn.Module):
    """Two bidirectional layers of an LSTM, and a GRU after them."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(16, 5, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y, (hidden, _) = self.lstm(x)
        z, last = self.gru(y)
        return F.log_softmax(z, -1), hidden, last


def lstm() -> Example:
    return Example(Lstm(), (torch.randn(2, 7, 6),))


@torch.library.custom_op("detection::nms", mutates_args=())
def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The indices of the boxes (x1, y1, x2, y2) that overlap no better one by more than the threshold; best first."""
    order = scores.argsort(descending=True).tolist()
    cached: list[int] = []
    for index in order:
        if all(_overlap(boxes[index], boxes[other]) <= threshold for other in cached):
            cached.append(index)
    return torch.tensor(cached, dtype=torch.int64)


@nms.register_fake
def _(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    return boxes.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.int64)


def _overlap(a: Tensor, b: Tensor) -> float:
    both = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0).prod()
    return float(both / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - both))


class Detector(nn.Module):
    """Boxes from anchors, the best of them by score, and suppression of those that overlap a better one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.boxes, self.scores = _conv(3, 8, 3, 2), nn.Conv2d(8, 4, 1), nn.Conv2d(8, 3, 1)
        rows, columns = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
        self.register_buffer("anchors", torch.stack([columns, rows], -1).reshape(-1, 2))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = self.body(image)
        offsets = self.boxes(y).permute(0, 2, 3, 1).reshape(-1, 4)
        centres = self.anchors + torch.tanh(offsets[:, :2])
        sizes = torch.exp(offsets[:, 2:].clamp(max=2.0)) + 1.0
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], 1)
        best, classes = torch.sigmoid(self.scores(y)).permute(0, 2, 3, 1).reshape(-1, 3).max(1)
        scores, order = torch.topk(best, 20)
        boxes, classes = boxes[order], classes[order]
        cached = nms(boxes, scores, 0.3)
        return boxes[cached], scores[cached], classes[cached]


def detector() -> Example:
    return Example(Detector(), (torch.randn(1, 3, 12, 12),), ("image",))


EXAMPLES: dict[str, Callable[[], Example]] = {
    "mobilenet": mobilenet,
    "resnet": resnet,
    "unet": unet,
    "encoder": encoder,
    "decoder": decoder,
    "lstm": lstm,
    "detector": detector,
}


def made(name: str) -> Example:
    """One of the examples, in inference mode, the same on every run."""
    torch.manual_seed(sum(map(ord, name)))
    example = EXAMPLES[name]()
    example.module.eval()
    for module in example.module.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return example


def exported(example: Example, dynamo: bool) -> bytes:
    """The ONNX model that one of PyTorch's exporters makes: the newer one (`dynamo`) or that by TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _by_dynamo(example) if dynamo else _by_script(example)


def _by_dynamo(example: Example) -> bytes:
    sizes = example.open_dimensions or {}
    open_axes = {name: {axis: torch.export.Dim.DYNAMIC for axis in axes} for name, axes in sizes.items()}
    program = torch.onnx.export(
        example.module,
        example.inputs,
        dynamo=True,
        verbose=False,
        input_names=list(example.names),
        dynamic_shapes=[open_axes.get(name) for name in example.names] if open_axes else None,
        custom_translation_table={torch.ops.detection.nms.default: _onnx_nms},
    )
    return program.model_proto.SerializeToString()


def _by_script(example: Example) -> bytes:
    torch.onnx.register_custom_op_symbolic("detection::nms", _symbolic_nms, 17)
    file = io.BytesIO()
    torch.onnx.export(
        example.module,
        example.inputs,
        file,
        dynamo=False,
        opset_version=17,
        input_names=list(example.names),
        dynamic_axes=example.open_dimensions,
    )
    return file.getvalue()


def _onnx_nms(boxes, scores, threshold):
    from onnxscript import opset18 as op

    limit, best = op.Constant(value_int=1000), op.Constant(value_float=float(threshold))
    non_max_suppression = op.NonMaxSuppression(op.Unsqueeze(boxes, [0]), op.Unsqueeze(scores, [0, 1]), limit, best)
    return op.Squeeze(op.Gather(non_max_suppression, [2], axis=1), [1])


def _symbolic_nms(g, boxes, scores, threshold):
    def constant(value):
        return g.op("Constant", value_t=torch.tensor(value))

    batched = g.op("Unsqueeze", boxes, constant([0])), g.op("Unsqueeze", scores, constant([0, 1]))
    result = g.op("NonMaxSuppression", *batched, constant([1000]), threshold)
    return g.op("Squeeze", g.op("Gather", result, constant([2]), axis_i=1), constant([1]))
