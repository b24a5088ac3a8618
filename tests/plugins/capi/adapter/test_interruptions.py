"""Interrupts, forks and other threads, at moments that could not be worse."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from interposer import CreationOptions, Network, Runtime, TensorInfo, optimize
from interposer.backend import ArrayHandle, WorkloadInfo
from interposer.core.errors import BackendContractError
from interposer.ir.graph import Graph
from interposer.ops import Input, NonZero
from interposer.plugins.capi.abi import reading
from interposer.plugins.capi.abi.calls import CallError
from interposer.plugins.capi.loading import loader
from interposer.plugins.capi.loading import open_libraries as libraries
from tests.native import install_plugin


class Interrupted(ArrayHandle):
    """A tensor whose memory is asked for at the moment when somebody presses Ctrl-C."""

    def resize(self, shape):
        raise KeyboardInterrupt


def test_an_interrupt_while_an_output_gets_its_shape_arrives_after_the_run(backend):
    plugin = backend("kernels.cpp")
    graph = Graph()
    info, result = TensorInfo((3,)), TensorInfo((1, None), "int64")
    layer = graph.add(NonZero(), [graph.add(Input(), outputs=[info]).output])
    layer.output.info = result
    workload = plugin.create_workload_factory(None, {}).create_workload(layer, WorkloadInfo((info,), (result,)))
    with pytest.raises(KeyboardInterrupt):
        workload.execute([ArrayHandle(info, np.float32([0, 1, 2]))], [Interrupted(result)])


def test_the_message_of_a_call_that_went_well_is_not_that_of_the_next_failure(backend, runtime_with):
    first = 'ipr_fail(error, IPR_FAILED, IPR_ITEM_LAYER, 7, "old");'
    statement = f"static int runs; if (runs++ == 0) {first} else return IPR_FAILED;"
    plugin = backend("adder.c", "-Wno-error", f"-DAT_EXECUTE={statement}")
    runtime = runtime_with(plugin)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((3,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    network_id = runtime.load_network(optimize(network, ["Adder"], runtime.device_spec))
    assert runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3])})[0].tolist() == [2, 4, 6]
    with pytest.raises(Exception) as caught:
        runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3])})
    failed = caught.value.__cause__
    assert isinstance(failed, CallError)
    assert (failed.message, failed.item_kind, failed.item_index) == ("", 0, -1)


MEETING = (
    "static volatile int inside; __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);"
    "for (int waits = 0; waits < 60000 && inside < 2; ++waits) usleep(5000);"
    'if (inside < 2) return ipr_fail(error, IPR_FAILED, IPR_ITEM_NONE, -1, "nobody came");'
)


def test_runs_of_one_network_meet_in_an_executable_that_allows_it(backend, runtime_with):
    flags = "-DAT_COMPILE=out->flags = IPR_EXECUTABLE_CONCURRENT;", f"-DAT_EXECUTE={MEETING}"
    runtime = runtime_with(backend("adder.c", *flags), num_threads=2)
    network = Network()
    x = network.add_input_layer(0, TensorInfo((3,)))
    network.add_output_layer(0, network.add_addition_layer(x, x))
    network_id = runtime.load_network(optimize(network, ["Adder"], runtime.device_spec))
    pending = [runtime.submit(network_id, {0: np.float32([n, n, n])}) for n in range(2)]
    assert [run.result(300)[0].tolist() for run in pending] == [[0, 0, 0], [2, 2, 2]]


def test_closing_waits_for_what_another_thread_releases(opened):
    library = opened("adder.c")
    released, begun = [], threading.Event()

    def release():
        begun.set()
        time.sleep(0.2)
        released.append(True)

    number = library.hold_call(release)
    thread = threading.Thread(target=library.let_go, args=(number,))
    thread.start()
    begun.wait()
    assert library.close()
    assert released == [True]
    thread.join()


def test_memory_is_read_in_as_many_pieces_as_the_kernel_likes(monkeypatch):
    real, content = reading._copier(), ctypes.create_string_buffer(b"a text of some length")

    def slow(pid, here, count, there, other_count, flags):
        return real(
            pid, reading._Span(here.base, min(here.size, 4)), 1, reading._Span(there.base, min(there.size, 4)), 1, 0
        )

    monkeypatch.setattr(reading, "_copier", lambda: slow)
    assert reading.read(ctypes.addressof(content), 21, "it") == content.value
    with pytest.raises(BackendContractError, match="it: 21 bytes at 0x10 cannot be read"):
        reading.read(16, 21, "it")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_fork_loads_backends_though_a_thread_of_its_parent_was_loading(natives, tmp_path):
    install_plugin(natives.compiled(Path("adder.c")), tmp_path / "plugins", "Tests_Adder_backend.so")
    held, go = threading.Event(), threading.Event()

    def hold():
        with loader._probing, libraries._changed:
            held.set()
            go.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        [record] = Runtime(CreationOptions(dynamic_backends_path=tmp_path / "plugins")).dynamic_backends()
        os._exit(0 if record.state.value == "loaded" else 1)
    ended = os.waitpid(child, 0)[1]
    go.set()
    thread.join()
    assert ended == 0
