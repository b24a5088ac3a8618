"""Real models from TFLite files to ONNX: as before, and the same on another engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from interposer.frontends import tflite
from interposer.frontends.onnx import load
from interposer.testing.oracle import reference_outputs
from interposer.testing.tolerances import Tolerances
from interposer.writers.onnx import write

MODELS = Path(__file__).resolve().parents[4] / "shared" / "models"
FILES = sorted(MODELS.glob("*.tflite"))
OPSET = 20
pytestmark = pytest.mark.skipif(not FILES, reason="the folder of models is not there")
STEPS = 16
"""How many steps the probabilities may be off, as dozens of layers are rounded otherwise before them."""


def feeds_of(graph):
    generator = np.random.default_rng(0)
    return {layer.op.binding_id: _numbers(generator, layer.output.known) for layer in graph.inputs}


def _numbers(generator, info):
    if info.dtype.is_float:
        return generator.uniform(-1, 1, tuple(info.shape)).astype(info.dtype.numpy)
    limits = np.iinfo(info.dtype.numpy)
    return generator.integers(limits.min, limits.max, tuple(info.shape), info.dtype.numpy, endpoint=True)


def is_quantized(network):
    return any(value.known.is_quantized for layer in network for value in layer.outputs)


def agrees(network, found, wanted):
    tolerances = Tolerances(steps=STEPS)
    for key, layer in network.outputs.items():
        assert tolerances.difference(found[key], wanted[key], layer.values[0].known) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_model_gives_the_same_as_an_onnx_model_and_has_one_transpose_at_most(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    model = write(network, exact=not is_quantized(network), opset=OPSET)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node].count("Transpose") <= 1
    back = load(model)
    agrees(network, reference_outputs(back.graph, feeds), reference_outputs(network.graph, feeds))
    assert [str(one.output.known) for one in back.graph.inputs] == [str(o.output.known) for o in network.graph.inputs]


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_another_engine_gives_the_same(path):
    runtime = pytest.importorskip("onnxruntime")
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    model = write(network, exact=not is_quantized(network), opset=OPSET)
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]
    found = session.run(None, {name: feeds[number] for number, name in enumerate(names)})
    agrees(network, dict(enumerate(found)), reference_outputs(network.graph, feeds))
