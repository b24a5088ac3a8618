"""Data of constants: mapped from files, and once in memory where it is equal."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import interposer as ip
from interposer.core.constants import (
    LEAST_MAPPED,
    LEAST_SHARED,
    Users,
    aligned,
    changed_file,
    give_back_pages,
    mapped,
    place_of,
    share,
)
from interposer.core.errors import LoadError
from interposer.ir.graph import Graph
from interposer.plugins.capi.abi.flatten import FlatGraph

MANY = LEAST_SHARED


def borrowed(array: np.ndarray) -> np.ndarray:
    """Return a view of the memory of an array as C code would pass it: an address without an owner."""
    memory = memoryview((ctypes.c_char * array.nbytes).from_address(array.ctypes.data)).cast("B").toreadonly()
    return np.frombuffer(memory, array.dtype)


def test_memory_that_another_library_may_release_is_not_shared() -> None:
    owned, others = random(41), random(41)
    view = borrowed(others)
    assert share(view) is view
    assert share(owned) is owned
    assert share(view[: LEAST_SHARED // 2 * 2]).ctypes.data == others.ctypes.data


def random(seed: int, size: int = MANY, dtype: Any = np.uint8) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size, np.uint8).view(dtype)


# --- equal data -------------------------------------------------------------------------------------------------------


def test_equal_bytes_are_in_memory_once_whatever_they_mean() -> None:
    first = share(random(1))
    again = share(random(1, dtype=ml_dtypes.bfloat16).reshape(2, -1))
    assert np.shares_memory(first, again)
    assert (again.dtype, again.shape) == (ml_dtypes.bfloat16, (2, MANY // 4))
    assert not again.flags.writeable


@given(place=st.integers(0, MANY - 1))
@settings(max_examples=30)
def test_one_different_byte_keeps_data_apart(place: int) -> None:
    first, other = share(random(2)), random(2)
    other[place] ^= 1
    shared = share(other)
    assert not np.shares_memory(first, shared)
    np.testing.assert_array_equal(shared, other)


def test_what_is_small_or_has_gaps_or_is_text_is_left_as_it_is() -> None:
    for array in (random(3, MANY - 1), random(3, 2 * MANY)[::2], np.full(MANY, "x", object)):
        assert share(array) is array
        assert share(array.copy()) is not array


def test_data_that_is_wanted_at_a_multiple_is_shared_where_it_lies_at_one() -> None:
    raw = np.empty(MANY + 128, np.uint8)
    start = -raw.ctypes.data % 64
    odd, even = raw[start + 16 :][:MANY], np.empty(MANY + 64, np.uint8)
    odd[:] = random(4)
    even = even[-even.ctypes.data % 64 :][:MANY]
    even[:] = odd
    share(odd)
    assert share(even, 64) is even
    assert np.shares_memory(share(random(4), 64), even)


def test_nothing_is_kept_that_nobody_else_has() -> None:
    array = random(5).copy()
    gone = weakref.ref(array)
    view = share(array)[10:]
    del array
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None
    share(random(5))


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_mapped_once_and_tells_where_its_data_lies(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(random(6).tobytes())
    first, again = mapped(path), mapped(path)
    assert first.ctypes.data == again.ctypes.data
    place = place_of(first[100:300])
    assert place is not None
    assert os.pread(place.fd, 200, place.offset) == random(6)[100:300].tobytes()
    assert place_of(random(6)) is None
    fd = place.fd
    del first, again
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_a_file_that_is_replaced_keeps_its_content_here_and_one_that_is_written_to_is_noticed(tmp_path: Path) -> None:
    path, other = tmp_path / "data", tmp_path / "other"
    path.write_bytes(random(7).tobytes())
    old_mapping = mapped(path)
    other.write_bytes(random(8).tobytes())
    other.rename(path)
    np.testing.assert_array_equal(old_mapping, random(7))
    assert changed_file([old_mapping]) is None
    now = mapped(path)
    np.testing.assert_array_equal(now, random(8))
    os.utime(path, ns=(1, 1))
    assert changed_file([old_mapping, now]) == str(path)


# --- networks ---------------------------------------------------------------------------------------------------------


def weighted(tmp_path: Path, name: str = "model.onnx", *, external: bool = False, seed: int = 9) -> Path:
    """A file of x + w, where w has LEAST_MAPPED bytes."""
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper = onnx.helper
    weights = np.random.default_rng(seed).random(LEAST_MAPPED // 4, np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [1])],
        [helper.make_tensor_value_info("y", 1, list(weights.shape))],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path / name
    how: dict[str, Any] = {"save_as_external_data": True, "location": f"{name}.data"} if external else {}
    onnx.save(helper.make_model(graph), path, **how)
    return path


def unaligned(path: Path) -> np.ndarray:
    """Return float32 values of a mapped file whose address is not a multiple of four."""
    path.write_bytes(b"x" + random(9, 4 * MANY).tobytes())
    return mapped(path)[1:].view(np.float32)


def test_unaligned_data_of_a_file_is_copied_to_aligned_memory(tmp_path: Path) -> None:
    array = unaligned(tmp_path / "data")
    for alignment in (1, 64):
        result = aligned(array, alignment)
        assert result.flags.aligned
        assert result.ctypes.data % alignment == 0
        assert result.tobytes() == array.tobytes()
    assert aligned(result, 64) is result
    assert aligned(random(1)[1:5].view(np.float32)).flags.aligned


def test_data_of_a_file_that_was_truncated_or_written_to_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data"
    array = unaligned(path)
    fault = f"the file '{path}' was written to after its constants were mapped; read the model again"
    for change in (lambda: os.truncate(path, 100), lambda: path.write_bytes(bytes(array.nbytes + 1))):
        change()
        with pytest.raises(LoadError, match=f"^{re.escape(fault)}$"):
            aligned(array)


def test_data_of_a_file_can_be_read_after_its_pages_were_given_back(tmp_path: Path) -> None:
    array = unaligned(tmp_path / "data")
    old_bytes = array.tobytes()
    give_back_pages([array, random(1)])
    assert array.tobytes() == old_bytes


def test_what_a_file_holds_since_it_was_written_to_is_not_shared(tmp_path: Path) -> None:
    path, content = tmp_path / "weights", np.zeros(1 << 20, np.uint8)
    path.write_bytes(content.tobytes())
    old = share(mapped(path))
    content[10_000] = 1  # which the look at a few bytes does not see
    path.write_bytes(content.tobytes())
    os.utime(path, ns=(0, 0))
    assert share(content) is content
    assert old[10_000] == 1


@pytest.mark.needs_cpuref
def test_networks_with_equal_weights_have_them_once(tmp_path: Path) -> None:
    path, copy = weighted(tmp_path), weighted(tmp_path, "copy.onnx")
    with ip.Runtime() as runtime:
        first = ip.load(path, ["CpuRef"], runtime=runtime)
        assert first.memory().own_constants == LEAST_MAPPED
        second = ip.load(copy, ["CpuRef"], runtime=runtime)
        for model in (first, second):
            report = model.memory()
            assert (report.constants, report.shared_constants, report.mapped_constants) == (
                LEAST_MAPPED,
                LEAST_MAPPED,
                0,
            )
        np.testing.assert_array_equal(first.run([np.zeros(1, np.float32)])[0], second.run([np.zeros(1, np.float32)])[0])
        second.close()
        del second
        gc.collect()
        assert first.memory().to_dict()["own_constants"] == LEAST_MAPPED


@pytest.mark.needs_cpuref
def test_weights_beside_a_model_are_mapped(tmp_path: Path) -> None:
    path = weighted(tmp_path, external=True, seed=20)
    with ip.load(path, ["CpuRef"]) as model:
        report = model.memory()
        assert (report.mapped_constants, report.shared_constants, report.own_constants) == (LEAST_MAPPED, 0, 0)


@pytest.mark.needs_cpuref
def test_a_network_whose_file_was_written_to_meanwhile_is_not_loaded(tmp_path: Path) -> None:
    path = weighted(tmp_path, external=True, seed=21)
    network = ip.frontends.onnx.load(path)
    os.utime(f"{path}.data", ns=(1, 1))
    with pytest.raises(
        LoadError, match=r"model.onnx.data' was written to after its constants were mapped; read the model"
    ):
        ip.load(network, ["CpuRef"])


@pytest.mark.needs_cpuref
@pytest.mark.parametrize("external", [True, False])
def test_a_network_whose_file_was_truncated_is_not_loaded(tmp_path: Path, external: bool) -> None:
    path = weighted(tmp_path, external=external, seed=24)
    network, file = ip.frontends.onnx.load(path), f"{path}.data" if external else path
    os.truncate(file, 100)
    fault = f"the file '{file}' was written to after its constants were mapped; read the model again"
    with pytest.raises(LoadError, match=f"^{re.escape(fault)}$"):
        ip.load(network, ["CpuRef"])
    with pytest.raises(LoadError, match=f"^{re.escape(fault)}$"):
        ip.optimize(network, ["CpuRef"])


@pytest.mark.needs_cpuref
def test_unaligned_weights_inside_a_model_are_copied_for_its_backend(tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="onnx is not installed")
    path, weights = tmp_path / "model.onnx", np.random.default_rng(1).standard_normal((512, 700)).astype(np.float32)
    network = ip.Network("dense")
    x = network.add_input_layer(0, ip.TensorInfo((1, 512)), name="x")
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights))
    network.add_output_layer(0, product, name="y")
    image = np.random.default_rng(2).standard_normal((1, 512)).astype(np.float32)
    for name in ("a", "ab", "abc", "abcd"):  # the length of the name moves the weights
        network.graph.name = name
        ip.writers.onnx.save(network, path)
        with ip.load(path, ["CpuRef"]) as model:
            np.testing.assert_allclose(model.run([image])[0], image @ weights, rtol=1e-4, atol=1e-4)
            if not model.memory().mapped_constants:
                os.truncate(path, 1000)
            np.testing.assert_allclose(model.run([image])[0], image @ weights, rtol=1e-4, atol=1e-4)


def test_a_tflite_file_of_some_size_is_mapped(tmp_path: Path) -> None:
    tflite = pytest.importorskip("interposer.writers.tflite", reason="there is no writer")
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    network = ip.Network("sum")
    x = network.add_input_layer(0, ip.TensorInfo((1, LEAST_MAPPED // 4)), name="x")
    weights = np.random.default_rng(10).random((1, LEAST_MAPPED // 4), np.float32)
    network.add_output_layer(0, network.add_addition_layer(x, network.add_constant_layer(weights)), name="y")
    path = tmp_path / "sum.tflite"
    path.write_bytes(tflite.write(network))
    with ip.load(path, ["CpuRef"]) as model:
        assert model.memory().mapped_constants == LEAST_MAPPED
        np.testing.assert_array_equal(model.run([np.zeros_like(weights)])[0], weights)


def test_plug_ins_are_told_where_in_a_file_a_constant_lies(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(random(11, 4096).tobytes())
    graph = Graph("g")
    inside = graph.constant(mapped(path)[256:512].view(np.float32))
    outside = graph.constant(np.ones(64, np.float32))
    layer = graph.add(ip.ops.Addition(), [inside, outside])
    layer.output.info = outside.info
    flat = FlatGraph([layer], [], layer.outputs, alignment=64)
    table = flat.constant_table
    assert (
        os.pread(int(table["fd"][0]), int(table["size"][0]), int(table["offset"][0]))
        == random(11, 4096)[256:512].tobytes()
    )
    assert (int(table["offset"][0]), int(table["fd"][1]), int(table["offset"][1])) == (256, -1, 0)


def test_copies_for_a_plug_in_are_made_once_for_all_parts(tmp_path: Path) -> None:
    raw = np.empty(MANY + 128, np.uint8)
    odd = raw[-raw.ctypes.data % 64 + 16 :][:MANY]
    odd[:] = random(12)
    result = []
    for _ in range(2):
        graph = Graph("g")
        value = graph.constant(odd.view(np.float32))
        layer = graph.add(ip.ops.Addition(), [value, value])
        layer.output.info = value.info
        result += FlatGraph([layer], [], layer.outputs, alignment=64).constants
    assert result[0].ctypes.data == result[1].ctypes.data
    assert result[0].ctypes.data % 64 == 0


def test_users_count_what_they_share_while_they_are_there() -> None:
    array, other = random(13), random(14)
    first, second = Users([array, array, other]), Users([array])
    assert (first.total, first.shared, first.mapped) == (2 * MANY, MANY, 0)
    del second
    gc.collect()
    assert first.shared == 0


def test_arrays_stay_shared_when_one_of_three_users_is_gone():
    array = np.zeros(4)
    first, second, third = (Users([array]) for _ in range(3))
    del third
    gc.collect()
    assert (first.shared, second.shared) == (32, 32)
    del second
    gc.collect()
    assert first.shared == 0
