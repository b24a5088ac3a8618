"""GpuAcc on the OpenCL device of the machine: results for each profile, refusals, options, processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer.errors import InvalidValueError
from interposer.ops import (
    Activation,
    ActivationFunction,
    Addition,
    Convolution2d,
    DepthwiseConvolution2d,
    FakeQuantization,
    FullyConnected,
    Gather,
    Multiplication,
    Pooling2d,
    PoolingAlgorithm,
    Softmax,
)
from interposer.types import DataType
from tests import warm
from tests.parameters import slow_unless

FAULTY = Path(__file__).with_name("faulty_opencl.cpp")
PROFILES = ("cpu", "mobile", "desktop")
RANDOM = np.random.default_rng(5)


def constant(network, *shape):
    values = RANDOM.normal(0, 0.3, shape).astype(np.float32)
    return network.add_constant_layer(values)


def small_network(dtype=DataType.FLOAT32):
    """Convolutions with a skip connection, whose channels fill no whole block, then a classifier."""
    network = ip.Network("small")
    image = network.add_input_layer(0, ip.TensorInfo((2, 5, 13, 11), dtype))
    first = network.add_layer(
        Convolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1),
        image,
        constant(network, 19, 5, 3, 3),
        constant(network, 19),
    )
    relu = network.add_layer(Activation(function=ActivationFunction.RELU), first)
    depthwise = network.add_layer(
        DepthwiseConvolution2d(pad_left=1, pad_right=1, pad_top=1, pad_bottom=1), relu, constant(network, 1, 3, 3, 19)
    )
    summed = network.add_layer(Addition(), depthwise, relu)
    pooled = network.add_layer(
        Pooling2d(pool_type=PoolingAlgorithm.AVERAGE, pool_width=3, pool_height=3, stride_x=2, stride_y=2), summed
    )
    rows = network.add_layer(FullyConnected(), pooled, constant(network, 19 * 6 * 5, 7), constant(network, 7))
    network.add_output_layer(0, network.add_layer(Softmax(), rows))
    return network


def loaded(network, backends, **options):
    return ip.load(network, backends, options=ip.OptimizerOptions(model_options={"GpuAcc": options} if options else {}))


IMAGE = RANDOM.normal(0, 1, (2, 5, 13, 11)).astype(np.float32)


@pytest.mark.parametrize("profile", PROFILES)
def test_a_convolutional_network_has_the_results_of_the_reference(gpuacc, profile):
    network = small_network()
    model = loaded(network, ["GpuAcc"], Profile=profile)
    assert model.explain().counts() == {"GpuAcc": 7}
    expected = loaded(network, ["CpuRef"]).run([IMAGE])[0]
    for _ in range(2):
        np.testing.assert_allclose(model.run([IMAGE])[0], expected, rtol=1e-4, atol=1e-6)


def test_layers_that_are_refused_run_on_the_next_backend(gpuacc):
    network = network_in_part()
    model = loaded(network, ["GpuAcc", "CpuRef"])
    assert model.explain().counts() == {"GpuAcc": 2, "CpuRef": 1}
    assert "no kernel for FakeQuantization" in str(model.explain())
    array = RANDOM.normal(0, 1, (4, 6)).astype(np.float32)
    np.testing.assert_allclose(model.run([array])[0], loaded(network, ["CpuRef"]).run([array])[0], rtol=1e-5)


def test_it_is_used_only_by_name(gpuacc):
    assert "GpuAcc" not in ip.DeviceSpec.default().default_backends


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"Profile": "tablet"}, "Profile is 'tablet'; expected auto, cpu, mobile or desktop"),
        ({"Device": 99}, "Device is 99; there are"),
        ({"TuningLevel": 2}, "TuningLevel is 2; expected 0 or 1"),
    ],
)
def test_wrong_values_of_options_are_named(gpuacc, options, message):
    with pytest.raises(ip.InterposerError, match=message):
        loaded(small_network(), ["GpuAcc"], **options)


def test_inputs_and_outputs_at_any_address_are_right(gpuacc):
    network = small_network()
    model, expected = loaded(network, ["GpuAcc"]), loaded(network, ["CpuRef"]).run([IMAGE])[0]
    for offset in (0, 4, 64):
        memory = np.zeros(IMAGE.nbytes + 256, np.uint8)
        at = -memory.ctypes.data % 64 + offset
        image = memory[at : at + IMAGE.nbytes].view(np.float32).reshape(IMAGE.shape)
        image[...] = IMAGE
        np.testing.assert_allclose(model.run([image])[0], expected, rtol=1e-4, atol=1e-6)


def network_in_part():
    """Three layers, of which the second one runs on another backend."""
    network = ip.Network("in part")
    x = network.add_input_layer(0, ip.TensorInfo((4, 6)))
    summed = network.add_layer(FakeQuantization(), network.add_layer(Addition(), x, x))
    network.add_output_layer(0, network.add_layer(Softmax(), summed))
    return network


def placed(array, offset):
    """Return a copy of an array at an address that is a multiple of 64, plus `offset` bytes."""
    memory = np.zeros(array.nbytes + 128, np.uint8)
    begin = -memory.ctypes.data % 64 + offset
    view = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("part", ["wholly", "in part"])
def test_only_arrays_at_other_addresses_are_copied_at_the_borders_of_a_device_that_shares_memory(gpuacc, part):
    if not ip.Runtime().registry.get("GpuAcc").devices()[0].unified:
        pytest.skip("the device has memory of its own")
    network, x = (small_network(), IMAGE) if part == "wholly" else (network_in_part(), np.ones((4, 6), np.float32))
    model = loaded(network, ["GpuAcc", "CpuRef"])
    y = model.run([x])[0]
    for offset, sizes in ((0, []), (4, [x.nbytes, y.nbytes])):
        with ip.profile() as profile:
            model.run([placed(x, offset)], [placed(y, offset)])
        copies = [step.site for step in profile.steps() if step.site.name.startswith("copy of")]
        assert [site.bytes for site in copies] == sizes
    assert model.transfers().copied_bytes == 0


def test_an_index_out_of_range_is_reported_and_the_next_run_is_right(gpuacc):
    network = ip.Network("gather")
    params = network.add_input_layer(0, ip.TensorInfo((5, 3)))
    indices = network.add_input_layer(1, ip.TensorInfo((4,), DataType.INT32))
    network.add_output_layer(0, network.add_layer(Gather(), params, indices))
    model = loaded(network, ["GpuAcc"])
    rows = np.arange(15, dtype=np.float32).reshape(5, 3)
    with pytest.raises(InvalidValueError, match=r"indices has 7 at \[2\]"):
        model.run([rows, np.int32([0, 1, 7, 2])])
    np.testing.assert_array_equal(model.run([rows, np.int32([4, -5, 1, 2])])[0], rows[[4, 0, 1, 2]])


FORKED = """
import os, sys
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, loaded, small_network
model = loaded(small_network(), ["GpuAcc"])
model.run([IMAGE])
child = os.fork()
if child == 0:
    try:
        model.run([IMAGE])
    except ip.InterposerError as error:
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def in_a_process(code, *arguments, **environment):
    settings = {**os.environ, **environment, "INTERPOSER_DISABLED_BACKENDS": "CpuAcc"}
    python = [sys.executable] if "LD_LIBRARY_PATH" in environment else warm.python()  # read at the start alone
    words = [*python, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=settings, timeout=300)


def test_a_forked_process_gets_an_error_instead_of_waiting_for_ever(gpuacc):
    done = in_a_process(FORKED)
    assert done.returncode == 7, done.stdout + done.stderr


ABSENT = """
import interposer as ip
print(ip.Runtime().registry.reason_absent("GpuAcc"))
"""


def test_without_a_driver_the_reason_is_listed(gpuacc, tmp_path):
    done = in_a_process(ABSENT, OCL_ICD_VENDORS=str(tmp_path))
    assert "no OpenCL driver is installed" in done.stdout, done.stdout + done.stderr


START = """
import sys
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, loaded, small_network
with ip.profile() as profile:
    model = loaded(small_network(), ["GpuAcc"])
    result = model.run([IMAGE])[0]
np.save(sys.argv[1], result)
[built] = [total for total in profile.counters() if total.counter.name == "Programs built"]
print("built", int(built.value))
"""


def test_a_second_process_builds_no_programs_and_has_the_same_results(gpuacc, tmp_path):
    settings = {"INTERPOSER_CACHE_DIR": str(tmp_path / "cache")}
    first = in_a_process(START, str(tmp_path / "1.npy"), **settings)
    assert first.returncode == 0, first.stderr
    assert "built 0" not in first.stdout
    second = in_a_process(START, str(tmp_path / "2.npy"), **settings)
    assert "built 0" in second.stdout, second.stdout + second.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "1.npy"), np.load(tmp_path / "2.npy"))


def test_times_of_kernels_are_those_of_the_device(gpuacc):
    model = loaded(small_network(), ["GpuAcc"])
    with ip.profile() as profile:
        model.run([IMAGE])
    kernels = [step for step in profile.steps() if step.site.backend == "GpuAcc"]
    assert {kernel.site.name.split()[0] for kernel in kernels} >= {"convolution", "depthwise", "product", "softmax"}
    assert all(kernel.site.device for kernel in kernels)


def test_explanations_have_the_times_of_layers_by_the_clock_of_the_device(gpuacc):
    model = loaded(small_network(), ["GpuAcc"])
    explanation = model.explain(measure=True, inputs=[IMAGE], budget_seconds=0.02)
    assert explanation.times.layers.keys() == {
        "convolution2d", "depthwiseconvolution2d", "pooling2d", "fullyconnected", "softmax",
    }  # fmt: skip
    assert not any(explanation.times.others.values())
    [(device, busy)] = explanation.times.devices.items()
    assert busy > 0
    assert f"{device} is busy for" in str(explanation)


@pytest.mark.parametrize("profile", PROFILES)
def test_operations_on_images_in_blocks_need_no_convolution_before_them(gpuacc, profile):
    network = ip.Network("elements")
    image = network.add_input_layer(0, ip.TensorInfo((2, 5, 13, 11)))
    pooled = network.add_layer(Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2), image)
    scaled = network.add_layer(Multiplication(), pooled, constant(network, 1, 5, 1, 1))
    curved = network.add_layer(Activation(function=ActivationFunction.SIGMOID), scaled)
    halved = network.add_layer(Multiplication(), curved, network.add_constant_layer(np.float32(0.5)))
    network.add_output_layer(0, network.add_layer(Addition(), halved, pooled))
    model = loaded(network, ["GpuAcc"], Profile=profile)
    expected = loaded(network, ["CpuRef"]).run([IMAGE])[0]
    np.testing.assert_allclose(model.run([IMAGE])[0], expected, rtol=1e-5, atol=1e-6)


def branches():
    """Two branches of pooling and activations, and their sum."""
    network = ip.Network("branches")
    image = network.add_input_layer(0, ip.TensorInfo(IMAGE.shape))
    ends = []
    for name, function in (("left", ActivationFunction.SIGMOID), ("right", ActivationFunction.RELU)):
        pooled = network.add_layer(Pooling2d(pool_width=2, pool_height=2, stride_x=2, stride_y=2), image, name=name)
        ends.append(network.add_layer(Activation(function=function), pooled, name=f"{name} end"))
    network.add_output_layer(0, network.add_layer(Addition(), *ends, name="sum"))
    return network


TWO_DEVICES = """
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches, loaded, small_network
print(len(ip.Runtime().registry.get("GpuAcc").devices()))
network = small_network()
model = loaded(network, ["GpuAcc:1"])
print(model.explain().counts())
expected = loaded(network, ["GpuAcc"]).run([IMAGE])[0]
np.testing.assert_array_equal(model.run([IMAGE])[0], expected)
hints = {"left": "GpuAcc:1", "left end": "GpuAcc:1"}
model = ip.load(branches(), ["GpuAcc", "GpuAcc:1"], options=ip.OptimizerOptions(hints=hints))
print(model.explain().counts())
print(sorted(layer.name for layer in model.optimized.graph.topological() if layer.op.op_name() == "PreCompiled"))
expected = loaded(branches(), ["GpuAcc"]).run([IMAGE])[0]
for run in [model.submit([IMAGE]) for _ in range(4)]:
    np.testing.assert_array_equal(run.result()[0], expected)
"""


def test_each_device_of_the_drivers_has_an_address(gpuacc):
    done = in_a_process(TWO_DEVICES, POCL_DEVICES="pthread pthread")
    if done.stdout.startswith("1\n"):
        pytest.skip("there is one OpenCL device, and it is not of PoCL, which can show two")
    assert done.returncode == 0, done.stdout + done.stderr
    counts = "2\n{'GpuAcc:1': 7}\n{'GpuAcc': 3, 'GpuAcc:1': 2}\n"
    assert done.stdout == f"{counts}['PreCompiled:left', 'PreCompiled:right', 'PreCompiled:sum']\n"


NOT_COMPILED = """
import logging
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, small_network
logging.basicConfig(level=logging.WARNING, format="%(message)s")
network = small_network()
model = ip.load(network, ["GpuAcc", "CpuRef"])
print(model.explain().counts())
print("does not compile a kernel" in str(model.explain()))
expected = ip.load(network, ["CpuRef"]).run([IMAGE])[0]
np.testing.assert_allclose(model.run([IMAGE])[0], expected, rtol=1e-4, atol=1e-6)
"""


def faulty_opencl(natives, folder):
    """Return variables with which a process opens an OpenCL library that plants errors."""
    flags = [f"-I{Path(__file__).parents[3] / 'native'}", "-ldl"]
    natives.install(folder, "libOpenCL.so.1", FAULTY.read_text(encoding="utf-8"), *flags, language="c++")
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    [real] = {line.split()[-1] for line in maps if "libOpenCL" in line}
    return {"LD_LIBRARY_PATH": str(folder), "REAL_OPENCL": real}


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(
    ("text", "counts"),
    [("exp(", {"GpuAcc": 6, "CpuRef": 1}), ("kernel", {"GpuAcc": 0, "CpuRef": 7})],
    ids=["one kernel", "all kernels"],
)
def test_layers_that_the_driver_does_not_compile_are_named_and_run_elsewhere(gpuacc, natives, tmp_path, text, counts):
    faulty = faulty_opencl(natives, tmp_path / "faulty")
    done = in_a_process(NOT_COMPILED, **faulty, NOT_COMPILED=text, INTERPOSER_CACHE_DIR=str(tmp_path / "cache"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{counts}\nTrue\n"
    assert "softmax: " in done.stderr, "the log has the name of the kernel"


FAULTS = """
import ctypes
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches
plant = ctypes.CDLL("libOpenCL.so.1").plant
model = ip.load(branches(), ["GpuAcc"])
expected = ip.load(branches(), ["CpuRef"]).run([IMAGE])[0]

def check():
    np.testing.assert_allclose(model.run([IMAGE])[0], expected, rtol=1e-5)

check()
plant(-5, 0)  # CL_OUT_OF_RESOURCES
try:
    model.run([IMAGE])
except ip.errors.ExecutionError as error:
    print("CL_OUT_OF_RESOURCES" in str(error))
check()
plant(0, 1500)
try:
    model.run([IMAGE], deadline=0.2)
except ip.errors.DeadlineExceededError:
    print("late")
check()
model = ip.load(branches(), ["GpuAcc", "CpuRef"])
plant(-36, 0)  # CL_INVALID_COMMAND_QUEUE: the device is lost
check()
print([event.backend for event in model.events], "device lost" in str(model.events[0]))
"""


@pytest.mark.needs_cpuref
def test_errors_late_runs_and_lost_devices_are_reported_and_later_runs_are_right(gpuacc, natives, tmp_path):
    done = in_a_process(FAULTS, **faulty_opencl(natives, tmp_path / "faulty"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\nlate\n['GpuAcc'] True\n"


CYCLES = """
import ctypes, gc, sys
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, branches
opencl = ctypes.CDLL("libOpenCL.so.1")
network = branches()
expected = ip.load(network, ["CpuRef"]).run([IMAGE])[0]

def cycle(status, milliseconds):
    with ip.load(network, ["GpuAcc", "CpuRef"]) as model:
        np.testing.assert_allclose(model.run([IMAGE])[0], expected, rtol=1e-5)
        opencl.plant(status, milliseconds)
        try:
            model.run([IMAGE], deadline=0.01 if milliseconds else None)
        except ip.errors.DeadlineExceededError:
            model.run([IMAGE])  # after the late one is over
        assert [event.backend for event in model.events] == ["GpuAcc"] * (status != 0)

for count in (12, int(sys.argv[1])):
    for n in range(count):
        cycle(*((0, 30), (-5, 0), (-36, 0), (0, 0))[n % 4])  # late, failed, device lost, right
    gc.collect()
    print([opencl.living(kind) for kind in range(6)])
"""


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("cycles", slow_unless((40).__eq__, [40, 1000]))
def test_no_object_of_opencl_remains_of_networks_that_ran_failed_and_were_closed(gpuacc, natives, tmp_path, cycles):
    done = in_a_process(CYCLES, str(cycles), **faulty_opencl(natives, tmp_path / "faulty"))
    assert done.returncode == 0, done.stderr
    warm, end = done.stdout.splitlines()
    assert warm == end
    contexts, *objects = json.loads(end)
    assert contexts == 1
    assert objects == [0, 0, 5, 0, 0], "only programs are cached"


MANY = """
import ctypes, gc, itertools
import numpy as np, interposer as ip
from interposer.ops import ActivationFunction as Function
opencl = ctypes.CDLL("libOpenCL.so.1")

def load(functions, backend):
    network = ip.Network("chain")
    value = network.add_input_layer(0, ip.TensorInfo((4,)))
    for function in functions:
        value = network.add_activation_layer(value, function=function)
    network.add_output_layer(0, value)
    return ip.load(network, [backend])

def check(model, functions):
    x = np.array([-2, -0.5, 0.5, 2], np.float32)
    np.testing.assert_allclose(model.run([x])[0], load(functions, "CpuRef").run([x])[0], rtol=1e-5)

names = ["RELU", "ABS", "SQUARE", "TANH", "SIGMOID", "SOFTSIGN", "GELU"]
earliest, *chains = itertools.islice(itertools.product([Function[name] for name in names], repeat=3), 280)
first = load(earliest, "GpuAcc")
for functions in chains:
    with load(functions, "GpuAcc") as model:
        check(model, functions)
check(first, earliest)
gc.collect()
print(opencl.living(3))
"""


@pytest.mark.slow
def test_256_programs_of_closed_networks_stay_in_memory(gpuacc, natives, tmp_path):
    done = in_a_process(MANY, **faulty_opencl(natives, tmp_path / "faulty"))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 256 + 1, "the first network is open, and its program is not among the last 256"


def test_runs_that_are_submitted_together_have_their_own_results(gpuacc):
    model, reference = loaded(branches(), ["GpuAcc"]), loaded(branches(), ["CpuRef"])
    images = [factor * IMAGE for factor in (1, -1, 2, 0.5)]
    for run, image in zip([model.submit([image]) for image in images], images, strict=True):
        np.testing.assert_allclose(run.result()[0], reference.run([image])[0], rtol=1e-5)


NOT_NAMED = """
import os, re, threading
import numpy as np, interposer as ip
from tests.backends.gpuacc.test_gpuacc_runs import IMAGE, small_network
threading.Thread(target=int).start() # with the first thread, the C library handles a signal of its own
def handled():
    return re.search(r"SigCgt:.*", open("/proc/self/status").read())[0]
before, threads = handled(), os.environ.get("POCL_MAX_PTHREAD_COUNT")
model = ip.load(small_network())
model.run([IMAGE])
loaded = open("/proc/self/maps").read()
print("OpenCL" in loaded, "GpuAcc" in loaded, os.environ.get("POCL_MAX_PTHREAD_COUNT") != threads)
print(ip.Runtime().registry.reason_absent("GpuAcc"), "OpenCL" in open("/proc/self/maps").read())
print(handled() == before)
"""


def test_a_program_that_does_not_name_it_opens_no_driver_and_no_driver_takes_its_signals(gpuacc):
    done = in_a_process(NOT_NAMED)
    assert done.stdout == "False False False\nNone True\nTrue\n", done.stdout + done.stderr
    assert not done.stderr


def test_an_option_of_a_runtime_that_it_does_not_declare_is_refused(gpuacc):
    with pytest.raises(ip.errors.OptionError, match=r"Profle.*Profile"):
        ip.Runtime(ip.CreationOptions(backend_options={"GpuAcc": {"Profle": "cpu"}}))
    assert ip.Runtime(ip.CreationOptions(backend_options={"GpuAcc": {"Profile": "cpu"}})).registry.is_available(
        "GpuAcc"
    )
