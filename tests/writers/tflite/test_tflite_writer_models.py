"""Real models from TFLite files, written again: the same integers, also in LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interposer.frontends import onnx, tflite
from interposer.frontends.tflite.container import read_model
from interposer.testing.oracle import reference_outputs
from interposer.testing.tolerances import Tolerances
from interposer.writers.tflite import write

ROOT = Path(__file__).resolve().parents[3]
MODELS = ROOT.parent / "shared" / "models"
FILES = sorted(MODELS.glob("*.tflite"))
LARGE = 1_000_000
each_model = pytest.mark.parametrize(
    "path",
    [pytest.param(file, marks=[pytest.mark.slow] if file.stat().st_size > LARGE else []) for file in FILES],
    ids=lambda path: path.stem,
)
needs_models = pytest.mark.skipif(not FILES, reason="the folder of models is missing")


def feeds_of(graph):
    generator = np.random.default_rng(0)
    return {layer.op.binding_id: numbers(generator, layer.output.known) for layer in graph.inputs}


def numbers(generator, info):
    if info.dtype.is_float:
        return generator.uniform(-1, 1, tuple(info.shape)).astype(info.dtype.numpy)
    limits = np.iinfo(info.dtype.numpy)
    return generator.integers(limits.min, limits.max, tuple(info.shape), info.dtype.numpy, endpoint=True)


def check(network, found, wanted):
    tolerances = Tolerances(steps=0)
    for key, layer in network.outputs.items():
        assert tolerances.difference(found[key], wanted[key], layer.values[0].known) is None


def run_elsewhere(content, feeds):
    """What LiteRT's reference kernels give."""
    package = pytest.importorskip("ai_edge_litert.interpreter")
    kernels = package.OpResolverType.BUILTIN_REF
    interpreter = package.Interpreter(model_content=content, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), feeds.values(), strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    details = interpreter.get_output_details()
    return {number: interpreter.get_tensor(detail["index"]) for number, detail in enumerate(details)}


def kinds(content):
    return [operator.name for operator in read_model(content).subgraphs[0].operators]


@needs_models
@each_model
def test_a_model_that_is_written_again_has_the_same_operators_and_gives_equal_integers(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    content = write(network)
    if not any(layer.kind == "DynamicFakeQuantization" for layer in network):  # which is written as several operators
        assert sorted(kinds(content)) == sorted(kinds(path.read_bytes()))
    back = tflite.load(content)
    check(network, reference_outputs(back.graph, feeds), reference_outputs(network.graph, feeds))
    assert [str(item.output.known) for item in back.graph.inputs] == [str(o.output.known) for o in network.graph.inputs]
    assert [output.name for output in back.graph.outputs] == [output.name for output in network.graph.outputs]


@needs_models
@pytest.mark.slow
@each_model
def test_litert_gives_the_reference_s_integers(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    check(network, run_elsewhere(write(network), feeds), reference_outputs(network.graph, feeds))


def test_a_network_with_channels_first_has_one_transpose_at_its_input():
    pytest.importorskip("onnx")
    network = onnx.load(ROOT / "examples" / "digits" / "digits.onnx")
    feeds = feeds_of(network.graph)
    content = write(network)
    assert kinds(content) == [
        "TRANSPOSE", "CONV_2D", "CONV_2D", "MAX_POOL_2D", "RESHAPE", "FULLY_CONNECTED", "FULLY_CONNECTED", "SOFTMAX",
    ]  # fmt: skip
    back = tflite.load(content)
    check(network, reference_outputs(back.graph, feeds), reference_outputs(network.graph, feeds))
