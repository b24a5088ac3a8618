"""Output arrays that share memory: with each other, with inputs, and with constants."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import interposer as ip
from interposer.backend import MemoryDescriptor
from interposer.core.errors import BindingError, MemoryImportError
from interposer.core.types import Array
from interposer.runtime.overlaps import Constants, refuse_overlaps

pytestmark = pytest.mark.needs_cpuref
X = np.float32([1, 2, 3, 4])


def model_of(constant: Array) -> ip.Model:
    """Return a model that computes x + c and x * c."""
    network = ip.Network("two")
    x = network.add_input_layer(0, ip.TensorInfo((4,)), name="x")
    c = network.add_constant_layer(constant, name="c")
    network.add_output_layer(0, network.add_addition_layer(x, c), name="sum")
    network.add_output_layer(1, network.add_multiplication_layer(x, c), name="product")
    return ip.load(network, ["CpuRef"])


@pytest.fixture
def model() -> ip.Model:
    return model_of(np.float32([1, 1, 1, 2]))


def overlapping() -> list[Array]:
    memory = np.empty(6, np.float32)
    return [memory[:4], memory[2:]]


TEXT = "output 0 (sum) and output 1 (product) share memory; give each an array of its own"


def test_outputs_that_overlap_each_other_are_refused_by_every_way_to_run(model: ip.Model) -> None:
    runtime = model.runtime
    number = runtime.load_network(model.optimized)
    working = runtime.create_working_mem_handle(number)
    both = dict(enumerate(overlapping()))
    same = np.empty(4, np.float32)
    calls: list[Any] = [
        lambda: model.run([X], overlapping()),
        lambda: model.run([X], [same, same]),
        lambda: model.run([X], {"product": same[::-1], "sum": same}),
        lambda: model.run([X], overlapping(), deadline=60),
        lambda: model.bind([X], overlapping()),
        lambda: runtime.enqueue_workload(number, {0: X}, both),
        lambda: runtime.submit(number, {0: X}, both).result(),
        lambda: runtime.execute(number, working, {0: X}, both),
    ]
    for call in calls:
        with pytest.raises(BindingError) as caught:
            call()
        assert str(caught.value) == TEXT
    runtime.unload_network(number)


def test_imported_outputs_that_overlap_each_other_are_refused(model: ip.Model) -> None:
    with model.import_outputs(overlapping()) as outputs, pytest.raises(BindingError, match="in memory; one run"):
        model.run(model.import_inputs([X]), outputs)


def test_descriptors_of_the_same_bytes_are_refused_though_they_are_mapped_twice(model: ip.Model) -> None:
    fd = os.memfd_create("outputs")
    try:
        os.ftruncate(fd, 4096)
        for offset, refused in ((0, True), (8, True), (16, False)):
            value = [MemoryDescriptor(fd), MemoryDescriptor(fd, offset=offset)]
            with model.import_inputs([X]) as inputs, model.import_outputs(value) as outputs:
                if refused:
                    with pytest.raises(BindingError, match="in memory; one run"):
                        model.run(inputs, outputs)
                else:
                    assert [item.tolist() for item in model.run(inputs, outputs)] == [[2, 3, 4, 6], [1, 2, 3, 8]]
    finally:
        os.close(fd)


def test_interleaved_outputs_share_no_element_and_are_taken(model: ip.Model) -> None:
    memory = np.zeros((4, 2), np.float32)
    model.run([X], [memory[:, 0], memory[:, 1]])
    assert memory.tolist() == [[2, 1], [3, 2], [4, 3], [6, 8]]


def test_an_output_whose_elements_share_one_place_is_refused(model: ip.Model) -> None:
    folded = as_strided(np.empty(1, np.float32), (4,), (0,))
    with pytest.raises(BindingError) as caught:
        model.run([X], [folded, np.empty(4, np.float32)])
    assert str(caught.value) == (
        "several elements of output 0 (sum) share one place in memory; give an array without that"
    )


def test_outputs_that_overlap_inputs_are_right(model: ip.Model) -> None:
    memory = np.float32([1, 2, 3, 4, 0])
    result = model.run([memory[:4]], [memory[1:], np.empty(4, np.float32)])
    assert [item.tolist() for item in result] == [[2, 3, 4, 6], [1, 2, 3, 8]]


def test_inputs_that_are_outputs_can_be_swapped_in_place() -> None:
    network = ip.Network("swap")
    a, b = (network.add_input_layer(number, ip.TensorInfo((4,)), name=name) for number, name in enumerate("ab"))
    network.add_output_layer(0, b, name="first")
    network.add_output_layer(1, a, name="second")
    network.add_output_layer(2, network.add_addition_layer(a, b), name="sum")
    model = ip.load(network, ["CpuRef"])
    item, two, total = X.copy(), 10 * X, np.empty(4, np.float32)
    model.run([item, two], [item, two, total])
    assert [item.tolist(), two.tolist(), total.tolist()] == [[10, 20, 30, 40], [1, 2, 3, 4], [11, 22, 33, 44]]


def test_an_output_in_the_memory_of_a_constant_is_refused() -> None:
    constant = np.float32([1, 1, 1, 2])
    model = model_of(constant)
    text = r"shares memory with a constant of the network; give another array$"
    with pytest.raises(BindingError, match=r"^output 0 \(sum\) " + text):
        model.run([X], [constant, np.empty(4, np.float32)])
    with pytest.raises(BindingError, match=r"^output 1 \(product\) " + text):
        model.bind([X], [np.empty(4, np.float32), constant])
    with pytest.raises(MemoryImportError, match=text):
        model.import_outputs([constant, np.empty(4, np.float32)])
    assert constant.tolist() == [1, 1, 1, 2]


def test_many_outputs_are_compared_by_their_bounds() -> None:
    memory = np.empty((20, 4), np.float32)
    rows = [(f"output {number}", row) for number, row in enumerate(memory)]
    refuse_overlaps(rows)
    with pytest.raises(BindingError, match="^output 3 and output 20 share memory"):
        refuse_overlaps([*rows, ("output 20", memory[3, 3:])])
    backwards = [("a", memory[::-1, 0]), ("b", memory[:, 1]), *rows[:0], *((str(i), np.empty(3)) for i in range(9))]
    refuse_overlaps(backwards)


def test_elements_are_counted_where_dimensions_are_interleaved() -> None:
    memory = np.empty(64, np.int8)
    refuse_overlaps([("it", as_strided(memory, (4, 3), (2, 9)))])
    with pytest.raises(BindingError, match="several elements of it"):
        refuse_overlaps([("it", as_strided(memory, (4, 3), (2, 4)))])


def test_a_constant_that_is_gone_protects_nothing() -> None:
    memory = np.zeros(8, np.int8)
    constant = memory[:4]
    constants = Constants([constant, np.zeros(0)])
    with pytest.raises(BindingError, match="^it shares memory"):
        constants.refuse([("it", memory[3:])])
    constants.refuse([("it", memory[4:])])
    del constant
    constants.refuse([("it", memory[3:])])
