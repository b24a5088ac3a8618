"""Exported programs of PyTorch as networks: signature, states, sizes and names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer.errors import InvalidArgumentError, ParseError, UnboundInputError

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from interposer.frontends import torch as frontend  # noqa: E402 - it imports PyTorch


class Counting(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.linear = torch.nn.Linear(8, 5)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any, factor: int = 2) -> dict[str, Any]:
        y = torch.relu(self.norm(self.convolution(x))).mean((2, 3))
        self.count += 1
        return {"scores": self.linear(y) * factor, "rest": (None, 3, x, self.count)}


@pytest.fixture
def exported() -> Any:
    batch = torch.export.Dim("batch", min=2, max=10)
    x = torch.randn(2, 3, 8, 8)
    return torch.export.export(Counting().eval(), (x,), dynamic_shapes={"x": {0: batch}})


def test_the_signature_lists_arguments_results_and_states(exported: Any) -> None:
    program = frontend.read(exported)
    assert [argument.name for argument in program.arguments] == ["x"]
    assert [result.name for result in program.results] == ["scores", "", "", "rest_2", "rest_3"]
    assert [result.value for result in program.results] == [None, None, 3, None, None]
    assert program.states == ("count",)
    assert list(program.ranges.values()) == [(2, 10)]


def test_a_network_agrees_with_eager_at_the_first_and_second_call(exported: Any) -> None:
    x = torch.randn(4, 3, 8, 8)
    model = ip.load(frontend.load(exported, {"x": (4, 3, 8, 8)}))
    module = exported.module()
    for _ in range(2):
        expected, actual = module(x), dict(zip(model.outputs, model.run({"x": x.numpy()}), strict=True))
        np.testing.assert_allclose(actual["scores"], expected["scores"].detach(), rtol=1e-4, atol=1e-5)
        assert actual["rest_3"] == expected["rest"][3].item()


def test_layers_have_the_names_of_modules_and_nodes(exported: Any) -> None:
    names = [layer.name for layer in frontend.load(exported)]
    assert "convolution/conv2d" in names
    assert "linear.weight" in names


def test_weights_are_not_copied(exported: Any) -> None:
    constant = frontend.load(exported).graph.layer("linear.weight").output.constant
    assert constant is not None
    assert constant.__array_interface__["data"][0] == exported.state_dict["linear.weight"].data_ptr()


def test_unknown_sizes_are_named_dimensions(exported: Any) -> None:
    [place] = frontend.load(exported).graph.inputs
    assert str(place.output.known.shape[0]).startswith("s")


def test_a_size_out_of_range_is_an_error(exported: Any) -> None:
    name = next(iter(frontend.read(exported).ranges))
    expected = rf"shapes: the dimension {name} of 'x' is 11; the program allows 2 to 10"
    with pytest.raises(InvalidArgumentError, match=expected):
        frontend.load(exported, {"x": (11, 3, 8, 8)})


def test_a_template_asks_for_the_shapes_of_each_call(exported: Any) -> None:
    template = frontend.template(exported)
    with pytest.raises(UnboundInputError):
        template.network()
    assert template.network({"x": (5, 3, 8, 8)}).graph.inputs[0].output.known.shape == (5, 3, 8, 8)


def test_something_else_than_a_program_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"a torch.export.ExportedProgram is expected, not int"):
        frontend.load(3)


class Shared(torch.nn.Module):  # type: ignore[misc,name-defined] # PyTorch may be absent
    def __init__(self, a: Any, b: Any) -> None:
        super().__init__()
        self.register_buffer("a", a)
        self.register_buffer("b", b)

    def forward(self, x: Any) -> Any:
        self.a.add_(x)
        return self.b * 2


def through_file(program: Any, folder: Path) -> Any:
    torch.export.save(program, folder / "shared.pt2")
    return ip.load(folder / "shared.pt2")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_two_names_of_one_buffer_are_one_state(tmp_path: Path) -> None:
    x, memory = torch.arange(4.0), torch.zeros(4)
    program = torch.export.export(Shared(memory, memory), (x,), strict=False)
    for model in (ip.load(program), through_file(program, tmp_path)):
        assert len(model.state) == 1
        assert [model(x).tolist() for _ in range(2)] == [[0, 2, 4, 6], [0, 4, 8, 12]]


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_buffers_that_overlap_are_refused_if_one_of_them_changes(tmp_path: Path) -> None:
    memory = torch.zeros(6)
    program = torch.export.export(Shared(memory[:4], memory[2:]), (torch.arange(4.0),), strict=False)
    for load in (ip.load, lambda item: through_file(item, tmp_path)):
        with pytest.raises(ParseError) as caught:
            load(program)
        assert "the tensors 'a' and 'b' share memory, and the program changes one of them in place" in str(caught.value)
