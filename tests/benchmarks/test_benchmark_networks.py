"""The networks that benchmarks build."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import interposer as ip  # noqa: E402
from benchmarks.engines.report import KINDS  # noqa: E402
from benchmarks.networks import BATCHED, NETWORKS, QUICK, build, saved  # noqa: E402 - it needs onnx

SMALL = {"mobilenet_v4", "regnet_y_400mf", "swin", "bert_small", "gru", "dlrm", "whisper_step", "x3d", "tiny_keywords"}
FLOAT = [name for name in NETWORKS if not name.endswith(("_qdq", "_dynamic"))]
ANY = [name if name in SMALL else pytest.param(name, marks=pytest.mark.slow) for name in FLOAT]


def shape_of(value):
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


@pytest.mark.parametrize("name", ANY)
def test_every_network_is_valid_and_has_known_shapes(name):
    model = build(name)

    onnx.checker.check_model(model, full_check=True)
    assert all(shape_of(value) and 0 not in shape_of(value) for value in (*model.graph.input, *model.graph.output))


@pytest.mark.slow
@pytest.mark.parametrize("style", ["qdq", "dynamic"])
def test_a_quantized_network_has_integers_of_8_bits_for_its_products(style):
    pytest.importorskip("onnxruntime")
    kinds = {node.op_type for node in build(f"bert_small_{style}").graph.node}

    assert {"qdq": "DequantizeLinear", "dynamic": "MatMulInteger"}[style] in kinds


def test_the_lists_of_networks_name_networks():
    assert {*BATCHED, *QUICK} <= {*NETWORKS}


def test_a_short_run_has_a_network_of_each_kind():
    assert {NETWORKS[name].kind for name in QUICK} == {*KINDS} == {recipe.kind for recipe in NETWORKS.values()}


def test_a_batch_is_the_first_extent_of_inputs_and_outputs():
    graph = build("bert_small", batch=3).graph

    assert [shape_of(value) for value in graph.input] == [(3, 128), (3, 128)]
    assert [shape_of(value) for value in graph.output] == [(3, 128, 256)]


def test_the_same_name_gives_the_same_weights():
    assert build("squeezenet").SerializeToString() == build("squeezenet").SerializeToString()


def test_a_file_is_written_once_and_replaces_those_of_other_builders(tmp_path):
    (tmp_path / "lstm-1-0123456789ab.onnx").touch()
    (tmp_path / "lstm-8-0123456789ab.onnx").touch()

    path = saved("lstm", tmp_path)
    written = path.stat().st_mtime_ns

    assert saved("lstm", tmp_path) == path
    assert path.stat().st_mtime_ns == written
    assert {path.name for path in tmp_path.iterdir()} == {path.name, "lstm-8-0123456789ab.onnx"}


@pytest.mark.needs_cpuref
def test_numbers_neither_vanish_nor_grow_on_their_way():
    model = ip.load(build("shufflenet_v2"), backends=["CpuRef"])
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)

    [result] = model.run([image])

    assert 0.1 < result.std() < 10
