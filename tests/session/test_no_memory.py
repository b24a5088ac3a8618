"""Where memory runs out: an error of ours that says for what, in a process that has little."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import interposer as ip
from interposer.core.errors import LimitExceededError
from interposer.core.types import DataLayout

pytestmark = [pytest.mark.needs_cpuref, pytest.mark.skipif(sys.platform != "linux", reason="needs limits of Linux")]
START = """
    import resource
    import numpy as np
    import interposer as ip
    from interposer import ops

    network = ip.Network("large")
    pages = int(open("/proc/self/statm").read().split()[0])

    def only(more):
        size = pages * resource.getpagesize() + more
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    def show(call):
        try:
            call()
        except ip.errors.InterposerError as error:
            print(f"{type(error).__name__}: {error}")
"""


def said(code: str) -> str:
    text = textwrap.dedent(START) + textwrap.dedent(code)
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_outputs_that_there_is_no_memory_for_are_named() -> None:
    result = said("""
        x = network.add_input_layer(0, ip.TensorInfo((1 << 15,)), name="x")
        y = network.add_input_layer(1, ip.TensorInfo((1 << 15, 1)), name="y")
        network.add_output_layer(0, network.add_addition_layer(x, y, name="outer"), name="sum")
        model = ip.load(network, "CpuRef")
        feeds = [np.ones(1 << 15, np.float32), np.ones((1 << 15, 1), np.float32)]
        only(1 << 31)
        show(lambda: model.run(feeds))
    """)
    assert result == (
        "ExecutionError: there is not enough memory for the outputs; the largest is 0 (sum): float32[32768, 32768], "
        "4,294,967,296 bytes\n"
    )


def test_computing_one_operator_without_memory_names_it_and_its_results() -> None:
    result = said("""
        only(1 << 31)
        show(lambda: ip.compute(ops.Pad(pad_list=((0, 1 << 40),)), np.ones(4, np.float32)))
        show(lambda: ip.compute(ops.Fill(), np.int64([1 << 40, 1 << 40])))
    """)
    first, second = result.splitlines()
    assert first.startswith("ExecutionError: Pad failed: MemoryError: Unable to allocate 4.00 TiB")
    assert first.endswith("(results: float32[1099511627780])")
    assert second.startswith("ExecutionError: Fill failed: ")


def test_an_input_that_there_is_no_memory_to_convert_is_named() -> None:
    result = said("""
        x = network.add_input_layer(0, ip.TensorInfo((1 << 29,)), name="x")
        network.add_output_layer(0, network.add_activation_layer(x, function=ops.ActivationFunction.RELU))
        model = ip.load(network, "CpuRef")
        x = np.broadcast_to(np.float64(1), (1 << 29,))
        only(1 << 30)
        show(lambda: model.run([x]))
    """)
    assert result.startswith("BindingError: input 'x' is float64; there is no memory to make it float32: Unable to")


def test_a_padded_copy_of_an_image_counts_for_the_limits() -> None:
    network = ip.Network("padded")
    x = network.add_input_layer(0, ip.TensorInfo((1, 1, 8, 8)), name="x")
    weights = network.add_constant_layer(np.ones((1, 1, 3, 3), np.float32), name="weights")
    pads = dict.fromkeys(("pad_left", "pad_right", "pad_top", "pad_bottom"), 40_000)
    strides = {"stride_x": 40_000, "stride_y": 40_000}
    y = network.add_convolution2d_layer(x, weights, data_layout=DataLayout.NCHW, **pads, **strides)
    network.add_output_layer(0, y, name="y")
    with pytest.raises(LimitExceededError, match="needs 25,605,120,6.. bytes of memory"):
        ip.load(network, "CpuRef")


@pytest.mark.parametrize("format", ["onnx", "tflite"])
def test_writing_a_network_without_memory_is_an_error_of_ours(format: str) -> None:
    if format == "onnx":
        pytest.importorskip("onnx")
    result = said(f"""
        from interposer.writers import {format}
        small = ip.Network("small")  # what is imported at its first use is there before memory is short
        y = small.add_input_layer(0, ip.TensorInfo((1, 2)), name="y")
        two = small.add_constant_layer(np.ones((1, 2), np.float32))
        small.add_output_layer(0, small.add_addition_layer(y, two))
        {format}.write(small)
        x = network.add_input_layer(0, ip.TensorInfo((1, 4096)), name="x")
        large = network.add_constant_layer(np.ones((4096, 4096), np.float32), name="large")
        network.add_output_layer(0, network.add_addition_layer(x, large))
        pages = int(open("/proc/self/statm").read().split()[0])
        only(1 << 24)
        show(lambda: {format}.write(network))
    """)
    assert result.startswith("ExecutionError: there is not enough memory to write the network")


def test_lists_of_numbers_that_there_is_no_memory_for_are_named() -> None:
    result = said("""
        x = network.add_input_layer(0, ip.TensorInfo((1 << 22,)), name="x")
        network.add_output_layer(0, network.add_activation_layer(x, function=ops.ActivationFunction.RELU))
        model = ip.load(network, "CpuRef")
        numbers = [1.0] * (1 << 22)
        model.run([np.zeros(1 << 22, np.float32)])  # what is imported at its first use is there
        ip.compute(ops.Floor(), [1.0])
        pages = int(open("/proc/self/statm").read().split()[0])
        only(1 << 22)
        show(lambda: model.run([numbers]))
        show(lambda: ip.compute(ops.Floor(), numbers))
    """)
    first, second = result.splitlines()
    assert first.startswith("BindingError: there is not enough memory to make an array of input 'x', a list")
    assert second.startswith("ExecutionError: there is not enough memory to make arrays of the operands of ")


@pytest.mark.parametrize("algorithm", ["AVERAGE", "L2"])
def test_pooling_counts_its_padded_copy_in_64_bits(algorithm: str) -> None:
    network = ip.Network("padded")
    x = network.add_input_layer(0, ip.TensorInfo((1, 8, 8, 1)), name="x")
    pads = dict.fromkeys(("pad_left", "pad_right", "pad_top", "pad_bottom"), 30_000)
    y = network.add_pooling2d_layer(
        x, pool_type=ip.ops.PoolingAlgorithm[algorithm], pool_width=30_001, pool_height=30_001,
        stride_x=60_000, stride_y=60_000, data_layout=DataLayout.NHWC, **pads,
    )  # fmt: skip
    network.add_output_layer(0, y, name="y")
    with pytest.raises(LimitExceededError, match="needs 28,807,680,[0-9]{3} bytes of memory"):
        ip.load(network, "CpuRef")
