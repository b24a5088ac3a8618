"""`torch.compile` with Interposer: eager's results, or PyTorch itself with a word."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from interposer.session.torch import Fallback, FallbackWarning, clear_fallbacks, fallbacks, interposer
from tests.session.torch.modules import (
    Branching,
    Cache,
    Counting,
    Nested,
    WritesToInput,
    check_both,
    check_same,
    torch,
    twins,
)

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    clear_fallbacks()


def compiled(module: Any, **how: Any) -> Any:
    return torch.compile(module, backend=interposer, **how)


def test_pytorch_finds_the_backend_by_its_entry_point() -> None:
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["torch_dynamo_backends"]
    module, _, name = points["interposer"].partition(":")
    assert getattr(import_module(module), name) is interposer


def test_a_module_is_run_for_several_shapes() -> None:
    module, other = twins(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU()))
    function = compiled(module, options={"backends": ["CpuRef"]})
    for rows in (3, 3, 5, 1, 2, 0):
        check_both(function, other, torch.randn(rows, 4))
    assert fallbacks() == ()


@pytest.mark.parametrize("dynamic", [True, False])
def test_shapes_are_fixed_or_open_as_the_caller_says(dynamic: bool) -> None:
    module, other = twins(torch.nn.Linear(4, 2))
    function = compiled(module, dynamic=dynamic)
    for rows in (3, 4, 5):
        check_both(function, other, torch.randn(rows, 4))
    assert fallbacks() == ()


def test_nested_arguments_and_results_are_those_of_the_module() -> None:
    module, other = twins(Nested())
    function = compiled(module)
    for rows in (3, 5, 6):
        options, mask = {"shift": [torch.ones(3)]}, torch.randn(rows, 3) > 0
        check_both(function, other, torch.randn(rows, 4), options, scale=torch.ones(1), mask=mask)
        check_both(function, other, torch.randn(rows, 4), options, scale=2.5)


@pytest.mark.parametrize("kind", [Counting, Cache])
def test_buffers_change_in_place_as_those_of_the_module(kind: type) -> None:
    module, other = twins(kind())
    function = compiled(module)
    for _ in range(3):
        check_both(function, other, torch.randn(2))
        check_same(dict(module.named_buffers()), dict(other.named_buffers()))
    assert fallbacks() == ()


def test_returned_buffers_are_the_buffers_themselves() -> None:
    module, _ = twins(Cache())
    slots, view, transposed = compiled(module)(torch.ones(2))
    module.slots.fill_(7)
    assert slots.eq(7).all()
    assert view.eq(7).all()
    assert transposed.eq(7).all()


def test_arguments_change_in_place() -> None:
    module, other = twins(WritesToInput())
    function = compiled(module)
    for x in (torch.randn(2, 3), torch.randn(3, 3)):
        check_both(function, other, x)


def test_a_branch_on_data_is_taken_as_in_the_module() -> None:
    module, other = twins(Branching())
    function = compiled(module)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(4), -torch.ones(4)):
        check_both(function, other, x)
    assert fallbacks() == ()


def test_prints_break_a_graph_in_two(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any) -> Any:
        y = x * 2
        print("between")
        return y + 1

    check_same(compiled(function)(torch.ones(2)), torch.full((2,), 3.0))
    assert capsys.readouterr().out == "between\n"
    assert fallbacks() == ()


def test_results_share_no_memory_with_later_ones() -> None:
    module, _ = twins(torch.nn.Linear(4, 4))
    function = compiled(module)
    first = function(torch.ones(1, 4))
    kept = first.clone()
    function(torch.zeros(1, 4))
    first.add_(1)
    assert torch.equal(first - 1, kept) or torch.allclose(first - 1, kept)
    check_same(function(torch.ones(1, 4)), kept)


def test_views_among_the_results_are_views() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        return y, y.t(), y[0], x, x.view(-1)

    x = torch.randn(3, 4)
    y, transposed, row, same, flat = compiled(function)(x)
    assert same is x
    y.zero_()
    assert not transposed.any()
    assert not row.any()
    assert transposed.stride() == (1, 4)
    assert flat.data_ptr() == x.data_ptr()


@pytest.mark.parametrize("is_changed", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_views_of_arguments_are_views(dynamic: bool | None, is_changed: bool) -> None:
    def function(x: Any, y: Any) -> Any:
        if is_changed:
            x.add_(1)
        return x[1:, ::2], x.t(), y.expand(3, *y.shape), x[:, 2:4], x + y, x.unfold(0, 2, 1), y.diagonal()

    other = compiled(function, dynamic=dynamic)
    for rows in (4, 6, 8):
        for x in (torch.randn(rows, 6), torch.randn(6, rows).t(), torch.randn(2 * rows, 12)[::2, ::2]):
            first, second = (torch.zeros(600).as_strided(x.shape, x.stride()).copy_(x) for _ in range(2))
            y = torch.randn(rows, 6)
            results, expected = other(first, y), function(second, y)
            for result, wanted in zip((*results, first), (*expected, second), strict=True):
                assert torch.equal(result, wanted)
                assert result.stride() == wanted.stride()
            results[0].zero_()
            assert not first[1:, ::2].any()


@pytest.mark.parametrize(
    "x",
    [
        torch.randn(4, 3).t(), torch.randn(6, 8)[::2, ::2], torch.zeros(0, 4), torch.randn(1, 4).expand(3, 4),
        torch.randn(3, 4).bfloat16(), torch.arange(12).reshape(3, 4), torch.randn(3, 4).half(),
    ],
    ids=["transposed", "strided", "empty", "expanded", "bfloat16", "int64", "float16"],
)  # fmt: skip
def test_tensors_of_all_layouts_and_types_are_taken(x: Any) -> None:
    def function(x: Any) -> Any:
        return torch.cat([x, x * 2]), x.sum(0), x.t().contiguous()

    check_both(compiled(function), function, x)
    assert fallbacks() == ()


def test_an_operator_that_is_missing_leaves_its_graph_to_pytorch() -> None:
    def function(x: Any) -> Any:
        return torch.linalg.qr(x).R.abs() + 1

    x = torch.randn(3, 3)
    with pytest.warns(FallbackWarning, match="operators are not supported: 1 x aten.linalg_qr.default"):
        found = compiled(function)(x)
    check_same(found, function(x))
    [item] = fallbacks()
    assert item.operators == {"aten.linalg_qr.default": 1}
    assert item.reason == "operators are not supported: 1 x aten.linalg_qr.default"
    assert "test_compiled.py" in item.graph


def test_a_change_of_what_dropout_returns_is_one_of_its_operand() -> None:
    class Dropped(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            y = x + 1
            z = torch.nn.functional.dropout(y, 0.5, self.training)
            z.mul_(2)
            return y, z

    module, other = twins(Dropped())
    x = torch.randn(2, 3)
    for result, expected in zip(compiled(module)(x), other(x), strict=True):
        torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modules_are_compiled_in_both_modes_without_gradients(mode: Any) -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: Any, kinds: Any) -> Any:
            same = kinds[:, :, None] == kinds[:, None, :]
            return torch.where(same, x @ x.mT, 0) + kinds[..., None] * 0.5

    module, other = twins(Masked())
    with mode():
        check_both(compiled(module), other, torch.randn(2, 3, 4), torch.tensor([[1, 1, 2], [0, 3, 3]]))
    assert fallbacks() == ()


def test_random_numbers_are_those_of_pytorch() -> None:
    module = torch.nn.Dropout(0.5)
    function = compiled(module)
    with torch.no_grad():
        torch.manual_seed(1)
        found = function(torch.ones(100))
        torch.manual_seed(1)
        check_same(found, module(torch.ones(100)))
    assert "random" in fallbacks()[0].reason


def test_gradients_are_recorded_by_pytorch() -> None:
    module = torch.nn.Linear(3, 3)
    function = compiled(module)
    function(torch.ones(2, 3)).sum().backward()
    assert module.weight.grad is not None
    assert fallbacks() == (
        Fallback(
            "gradients are recorded; call the module under torch.no_grad() or torch.inference_mode()", "a graph", 1
        ),
    )
    with torch.inference_mode():
        check_same(function(torch.ones(2, 3)), module(torch.ones(2, 3)))
    assert len(fallbacks()) == 1


def test_a_strict_backend_raises_instead_of_leaving_a_graph_to_pytorch() -> None:
    function = compiled(lambda x: torch.linalg.qr(x).R, options={"strict": True})
    with pytest.raises(Exception, match=r"operators that are not supported:\s+- 1 x aten.linalg_qr.default"):
        function(torch.randn(3, 3))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"options": {"backend": ["CpuRef"]}}, "has no option 'backend'; did you mean 'backends'?"),
        ({"options": {"backends": ["CpuReff"]}}, "unknown backend 'CpuReff'; did you mean 'CpuRef'?"),
        ({"mode": "max-autotune"}, "has no mode 'max-autotune'; use options={...}"),
        ({"options": {"strict": 1}}, "the option 'strict' must be True or False, not 1"),
    ],
)
def test_wrong_options_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception) as caught:
        compiled(torch.nn.Linear(2, 2).requires_grad_(False), **how)(torch.ones(1, 2))
    assert message in str(caught.value)


def test_a_limit_leaves_a_graph_to_pytorch_with_the_reason() -> None:
    import interposer as ip

    module, other = twins(torch.nn.Linear(64, 64))
    check_both(compiled(module, options={"limits": ip.Limits(max_bytes=100)}), other, torch.ones(1, 64))
    assert fallbacks()[0].reason.startswith("LimitExceededError: ")


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_fast_path_of_encoder_layers_is_not_left_to_pytorch(norm_first: bool, activation: str) -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, activation=activation, batch_first=True, norm_first=norm_first)
    module, other = twins(torch.nn.Sequential(layer))
    for parameter, twin in zip(module.parameters(), other.parameters(), strict=True):
        twin.copy_(parameter.add_(torch.rand_like(parameter)))
    with torch.no_grad():
        check_both(compiled(module), other, torch.randn(2, 5, 8))
    assert fallbacks() == ()


@pytest.mark.parametrize("masked", [True, False])
def test_the_fast_path_of_attention_has_the_results_of_the_module(masked: bool) -> None:
    module, other = twins(torch.nn.MultiheadAttention(8, 2, batch_first=True))
    x = torch.randn(2, 5, 8)
    mask = torch.tensor([[False] * 5, [False] * 3 + [True] * 2]) if masked else None
    with torch.no_grad():
        check_both(compiled(lambda q: module(q, q, q, mask, need_weights=False)[0]),
                   lambda q: other(q, q, q, mask, need_weights=False)[0], x)  # fmt: skip


def test_a_size_that_an_operator_asks_for_is_that_of_the_call() -> None:
    def function(x: Any) -> Any:
        return torch.cdist(x, x + 1), torch.nn.functional.cosine_similarity(x, x + 1)

    for rows in (3, 4, 3, 5):
        check_both(compiled(function), function, torch.randn(rows, 6))
    assert fallbacks() == ()


@pytest.mark.parametrize("transform", ["grad", "vmap", "jacrev"])
def test_gradients_inside_of_a_function_are_those_of_pytorch(transform: str) -> None:
    layer = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU()).requires_grad_(False)

    def sums(x: Any) -> Any:
        return layer(x).square().sum(-1)

    def function(x: Any) -> Any:
        if transform == "grad":
            return torch.func.grad(lambda y: sums(y).sum())(x)
        return torch.func.jacrev(sums)(x) if transform == "jacrev" else torch.vmap(sums)(x)

    x = torch.randn(3, 4)
    with torch.no_grad():
        check_same(compiled(function)(x), function(x))
    assert fallbacks() == ()


def test_operators_on_weights_are_computed_by_pytorch_and_again_when_these_change() -> None:
    layer = torch.nn.Linear(4, 4)
    module, other = twins(torch.nn.utils.parametrizations.orthogonal(layer, orthogonal_map="matrix_exp"))
    function = compiled(module)
    for number in range(2):
        for each in (module, other):
            each.parametrizations.weight.original.data.add_(number)
        check_both(function, other, torch.randn(3, 4))
    assert fallbacks() == ()


def test_complex_numbers_are_moved_and_joined() -> None:
    def function(x: Any) -> Any:
        z = torch.fft.rfft(x).transpose(0, 1)
        return torch.view_as_real(torch.cat([z, z.conj()]).roll(1, 0))

    x = torch.randn(3, 8)
    with torch.no_grad():
        check_same(compiled(function)(x), function(x))
    assert fallbacks() == ()
