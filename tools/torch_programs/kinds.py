"""Plain modules of many kinds: unusual layers, forms of arguments and results, types, states and ways to write."""

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as nf
from torch.utils import _pytree as pytree

from tools.torch_programs.program import Call, Program, built, ids, images, program


class _Twice(nn.Module):
    """Calls a module with the input twice."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x):  # type: ignore[no-untyped-def] # as modules are written
        """Return the module's result."""
        return self.module(x, x * 0.5)


class _Thrice(nn.Module):
    """Calls attention with one input as queries, keys and values."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the result and the weights of each head."""
        return self.module(x, x, x, average_attn_weights=False)


class _Rounded(nn.Module):
    """Calls a module with integers."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the module's result."""
        return self.module((x.abs() * 8).int().clamp(0, 29))


class _Heads(nn.Module):
    """Attention whose sizes are computed from those of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.LazyLinear(24)
        self.qkv(torch.zeros(1, 8))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the attention of two heads, with a bias that grows with the distance."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4).unbind(0)
        far = torch.arange(length, device=x.device)
        bias = -(far[None] - far[:, None]).abs().to(x.dtype) * torch.tensor([0.5, 0.25]).view(2, 1, 1)
        weights = (q @ k.transpose(-1, -2) / math.sqrt(width // 2) + bias).softmax(-1)
        return torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2)


def _parametrized() -> nn.Module:
    parametrizations = nn.utils.parametrizations
    first, second, third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
    module = nn.Sequential(
        parametrizations.orthogonal(first), parametrizations.spectral_norm(second), parametrizations.weight_norm(third)
    )
    nn.utils.parametrize.register_parametrization(third, "bias", _Positive())
    return module


class _Positive(nn.Module):
    """A parametrization: the exponential."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return positive numbers."""
        return x.exp()


_MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[int, ...]]] = {
    "transposed_1d": (lambda: nn.ConvTranspose1d(4, 6, 5, 3, 1, 2, groups=2), (2, 4, 9), (3, 4, 12)),
    "transposed_2d": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, dilation=2), (2, 4, 7, 6), (3, 4, 5, 9)),
    "transposed_3d": (lambda: nn.ConvTranspose3d(2, 4, 3, 2), (2, 2, 3, 4, 5), (3, 2, 4, 3, 3)),
    "padded_convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3, padding="same", padding_mode="reflect"),
            nn.Conv2d(6, 6, 3, padding=1, padding_mode="circular"),
            nn.Conv2d(6, 6, 3, padding=1, padding_mode="replicate", groups=6), nn.ZeroPad2d((1, 0, 2, 1)),
        ),
        (2, 3, 8, 9), (3, 3, 10, 7),
    ),
    "activations": (
        lambda: nn.Sequential(
            nn.Linear(8, 8), nn.SELU(), nn.CELU(0.7), nn.Hardsigmoid(), nn.Softsign(), nn.Tanhshrink(), nn.LogSigmoid(),
            nn.Hardshrink(0.2), nn.Softshrink(0.1), nn.Threshold(0.1, -0.3), nn.RReLU(), nn.PReLU(8), nn.Softmin(-1),
        ),
        (3, 8), (5, 8),
    ),
    "gates": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.Hardswish(), nn.ReLU6(), nn.Softplus(2.0, 3.0),
        nn.ELU(0.3)),
        (3, 8), (5, 8),
    ),
    "norms": (
        lambda: nn.Sequential(
            nn.RMSNorm(6), nn.LayerNorm((5, 6), elementwise_affine=False), nn.LocalResponseNorm(3), nn.GroupNorm(2, 4),
            nn.InstanceNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.LayerNorm(6, bias=False),
        ),
        (2, 4, 5, 6), (3, 4, 5, 6),
    ),
    "norm_of_batch": (
        lambda: nn.BatchNorm1d(5, track_running_stats=False), (4, 5, 3), (6, 5, 3),
    ),
    "pooling_kinds": (
        lambda: nn.Sequential(
            nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(2, 1, count_include_pad=False, padding=1), nn.LPPool2d(3, 2, 1),
            nn.MaxPool2d(2, 2, ceil_mode=True), nn.AdaptiveMaxPool2d((3, None)),
        ),
        (2, 3, 9, 8), (3, 3, 9, 8),
    ),
    "shuffles": (
        lambda: nn.Sequential(nn.PixelShuffle(2), nn.ChannelShuffle(2), nn.PixelUnshuffle(2), nn.Unflatten(1, (2, 4)),
        nn.Flatten(2)),
        (2, 8, 4, 6), (3, 8, 4, 6),
    ),
    "channels_last": (
        lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 4, 1)).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        (2, 3, 8, 8), (3, 3, 9, 7),
    ),
    "tied_layers": (lambda: nn.Sequential(*[nn.Linear(6, 6)] * 3), (3, 6), (5, 6)),
    "bilinear_layer": (lambda: _Twice(nn.Bilinear(5, 5, 4)), (3, 5), (6, 5)),
    "attention_weights": (lambda: _Thrice(nn.MultiheadAttention(8, 2, batch_first=True)), (2, 5, 8), (3, 7, 8)),
    "lstm_projected": (lambda: nn.LSTM(6, 8, 2, proj_size=4, bidirectional=True), (5, 2, 6), (5, 3, 6)),
    "gru_both_ways": (lambda: nn.GRU(6, 5, 2, bias=False, bidirectional=True, batch_first=True), (2, 5, 6), (3, 5, 6)),
    "lstm_of_other_lengths": (lambda: nn.LSTM(6, 8, batch_first=True), (2, 5, 6), (2, 9, 6)),
    "rnn_of_relu": (lambda: nn.RNN(6, 5, 2, nonlinearity="relu"), (5, 2, 6), (5, 3, 6)),
    "parametrized": (_parametrized, (3, 6), (5, 6)),
    "embedding_max_norm": (lambda: _Rounded(nn.Embedding(30, 5, scale_grad_by_freq=True)), (3, 4), (2, 6)),
    "upsampling": (
        lambda: nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
            nn.Upsample(scale_factor=(0.5, 1.5), mode="nearest-exact"),
            nn.UpsamplingBilinear2d((7, 5)),
        ),
        (2, 3, 6, 8), (3, 3, 7, 5),
    ),
    "lazy_sizes": (_Heads, (2, 6, 8), (3, 4, 8)),
}  # fmt: skip


def _register(name: str, build: Callable[[], nn.Module], first: tuple[int, ...], other: tuple[int, ...]) -> None:
    def built_program() -> Program:
        return built(build(), lambda seed: Call((images(seed, first),)), lambda seed: Call((images(seed, other),)))

    program(name)(built_program)


for _name, _item in _MODULES.items():
    _register(_name, *_item)


# --- forms of arguments and results -----------------------------------------------------------------------------------


class _Function(nn.Module):
    """A function as a module, with one layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(4, 4)

    def forward(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        """Return what the function returns for the layer and the arguments."""
        return self.function(self.layer, *args, **kwargs)


def _calls(name: str, first: Callable[[int], Call], other: Callable[[int], Call]) -> Callable[[Any], Any]:
    """Register a function of a layer and other arguments as the program `name`."""

    def register(function: Any) -> Any:
        program(name)(lambda: built(_Function(function), first, other))
        return function

    return register


def _shaped(name: str, first: tuple[int, ...], other: tuple[int, ...]) -> Callable[[Any], Any]:
    return _calls(name, lambda seed: Call((images(seed, first),)), lambda seed: Call((images(seed, other),)))


Pair = namedtuple("Pair", ["left", "right"])


@dataclass
class Output:
    """A result of a module."""

    hidden: torch.Tensor
    pair: Pair
    extra: dict[str, Any]


pytree.register_dataclass(Output, serialized_type_name="tools.torch_programs.Output")


@_shaped("dataclass_output", (3, 4), (5, 4))
def dataclass_output(layer, x):  # type: ignore[no-untyped-def]
    """Return an object with a named tuple and a dictionary in it."""
    y = layer(x)
    return Output(y, Pair(y[:, 0], y.sum()), {"list": [y, None, 3], "ordered": OrderedDict(b=x, a=y + x)})


@_calls(
    "many_arguments",
    lambda s: Call((images(s, (3, 4)), (images(s + 1, (3, 4)), [images(s + 2, (4,))])), {"scale": 2, "flag": True}),
    lambda s: Call((images(s, (6, 4)), (images(s + 1, (6, 4)), [images(s + 2, (4,))])), {"scale": 2, "flag": True}),
)
def many_arguments(layer, x, rest, mask=None, *, scale=1, flag=False, name="sum"):  # type: ignore[no-untyped-def]
    """Take tuples, lists, defaults, numbers, flags and texts."""
    y = layer(x) * scale + rest[0]
    y = y.relu() if flag else y
    y = y if mask is None else y * mask
    return y.sum(0) + rest[1][0] if name == "sum" else y


@_calls(
    "numbers_as_inputs",
    lambda s: Call((images(s, (3, 4)), 2, 0.5, True)),
    lambda s: Call((images(s, (5, 4)), 2, 0.5, True)),
)
def numbers_as_inputs(layer, x, count, factor, flag):  # type: ignore[no-untyped-def]
    """Take numbers of Python."""
    return torch.cat([layer(x) * factor] * count, 1) if flag else x


@_calls(
    "numbers_that_change",
    lambda s: Call((images(s, (3, 4)), s, s * 0.5)),
    lambda s: Call((images(s, (5, 4)), s, s * 0.5)),
)
def numbers_that_change(layer, x, count, factor):  # type: ignore[no-untyped-def]
    """Take numbers of Python that differ in each call."""
    return torch.cat([layer(x) * factor] * count, 1), x + count, count + 1


@_calls(
    "scalar_tensors",
    lambda s: Call((images(s, (3, 4)), torch.tensor(s * 0.5), torch.tensor(s), torch.tensor(s == 1))),
    lambda s: Call((images(s, (5, 4)), torch.tensor(s * 0.5), torch.tensor(s), torch.tensor(s == 1))),
)
def scalar_tensors(layer, x, factor, index, flag):  # type: ignore[no-untyped-def]
    """Take tensors of rank 0."""
    y = layer(x) * factor
    return torch.where(flag, y, -y), y.index_select(1, index), y + index, flag & (y > 0)


@_calls(
    "integers_and_bools",
    lambda s: Call((ids(s, (3, 5)), ids(s, (3, 5)) > 30, ids(s, (3, 5)).to(torch.uint8), ids(s, (3, 5)).short())),
    lambda s: Call((ids(s, (2, 7)), ids(s, (2, 7)) > 30, ids(s, (2, 7)).to(torch.uint8), ids(s, (2, 7)).short())),
)
def integers_and_bools(layer, i, b, u, h):  # type: ignore[no-untyped-def]
    """Combine integers of several types and bools."""
    return (
        i + b, u * 7, u // 3, -h, h << 2, i / 2, b ^ (i > 50), ~b, ~u, b.sum(1), u.sum(), i.float().mean(1),
        i.cumsum(1),
        u.to(torch.int8), b.any(0), b.all(1), i.prod(1), torch.bitwise_and(i, 6), i.clamp(20, 60), i.max(1),
        b.cumsum(1),
        u - 100, h.abs(), i.sort(1, descending=True), u.float() @ u.float().T, i % 7 - 3, b * 2.5,
    )  # fmt: skip


@_calls(
    "counting",
    lambda s: Call((ids(s, (20,), 40), images(s, (20,)))),
    lambda s: Call((ids(s, (13,), 30), images(s, (13,)))),
)
def counting(layer, i, x):  # type: ignore[no-untyped-def]
    """Count integers and floats."""
    return (
        torch.bincount(i, minlength=60)[:50], torch.bincount(i, x, 50)[:50], torch.histc(x, 6, -1, 1),
        torch.histc(x, 5),
        torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True),
        nf.one_hot(i, 40),
    )  # fmt: skip


@_calls(
    "half_precision",
    lambda s: Call((images(s, (3, 4)).half(), images(s, (3, 4)).bfloat16(), images(s, (3, 4)).double())),
    lambda s: Call((images(s, (5, 4)).half(), images(s, (5, 4)).bfloat16(), images(s, (5, 4)).double())),
)
def half_precision(layer, h, b, d):  # type: ignore[no-untyped-def]
    """Combine floats of four types."""
    return h + b, h * 2.5, b.softmax(-1), layer(h.float()).half() + h, d + h, d.float() * b, (h @ h.T).float(), b.sum(0)


@_shaped("autocast", (3, 4), (5, 4))
def autocast(layer, x):  # type: ignore[no-untyped-def]
    """Run a layer in bfloat16 by autocast."""
    with torch.autocast("cpu", torch.bfloat16):
        return layer(x), layer(x).float() + x


@_calls(
    "strided_inputs",
    lambda s: Call((images(s, (4, 3)).t(), images(s, (6, 8))[::2, 1::2], images(s, (1, 4)).expand(3, 4))),
    lambda s: Call((images(s, (4, 5)).t(), images(s, (10, 8))[::2, 1::2], images(s, (1, 4)).expand(5, 4))),
)
def strided_inputs(layer, a, b, c):  # type: ignore[no-untyped-def]
    """Take tensors that are not contiguous."""
    return layer(a) + b * c, a.t() @ b, c.contiguous().view(-1)


@_calls(
    "channels_last_inputs",
    lambda s: Call((images(s, (2, 4, 5, 4)).to(memory_format=torch.channels_last),)),
    lambda s: Call((images(s, (3, 4, 5, 4)).to(memory_format=torch.channels_last),)),
)
def channels_last_inputs(layer, x):  # type: ignore[no-untyped-def]
    """Take images in the order NHWC."""
    return nf.max_pool2d(x, 2), layer(x), x.flatten(1), x.permute(0, 2, 3, 1).reshape(-1)


@_shaped("empty_batch", (3, 4), (0, 4))
def empty_batch(layer, x):  # type: ignore[no-untyped-def]
    """Take a batch of size 0."""
    return layer(x).relu(), x.sum(0), torch.cat([x, layer(x)], 1), x.reshape(-1, 2, 2), x.softmax(1)


@_calls("other_types", lambda s: Call((ids(s, (3, 4)),)), lambda s: Call((images(s, (5, 4)).double(),)))
def other_types(layer, x):  # type: ignore[no-untyped-def]
    """Take another type in the third call."""
    return layer(x.float()) + x, x * 2, x.sum()


@_calls("other_ranks", lambda s: Call((images(s, (3, 4)),)), lambda s: Call((images(s, (2, 3, 4)),)))
def other_ranks(layer, x):  # type: ignore[no-untyped-def]
    """Take another rank in the third call."""
    return layer(x), x.flatten(), x.mean(-1)


# --- control flow, functions and states -------------------------------------------------------------------------------


@_shaped("branch_on_data", (3, 4), (5, 4))
def branch_on_data(layer, x):  # type: ignore[no-untyped-def]
    """Branch on the sum of the input."""
    return layer(x) if x.sum() > 0 else -x


@_shaped("number_from_data", (3, 4), (5, 4))
def number_from_data(layer, x):  # type: ignore[no-untyped-def]
    """Use a number that is read from a tensor."""
    peak = x.abs().max().item()
    return layer(x) / peak


@_shaped("size_from_data", (3, 4), (5, 4))
def size_from_data(layer, x):  # type: ignore[no-untyped-def]
    """Select a number of rows that depends on data."""
    rows = layer(x)[x[:, 0] > 0]
    return rows.sum(0), rows * 2, torch.cat([rows, x])


@_shaped("loop_over_rows", (3, 4), (5, 4))
def loop_over_rows(layer, x):  # type: ignore[no-untyped-def]
    """Loop as often as the input has rows."""
    state = torch.zeros(4)
    states = []
    for row in x:
        state = torch.tanh(layer(row + state))
        states.append(state)
    return torch.stack(states)


@_shaped("branch_on_size", (3, 4), (12, 4))
def branch_on_size(layer, x):  # type: ignore[no-untyped-def]
    """Branch on a size of the input."""
    return layer(x) if x.shape[0] < 8 else x.mean(0)


class _Clipped(torch.autograd.Function):
    """A function with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, limit):  # type: ignore[no-untyped-def]
        """Return the input, clipped."""
        return x.clamp(-limit, limit)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        """Return the gradient unchanged."""
        return gradient, None


@_shaped("autograd_function", (3, 4), (5, 4))
def autograd_function(layer, x):  # type: ignore[no-untyped-def]
    """Call a custom function of autograd."""
    return _Clipped.apply(layer(x), 0.5)


@_shaped("checkpointed", (3, 4), (5, 4))
def checkpointed(layer, x):  # type: ignore[no-untyped-def]
    """Call a layer with checkpoints."""
    return torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) + 1


@_shaped("mapped", (3, 4), (5, 4))
def mapped(layer, x):  # type: ignore[no-untyped-def]
    """Map a function over rows."""
    return torch.vmap(lambda row: layer(row) * row.sum())(x)


@_shaped("gradient_of_input", (3, 4), (5, 4))
def gradient_of_input(layer, x):  # type: ignore[no-untyped-def]
    """Return the gradient of a function of the input."""
    return torch.func.grad(lambda y: layer(y).square().sum())(x)


@_shaped("written_views", (4, 4), (6, 4))
def written_views(layer, x):  # type: ignore[no-untyped-def]
    """Write to views of a result, which share memory with other results."""
    y = layer(x)
    top, left = y[:2], y[:, :2]
    top += 1
    left[1].mul_(3)
    y.diagonal().zero_()
    y.unfold(0, 2, 2)[0, 0] = 7.0
    y[x > 1] = -2.0
    y.masked_fill_(x < -1, 9.0)
    return y, top, left, y.t()


@_shaped("written_in_place", (4, 4), (6, 4))
def written_in_place(layer, x):  # type: ignore[no-untyped-def]
    """Use operators that work in place, also on the input."""
    y = nf.relu(layer(x), inplace=True)
    y.add_(x).mul_(2).clamp_(-3, 3).sigmoid_()
    x.copy_(x.flip(1))
    y[..., -1] = x[..., 0]
    y[1:3, ::2] += 10
    torch.add(y, 1, out=y)
    return y, x[0]


@_shaped("random_in_training", (3, 4), (5, 4))
def random_in_training(layer, x):  # type: ignore[no-untyped-def]
    """Apply a dropout of 1, which is active, and whose result does not depend on the generator."""
    return layer(nf.dropout(x, 1.0, training=True)), nf.dropout(x, 0.0, training=True)


@_shaped("reduce_kinds", (3, 4, 5), (2, 4, 5))
def reduce_kinds(layer, x):  # type: ignore[no-untyped-def]
    """Reduce in further ways."""
    return (
        x.aminmax(dim=1), x.kthvalue(2, 1), x.mode(2).values, x.nansum(1), torch.var_mean(x, 1), x.count_nonzero(1),
        x.quantile(0.3, dim=1), x.nanmean(0), torch.linalg.norm(x, dim=(1, 2)), x.cummax(1), x.diff(dim=1), x.argmin(),
        torch.trapezoid(x, dim=1), x.std(keepdim=True), x.logsumexp((0, 1)), torch.linalg.vector_norm(x, 3, 2),
        x.unique().sum(), x.sort(dim=1, stable=True).indices, x.msort(), torch.cov(x[0]), torch.corrcoef(x[1]),
    )  # fmt: skip


@_shaped("arrange_kinds", (4, 6), (6, 6))
def arrange_kinds(layer, x):  # type: ignore[no-untyped-def]
    """Arrange elements in further ways."""
    rows = torch.arange(x.shape[0])
    return (
        x.unfold(1, 3, 2), x.as_strided((2, 2), (6, 1)), x.tensor_split(4, 1), torch.block_diag(x, x[:2]), x.rot90(),
        torch.cartesian_prod(rows, rows), x.repeat_interleave(2, 0), x.tile(2, 1), x.movedim(0, 1),
        torch.meshgrid(rows, rows, indexing="ij"), torch.vander(x[0]), x.hsplit(2), torch.kron(x[:2, :2], x), x.diag(),
        torch.tril_indices(4, 6), x[rows.flip(0)[:, None], [[1, 2]]], x[None, ..., 0, None], x[:, [True, False] * 3],
        torch.take_along_dim(x, x.argsort(1), 1), x.swapaxes(0, 1), torch.atleast_3d(x), x.unflatten(1, (2, 3)).mT,
        torch.triu(x, -1), torch.stack([x, x], -1).flatten(1), x.new_full((2, x.shape[0]), 3), x.narrow(1, 1, 3),
        x.index_add(1, torch.tensor([0, 0]), x[:, :2]),
        x.scatter_reduce(1, x.argsort(1), x, "amax", include_self=False),
    )  # fmt: skip


@_shaped("losses", (3, 4), (5, 4))
def losses(layer, x):  # type: ignore[no-untyped-def]
    """Compute losses, as modules that return them do."""
    y, target = layer(x), x.argmax(1)
    return (
        nf.cross_entropy(y, target, label_smoothing=0.1), nf.mse_loss(y, x), nf.smooth_l1_loss(y, x), nf.l1_loss(y, x),
        nf.binary_cross_entropy_with_logits(y, x.sigmoid()),
        nf.kl_div(y.log_softmax(1), x.softmax(1), reduction="batchmean"),
        nf.nll_loss(y.log_softmax(1), target, reduction="none"), nf.huber_loss(y, x),
        nf.cosine_embedding_loss(y, x, target.sign()),
        nf.cross_entropy(y, torch.where(target > 1, -100, target)), nf.triplet_margin_loss(y, x, x + 1),
        nf.hinge_embedding_loss(y, x),
        nf.poisson_nll_loss(y, x), nf.margin_ranking_loss(y, x, x.sign()), nf.soft_margin_loss(y, x.sign()),
        nf.multi_margin_loss(y, target),
    )  # fmt: skip


@_shaped("linear_algebra", (3, 4, 4), (2, 4, 4))
def linear_algebra(layer, x):  # type: ignore[no-untyped-def]
    """Multiply matrices in many ways."""
    return (
        torch.linalg.multi_dot([x[0], x[1], x[0]]), torch.matrix_power(x[0], 3), torch.tensordot(x, x, ([1], [2])),
        x @ x[0, 0],
        torch.linalg.matrix_norm(x), torch.outer(x[0, 0], x[0, 1]), x[0, 0] @ x[0, 1],
        torch.addmv(x[0, 0], x[0], x[0, 1], beta=0.5),
        torch.addbmm(x[0], x, x, alpha=2), torch.chain_matmul(x[0], x[1]), torch.trace(x[0]),
        torch.linalg.cross(x[..., :3], x[..., 1:]),
        torch.inner(x, x[0]), torch.bmm(x, x.mT), torch.einsum("...ij,...jk,...k->...i", x, x, x[..., 0]),
        torch.linalg.vecdot(x, x),
    )  # fmt: skip


@_shaped("factorizations", (3, 4, 4), (2, 4, 4))
def factorizations(layer, x):  # type: ignore[no-untyped-def]
    """Solve and invert."""
    positive = x @ x.mT + torch.eye(4)
    return (
        torch.linalg.inv(positive),
        torch.linalg.det(positive),
        torch.linalg.solve(positive, x),
        torch.linalg.cholesky(positive),
    )


@_shaped("special_functions", (3, 4), (5, 4))
def special_functions(layer, x):  # type: ignore[no-untyped-def]
    """Apply functions of one element."""
    p = x.abs() + 0.1
    return (
        torch.erfinv(x.tanh()), torch.lgamma(p), torch.digamma(p), torch.special.expit(x),
        torch.logit(x.sigmoid(), 1e-3),
        torch.xlogy(p, p), torch.logaddexp(x, p), torch.sinc(x), torch.i0(x), torch.frac(x), torch.deg2rad(x),
        torch.nan_to_num(x / 0),
        torch.lerp(x, p, 0.3), torch.hypot(x, p), torch.heaviside(x, p), torch.float_power(p, 2),
        torch.special.entr(p), torch.exp2(x),
        torch.log1p(p), torch.expm1(x), torch.copysign(p, x), torch.signbit(x), torch.frexp(p), torch.addcdiv(x, x, p),
        torch.true_divide(x, p),
        torch.special.ndtr(x), torch.asinh(x), torch.gcd(x.int(), p.int() + 3), torch.nextafter(x, p),
        torch.isclose(x, p),
        torch.allclose(x, p) if False else x.eq(p), torch.mvlgamma(p + 2, 2), torch.special.log_ndtr(x),
        torch.round(x, decimals=2),
    )  # fmt: skip


@_shaped("complex_numbers", (3, 8), (5, 8))
def complex_numbers(layer, x):  # type: ignore[no-untyped-def]
    """Compute with complex numbers."""
    z = torch.complex(x[:, :4], x[:, 4:])
    w = torch.fft.fft(z) * torch.polar(x[:, :4].abs(), x[:, 4:])
    return (
        w.real,
        w.imag,
        w.abs(),
        w.angle(),
        torch.view_as_real(w),
        (z @ w.mT).real,
        torch.fft.fftshift(w).conj().real,
        z,
    )


@_shaped("signals", (2, 32), (3, 32))
def signals(layer, x):  # type: ignore[no-untyped-def]
    """Transform signals as audio models do."""
    window = torch.hann_window(16)
    spectrum = torch.stft(x, 16, 8, window=window, return_complex=True)
    back = torch.istft(spectrum, 16, 8, window=window, length=32)
    return (
        spectrum.abs().pow(2).clamp(1e-5).log10(),
        back,
        torch.fft.rfft2(x).real,
        torch.fft.irfft(torch.fft.rfft(x), n=32),
    )


@_shaped("grids", (2, 3, 6, 7), (3, 3, 6, 7))
def grids(layer, x):  # type: ignore[no-untyped-def]
    """Sample on grids in several modes, in two and three dimensions."""
    grid = torch.stack(torch.meshgrid(torch.linspace(-1.2, 1.1, 5), torch.linspace(-1, 1.3, 4), indexing="xy"), -1)
    grid = grid.expand(x.shape[0], -1, -1, -1)
    volume = x[:, :, None].expand(-1, -1, 2, -1, -1)
    deep = nf.pad(grid, (0, 1), value=0.3)[:, None]
    return (
        nf.grid_sample(x, grid, "bilinear", "border", True), nf.grid_sample(x, grid, "nearest", "reflection", False),
        nf.grid_sample(x, grid, "bicubic", "zeros", False), nf.grid_sample(volume, deep, align_corners=True),
        nf.interpolate(x, (9, 4), mode="bilinear", antialias=True), nf.interpolate(x, (3, 5), mode="area"),
        nf.interpolate(volume, (3, 4, 5), mode="trilinear"), nf.interpolate(x[:, :, 0], 11, mode="linear"),
    )  # fmt: skip


@_calls(
    "bags",
    lambda s: Call((ids(s, (10,), 20), torch.tensor([0, 3, 3]), images(s, (10,)))),
    lambda s: Call((ids(s, (7,), 20), torch.tensor([0, 2, 6]), images(s, (7,)))),
)
def bags(layer, i, offsets, weights):  # type: ignore[no-untyped-def]
    """Look up bags of embeddings, one of which is empty."""
    table = torch.linspace(-1, 1, 80).view(20, 4)
    return (
        nf.embedding_bag(i, table, offsets, mode="sum", per_sample_weights=weights),
        nf.embedding_bag(i, table, offsets),
        nf.embedding_bag(i.view(1, -1), table, mode="max"),
        nf.embedding_bag(i, table, offsets, mode="mean", padding_idx=7),
    )  # fmt: skip


class _Stateful(nn.Module):
    """Keeps a queue, a running maximum, a step and a flag in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("queue", torch.zeros(5, 4))
        self.register_buffer("peak", torch.full((4,), -math.inf))
        self.register_buffer("step", torch.tensor(0))
        self.register_buffer("started", torch.tensor(False))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Add the mean of the input to the queue."""
        self.queue[self.step % 5] = x.mean(0)
        self.peak.copy_(torch.maximum(self.peak, x.amax(0)))
        before = self.started.clone()
        self.started.fill_(True)
        self.step += 1
        return self.queue.clone(), self.peak * 2, before, self.step


program("stateful")(
    lambda: Program(_Stateful().eval(), tuple(Call((images(s, (n, 4)),)) for s, n in ((1, 3), (2, 3), (3, 5))))  # type: ignore[arg-type]
)


class _Assigned(nn.Module):
    """Replaces its buffer and an attribute in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the difference to the last call."""
        mean = x.mean(0)
        change = mean - self.last
        self.last = mean
        return change


program("buffer_replaced")(
    lambda: Program(_Assigned().eval(), tuple(Call((images(s, (n, 4)),)) for s, n in ((1, 3), (2, 3), (3, 5))))  # type: ignore[arg-type]
)


class _Training(nn.Module):
    """Batch normalization in training mode, which changes its statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the normalized result of a layer, and the statistics."""
        return self.norm(self.layer(x)), self.norm.running_mean.clone()


@program("norm_in_training")
def norm_in_training() -> Program:
    """Return a program with batch normalization in training mode."""
    return Program(_Training().train(), tuple(Call((images(s, (n, 4)),)) for s, n in ((1, 3), (2, 3), (3, 5))))  # type: ignore[arg-type]


@program("quantized_weights")
def quantized_weights() -> Program:
    """Return a program that dequantizes int8 weights itself."""

    class Layer(nn.Module):
        """A linear layer with int8 weights and a scale for each row."""

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-127, 128, (6, 8), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(6, 1) * 0.01)

        def forward(self, x):  # type: ignore[no-untyped-def]
            """Return the product with the dequantized weights."""
            return nf.linear(x, self.weight.to(x.dtype) * self.scale)

    module = nn.Sequential(Layer(), nn.ReLU())
    return Program(module.eval(), tuple(Call((images(s, (n, 8)),)) for s, n in ((1, 3), (2, 3), (3, 5))))  # type: ignore[arg-type]


@program("dynamically_quantized")
def dynamically_quantized() -> Program:
    """Return a program of eager quantization."""
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 6), nn.ReLU()), {nn.Linear}, torch.qint8)
    return Program(module.eval(), tuple(Call((images(s, (n, 8)),)) for s, n in ((1, 3), (2, 3), (3, 5))))  # type: ignore[arg-type]
