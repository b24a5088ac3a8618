"""Large tensors of ONNX files are used where they lie; what is damaged is left to protobuf."""

import numpy as np
import onnx
import pytest

from interposer.core.errors import ParseError
from interposer.frontends import onnx as frontend
from interposer.frontends.onnx.wire import set_apart

WEIGHTS = np.random.default_rng(1).standard_normal((1024, 512), np.float32)
BIAS = np.arange(512, dtype=np.float32)


def model():
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    more = onnx.helper.make_node("Add", ["y", "b"], ["z"])
    infos = [onnx.helper.make_tensor_value_info(name, 1, [1, size]) for name, size in (("x", 1024), ("z", 512))]
    constants = [onnx.numpy_helper.from_array(BIAS, "b"), onnx.numpy_helper.from_array(WEIGHTS, "w")]
    graph = onnx.helper.make_graph([node, more], "net", infos[:1], infos[1:], constants)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])


def test_only_the_data_of_large_tensors_is_set_apart():
    content = model().SerializeToString()
    apart = set_apart(memoryview(content))
    assert set(apart.data) == {1}
    assert bytes(apart.data[1]) == WEIGHTS.tobytes()
    left = onnx.load_model_from_string(bytes(apart.message))
    whole = model()
    whole.graph.initializer[1].ClearField("raw_data")
    assert left == whole


def test_a_file_gives_the_network_that_its_message_gives(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(model().SerializeToString())
    assert str(frontend.load(path)) == str(frontend.load(model()))
    [result] = [layer.op.value for layer in frontend.load(path).graph if layer.name == "w"]
    np.testing.assert_array_equal(result, WEIGHTS)


@pytest.mark.parametrize("damage", [
    lambda data: data[:-5], lambda data: data[:12] + b"\xff" * 40 + data[52:], lambda data: b"\x0b" + data,
], ids=["truncated", "bytes at the beginning", "a group"])  # fmt: skip
def test_what_is_damaged_is_told_by_protobuf(damage):
    content = damage(model().SerializeToString())
    with pytest.raises(ParseError):
        frontend.load(content)


def test_small_models_and_models_of_several_graphs_stay_as_they_are():
    small = b"\x08\x01"
    assert set_apart(memoryview(small)).data == {}
    content = model().SerializeToString()
    assert set_apart(memoryview(content + content)).data == {}
