"""Calls of exported programs as the module takes them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import BindingError, InvalidArgumentError
from tests.session.torch.modules import Counting, Nested, Pair, WritesToInput, check_both, check_same, torch, twins

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.filterwarnings("ignore")]

BATCH = torch.export.Dim("batch", min=2, max=64)


def arguments(rows: int = 3) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (torch.randn(rows, 4), {"shift": [torch.ones(3)]}), {"scale": torch.full((1,), 2.0)}


@pytest.fixture(scope="module")
def nested() -> tuple[Any, Any]:
    module, other = twins(Nested())
    args, kwargs = arguments()
    sizes = {"x": {0: BATCH}, "options": {"shift": [None]}, "scale": None}
    return torch.export.export(module, args, kwargs, dynamic_shapes=sizes), other


@pytest.fixture
def model(nested: tuple[Any, Any]) -> ip.Model:
    return ip.load(nested[0])


def test_a_model_takes_the_arguments_of_the_module_in_all_forms(model: ip.Model, nested: tuple[Any, Any]) -> None:
    for rows in (3, 5, 3):
        (x, options), kwargs = arguments(rows)
        expected = nested[1](x, options, **kwargs)
        check_same(model(x, options, **kwargs), expected)
        check_same(model(scale=kwargs["scale"], options=options, x=x), expected)
        check_same(model(x, options, kwargs["scale"]), expected)
        check_same(model(x, options, mask=None, **kwargs), expected)


def test_results_are_arrays_if_no_argument_is_a_tensor(model: ip.Model, nested: tuple[Any, Any]) -> None:
    (x, options), kwargs = arguments()
    result = model(x.numpy(), {"shift": [[1.0, 1.0, 1.0]]}, scale=np.array([2.0], np.float32))
    assert type(result["y"]) is np.ndarray
    assert result["rows"] == 3
    np.testing.assert_allclose(result["y"], nested[1](x, options, **kwargs)["y"], rtol=1e-4, atol=1e-5)


def test_arguments_that_are_not_nested_come_in_all_forms() -> None:
    class Three(torch.nn.Module):
        def forward(self, x: Any, y: Any, *, z: Any) -> Any:
            return {"sum": x + y * z, "one": 1, "none": None}

    module, other = twins(Three())
    x, y, z = torch.randn(2, 3), torch.randn(2, 3), torch.randn(2, 3)
    model = ip.load(torch.export.export(module, (x, y), {"z": z}))
    expected = other(x, y, z=z)
    check_same(model(x, y, z=z), expected)
    check_same(model(z=z, y=y, x=x), expected)
    check_same(model(x, y, z), expected)
    check_same(model(x, y.numpy(), z=z.clone().requires_grad_()), expected)
    check_same(model(x.t().contiguous().t(), torch.nn.Parameter(y), z=z), expected)
    result = model(x.numpy(), y.numpy(), z=z.numpy())
    np.testing.assert_allclose(result["sum"], expected["sum"], rtol=1e-6)
    with pytest.raises(BindingError, match="no value was given for 'z'"):
        model(x, y)
    with pytest.raises(BindingError, match="the argument 'x' was given twice"):
        model(x, y, x=x)
    with pytest.raises(BindingError, match="input 'y'"):
        model(x, y[:1], z=z)


def test_runs_take_inputs_by_name_like_those_of_any_model(model: ip.Model) -> None:
    (x, options), kwargs = arguments()
    names = dict(zip(model.inputs, (x, options["shift"][0], kwargs["scale"]), strict=True))
    assert list(model.outputs) == ["y", "rows"]
    y, rows = model.run(names)
    assert type(y) is np.ndarray
    assert rows == 3
    np.testing.assert_array_equal(model(names)["y"], y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": None}, "None was given for input 'scale'; the program was exported with a tensor"),
        ({"scal": torch.ones(1)}, "the program has no argument 'scal'; did you mean 'scale'? "
                                  "(it has: 'x', 'options', 'scale')"),
        ({"x": torch.ones(3, 4)}, "the argument 'x' was given twice, by position and by keyword"),
        ({"scale": torch.ones(2)}, "input 'scale' has shape [2]; expected [1]"),
    ],
)  # fmt: skip
def test_wrong_keywords_are_refused(model: ip.Model, change: dict[str, Any], message: str) -> None:
    args, kwargs = arguments()
    with pytest.raises(BindingError) as caught:
        model(*args, **(kwargs | change))
    assert str(caught.value) == message


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.float16, torch.bool])
def test_a_tensor_of_another_type_is_refused_as_the_program_is_another_one(model: ip.Model, dtype: Any) -> None:
    args, kwargs = arguments()
    with pytest.raises(BindingError) as caught:
        model(*args, scale=kwargs["scale"].to(dtype))
    assert str(caught.value) == (
        f"input 'scale' is a tensor of type {dtype}, and the program was exported with torch.float32; "
        "convert the tensor, or export the module again"
    )


def test_missing_arguments_and_other_structures_are_refused(model: ip.Model) -> None:
    (x, options), kwargs = arguments()
    with pytest.raises(BindingError) as caught:
        model(x)
    assert str(caught.value) == "no value was given for 'options', 'scale'"
    with pytest.raises(BindingError) as caught:
        model(x, {"shifts": options["shift"]}, **kwargs)
    assert str(caught.value).startswith("the argument 'options' has another structure than in the export: ")
    with pytest.raises(BindingError) as caught:
        model(x, options, kwargs["scale"], x)
    assert str(caught.value) == "4 arguments were given; the program takes 3 ('x', 'options', 'scale')"


def test_a_size_outside_of_its_range_is_refused(model: ip.Model) -> None:
    args, kwargs = arguments(65)
    with pytest.raises(BindingError) as caught:
        model(*args, **kwargs)
    assert "is 65; the program allows 2 to 64" in str(caught.value)


def test_a_size_that_is_no_multiple_as_the_program_requires_is_refused() -> None:
    even = torch.export.Dim("pairs", max=20) * 2
    module, other = twins(Halves())
    model = ip.load(torch.export.export(module, (torch.ones(8, 4),), dynamic_shapes={"x": {0: even}}))
    check_both(model, other, torch.randn(6, 4))
    with pytest.raises(BindingError, match=r"^'x' has shape \[5, 4\]; expected \[2\*\w+, 4\]$"):
        model(torch.ones(5, 4))


class Divided(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
    """Divides an axis, and looks up bags, whose sizes depend on the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = torch.nn.EmbeddingBag(9, 4)

    def forward(self, x: Any) -> Any:
        rows = x.unflatten(1, (2, 3))
        return (
            rows.sum(1),
            self.bag((x.abs() * 3).long().clamp(0, 8)),
            torch.cond(x.sum() > 0, self.tall, self.flat, (x,)),
        )

    def tall(self, x: Any) -> Any:
        return x.unflatten(1, (3, 2)).flatten(0, 1) + 1

    def flat(self, x: Any) -> Any:
        return x.unflatten(1, (3, 2)).flatten(0, 1) * 2


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_the_sizes_of_the_export_do_not_count(rows: int) -> None:
    module, other = twins(Divided())
    model = ip.load(torch.export.export(module, (torch.randn(3, 6),), dynamic_shapes=({0: BATCH},)))
    for count in (rows, 3, rows + 1):
        check_both(model, other, torch.randn(count, 6))


def test_two_sizes_that_must_be_equal_are_checked() -> None:
    module, other = twins(Pair())
    sizes = {"x": {0: BATCH}, "y": {0: BATCH}}
    model = ip.load(torch.export.export(module, (torch.ones(3, 2), torch.ones(3, 2)), dynamic_shapes=sizes))
    check_both(model, other, torch.randn(4, 2), torch.randn(4, 2))
    with pytest.raises(BindingError) as caught:
        model(torch.ones(4, 2), torch.ones(1, 2))
    assert str(caught.value).endswith("is both 4 and 1")


def test_a_number_that_the_export_has_baked_in_cannot_change() -> None:
    class Scaled(torch.nn.Module):
        def forward(self, x: Any, factor: float) -> Any:
            return x * factor

    model = ip.load(torch.export.export(Scaled(), (torch.ones(3), 2.0)))
    check_same(model(torch.ones(3), 2.0), torch.full((3,), 2.0))
    with pytest.raises(BindingError) as caught:
        model(torch.ones(3), 3.0)
    assert str(caught.value) == "3.0 was given for an argument that was exported as 2.0; export the module again"


def test_arguments_that_the_module_changes_are_changed() -> None:
    module, other = twins(WritesToInput())
    model = ip.load(torch.export.export(module, (torch.ones(2, 3),)))
    check_both(model, other, torch.randn(2, 3))
    array = np.ones((2, 3), np.float32)
    assert model(array) == 11
    np.testing.assert_array_equal(array, [[3, 3, 3], [1, 1, 0]])
    with pytest.raises(BindingError) as caught:
        model([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    assert str(caught.value) == (
        "the program changes its argument 'x' in place; give a tensor or an array that can be written to"
    )


class AddsToFirst(torch.nn.Module):
    """Changes its first argument, and then reads the second one."""

    def forward(self, x, y):  # type: ignore[no-untyped-def]
        """Return the sum of both."""
        x.add_(1)
        return x + y


class Halves(torch.nn.Module):
    """Splits an even number of rows into pairs."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return the pairs."""
        return x.view(x.shape[0] // 2, 2, -1)


class Strided(torch.nn.Module):
    """Reads the memory of its argument by strides."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        """Return four elements."""
        return torch.as_strided(x.detach(), (2, 2), (1, 2))


def test_arguments_that_share_memory_are_refused_if_one_of_them_changes() -> None:
    module, other = twins(AddsToFirst())
    model = ip.load(torch.export.export(module, (torch.ones(3), torch.ones(3))))
    memory = torch.arange(6.0)
    check_both(lambda x: model(x[::2], x[1::2]), lambda x: other(x[::2], x[1::2]), memory.clone())
    for x, y in ((memory[:3], memory[2:5]), (memory[:3], memory[:3])):
        with pytest.raises(BindingError) as caught:
            model(x, y)
        assert str(caught.value) == (
            "the arguments 'x' and 'y' share memory, and the program changes 'x' in place; give a copy of one of them"
        )
    assert memory.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("x", [torch.zeros(4, 1).expand(4, 3), torch.zeros(6).as_strided((4, 3), (1, 1))])
def test_an_argument_whose_elements_share_memory_is_refused_if_it_changes(x: Any) -> None:
    model = ip.load(torch.export.export(WritesToInput(), (torch.zeros(4, 3),)))
    with pytest.raises(BindingError) as caught:
        model(x)
    assert str(caught.value) == (
        "elements of the argument 'x' share memory, and the program changes it in place; "
        "give a copy, such as x.clone(memory_format=torch.contiguous_format)"
    )


def test_arguments_that_are_read_by_strides_must_be_contiguous() -> None:
    module, other = twins(Strided())
    model = ip.load(torch.export.export(module, (torch.ones(4, 4),)))
    x = torch.randn(4, 4)
    check_both(model, other, x)
    with pytest.raises(BindingError) as caught:
        model(x.t())
    assert str(caught.value) == (
        "the program reads the memory of its argument 'x' by strides (as_strided); give a contiguous tensor, "
        "such as x.clone(memory_format=torch.contiguous_format)"
    )


def test_changed_buffers_are_states_and_the_module_keeps_its_own() -> None:
    module, other = twins(Counting())
    model = ip.load(torch.export.export(module, (torch.ones(3),)))
    for _ in range(3):
        check_both(model, other, torch.ones(3))
    assert model.state["calls"] == 3
    assert module.calls == 0
    module.calls.fill_(7)
    model.reset_state()
    check_same(model(torch.ones(3)), torch.ones(3))
    another = copy.copy(model)
    check_same(another(torch.ones(3)), torch.ones(3))
    check_same(model(torch.ones(3)), torch.full((3,), 2.0))


def test_results_stay_as_they_are_in_later_calls(model: ip.Model, nested: tuple[Any, Any]) -> None:
    args, kwargs = arguments()
    first = model(*args, **kwargs)
    kept = first["y"].clone()
    for _ in range(3):
        model(*arguments()[0], **kwargs)
    assert torch.equal(first["y"], kept)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool])
def test_tensors_of_all_types_come_and_go(dtype: Any) -> None:
    class Cut(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x[1:], x.reshape(-1)

    module, other = twins(Cut())
    example = torch.arange(6).reshape(3, 2).to(dtype)
    model = ip.load(torch.export.export(module, (example,)))
    check_both(model, other, example)
    check_both(model, other, example.flip(0).t().contiguous().t())


def test_a_pickled_model_is_called_in_the_same_way(nested: tuple[Any, Any], tmp_path: Path) -> None:
    path = tmp_path / "nested.pt2"
    torch.export.save(nested[0], path)
    args, kwargs = arguments()
    expected = nested[1](*args, **kwargs)
    for source in (nested[0], path, path.read_bytes()):
        model = pickle.loads(pickle.dumps(ip.load(source)))
        check_same(model(*args, **kwargs), expected)


def test_a_model_with_other_outputs_is_called_by_names(nested: tuple[Any, Any]) -> None:
    model = ip.load(nested[0], outputs=["y"])
    (x, options), kwargs = arguments()
    result = model(dict(zip(model.inputs, (x, options["shift"][0], kwargs["scale"]), strict=True)))
    assert type(result) is np.ndarray


def test_an_object_that_is_no_program_is_refused() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ip.load(torch.nn.Linear(2, 2))
    assert str(caught.value) == "a model must be a path, an open file, bytes or a Network, not Linear"


def test_states_are_known_before_the_shapes_of_the_first_call() -> None:
    class Summing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x: Any) -> Any:
            self.total.add_(x.sum(0))
            return x + self.total

    rows = {"x": {0: BATCH}}
    summing = ip.load(torch.export.export(Summing(), (torch.zeros(3, 4),), dynamic_shapes=rows))
    assert summing.state["total"].tolist() == [0, 0, 0, 0]
    summing.state = {"total": [1, 2, 3, 4]}
    assert summing.run([torch.ones(2, 4)])[0].tolist() == [[4, 5, 6, 7]] * 2
    relu = ip.load(torch.export.export(torch.nn.ReLU(), (torch.zeros(3, 4),), dynamic_shapes=({0: BATCH},)))
    assert relu.state == {}
    assert not relu.is_prepared
