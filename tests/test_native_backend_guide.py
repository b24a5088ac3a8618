"""The backend that the guide for native backends writes: its blocks are one file, which does what the guide says."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.cli.main import main
from interposer.core.errors import BackendError, ExecutionError, InvalidArgumentError
from interposer.ir.subgraph import SubgraphView
from interposer.ops import ActivationFunction, PreCompiled
from interposer.plugins.capi.caching.blobs import Blob

PAGE = Path(__file__).parent.parent / "docs" / "native-backend-guide.md"
X = np.float32([[-1, 2, -3], [4, -5, 6]])

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="dynamic backends are only for Linux")


@pytest.fixture
def plugin(natives, tmp_path):
    """Return the path of the guide's backend."""
    blocks = re.findall(r"^```cpp\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return natives.install(tmp_path / "plugins", "Acme_Npu_backend.so", "\n".join(blocks), language="c++")


@pytest.fixture
def runtime(plugin):
    with ip.Runtime(ip.CreationOptions(dynamic_backends_path=plugin.parent)) as runtime:
        assert [dynamic_backend.reason for dynamic_backend in runtime.dynamic_backends()] == [""]
        yield runtime


def chain():
    """Return a network that computes relu((x + x) * C + 1) + x."""
    network = ip.Network("chain")
    x = network.add_input_layer(0, ip.TensorInfo(X.shape), name="x")
    c = network.add_constant_layer(np.float32([[1, 2, 3], [4, 5, 6]]), name="c")
    item = network.add_constant_layer(np.float32([[1]]), name="one")
    product = network.add_multiplication_layer(network.add_addition_layer(x, x), c)
    relu = network.add_activation_layer(network.add_addition_layer(product, item), function=ActivationFunction.RELU)
    network.add_output_layer(0, network.add_addition_layer(relu, x), name="y")
    return network


def expected(x):
    return np.maximum((x + x) * np.float32([[1, 2, 3], [4, 5, 6]]) + 1, 0) + x


def units(model):
    return sum(isinstance(layer.op, PreCompiled) for layer in model.optimized.graph)


def loaded(runtime, backends=("Npu",), **options):
    how = ip.OptimizerOptions(model_options={"Npu": options})
    return ip.load(chain(), list(backends), runtime=runtime, options=how)


def test_a_part_becomes_one_program_and_computes_what_its_layers_do(runtime):
    model = loaded(runtime)
    assert units(model) == 1
    np.testing.assert_array_equal(model.run([X])[0], expected(X))
    np.testing.assert_array_equal(model.run([2 * X])[0], expected(2 * X))


def test_a_long_part_becomes_several_programs(runtime):
    model = loaded(runtime, longest=2)
    assert units(model) == 3
    np.testing.assert_array_equal(model.run([X])[0], expected(X))


@pytest.mark.needs_cpuref
def test_a_part_that_is_too_short_goes_to_others(runtime):
    model = loaded(runtime, ["Npu", "CpuRef"], shortest=6)
    assert {reason for refusal in model.optimized.refusals for reason in refusal.reasons} == {
        "a part of 5 layers is too short"
    }
    np.testing.assert_array_equal(model.run([X])[0], expected(X))


def test_an_option_that_it_has_not_is_named(runtime):
    with pytest.raises(InvalidArgumentError, match="backend 'Npu' has no option 'longst'; did you mean 'longest'?"):
        loaded(runtime, longst=2)


def test_the_device_is_on_while_there_are_networks(runtime, caplog):
    with caplog.at_level(logging.INFO, "interposer.backend.Npu"):
        first, second = loaded(runtime), loaded(runtime)
        first.close()
        second.close()
    reported = [record.getMessage() for record in caplog.records if record.name == "interposer.backend.Npu"]
    assert reported == ["the device is switched on", "the device is switched off"]


# --- blobs ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def compiled(runtime):
    """The backend, and the program that it makes of the chain."""
    backend = runtime.registry.get("Npu")
    network = chain()
    network.validate()
    executable = [layer for layer in network.graph if layer.kind in ("Addition", "Multiplication", "Activation")]
    [created] = backend.optimize_subgraph(SubgraphView(network.graph, executable), {}).substitutions
    return backend, created.replacement.object


def test_a_program_is_kept_and_restored(runtime, compiled):
    backend, program = compiled
    blob = backend.blobs.save(program)
    assert backend.blobs.fault(blob) is None
    model = loaded(runtime)
    [layer] = [layer for layer in model.optimized.graph if isinstance(layer.op, PreCompiled)]
    layer.op = PreCompiled(object=backend.blobs.restore(blob))
    network_id = runtime.load_network(model.optimized)
    np.testing.assert_array_equal(runtime.enqueue_workload(network_id, {0: X})[0], expected(X))


def test_bytes_that_are_no_program_are_refused(compiled):
    backend, program = compiled
    blob = backend.blobs.save(program)
    for size in range(len(blob.data)):
        with pytest.raises(BackendError):
            backend.blobs.restore(Blob(blob.data[:size]))
    assert backend.blobs.fault(Blob(b"hello, world")) == "corrupt blob: this is no program"
    old = Blob(b"NPU0000\0" + blob.data[8:])
    assert backend.blobs.fault(old) == "stale blob: programs have changed since"


def test_a_damaged_program_is_refused_or_runs_within_its_bounds(runtime, compiled):
    backend, program = compiled
    blob = backend.blobs.save(program)
    optimized = loaded(runtime).optimized
    [layer] = [layer for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    for at in range(8, len(blob.data), 3):
        data = bytearray(blob.data)
        data[at] ^= 0xFF
        try:
            layer.op = PreCompiled(object=backend.blobs.restore(Blob(bytes(data))))
            runtime.enqueue_workload(runtime.load_network(optimized), {0: X})
        except (BackendError, ExecutionError):
            continue


def test_the_backend_conforms(plugin, capsys):
    patterns = "*/Addition-*,*/Multiplication-*,*/Activation-*"
    assert main(["check-backend", str(plugin), "--only", patterns]) == 0
    assert "Npu conforms" in capsys.readouterr().out


def test_the_page_shows_what_the_command_writes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        main(re.search(r"^interposer (new-backend .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)[1].split())
        == 0
    )
    assert (tmp_path / "npu-backend" / "src" / "backend.cpp").read_text().count("\n") < 50
    assert "Acme_Npu_backend.so" in (tmp_path / "npu-backend" / "Makefile").read_text()
