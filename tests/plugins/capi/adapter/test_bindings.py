"""The bindings for C++ and Rust: the same features under the same names, and misuse that ends as an error."""

from __future__ import annotations

import ctypes
import subprocess

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, include, load, optimize
from interposer.core.errors import ExecutionError, InvalidValueError, PluginError
from interposer.ops import Addition, PreCompiled
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.caching.blobs import Blob
from interposer.plugins.capi.loading.open_libraries import backend_of_file
from interposer.plugins.capi.running.backend import DynamicBackend
from interposer.testing import check_backend, samples_of
from tests.native import compiler_for
from tests.parameters import one_in

X = np.float32([1, 2, 3])
LANGUAGES = pytest.mark.parametrize("source", ["vault.cpp", "vault.rs"])


def sums(name="sum"):
    """Return a network that computes ``(x + y) + x``, with ``x + y`` as another output."""
    network = Network("sums")
    x, y = (network.add_input_layer(number, TensorInfo((3,))) for number in range(2))
    item = network.add_addition_layer(x, y, name=name)
    network.add_output_layer(0, network.add_addition_layer(item, x, name="more"))
    network.add_output_layer(1, item)
    return network


def run(runtime, backend, network):
    optimized = optimize(network, [backend.id], runtime.device_spec, OptimizerOptions(rewrite=False))
    network_id = runtime.load_network(optimized)
    result = runtime.enqueue_workload(network_id, {0: X, 1: 10 * X})
    runtime.unload_network(network_id)
    return {key: array.tolist() for key, array in result.items()}, optimized


@LANGUAGES
def test_a_device_has_memory_of_its_own_through_each_binding(source, backend, runtime_with):
    device = backend(source)
    result, optimized = run(runtime_with(device), device, sums())
    assert result == {0: [12, 24, 36], 1: [11, 22, 33]}
    assert {copy.how for copy in optimized.copies} == {"device copy"}


@LANGUAGES
def test_a_device_with_memory_of_its_own_conforms_through_each_binding(source, backend):
    backend(source)  # without a compiler, the test is skipped here, and does not fail in the child process
    patterns = ["[srioc]*/*Addition-*", "context/*", "memory/*", "threads/*", "*/chain-[01]"]
    report = check_backend(lambda: backend(source), samples=samples_of(Addition)[:9], only=patterns)
    assert report.ok, report
    assert report.counts["pass"] > 20


@pytest.mark.slow
@LANGUAGES
def test_a_device_with_memory_of_its_own_conforms_on_a_family_through_each_binding(source, backend):
    report = check_backend(lambda: backend(source), families=["elementwise"])
    assert report.ok, report
    assert report.counts["pass"] > 0


def only_part(optimized):
    [layer] = [layer for layer in optimized.graph if isinstance(layer.op, PreCompiled)]
    return layer


@LANGUAGES
def test_a_part_is_saved_and_restored_through_each_binding(source, backend, runtime_with):
    device = backend(source)
    runtime = runtime_with(device)
    _, optimized = run(runtime, device, sums())
    blob = device.blobs.save(only_part(optimized).op.object)
    assert (device.blobs.fingerprint(), device.blobs.fault(blob)) == ("vault 1", None)
    only_part(optimized).op = PreCompiled(object=device.blobs.restore(blob))
    network_id = runtime.load_network(optimized)
    result = runtime.enqueue_workload(network_id, {0: X, 1: 10 * X})
    assert [result[0].tolist(), result[1].tolist()] == [[12, 24, 36], [11, 22, 33]]


@LANGUAGES
def test_a_damaged_blob_is_named_corrupt_through_each_binding(source, backend):
    blobs = backend(source).blobs
    assert blobs.fault(Blob(b"12345")) == "corrupt blob: the bytes are no numbers"
    with pytest.raises(CallError) as caught:
        blobs.restore(Blob(bytes(8)))
    assert (caught.value.status, caught.value.reason) == (abi.CORRUPT, "corrupt blob: the numbers make no part")


@pytest.mark.parametrize("source", ["kernels.cpp", "kernels.rs"])
def test_a_value_that_a_kernel_refuses_is_reported_through_each_binding(source, backend, runtime_with):
    plugin = backend(source)
    network = Network("sum")
    x, y = (network.add_input_layer(number, TensorInfo((3,)), name="xy"[number]) for number in range(2))
    network.add_output_layer(0, network.add_addition_layer(x, y, name="without nines"), name="z")
    model = load(network, [plugin.id], runtime=runtime_with(plugin))
    for _ in range(2):
        assert model.run([X, X])[0].tolist() == [2, 4, 6]
        with pytest.raises(InvalidValueError, match="nine is too much") as caught:
            model.run([np.float32([1, 9, 3]), X])
        assert (caught.value.value, caught.value.allowed, caught.value.backend) == (9, (-2, 4), plugin.id)
    assert model.events == ()


@pytest.mark.parametrize("source", ["kernels.cpp", "kernels.rs"])
def test_a_list_of_kernels_shares_its_scratch_memory_through_each_binding(source, backend, runtime_with):
    plugin = backend(source)
    network = Network("chain")
    value = x = network.add_input_layer(0, TensorInfo((3,))).output
    constant = network.add_constant_layer(np.float32([2, 3, 4])).output
    for number in range(6):
        other = (x, constant, value)[number % 3]
        add = network.add_addition_layer if number % 2 else network.add_multiplication_layer
        value = add(value, other, name=f"layer {number}").output
    network.add_output_layer(0, value)
    runtime = runtime_with(plugin)
    optimized = optimize(network, [plugin.id], runtime.device_spec, OptimizerOptions(rewrite=False))
    result = runtime.enqueue_workload(runtime.load_network(optimized), {0: X})
    a = X * X + np.float32([2, 3, 4])
    b = a * a + X
    expected = b * np.float32([2, 3, 4])
    np.testing.assert_array_equal(result[0], expected + expected)


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("int32 of an operand", "the elements are float32, not i32"),
        ("int32 of an input", "the elements are float32, not i32"),
        ("double of an output", "the elements are float32, not f64"),
        ("the output twice", "the output is asked for a second time in one run"),
        ("the workspace twice", "the workspace is asked for a second time in one run"),
        ("another shape", "the shape is known already"),
        ("an input too many", "panicked: there is no input 2 among 2"),
        ("a payload that panics, on an output", "panicked: without a message"),
    ],
)
def test_safe_rust_cannot_misuse_the_memory_of_a_run(wish, said, backend, runtime_with):
    plugin = backend("kernels.rs")
    network = Network("careless")
    x, y = (network.add_input_layer(number, TensorInfo((3,))) for number in range(2))
    network.add_output_layer(0, network.add_addition_layer(x, y, name=wish))
    with pytest.raises(ExecutionError) as caught:
        run(runtime_with(plugin), plugin, network)
    assert said in str(caught.value)


def test_a_list_of_kernels_in_rust_refuses_the_run_of_another_graph(backend, runtime_with):
    plugin = backend("kernels.rs")
    runtime = runtime_with(plugin)

    def part(size):
        network = Network("part")
        x = network.add_input_layer(0, TensorInfo((size,)))
        network.add_output_layer(0, network.add_addition_layer(x, x, name="the list of the first part"))
        optimized = optimize(network, [plugin.id], runtime.device_spec)
        return runtime.enqueue_workload(runtime.load_network(optimized), {0: np.ones(size, np.float32)})

    np.testing.assert_array_equal(part(1000)[0], np.full(1000, 2, np.float32))
    said = "the tensor has 12 bytes of float32; the graph of this list of kernels has 4000 bytes of float32 there"
    with pytest.raises(ExecutionError, match=said):
        part(3)


def test_a_host_offers_nothing_after_an_init_in_rust_that_panicked(built):
    path = built("panicking.rs")
    with pytest.raises(PluginError, match="panicked: in init"):
        backend_of_file(str(path))
    assert ctypes.CDLL(str(path)).PathLength() == 0


SMALLEST = """
#[path = "INCLUDE/interposer/backend.rs"]
mod interposer;
use interposer::*;

struct Smallest;

impl Backend for Smallest {
    fn new() -> Smallest {
        Smallest
    }
    fn support(&self, _layer: &Layer, _options: Attributes) -> Verdict {
        Verdict::no("nothing", raw::REASON_LAYER_TYPE)
    }
}
"""


@pytest.mark.parametrize(("edition", "form"), one_in(2, [("2018", ""), ("2021", ""), ("2024", ", edition = 2024")]))
def test_a_backend_in_rust_compiles_without_warnings_in_each_edition(edition, form, tmp_path):
    compiler = compiler_for("rust")
    known = subprocess.run([compiler, "--help"], capture_output=True, text=True, check=True).stdout
    if f"|{edition}" not in known:
        pytest.skip(f"{compiler} does not know edition {edition}")
    source = tmp_path / "smallest.rs"
    text = SMALLEST.replace("INCLUDE", str(include.path())) + f'export_backend!("Smallest", Smallest{form});\n'
    source.write_text(text, encoding="utf-8")
    words = [compiler, f"--edition={edition}", "--crate-type=cdylib", "--emit=metadata", "-Dwarnings", str(source)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_cpp_refuses_elements_of_another_type(built, opened, runtime_with):
    text = """
#include "interposer/backend.hpp"
struct Wrong : ipr::Backend {
  ipr::Verdict support(const ipr::Layer&, const ipr::Options&) override { return ipr::yes(); }
  ipr::Kernel kernel(const ipr::Layer&, const ipr::Options&) override {
    return [](ipr::Tensors in, ipr::Tensors) { in[0].data<int32_t>(); };
  }
};
IPR_BACKEND("Wrong", Wrong)
"""
    dynamic_backend = DynamicBackend(opened(text, language="c++"))
    with pytest.raises(ExecutionError, match="the elements are float32, and are used as another type"):
        run(runtime_with(dynamic_backend), dynamic_backend, sums())


def test_no_safe_function_of_the_rust_binding_takes_a_raw_pointer():
    text = (include.path() / "interposer" / "backend.rs").read_text(encoding="utf-8")
    api = text[text.index("use raw::*;") : text.index("// ---- From here on")]
    taking = [line.strip() for line in api.splitlines() if line.strip().startswith("pub fn") and "*const" in line]
    assert all("->" in line and "*const" not in line.split("->")[0] for line in taking)
