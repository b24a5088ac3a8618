"""Tensors that are not compact: in place for a plug-in that declares ``IPR_CAP_STRIDED``, copies for all others."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import interposer as ip
from interposer.backend import ArrayHandle, WorkloadInfo
from interposer.core.types import TensorInfo
from interposer.ops import Addition, Concat, Splitter
from interposer.plugins.capi.running.backend import DynamicBackend

SHAPE = (3, 4)
COMPACT = "-DCAPABILITIES=0"


class Adder:
    """The plug-in, which adds arrays just as they are, and counts the tensors with strides."""

    def __init__(self, library) -> None:
        self.backend = DynamicBackend(library)
        self._count = ctypes.CDLL(library.path).tensors_with_strides
        self._count.restype = ctypes.c_uint64

    @property
    def strided_tensors(self) -> int:
        return self._count()

    def add(self, a, b, out) -> None:
        network = ip.Network("sum")
        infos = [TensorInfo(item.shape) for item in (a, b)]
        layer = network.add_layer(Addition(), *(network.add_input_layer(n, info) for n, info in enumerate(infos)))
        network.add_output_layer(0, layer)
        [layer] = [item for item in network.graph if item.kind == "Addition"]
        workload = self.backend.create_workload_factory(None, {}).create_workload(layer, WorkloadInfo.of(layer))
        workload.execute(
            [ArrayHandle(TensorInfo(item.shape), item) for item in (a, b)], [ArrayHandle(TensorInfo(out.shape), out)]
        )


@pytest.fixture
def adder(opened):
    return lambda *flags, **how: Adder(opened("strided.c", *flags, **how))


def numbers(shape=SHAPE):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) + 1


VIEWS = {
    "transposed": (lambda: numbers(SHAPE[::-1]).T, 1),
    "every second column": (lambda: numbers((3, 8))[:, ::2], 1),
    "columns of a wider array": (lambda: numbers((3, 9))[:, 2:6], 1),
    "one row, repeated": (lambda: np.broadcast_to(numbers((1, 4)), SHAPE), 1),
    "backwards": (lambda: numbers()[::-1], 0),
    "between elements": (lambda: np.ndarray(SHAPE, np.float32, numbers((3, 9)).tobytes(), 0, (18, 4)), 0),
    "compact": (numbers, 0),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("checking", [False, True])
def test_an_input_that_is_not_compact_is_added(adder, name, checking):
    make, strided = VIEWS[name]
    plugin, view, out = adder(checking=checking), make(), np.empty(SHAPE, np.float32)

    plugin.add(view, numbers(), out)

    assert np.array_equal(out, view + numbers())
    assert plugin.strided_tensors == strided


def test_an_output_with_gaps_is_written_in_place_and_the_gaps_stay(adder):
    plugin, whole = adder(), np.zeros((3, 9), np.float32)

    plugin.add(numbers(), numbers(), whole[:, 1:8:2])

    assert plugin.strided_tensors == 1
    assert np.array_equal(whole[:, 1:8:2], 2 * numbers())
    assert not whole[:, ::2].any()


def test_a_plug_in_without_the_capability_gets_compact_tensors(adder):
    plugin, whole, view = adder(COMPACT), np.zeros((3, 9), np.float32), numbers(SHAPE[::-1]).T

    plugin.add(view, numbers(), whole[:, 1:8:2])

    assert plugin.strided_tensors == 0
    assert np.array_equal(whole[:, 1:8:2], view + numbers())


@pytest.mark.needs_cpuref
@pytest.mark.parametrize(("flags", "strided"), [((), True), ((COMPACT,), False)])
def test_pieces_of_a_splitter_and_of_a_concat_are_used_in_place(adder, runtime_with, flags, strided):
    plugin = adder(*flags)
    network = ip.Network("pieces")
    x = network.add_input_layer(0, TensorInfo((3, 8)), "x")
    left, right = network.add_layer(Splitter(axis=1, sizes=(4, 4)), x).outputs
    sums = [network.add_layer(Addition(), left, right), network.add_layer(Addition(), right, right)]
    network.add_output_layer(0, network.add_layer(Concat(axis=1), *sums))
    data = numbers((3, 8))

    with ip.load(network, ["StridedC", "CpuRef"], runtime=runtime_with(plugin.backend)) as model:
        [result] = [model.run([data])[0] for _ in range(2)][-1:]

    assert np.array_equal(result, np.concatenate([data[:, :4] + data[:, 4:], 2 * data[:, 4:]], axis=1))
    assert (plugin.strided_tensors > 0) == strided
