"""What `load` takes: paths, open files and buffers; shapes for inputs of every format; inputs as keywords."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import interposer as ip
from interposer import Network, Quantization, TensorInfo
from interposer.core.errors import BindingError, InvalidArgumentError, InvalidNetworkError, ParseError
from interposer.ir.text import parse_graph

pytestmark = pytest.mark.needs_cpuref

TEXT = """graph "twice" {
  %x = Input : float32[2, 3]
  %double = Addition %x, %x
  Output %double as "y"
}
"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)


class Folder:
    """Something with a path that is no pathlib.Path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        return str(self.path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    created = tmp_path / "twice.txt"
    created.write_text(TEXT)
    return created


@pytest.mark.parametrize("of", [str, Path, Folder])
def test_a_path_of_every_kind_is_read(of: Any, path: Path) -> None:
    np.testing.assert_array_equal(ip.load(of(path), ["CpuRef"])(X), X * 2)


@pytest.mark.parametrize(
    "of",
    [bytes, bytearray, memoryview, io.BytesIO, lambda data: memoryview(np.frombuffer(data, np.int8))],
    ids=["bytes", "bytearray", "memoryview", "BytesIO", "memoryview of int8"],
)
def test_the_content_of_a_file_is_read_from_every_kind_of_buffer(of: Any) -> None:
    np.testing.assert_array_equal(ip.load(of(TEXT.encode()), ["CpuRef"])(X), X * 2)


def test_an_open_file_is_read_from_its_position_on_and_stays_open(path: Path) -> None:
    path.write_text(f"header{TEXT}")
    with path.open("rb") as file:
        file.seek(6)
        np.testing.assert_array_equal(ip.load(file, ["CpuRef"])(X), X * 2)
        assert not file.closed


def test_files_that_cannot_be_read_as_bytes_are_refused(path: Path, tmp_path: Path) -> None:
    closed = path.open("rb")
    closed.close()
    cases: list[tuple[Any, str]] = [
        (path.open(), 'the file is opened as text; open it with open(path, "rb")'),
        (io.StringIO(TEXT), 'the file is opened as text; open it with open(path, "rb")'),
        (closed, "the open file cannot be read: read of closed file"),
        ((tmp_path / "new").open("wb"), "the open file cannot be read: read"),
        (3.0, "a model must be a path, an open file, bytes or a Network, not float"),
    ]
    for source, text in cases:
        with pytest.raises(InvalidArgumentError) as caught:
            ip.load(source, ["CpuRef"])
        assert str(caught.value) == text
        if hasattr(source, "close"):
            source.close()


@pytest.mark.parametrize("format", ["onnx", "saved"])
def test_an_object_of_another_format_than_the_named_one_is_refused_before_it_is_read(format: str) -> None:
    program = type("ExportedProgram", (), {"__module__": "torch.export.exported_program"})()
    for source, title in [(program, "a ExportedProgram"), ({}, "an NNAPI document")]:
        with pytest.raises(InvalidArgumentError) as caught:
            ip.load(source, ["CpuRef"], format=format)
        assert str(caught.value) == f"{title} is no model of format {format!r}"


def test_an_empty_file_is_no_model() -> None:
    with pytest.raises(ParseError, match="this is no model of a known format .*: it is empty"):
        ip.load(io.BytesIO(b""), ["CpuRef"])


# --- shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [TEXT.encode(), Network(graph=parse_graph(TEXT))], ids=["text", "network"])
def test_a_fixed_input_is_resized(source: Any) -> None:
    model = ip.load(source, ["CpuRef"], shapes={"x": (4, 1)})
    assert model.inputs["x"].shape == (4, 1)
    np.testing.assert_array_equal(model(np.ones((4, 1), np.float32)), np.full((4, 1), 2))


def test_a_quantized_network_is_resized_although_its_layers_are_declared() -> None:
    network = Network("quantized")
    info = TensorInfo((1, 4), "uint8", Quantization(0.5, 3))
    x = network.add_input_layer(0, info, name="x")
    total = network.add_addition_layer(x, x, outputs=[TensorInfo((1, 4), "uint8", Quantization(1.0, 0))])
    network.add_output_layer(0, total, name="y")
    model = ip.load(network, ["CpuRef"], shapes={"x": (3, 4)})
    assert model.outputs["y"] == TensorInfo((3, 4), "uint8", Quantization(1.0, 0))
    np.testing.assert_array_equal(model(np.full((3, 4), 13, np.uint8)), np.full((3, 4), 10))
    assert network.graph.layer("x").output.known.shape == (1, 4)


def test_a_layer_that_does_not_allow_the_shape_is_named() -> None:
    network = Network("reshaped")
    x = network.add_input_layer(0, TensorInfo((2, 3)), name="x")
    network.add_output_layer(0, network.add_reshape_layer(x, target_shape=(3, 2), name="turned"))
    with pytest.raises(InvalidNetworkError) as caught:
        ip.load(network, ["CpuRef"], shapes={"x": (4, 3)})
    assert "layer 'turned' (Reshape): " in str(caught.value)


# --- keywords ---------------------------------------------------------------------------------------------------------


def weighted(*names: str) -> ip.Model:
    """The sum of the inputs, the first of them once, the next one twice ..."""
    network = Network("weighted")
    layers = [network.add_input_layer(at, TensorInfo((2,)), name=name) for at, name in enumerate(names)]
    total = layers[0]
    for count, layer in enumerate(layers[1:], 2):
        for _ in range(count):
            total = network.add_addition_layer(total, layer)
    network.add_output_layer(0, total, name="y")
    return ip.load(network, ["CpuRef"])


A, B = np.float32([1, 2]), np.float32([10, 20])


def test_inputs_may_be_given_as_keywords() -> None:
    model = weighted("image", "mask")
    np.testing.assert_array_equal(model(mask=B, image=A), A + 2 * B)
    np.testing.assert_array_equal(model.run(image=A, mask=B)[0], A + 2 * B)
    np.testing.assert_array_equal(model.submit(image=A, mask=B).result()[0], A + 2 * B)


UNKNOWN = "{} is neither an input of the model ('image', 'mask') nor an argument; did you mean {}?"
MIXED = "inputs are given both as an argument and by keyword ('mask'); use one way for all of them"


@pytest.mark.parametrize(
    ("arguments", "named", "text"),
    [
        ((), {"image": A}, "no array was given for 'mask'"),
        ((), {}, "no array was given for 'image', 'mask'"),
        ((), {"imgae": A, "mask": B}, UNKNOWN.format("'imgae'", "'image'")),
        (([A, B],), {"mask": B}, MIXED),
        (([A, B],), {"picture": A}, UNKNOWN.format("'picture'", "").partition(";")[0]),
        (([A, B],), {"deadlin": 3}, UNKNOWN.format("'deadlin'", "'deadline'")),
        (({"image": A},), {"mask": B}, MIXED),
    ],
)
def test_keywords_that_do_not_fit_are_refused(arguments: Any, named: Any, text: str) -> None:
    with pytest.raises(BindingError) as caught:
        weighted("image", "mask").run(*arguments, **named)
    assert str(caught.value) == text


def test_inputs_that_are_no_identifiers_or_names_of_arguments_come_in_a_mapping() -> None:
    model = weighted("image:0", "outputs", "deadline")
    np.testing.assert_array_equal(model({"image:0": A, "outputs": B, "deadline": A}), A + 2 * B + 3 * A)
    with pytest.raises(BindingError) as caught:
        model.run(**{"image:0": A, "deadline": 2.0})
    assert str(caught.value) == (
        "the input 'outputs' has the name of an argument; give all inputs in a mapping: {'outputs': ..., ...}"
    )


def test_an_input_called_inputs_stands_for_itself_where_it_is_the_only_one() -> None:
    np.testing.assert_array_equal(weighted("inputs")(inputs=A), A)
    with pytest.raises(BindingError) as caught:
        weighted("inputs", "mask")(inputs=A, mask=B)
    assert str(caught.value) == (
        "the input 'inputs' has the name of an argument; give all inputs in a mapping: {'inputs': ..., ...}"
    )
