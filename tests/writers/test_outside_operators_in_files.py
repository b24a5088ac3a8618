"""Operators that another package declares, in files: their traits are enough for the layouts of both writers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from interposer import Network, TensorInfo
from interposer.core.errors import UnwritableError
from interposer.frontends import onnx as onnx_reader
from interposer.frontends import tflite as tflite_reader
from interposer.kernels.reference import kernel
from interposer.schema import Op, Trait, op, operand, result
from interposer.testing.oracle import reference_outputs
from interposer.types import Array, DataLayout
from interposer.writers import onnx as onnx_writer
from interposer.writers import tflite as tflite_writer
from interposer.writers.onnx.onnx_layer_writers import writer as for_onnx
from interposer.writers.tflite.tflite_layer_writers import writer as for_tflite

pytest.importorskip("onnx")
pytest.importorskip("flatbuffers")
FORMATS = {
    "onnx": (onnx_writer, onnx_reader, DataLayout.NHWC),
    "tflite": (tflite_writer, tflite_reader, DataLayout.NCHW),
}
"""The writer and the reader of each format, and the layout that its convolutions do not have."""


@op(register=False, traits=Trait.POINTWISE)
class Doubled(Op):
    """Add each element to itself."""

    input = operand()
    output = result(like="input")


@op(register=False)
class Ramp(Op):
    """Add the number of the column to each element: the axes of the tensor have a meaning."""

    input = operand(rank=4)
    output = result(like="input")


@op(register=False, traits=Trait.POINTWISE)
class Unknown(Op):
    """Change nothing; no format has a writer for it."""

    input = operand()
    output = result(like="input")


@kernel(Doubled)
def doubled(operator: Doubled, input: Array) -> Array:
    return input + input


@kernel(Ramp)
def ramp(operator: Ramp, input: Array) -> Array:
    return input + np.arange(input.shape[3], dtype=input.dtype)


@for_onnx(Doubled)
def doubled_for_onnx(draft: Any, operator: Doubled) -> Any:
    return draft.node("Add", draft.operand(0), draft.operand(0))


@for_tflite(Doubled)
def doubled_for_tflite(draft: Any, operator: Doubled) -> Any:
    return draft.final("ADD", draft.operand(0), draft.operand(0))


@for_onnx(Ramp)
def ramp_for_onnx(draft: Any, operator: Ramp) -> Any:
    x = draft.operand(0)
    return draft.node("Add", x, draft.constant(np.arange(draft.shape(0)[3]), x.dtype))


@for_tflite(Ramp)
def ramp_for_tflite(draft: Any, operator: Ramp) -> Any:
    x = draft.operand(0)
    return draft.final("ADD", x, draft.constant(np.arange(x.shape[3]), x.dtype))


def between_convolutions(operator: Op, layout: DataLayout) -> Network:
    """A network in which an operator is between two convolutions."""
    network = Network("outside")
    value = network.add_input_layer(0, TensorInfo((1, 6, 6, 6)), name="x")
    for number, seed in enumerate((1, 2)):
        weights = np.random.default_rng(seed).standard_normal((6, 1, 1, 6)).astype(np.float32)
        weights = weights if layout.channels_last else weights.transpose(0, 3, 1, 2)
        constant = network.add_constant_layer(weights, name=f"weights_{number}")
        value = network.add_convolution2d_layer(value, constant, data_layout=layout, name=f"convolution_{number}")
        if number == 0:
            value = network.add_layer(operator, value, name="middle")
    network.add_output_layer(0, value, name="y")
    return network


def written_and_read(format: str, operator: Op) -> Counter[str]:
    """The kinds of layers after a network was written and read, which must give the same as before."""
    writer, reader, layout = FORMATS[format]
    network = between_convolutions(operator, layout)
    back = reader.load(writer.write(network))
    feeds = {0: np.random.default_rng(3).standard_normal((1, 6, 6, 6)).astype(np.float32)}
    expected, actual = reference_outputs(network.graph, feeds), reference_outputs(back.graph, feeds)
    np.testing.assert_allclose(actual[0], expected[0], rtol=1e-5, atol=1e-5)
    return Counter(layer.kind for layer in back.graph)


@pytest.mark.parametrize("format", FORMATS)
def test_transposes_pass_an_outside_pointwise_operator_up_to_the_borders_of_the_file(format):
    assert written_and_read(format, Doubled())["Transpose"] == 2


@pytest.mark.parametrize("format", FORMATS)
def test_an_outside_operator_without_traits_gets_its_operands_in_their_own_layout(format):
    assert written_and_read(format, Ramp())["Transpose"] == 4


@pytest.mark.parametrize("format", FORMATS)
def test_an_outside_operator_without_a_writer_is_named_in_the_refusal(format):
    writer, _, layout = FORMATS[format]
    with pytest.raises(UnwritableError, match=r"layer 'middle' \(Unknown\): .* has no operators to make it of"):
        writer.write(between_convolutions(Unknown(), layout))
    assert len(writer.reasons(between_convolutions(Unknown(), layout).graph.layer("middle"))) == 1
