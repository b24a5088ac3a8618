"""Operators of PyTorch against eager execution, on CpuRef and on CpuAcc."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.errors import UnsupportedOperatorError
from tests.parameters import one_in

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from interposer.frontends import torch as frontend  # noqa: E402 - it imports PyTorch

pytestmark = [
    pytest.mark.filterwarnings("ignore:The tensor attribute"),
    pytest.mark.filterwarnings("ignore:Using padding='same'"),
]
F = torch.nn.functional
attend = F.scaled_dot_product_attention
BACKENDS = ("CpuRef",), ("CpuAcc", "CpuRef")


def exported(function: Callable[..., Any], inputs: Sequence[Any], dims: Any = None) -> Any:
    class Module(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
        def forward(self, *args: Any) -> Any:
            return function(*args)

    with torch.no_grad():
        return torch.export.export(Module().eval(), tuple(inputs), dynamic_shapes=dims, strict=False)


def check(network: Any, inputs: Sequence[Any], expected: Any) -> None:
    leaves = [item for item in torch.utils._pytree.tree_leaves(expected) if item is not None]
    for backends in BACKENDS:
        results = ip.load(network, backends).run([np.asarray(item) for item in inputs])
        for result, leaf in zip(results, leaves, strict=True):
            wanted = np.asarray(leaf)
            assert (result.shape, result.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


def agrees(function: Callable[..., Any], *inputs: Any) -> None:
    program = exported(function, inputs)
    check(frontend.load(program), inputs, function(*inputs))


def floats(*shape: int) -> Any:
    return torch.linspace(-2, 2.5, int(np.prod(shape))).reshape(shape).sin() * 3


def integers(*shape: int) -> Any:
    return torch.arange(int(np.prod(shape))).reshape(shape) * 7 % 11 - 4


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "promotion of integers and floats": (lambda x, y: (x + y * 2, x / 3, x // 2, y % 3), (integers(3, 4), floats(4))),
    "bool arithmetic": (lambda x, y: (x + y, x * y, x.sum(), x.any(1)), (integers(3, 4) > 0, integers(4) > 1)),
    "remainders and rounding": (lambda x: (x % -1.5, torch.fmod(x, 1.5), (x * 2).round() / 2, x.trunc()), (floats(9),)),
    "values near zero": (lambda x: (torch.log1p(x), torch.expm1(x)), (torch.tensor([1e-9, -1e-9, 0.0, 0.5]),)),
    "special values": (lambda x: (x.clamp(-1, 1), x.isnan(), x.max(), x.sign()),
                       (torch.tensor([1.0, float("inf"), -float("inf")]),)),
    "pads": (
        lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, -1, 0, 2), value=-1.5), F.pad(x, (2, 1), "reflect"),
                   F.pad(x, (1, 1), "replicate"), F.pad(x, (0, 2), "circular"), F.pad(x > 0, (0, 1), value=True)),
        (floats(2, 3, 4),),
    ),
    "differences": (
        lambda x, y: (x.diff(), x.diff(2, 0), x.diff(9), x.diff(prepend=x[:, :1], append=y), (x > 0).diff(),
                      y.to(torch.uint8).diff(dim=0)),
        (floats(4, 5), integers(4, 2)),
    ),
    "repeats": (lambda x: (x.repeat_interleave(3, 1), x.repeat_interleave(2), x.repeat_interleave(1, -1),
                           x.mT.broadcast_to(2, 4, 3)), (floats(3, 4),)),
    "complex repeats and pads": (
        lambda x: (F.pad(torch.fft.rfft(x), (0, 1)).abs(), torch.fft.rfft(x).diff().mT.repeat_interleave(2, 0).real),
        (floats(4, 6),),
    ),
    "slices": (lambda x: (x[1:100:2], x[:, -2:], x[-1], x[:0]), (floats(5, 4),)),
    "views": (lambda x: (x.mT.reshape(-1, 3), x.unfold(1, 3, 2), x.diagonal(1, 1, 2), x.expand(2, 2, 4, 6)),
              (floats(2, 4, 6),)),
    "indices": (lambda x, i: (x[:, i, i], x[i, :, i], x[i], x[:, None, i]), (floats(4, 4, 4), torch.tensor([0, -1]))),
    "masks": (lambda x: (x[x > 0], torch.where(x > 0, x, 0), x.masked_fill(x < 0, 9.0)), (floats(3, 5),)),
    "assignments": (lambda x, i: x.index_put((i, i), torch.ones(3), accumulate=True),
                    (floats(4, 4), torch.tensor([1, 1, -1]))),
    "in-place writes to views": (lambda x: x.clone()[1:].add_(1).mul_(x[:1]), (floats(3, 4),)),
    "scatters": (lambda x, i: x.scatter_reduce(1, i, x * 2, "amax", include_self=False),
                 (floats(3, 4), integers(3, 4) % 4)),
    "statistics": (lambda x: (x.var(1), x.std(), torch.var_mean(x, (0, 1), correction=0)), (floats(3, 4),)),
    "counts of floats": (
        lambda x: (torch.histc(x, 7), torch.histc(x, 5, -1, 2), torch.histc(x * 0 + 2, 4), torch.histc(x[:0], 3)),
        (floats(20),),
    ),
    "counts of integers": (
        lambda i, w: (i.bincount(), i.bincount(w), i.bincount(minlength=20), i[:0].bincount(minlength=3)),
        (integers(20) % 9, floats(20)),
    ),
    "truth of all elements": (
        lambda x: (torch.ops.aten._is_all_true(x > -9), torch.ops.aten._is_any_true(x > 9), (x > 0).all(), x.any(0)),
        (floats(3, 4),),
    ),
    "triangles": (lambda x: (x * torch.tril_indices(2, 3, 0).sum(), torch.triu_indices(3, 4, -1)), (floats(3),)),
    "products of groups of rows": (
        lambda x, w: F.grouped_mm(x.bfloat16(), w.bfloat16(), offs=torch.tensor([2, 2, 7], dtype=torch.int32)).float(),
        (floats(7, 8), floats(3, 8, 8)),
    ),
    "products of few rows": (
        lambda x, w: F.grouped_mm(x.bfloat16(), w.bfloat16(), offs=torch.tensor([0, 1, 2], dtype=torch.int32)).float(),
        (floats(2, 8), floats(3, 8, 8)),
    ),
    "products along axes": (
        lambda x: (torch.linalg.vecdot(x, x[:1]), torch.linalg.vecdot(x, x, dim=0)), (floats(3, 4),)
    ),
    "dropout of everything or nothing": (lambda x: (F.dropout(x, 1.0), F.dropout(x, 0.0)), (floats(3, 4),)),
    "operators on constants": (
        lambda x: (x @ torch.linalg.inv(torch.eye(3) * 2), x * torch.erfinv(torch.tensor(0.3))),
        (floats(2, 3),),
    ),
    "unique elements": (
        lambda x: (torch.unique(x), *torch.unique(x, return_counts=True), *torch.unique(x, return_inverse=True)),
        (torch.tensor([[2, 0, 2], [5, 0, 7]]),),
    ),
    "places of elements": (lambda x: (torch.argwhere(x), *torch.nonzero(x > 3, as_tuple=True)), (integers(3, 4),)),
    "runs of equal elements": (
        lambda x: (*torch.unique_consecutive(x, True, True), *torch.unique_consecutive(x, True, True, dim=1)),
        (torch.tensor([[1, 1, 2], [2, 2, 7], [7, 7, 1]]),),
    ),
    "most frequent elements": (
        lambda x: (*torch.mode(x), *torch.mode(x, 0, keepdim=True)),
        (torch.tensor([[2.0, 0.0, 2.0], [5.0, 0.0, 7.0]]),),
    ),
    "medians without NaN": (
        lambda x: (torch.nanmedian(x), *torch.nanmedian(x, 1), *torch.nanmedian(x, 0, keepdim=True)),
        (torch.tensor([[2.0, torch.nan, 4.0], [torch.inf, torch.nan, 7.0]]),),
    ),
    "orders": (lambda x: (x.sort(descending=True), x.topk(2), x.argmax(), x.max(1), x.median(0)), (floats(3, 4),)),
    "cumulative functions": (lambda x: (x.cumsum(0), x.cumprod(1), x.cummax(1), x.logcumsumexp(0)), (floats(3, 4),)),
    "empty tensors": (lambda x: (x.sum(1), torch.cat([x, x]), x @ x.mT), (torch.zeros(2, 0),)),
    "attention with masks": (
        lambda q, m: (attend(q, q, q, m), attend(q, q, q, is_causal=True)),
        (floats(2, 2, 4, 8), integers(4, 4) > 20),
    ),
    "attention whose heads broadcast": (
        lambda q, k, v: (attend(q, k, v), attend(q[:, :1], k, v), attend(q[:1], k, k)),
        (floats(2, 4, 3, 8), floats(2, 4, 5, 8), floats(2, 1, 5, 8)),
    ),
    "grouped attention": (lambda q, k: attend(q, k, k, scale=0.3, enable_gqa=True),
                          (floats(1, 4, 3, 8), floats(1, 2, 5, 8))),
    "convolutions": (lambda x, w: (F.conv2d(x, w, padding="same"), F.conv2d(x, w, stride=(2, 1), dilation=2)),
                     (floats(1, 3, 9, 8), floats(4, 3, 3, 2))),
    "transposed convolutions": (lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
                                (floats(1, 4, 5, 5), floats(4, 3, 3, 3))),
    "pooling": (lambda x: (F.avg_pool2d(x, 3, 2, 1, True), F.max_pool2d(x, 2, ceil_mode=True, return_indices=True),
                           F.avg_pool2d(x, 2, divisor_override=3), F.adaptive_avg_pool2d(x, (3, 2))),
                (floats(1, 2, 7, 7),)),
    "upsampling": (
        lambda x: [F.interpolate(x, (7, 3), mode=mode) for mode in ("nearest", "nearest-exact", "bilinear", "bicubic")],
        (floats(1, 2, 4, 5),),
    ),
    "upsampling with antialiasing": (lambda x: F.interpolate(x, (3, 4), mode="bicubic", antialias=True),
                                     (floats(1, 2, 9, 8),)),
    "normalizations": (
        lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.group_norm(x, 2), F.instance_norm(x)),
        (floats(2, 4, 6),),
    ),
    "complex numbers": (
        lambda x: (torch.fft.irfft(torch.fft.rfft(x) * 1j, n=6), torch.fft.fft2(x).abs(), torch.fft.rfft(x).real),
        (floats(4, 6),),
    ),
    "branches": (lambda x: torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 1, (x,)), (floats(3, 4),)),
    "sizes from data": (lambda x: (x[x > 0].reshape(-1, 1).expand(-1, 3), torch.nonzero(x)), (floats(3, 4),)),
    "products of int8": (lambda x, y: torch._int_mm((x * 9).to(torch.int8), (y * 9).to(torch.int8)),
                         (floats(32, 16), floats(16, 24))),
    "int8 weights": (
        lambda x, w: torch._weight_int8pack_mm(x.bfloat16(), (w * 9).to(torch.int8), w[:, 0].bfloat16()).float(),
        (floats(4, 32), floats(32, 32)),
    ),
    "frequencies": (lambda x: (x[:, :5] * torch.fft.rfftfreq(8), x * torch.fft.fftfreq(8, 0.5)), (floats(2, 8),)),
    "bits of other types": (
        lambda x, i: (x.view(torch.int32), x.view(torch.uint8), x.view(torch.float64), x.view(torch.int64),
                      i.view(torch.int16), i.view(torch.float32), i.to(torch.uint8).view(torch.int64)),
        (floats(2, 8), integers(2, 8)),
    ),
    "sums over an ellipsis": (
        lambda x, y: (torch.einsum("b...,b...->b", x, x), torch.einsum("...i,...i->i", x, y),
                      torch.einsum("ij...->i", x), torch.einsum("ij...->ji", x)),
        (floats(2, 3), floats(4, 1, 3)),
    ),
    "volumes with a padding larger than the stride": (
        lambda x, w: F.conv_transpose3d(x, w, stride=(1, 1, 2), output_padding=(0, 1, 1), dilation=(1, 2, 2)),
        (floats(1, 2, 3, 4, 3), floats(2, 3, 1, 3, 3)),
    ),
    "operators without operands": (lambda x: (x * torch.kaiser_window(4), torch.special.xlog1py(x, 2)), (floats(4),)),
    "truth of no elements": (lambda x: (x.all(1), x.any(1), x.to(torch.uint8).all(), (x > 0).all(0)),
                             (torch.zeros(2, 0),)),
    "products": (lambda x, y: (torch.einsum("bij,kj->bik", x, y), torch.baddbmm(x @ x.mT, x, x.mT, beta=0.5)),
                 (floats(2, 3, 4), floats(5, 4))),
}  # fmt: skip


@pytest.mark.parametrize("title", one_in(2, CASES))
def test_a_program_agrees_with_eager(title: str) -> None:
    function, inputs = CASES[title]
    agrees(function, *inputs)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers_agree_with_eager(kind: str) -> None:
    module = getattr(torch.nn, kind)(4, 5, 2, bidirectional=True, batch_first=True).eval()
    with torch.no_grad():
        program = torch.export.export(module, (floats(3, 6, 4),))
        network = frontend.load(program)
        check(network, [floats(3, 6, 4)], module(floats(3, 6, 4)))
    assert f"{kind.capitalize()}Sequence" in {layer.kind for layer in network}


def test_a_loop_agrees_with_eager() -> None:
    from torch._higher_order_ops import while_loop

    def function(x: Any) -> Any:
        return while_loop(lambda i, y: i < 4, lambda i, y: (i + 1, y * 1.5), (torch.tensor(0), x))

    agrees(function, floats(3))


def test_a_network_of_unknown_sizes_runs_with_several_shapes() -> None:
    def function(x: Any, y: Any) -> Any:
        return torch.cat([x, y]).view(-1, 2, 3), x.shape[0] * 2, torch.arange(y.shape[0]), x.flip(0) + x.shape[0]

    dims = (({0: torch.export.Dim("a", min=2, max=64)}, {0: torch.export.Dim("b", min=2, max=64)}),)
    program = exported(function, (floats(4, 6), floats(3, 6)), dims)
    for rows in ((4, 3), (9, 2)):
        inputs = [floats(count, 6) for count in rows]
        names = [argument.name for argument in frontend.read(program).arguments]
        shapes = {name: tuple(item.shape) for name, item in zip(names, inputs, strict=True)}
        check(frontend.load(program, shapes), inputs, function(*inputs))


def test_quantized_operators_stay_quantized() -> None:
    pytest.importorskip("torch.ao.quantization.fx._decomposed")
    q = torch.ops.quantized_decomposed

    def function(x: Any) -> Any:
        codes = q.quantize_per_tensor(x, 0.05, 3, -128, 127, torch.int8)
        return q.dequantize_per_tensor(codes.view(2, 6), 0.05, 3, -128, 127, torch.int8), codes + 1

    program = exported(function, [floats(3, 4)])
    network = frontend.load(program)
    check(network, [floats(3, 4)], function(floats(3, 4)))
    assert [layer.kind for layer in network][:4] == ["Input", "Quantize", "Reshape", "Dequantize"]


def test_all_operators_that_are_missing_are_listed_with_their_places() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.svd(x)[1] + torch.linalg.qr(x)[0] + torch.linalg.qr(x * 2)[0]

    with pytest.raises(UnsupportedOperatorError) as caught:
        frontend.load(exported(function, [floats(3, 3)]))
    assert caught.value.operators == {"aten._linalg_svd.default": 1, "aten.linalg_qr.default": 2}
    assert "test_operators.py:" in str(caught.value)


def test_an_operator_without_a_converter_on_random_numbers_is_decomposed() -> None:
    network = frontend.load(exported(lambda x: x + torch.special.xlog1py(torch.rand(4), 2), (floats(4),)))
    [result] = ip.load(network, ["CpuRef"]).run([np.zeros(4, np.float32)])
    assert ip.ops.RandomFill in {type(layer.op) for layer in network.graph}
    assert 0 <= result.min() < result.max() < np.log(3)


def test_a_count_of_negative_integers_is_refused() -> None:
    model = ip.load(exported(torch.bincount, [torch.tensor([1, 2])]))
    with pytest.raises(ip.errors.InterposerError, match=r"cannot use its inputs: indices has 2 at \[1\]"):
        model(torch.tensor([1, -1]))


def test_an_operator_on_constants_that_fails_is_an_error() -> None:
    program = exported(lambda x: x @ torch.linalg.inv(torch.zeros(3, 3)), [floats(2, 3)])
    with pytest.raises(
        ip.errors.ParseError, match="PyTorch cannot compute it: linalg.inv: The diagonal element 1 is zero"
    ):
        frontend.load(program)


def test_training_is_refused_with_advice() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).train()
    program = torch.export.export(module, (floats(3, 4),))
    with pytest.raises(UnsupportedOperatorError, match=r"call eval\(\) on the module before the export"):
        frontend.load(program)


def test_tied_weights_are_one_constant() -> None:
    class Tied(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(7, 4)
            self.head = torch.nn.Linear(4, 7, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.embedding(x))

    network = frontend.load(torch.export.export(Tied().eval(), (torch.tensor([1, 2]),)))
    assert sum(layer.kind == "Constant" for layer in network) == 1


def test_integer_arithmetic_of_quantized_programs_is_that_of_pytorch() -> None:
    from torch._higher_order_ops.out_dtype import out_dtype

    aten, weight = torch.ops.aten, (integers(5, 3, 3, 3) * 9).to(torch.int16)

    def module(x: Any) -> Any:
        x = x.to(torch.int16) - 3
        total = out_dtype(
            aten.convolution.default, torch.int32, x, weight, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1
        )
        scaled = out_dtype(aten.mul.Tensor, torch.int32, total, 0.0123)
        return total, (scaled + 7).clamp(-128, 127).to(torch.int8)

    x = (integers(2, 3, 6, 6) * 12).to(torch.int8)
    program = exported(module, (x,))
    for backends in BACKENDS:
        for result, expected in zip(ip.load(program, backends)(x), module(x), strict=True):
            assert torch.equal(result, expected)


def test_axes_come_and_go_where_several_dimensions_depend_on_values() -> None:
    def outer(x: Any, y: Any) -> Any:
        first, second = torch.nonzero(x)[:, 0].float(), torch.nonzero(y)[:, 0].float()
        table = first.unsqueeze(1) * second.unsqueeze(0)
        stacked = table.unsqueeze(0).unsqueeze(2) + 0 * torch.rand_like(table).unsqueeze(0).unsqueeze(2)
        return stacked.squeeze(2).squeeze(0), stacked

    agrees(outer, torch.tensor([0, 1, 1, 0, 1]), torch.tensor([1, 0, 1]))
