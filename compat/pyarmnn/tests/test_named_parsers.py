"""`IOnnxParser`, `ICaffeParser` and `ITfParser`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarmnn as ann
import pyarmnn._generated.pyarmnn_caffeparser as generated_caffe
import pyarmnn._generated.pyarmnn_onnxparser as generated_onnx
import pyarmnn._generated.pyarmnn_tfparser as generated_tf
import pytest

from compat.pyarmnn.tests import small_models
from compat.pyarmnn.tests.running import run

pytest.importorskip("onnx", reason="the package onnx, which builds the models, is not installed")


class Format(NamedTuple):
    """A parser with its module, the writer of a model, and the name, shape and name of the model's input and output."""

    parser: Any
    module: Any
    write: Callable[..., str]
    input: str
    shape: tuple[int, ...]
    output: str
    missing: str

    def create(self, path: str, text: bool = False) -> tuple[Any, Any]:
        """Return a parser and the network that it reads from a file."""
        parser = self.parser()
        create = parser.CreateNetworkFromTextFile if text else parser.CreateNetworkFromBinaryFile
        if self.parser is ann.IOnnxParser:
            return parser, create(path)
        return parser, create(path, {self.input: ann.TensorShape(self.shape)}, [self.output])


FORMATS = [
    Format(
        ann.IOnnxParser, generated_onnx, small_models.onnx, "image", (1, 1, 28, 28), "scores",
        "Invalid (null) filename: the file 'unknown.model' does not exist",
    ),
    Format(
        ann.ICaffeParser, generated_caffe, small_models.caffe, "data", (1, 1, 28, 28), "prob",
        "Failed to open graph file 'unknown.model': the file does not exist",
    ),
    Format(
        ann.ITfParser, generated_tf, small_models.tensorflow, "input", (1, 28, 28, 1), "scores",
        "Graph file 'unknown.model' failed to open: the file does not exist",
    ),
]  # fmt: skip
each_format = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.parser.__name__)


@each_format
def test_the_destructor_of_a_parser_has_the_name_of_the_wrapped_function(format: Format):
    name = format.parser.__name__
    assert getattr(format.module, name) is format.parser
    assert format.parser.__swig_destroy__.__name__ == f"delete_{name}"


@each_format
def test_python_owns_a_parser(format: Format):
    assert format.parser().thisown


@each_format
def test_an_input_has_the_type_and_the_shape_of_the_model(format: Format, tmp_path: Path):
    parser, _ = format.create(format.write(tmp_path / "model"))
    number, info = parser.GetNetworkInputBindingInfo(format.input)
    assert (number, info.GetDataType()) == (0, ann.DataType_Float32)
    assert (info.GetNumDimensions(), info.GetNumElements(), tuple(info.GetShape())) == (4, 784, format.shape)
    assert info.GetQuantizationOffset() == 0


@each_format
def test_an_output_has_the_type_and_the_shape_of_the_model(format: Format, tmp_path: Path):
    parser, _ = format.create(format.write(tmp_path / "model"))
    number, info = parser.GetNetworkOutputBindingInfo(format.output)
    assert (number, info.GetDataType()) == (0, ann.DataType_Float32)
    assert (info.GetNumDimensions(), info.GetNumElements()) == (2, 10)
    assert info.GetQuantizationOffset() == 0


@each_format
def test_a_missing_file_is_refused(format: Format):
    with pytest.raises(RuntimeError) as caught:
        format.create("unknown.model")
    assert str(caught.value) == format.missing


@each_format
def test_a_damaged_file_is_refused(format: Format, tmp_path: Path):
    path = tmp_path / "damaged"
    path.write_bytes(Path(format.write(tmp_path / "model")).read_bytes()[:-7])
    with pytest.raises(RuntimeError, match="damaged"):
        format.create(str(path))


@each_format
def test_an_unknown_binding_is_refused_with_the_known_names(format: Format, tmp_path: Path):
    parser, _ = format.create(format.write(tmp_path / "model"))
    with pytest.raises(RuntimeError) as caught:
        parser.GetNetworkInputBindingInfo("other")
    expected = f"No input binding found for name:other. Possible inputs are: ['{format.input}' ]"
    assert str(caught.value) == expected
    with pytest.raises(RuntimeError, match="^No output binding found for name:other. Possible outputs are: "):
        parser.GetNetworkOutputBindingInfo("other")


@each_format
@pytest.mark.parametrize("text", [False, True], ids=["binary", "text"])
def test_the_parsed_network_computes_what_the_model_describes(format: Format, text: bool, tmp_path: Path):
    parser, network = format.create(format.write(tmp_path / "model", text=text), text)
    inputs = [parser.GetNetworkInputBindingInfo(format.input)]
    outputs = [parser.GetNetworkOutputBindingInfo(format.output)]
    image = (small_models.IMAGE / np.float32(255)).reshape(format.shape).astype(np.float32)
    [output] = run(network, inputs, outputs, [image])
    np.testing.assert_almost_equal(output, small_models.chances(image), 6)


@pytest.mark.parametrize("format", FORMATS[1:], ids=lambda format: format.parser.__name__)
def test_outputs_are_numbered_in_the_order_in_which_they_are_requested(format: Format, tmp_path: Path):
    parser = format.parser()
    shapes = {format.input: ann.TensorShape(format.shape)}
    parser.CreateNetworkFromBinaryFile(format.write(tmp_path / "model"), shapes, [format.output, "dense"])
    assert parser.GetNetworkOutputBindingInfo(format.output)[0] == 0
    assert parser.GetNetworkOutputBindingInfo("dense")[0] == 1


@pytest.mark.parametrize("format", FORMATS[1:], ids=lambda format: format.parser.__name__)
def test_an_output_that_the_model_does_not_have_is_refused(format: Format, tmp_path: Path):
    path = format.write(tmp_path / "model")
    with pytest.raises(RuntimeError, match="nothing"):
        format.parser().CreateNetworkFromBinaryFile(path, {format.input: ann.TensorShape(format.shape)}, ["nothing"])


@pytest.mark.parametrize("format", FORMATS[1:], ids=lambda format: format.parser.__name__)
@pytest.mark.parametrize(
    ("arguments", "position", "expected"),
    [
        ((5, {}, []), 2, "char const *"),
        (("x", [], []), 3, "std::map< std::string,armnn::TensorShape > const &"),
        (("x", {"x": (1, 2)}, []), 3, "std::map< std::string,armnn::TensorShape > const &"),
        (("x", {}, "out"), 4, "std::vector< std::string > const &"),
        (("x", {}, [3]), 4, "std::vector< std::string > const &"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named(format: Format, arguments: Any, position: int, expected: str):
    with pytest.raises(TypeError) as caught:
        format.parser().CreateNetworkFromBinaryFile(*arguments)
    method = f"{format.parser.__name__}_CreateNetworkFromBinaryFile"
    assert str(caught.value) == f"in method '{method}', argument {position} of type '{expected}'"


def test_an_onnx_model_with_an_open_shape_asks_for_it(tmp_path: Path):
    path = small_models.onnx(tmp_path / "open.onnx", batch="batch")
    with pytest.raises(RuntimeError) as caught:
        ann.IOnnxParser().CreateNetworkFromBinaryFile(path)
    assert str(caught.value) == (
        "The model leaves the shapes of inputs open: 'image' is float32[batch, 1, 28, 28]. "
        "Pass inputShapes, a TensorShape by the name of each of these inputs"
    )
    parser = ann.IOnnxParser()
    parser.CreateNetworkFromBinaryFile(path, {"image": ann.TensorShape((3, 1, 28, 28))})
    assert tuple(parser.GetNetworkOutputBindingInfo("scores")[1].GetShape()) == (3, 10)
