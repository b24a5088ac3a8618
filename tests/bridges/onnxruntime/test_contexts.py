"""Models of ONNX Runtime in which context nodes have compiled groups."""

from __future__ import annotations

import numpy as np
import pytest

from interposer.bridges import reports

pytestmark = pytest.mark.needs_cpuref
X = np.float32([[1, -2], [3, 4]])
WEIGHTS = np.float32([[1, 2], [3, 4]])


def original(rows=2):
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], "product"), helper.make_node("Relu", ["h"], ["y"], "relu")]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], [numpy_helper.from_array(WEIGHTS, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def session(host, model, config, backends="CpuRef"):
    options = host.SessionOptions()
    options.log_severity_level = 4
    for key, text in config.items():
        options.add_session_config_entry(key, text)
    devices = [device for device in host.get_ep_devices() if device.ep_name == "InterposerExecutionProvider"]
    options.add_provider_for_devices(devices, {"backends": backends})
    return host.InferenceSession(model, options)


@pytest.fixture
def compiled(host, tmp_path):
    """A function that writes a model with context nodes, and returns its path."""

    def compiled(embed="1", rows=2):
        path = tmp_path / "net_ctx.onnx"
        config = {"ep.context_enable": "1", "ep.context_file_path": str(path), "ep.context_embed_mode": embed}
        session(host, original(rows), config)
        return path

    return compiled


def changed(path, **attributes):
    import onnx

    model = onnx.load(path)
    [node] = model.graph.node
    for attribute in node.attribute:
        if attribute.name in attributes:
            attribute.s = attributes[attribute.name]
    return model.SerializeToString()


@pytest.mark.parametrize(("embed", "rows"), [("1", 2), ("0", 2), ("1", "n")])
def test_a_compiled_model_gives_the_same_results(host, compiled, embed, rows):
    made = session(host, str(compiled(embed, rows)), {"session.disable_model_compile": "1"})
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], np.maximum(X @ WEIGHTS, 0))
    [node] = reports()[-1].taken
    assert (node.kind, node.backends) == ("com.microsoft.EPContext", ("CpuRef",))


def test_the_compiler_of_the_host_writes_such_models(host, tmp_path):
    options = host.SessionOptions()
    devices = [device for device in host.get_ep_devices() if device.ep_name == "InterposerExecutionProvider"]
    options.add_provider_for_devices(devices, {"backends": "CpuRef"})
    path = tmp_path / "compiled.onnx"
    host.ModelCompiler(options, original(), embed_compiled_data_into_model=True).compile_to_file(str(path))
    made = session(host, str(path), {})
    np.testing.assert_array_equal(made.run(None, {"x": X})[0], np.maximum(X @ WEIGHTS, 0))


def test_a_damaged_network_is_refused(host, compiled):
    with pytest.raises(Exception, match="the context node .* cannot be used: "):
        session(host, changed(compiled(), ep_cache_context=b"PK"), {})


@pytest.mark.parametrize(("name", "number", "dtype"), [("y", 2, "uint8"), ("x", 6, "int32")])
def test_a_network_whose_tensors_have_other_types_than_the_node_is_refused(host, compiled, name, number, dtype):
    import onnx

    model = onnx.load(compiled())
    [info] = [info for info in (*model.graph.input, *model.graph.output) if info.name == name]
    info.type.tensor_type.elem_type = number
    with pytest.raises(Exception, match=f"its network has '{name}' as float32, and the node {dtype}"):
        session(host, model.SerializeToString(), {})


@pytest.mark.parametrize("name", [b"../net.ipn", b"/net.ipn", b"", b"a\0b", b"n" * 5000, b"."])
def test_a_name_that_is_no_file_below_the_folder_is_refused(host, compiled, name):
    path = compiled("0")
    path.write_bytes(changed(path, ep_cache_context=name))
    with pytest.raises(Exception, match="the context node .* cannot be used: (its file is|there is no file)"):
        session(host, str(path), {})


def test_a_network_of_another_version_is_refused(host, compiled):
    notes = b'{"interposer": "0.0.1", "backends": {}}'
    with pytest.raises(Exception, match=r"made by Interposer 0\.0\.1, .*; compile the original model again"):
        session(host, changed(compiled(), notes=notes), {})


def test_a_network_for_another_backend_is_refused(host, compiled):
    notes = b'{"interposer": "0.1.0", "backends": {"Acme": ""}}'
    with pytest.raises(Exception, match="it runs on Acme, and the option 'backends' has CpuRef"):
        session(host, changed(compiled(), notes=notes), {})


def test_a_missing_file_is_named(host, compiled):
    path = compiled("0")
    [network] = path.parent.glob("*.ipn")
    network.unlink()
    with pytest.raises(Exception, match=f"there is no file .*{network.name}; it belongs beside the model"):
        session(host, str(path), {})


def test_a_node_of_another_provider_is_left_to_it(host, compiled):
    with pytest.raises(Exception, match="EPContext"):
        session(host, changed(compiled(), source=b"Acme"), {})
    assert reports()[-1].refused[0].reasons == ("it was compiled by Acme",)
