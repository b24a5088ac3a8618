"""One model called by several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import numpy as np

from interposer import Network, Runtime, TensorInfo, load
from interposer.backend import Backend, KernelTable
from interposer.core.types import Array
from interposer.ops import Addition
from interposer.session import Model
from tests.devices import Sums

LONG = 30
waiting = KernelTable()
began, go_on = threading.Event(), threading.Event()


@waiting(Addition)
def add_when_reported(op: Addition, a: Array, b: Array) -> Array:
    """Waits on a tensor of one element."""
    if a.size == 1:
        began.set()
        assert go_on.wait(LONG)
    return a + b


class Waiting(Backend):
    id: ClassVar = "Waiting"
    kernels: ClassVar = waiting


def doubling(runtime: Runtime, backend: type[Backend]) -> Model:
    network = Network("doubling")
    x = network.add_input_layer(0, TensorInfo((None,)), name="x")
    network.add_output_layer(0, network.add_layer(Addition(), x, x))
    runtime.registry.register(backend.id, backend)
    return load(network, backends=[backend.id], runtime=runtime)


def test_a_variant_in_use_is_neither_dropped_nor_waited_for() -> None:
    with Runtime() as runtime, ThreadPoolExecutor(1) as pool:
        model = doubling(runtime, Waiting)
        slow = pool.submit(model.run, [np.float32([5])])
        assert began.wait(LONG)
        for size in range(2, 20):
            np.testing.assert_array_equal(model.run([np.ones(size, np.float32)])[0], np.full(size, 2))
        assert len(runtime.loaded_networks) == 8
        go_on.set()
        assert slow.result(LONG)[0].tolist() == [10]


def test_threads_with_more_shapes_than_are_kept_get_their_own_results() -> None:
    def right(size: int) -> bool:
        return bool((model.run([np.full(size, size, np.float32)])[0] == np.full(size, 2 * size)).all())

    with Runtime() as runtime, ThreadPoolExecutor(6) as pool:
        model = doubling(runtime, Sums)
        assert all(pool.map(right, [1 + number * 7 % 12 for number in range(240)]))
        model.close()
        assert runtime.loaded_networks == ()
