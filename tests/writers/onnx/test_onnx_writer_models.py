"""Real models from TFLite files to ONNX: as before, and the same on another engine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from interposer.frontends import tflite
from interposer.frontends.onnx import load
from interposer.ops import DynamicFakeQuantization
from interposer.testing.oracle import reference_outputs
from interposer.testing.tolerances import Tolerances
from interposer.writers.onnx import write
from tests.parameters import one_in

MODELS = Path(__file__).resolve().parents[4] / "shared" / "models"
FILES = sorted(MODELS.glob("*.tflite"))
OPSET = 20
STEPS = 16
"""How many steps the probabilities may be off, where dozens of layers before them are rounded otherwise."""
pytestmark = pytest.mark.skipif(not FILES, reason="the folder of models is missing")
each_model = pytest.mark.parametrize("path", one_in(3, FILES), ids=lambda path: path.stem)


def feeds_of(graph):
    generator = np.random.default_rng(0)
    return {layer.op.binding_id: _numbers(generator, layer.output.known) for layer in graph.inputs}


def _numbers(generator, info):
    if info.dtype.is_float:
        return generator.uniform(-1, 1, tuple(info.shape)).astype(info.dtype.numpy)
    limits = np.iinfo(info.dtype.numpy)
    return generator.integers(limits.min, limits.max, tuple(info.shape), info.dtype.numpy, endpoint=True)


def check(network, found, wanted, steps=0):
    tolerances = Tolerances(steps=steps)
    for key, layer in network.outputs.items():
        assert tolerances.difference(found[key], wanted[key], layer.values[0].known) is None


def run_elsewhere(model, feeds):
    """What ONNX Runtime gives, with its own optimizations."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [get_input.name for get_input in session.get_inputs()]
    return dict(enumerate(session.run(None, {name: feeds[number] for number, name in enumerate(names)})))


@each_model
def test_a_model_gives_equal_integers_as_an_onnx_model_and_has_one_transpose_at_most(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    model = write(network, opset=OPSET)
    onnx.checker.check_model(model, full_check=True)
    if not any(isinstance(layer.op, DynamicFakeQuantization) for layer in network):  # written as several nodes
        assert [node.op_type for node in model.graph.node].count("Transpose") <= 1
    back = load(model)
    check(network, reference_outputs(back.graph, feeds), reference_outputs(network.graph, feeds))
    assert [str(item.output.known) for item in back.graph.inputs] == [str(o.output.known) for o in network.graph.inputs]


@pytest.mark.slow
@each_model
def test_the_form_that_engines_fuse_gives_nearly_the_same(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    model = write(network, exact=False, opset=OPSET)
    onnx.checker.check_model(model, full_check=True)
    back = load(model)
    check(network, reference_outputs(back.graph, feeds), reference_outputs(network.graph, feeds), STEPS)


@pytest.mark.slow
@each_model
def test_another_engine_gives_equal_integers(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    result = run_elsewhere(write(network, opset=OPSET), feeds)
    check(network, result, reference_outputs(network.graph, feeds))


@pytest.mark.slow
@each_model
def test_another_engine_gives_nearly_the_same_of_the_form_that_it_fuses(path):
    network = tflite.load(path)
    feeds = feeds_of(network.graph)
    result = run_elsewhere(write(network, exact=False, opset=OPSET), feeds)
    check(network, result, reference_outputs(network.graph, feeds), STEPS)
