"""``native/hosted``: backends in Python that a shared object offers, the whole reference backend among them."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from interposer import Network, RunControl, TensorInfo, optimize
from interposer.core.errors import DeadlineExceededError, ExecutionError, PluginError, RunCancelledError
from interposer.core.schema import registered_ops
from interposer.kernels.evaluation import compute
from interposer.ops import Addition, Convolution2d, Fill, NonZero, Softmax
from interposer.plugins.capi.loading.open_libraries import backend_of_file
from interposer.plugins.capi.loading.records import State
from interposer.testing import check_backend, samples_of
from tests import warm
from tests.devices import Sums
from tests.native import install_plugin, mapped_files

FOLDER = Path(__file__).parents[3] / "native" / "hosted"
HEADERS = Path(sysconfig.get_path("include"))
NAME = "Interposer_HostedCpuRef_backend.so"
X = np.float32([[1, -2, 3], [0, 5, -6]])


@pytest.fixture
def build(natives, tmp_path):
    """Compiles the shared object, for a class of a backend, into a folder."""
    if not sys.platform.startswith("linux") or not (HEADERS / "Python.h").exists():
        pytest.skip("needs Linux and the headers of Python")

    def build(backend_id="CpuRef", cls="interposer.backends.reference:ReferenceBackend", name=NAME):
        flags = [f"-I{HEADERS}", "-fvisibility=hidden", f'-DBACKEND_ID="{backend_id}"', f'-DBACKEND_CLASS="{cls}"']
        return install_plugin(natives.compiled(FOLDER / "hosted.c", *flags), tmp_path / "plugins", name)

    return build


@pytest.fixture
def backend(build):
    created = backend_of_file(build())
    yield created
    created.library.close()


@pytest.fixture
def instead(build, runtime_of):
    """A runtime in which it is CpuRef."""
    build()
    return runtime_of(disabled_backends=["CpuRef"])


def run(runtime, network, *arrays, **how):
    number = runtime.load_network(optimize(network, ["CpuRef"], runtime.device_spec))
    try:
        return runtime.enqueue_workload(number, dict(enumerate(arrays)), **how)
    finally:
        runtime.unload_network(number)


def layer_network(op, *infos):
    network = Network("net")
    values = [network.add_input_layer(number, info) for number, info in enumerate(infos)]
    layer = network.add_layer(op, *values, name="layer")
    for number, value in enumerate(layer.outputs):
        network.add_output_layer(number, value)
    return network


def test_the_whole_reference_is_found_tried_and_loaded_instead_of_the_one_in_python(instead):
    [record] = instead.dynamic_backends()
    assert (record.id, record.state) == ("CpuRef", State.LOADED)
    backend = instead.registry.get("CpuRef")
    assert type(backend).__name__ == "DynamicBackend"
    assert backend.capabilities.to_dict() == {
        "DynamicShapes": True, "NonConstWeights": True, "ConstantTensorsAsInputs": True, "HasFp16": True,
    }  # fmt: skip
    result = run(instead, layer_network(Softmax(), TensorInfo((2, 3))), X)[0]
    np.testing.assert_array_equal(result, compute(Softmax(), X))


@pytest.mark.needs_cpuref
def test_networks_give_the_same_bits_as_on_cpuref_itself(instead, runtime_of):
    network = Network("several")
    x = network.add_input_layer(0, TensorInfo((1, 2, 6, 6)))
    weights = network.add_constant_layer(np.linspace(-1, 1, 3 * 2 * 9, dtype=np.float32).reshape(3, 2, 3, 3))
    image = network.add_layer(Convolution2d(), x, weights)
    total = network.add_addition_layer(image, image)
    network.add_output_layer(0, total)
    network.add_output_layer(1, network.add_softmax_layer(total, axis=1))
    network.add_output_layer(2, image)
    array = np.linspace(-2, 2, 72, dtype=np.float32).reshape(1, 2, 6, 6)
    ours, theirs = run(instead, network, array), run(runtime_of(""), network, array)
    assert ours.keys() == theirs.keys()
    for key in ours:
        np.testing.assert_array_equal(ours[key], theirs[key])


def test_shapes_that_depend_on_data_are_reported_to_the_host(instead):
    network = layer_network(NonZero(), TensorInfo((2, 3)))
    for array in (X, np.zeros_like(X), np.ones_like(X)):
        np.testing.assert_array_equal(run(instead, network, array)[0], compute(NonZero(), array))
    network = layer_network(Fill(value=7), TensorInfo((2,), "int64"))
    for shape in ((2, 3), (0, 4)):
        assert run(instead, network, np.int64(shape))[0].shape == shape


@pytest.mark.parametrize("dtype", ["bfloat16", "int4", "float8_e4m3fn", "bool", "uint64", "float16"])
def test_types_without_a_counterpart_in_c_pass_through(instead, dtype):
    info = TensorInfo((2, 0, 3), dtype)
    network = Network()
    network.add_output_layer(0, network.add_reshape_layer(network.add_input_layer(0, info), target_shape=(0, 6)))
    assert run(instead, network, np.zeros((2, 0, 3), info.dtype.numpy))[0].shape == (0, 6)
    info = TensorInfo((2, 3), dtype)
    network = Network()
    network.add_output_layer(0, network.add_transpose_layer(network.add_input_layer(0, info), permutation=(1, 0)))
    array = np.array([[0, 1, 0], [1, 1, 0]]).astype(info.dtype.numpy)
    np.testing.assert_array_equal(run(instead, network, array)[0], array.T)


@pytest.mark.parametrize("operator", ["Dequantize", "NonZero", "Gather", "Lstm", "Einsum"])
def test_samples_conform(backend, operator):
    report = check_backend(backend, only="results/*", samples=samples_of(registered_ops()[operator]))
    assert report.ok, report.summary()


@pytest.mark.slow
def test_all_samples_that_the_interface_shows_conform(backend):
    report = check_backend(backend, only="results/*")
    assert report.ok, report.summary()


def test_another_backend_is_hosted_and_refuses_layers_with_its_reasons(build, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[3])
    backend = backend_of_file(build("Sums", "tests.devices:Sums", "Tests_Sums_backend.so"))
    supported = layer_network(Addition(), *[TensorInfo((2, 3))] * 2).graph.layer("layer")
    refused = layer_network(Addition(), *[TensorInfo((2, 3), "int32")] * 2).graph.layer("layer")
    support = backend.layer_support({})
    assert support.is_layer_supported(supported)
    reasons = Sums().layer_support({}).is_layer_supported(refused).reasons
    assert support.is_layer_supported(refused).reasons == ("; ".join(reasons),)
    assert check_backend(backend, only="results/Addition-*float32*").ok
    backend.library.close()


def test_a_class_that_cannot_be_created_is_refused_at_the_factory(build, capfd):
    with pytest.raises(PluginError) as error:
        backend_of_file(build(cls="interposer.backends.reference:Nothing"))
    assert error.value.check == "factory"
    assert "AttributeError" in capfd.readouterr().err


def test_a_class_that_exits_does_not_end_the_process(build, monkeypatch, tmp_path, capfd):
    (tmp_path / "exits.py").write_text("import sys\nclass Backend:\n    def __init__(self):\n        sys.exit(7)\n")
    monkeypatch.syspath_prepend(tmp_path)
    library = ctypes.CDLL(str(build("Exits", "exits:Backend", "Tests_Exits_backend.so")))
    library.BackendFactory.restype = ctypes.c_void_p
    assert library.BackendFactory() is None
    assert capfd.readouterr().err == "exits:Backend: creating the backend raised SystemExit\n"


class FailingError(Exception):
    """Raised by a kernel of the test."""


def test_an_exception_of_a_kernel_is_an_error_with_its_text(instead, monkeypatch):
    from interposer.backends.reference import ReferenceBackend
    from interposer.kernels import KernelTable

    table = KernelTable()

    @table(Addition)
    def addition(op, a, b):
        raise FailingError("no sums today")

    monkeypatch.setattr(ReferenceBackend, "kernels", table)
    with pytest.raises(ExecutionError, match="execute: FailingError: no sums today"):
        run(instead, layer_network(Addition(), *[TensorInfo((2, 3))] * 2), X, X)


def test_a_run_is_cancelled_between_layers(instead):
    network = layer_network(Addition(), *[TensorInfo((2, 3))] * 2)
    control = RunControl()
    control.cancel()
    with pytest.raises(RunCancelledError):
        run(instead, network, X, X, control=control)
    with pytest.raises(DeadlineExceededError):
        run(instead, network, X, X, control=RunControl(deadline=1e-9))


def test_nothing_remains_of_compiled_parts(backend):
    from interposer.plugins.capi.hosting.serving import _served

    gc.collect()
    served = _served["interposer.backends.reference:ReferenceBackend"]
    before = len(served._held)
    answer = check_backend(backend, only="results/Addition-*float32*")
    assert answer.ok
    gc.collect()
    assert len(served._held) == before


def test_the_end_of_one_library_leaves_the_parts_of_another_one(build, runtime_of, backend, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    library = build()
    for folder in (first, second):
        install_plugin(library, folder, NAME)
    kept = runtime_of(first, disabled_backends=["CpuRef"])
    number = kept.load_network(optimize(layer_network(Softmax(), TensorInfo((2, 3))), ["CpuRef"], kept.device_spec))
    ended = runtime_of(second, disabled_backends=["CpuRef"], unload_libraries=True)
    run(ended, layer_network(Softmax(), TensorInfo((2, 3))), X)
    ended.close()
    del ended
    gc.collect()
    np.testing.assert_array_equal(kept.enqueue_workload(number, {0: X})[0], compute(Softmax(), X))


def test_the_library_can_be_unloaded(build, runtime_of):
    path = build()
    runtime = runtime_of(disabled_backends=["CpuRef"], unload_libraries=True)
    assert str(path) in mapped_files()
    run(runtime, layer_network(Softmax(), TensorInfo((2, 3))), X)
    runtime.close()
    gc.collect()
    assert str(path) not in mapped_files()


def test_a_process_ends_while_a_network_is_loaded(build):
    program = f"""
import numpy as np, interposer as ip
runtime = ip.Runtime(ip.CreationOptions(dynamic_backends_path={str(build().parent)!r}, disabled_backends=["CpuRef"]))
network = ip.Network()
x = network.add_input_layer(0, ip.TensorInfo((2,)))
network.add_output_layer(0, network.add_addition_layer(x, x))
model = ip.load(network, backends=["CpuRef"], runtime=runtime)
optimized = model.optimized
print(model([1, 2]).tolist(), type(runtime.registry.get("CpuRef")).__name__)
"""
    words = [warm.NEW_INTERPRETER, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2.0, 4.0] DynamicBackend\n", "")


UNLOADED_COPY = """
import gc, sys
from pathlib import Path
import interposer as ip
from tests.native import install_plugin

def loaded(folder, **options):
    return ip.Runtime(ip.CreationOptions(dynamic_backends_path=folder, disabled_backends=["CpuRef"], **options))

def model(runtime):
    network = ip.Network()
    x = network.add_input_layer(0, ip.TensorInfo((2,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    return ip.load(network, backends=["CpuRef"], runtime=runtime)

library = Path(sys.argv[1])
folders = [library.parent / name for name in ("first", "second")]
for folder in folders:
    install_plugin(library, folder, library.name)
first, second = loaded(folders[0]), loaded(folders[1], unload_libraries=True)
lasting, passing = model(first), model(second)
print(lasting([1, 2]).tolist(), passing([1, 2]).tolist())
passing.close()
second.close()
del passing, second
gc.collect()
print([name for name in ("first", "second") if f"/{name}/{library.name}" in Path("/proc/self/maps").read_text()])
install_plugin(library, folders[0], library.name)
print(lasting([3, 4]).tolist())
"""


def test_a_process_ends_well_after_one_of_two_copies_was_unloaded_and_the_other_replaced(build):
    words = [warm.NEW_INTERPRETER, "-c", UNLOADED_COPY, build()]
    root = Path(__file__).parents[3]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "[2.0, 4.0] [2.0, 4.0]\n['first']\n[6.0, 8.0]\n"


HOST = """
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
static void *(*factory)(void);
static void *call(void *unused) { (void)unused; return factory(); }
int main(int count, char **names) {
  pthread_t threads[8];
  void *table = NULL, *library = dlopen(names[count - 1], RTLD_NOW | RTLD_GLOBAL);
  if (library == NULL) return puts(dlerror()), 1;
  *(void **)&factory = dlsym(library, "BackendFactory");
  for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, call, NULL);
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], &table);
    puts(table == NULL ? "nothing" : "a table");
  }
}
"""


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_ENABLE_SHARED") or shutil.which("cc") is None,
    reason="needs Python as a shared library, and a C compiler",
)
def test_threads_of_a_host_without_python_start_one_interpreter(tmp_path):
    folder = sysconfig.get_config_var("LIBDIR")
    flags = [f"-I{HEADERS}", f"-L{folder}", f"-Wl,-rpath,{folder}", f"-lpython{sysconfig.get_config_var('VERSION')}"]
    include = Path(__file__).parents[3] / "src" / "interposer" / "include"
    library, host = tmp_path / NAME, tmp_path / "host"
    (tmp_path / "host.c").write_text(HOST)
    for command in (
        ["cc", "-shared", "-fPIC", f"-I{include}", str(FOLDER / "hosted.c"), "-o", str(library), *flags],
        ["cc", str(tmp_path / "host.c"), "-o", str(host), "-ldl", "-lpthread"],
    ):
        subprocess.run(command, check=True, timeout=300)
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [host, library],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "a table\n" * 8, "")
