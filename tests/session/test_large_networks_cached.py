"""Caching of networks whose weights stay in the model file: the weights are not copied, and changes are noticed."""

from __future__ import annotations

import os
import shutil
import time
from zlib import crc32

import numpy as np
import pytest

import interposer as ip
from interposer.core.cache import cached_files, settle
from interposer.session import model_file
from interposer.session.variants import KnownBlueprint

onnx = pytest.importorskip("onnx")
helper = onnx.helper

pytestmark = pytest.mark.usefixtures("cpuacc", "folder")
SIZE = 700
X = np.random.default_rng(0).standard_normal((2, SIZE), np.float32)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def load():
    with ip.Runtime() as runtime:
        yield lambda source: ip.load(source, ["CpuAcc", "CpuRef"], runtime=runtime)


def written(path, seed=1):
    """Write a network of a few MiB: a product, a table that is read in each run, and a normalization."""
    draw = np.random.default_rng(seed)

    def weights(*shape):
        return (draw.standard_normal(shape) / 30).astype(np.float32)

    arrays = {"w": weights(SIZE, SIZE), "table": weights(2, SIZE), "large": weights(SIZE, SIZE), "scale": weights(SIZE)}
    arrays |= {"bias": weights(SIZE), "mean": weights(SIZE), "variance": np.abs(weights(SIZE)) + 1}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "bias"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "scale", "bias", "mean", "variance"], ["b"]),
        helper.make_node("MatMul", ["b", "large"], ["c"]),
        helper.make_node("Add", ["c", "table"], ["d"]),
        helper.make_node("MatMul", ["d", "large"], ["e"]),
        helper.make_node("Concat", ["e", "large"], ["y"], axis=0),
    ]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, SIZE])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "large.onnx", crc32(str(tmp_path).encode()))  # equal weights would be shared by all tests


def was_cached(model):
    return isinstance(model._blueprint, KnownBlueprint)


def loaded(load, file):
    """Load a network and wait until it is cached; return whether it was cached before, and its result."""
    with load(file) as model:
        settle()
        return was_cached(model), model.run([X])[0]


def test_a_second_load_restores_the_network_and_gives_the_same_result(load, file):
    (before, first), (after, second) = loaded(load, file), loaded(load, file)
    assert (before, after) == (False, True)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_allclose(first, ip.load(file, ["CpuRef"]).run([X])[0], rtol=1e-4, atol=1e-4)


def test_the_weights_in_the_file_are_not_stored_again(load, file):
    loaded(load, file)
    [entry] = cached_files("networks")
    assert entry.size < 100_000 < file.stat().st_size


def test_a_restored_network_runs_after_the_cache_is_deleted(load, file, folder):
    _, expected = loaded(load, file)
    with load(file) as model:
        assert was_cached(model)
        shutil.rmtree(folder)
        np.testing.assert_array_equal(model.run([X])[0], expected)


def test_a_file_with_other_weights_is_another_network(load, file):
    _, old = loaded(load, file)
    written(file, seed=2)
    cached, new = loaded(load, file)
    assert not cached
    assert not np.allclose(old, new)
    assert loaded(load, file)[0]


def test_a_moved_file_is_the_same_network(load, file, tmp_path):
    _, expected = loaded(load, file)
    file.rename(tmp_path / "moved.onnx")
    (tmp_path / "moved.onnx").rename(file)
    cached, result = loaded(load, file)
    assert cached
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("kind", ["networks", "compiled"])
@pytest.mark.parametrize("damage", ["cut", "end", "middle", "header"])
def test_a_damaged_cache_is_replaced(load, file, folder, kind, damage):
    _, expected = loaded(load, file)
    for item in cached_files(kind):
        path = folder / item.name
        content = bytearray(path.read_bytes())
        place = {"end": -100, "middle": len(content) // 2, "header": 70}.get(damage, 0)
        content[place] ^= 0x40
        path.unlink()  # a cached file is replaced, never written to
        path.write_bytes(content[: len(content) // 3] if damage == "cut" else content)
    _, result = loaded(load, file)
    np.testing.assert_array_equal(result, expected)
    again, result = loaded(load, file)
    assert again
    np.testing.assert_array_equal(result, expected)


def test_without_the_compiled_part_it_is_compiled_from_the_stored_tables(load, file, folder):
    _, expected = loaded(load, file)
    shutil.rmtree(folder / "compiled")
    cached, result = loaded(load, file)
    assert cached
    np.testing.assert_array_equal(result, expected)
    assert cached_files("compiled")


def test_the_digest_of_a_file_that_is_the_same_is_not_computed_again(load, file, monkeypatch):
    monkeypatch.setattr(model_file, "LEAST_NOTED", 1)
    monkeypatch.setattr(model_file, "UNCERTAIN", -1.0)  # as if the file had been written long ago
    _, expected = loaded(load, file)
    assert len(cached_files("digests")) == 1
    monkeypatch.setattr(model_file.ModelFile, "_computed", lambda _: pytest.fail("it was computed"))
    cached, result = loaded(load, file)
    assert cached
    np.testing.assert_array_equal(result, expected)


def test_the_digest_of_a_file_that_was_written_just_now_is_computed_each_time(load, file, monkeypatch):
    monkeypatch.setattr(model_file, "LEAST_NOTED", 1)
    os.utime(file, times=(time.time() + 100,) * 2)
    loaded(load, file)
    assert not cached_files("digests")


def test_a_damaged_digest_is_computed_again(load, file, folder, monkeypatch):
    monkeypatch.setattr(model_file, "LEAST_NOTED", 1)
    monkeypatch.setattr(model_file, "UNCERTAIN", -1.0)
    _, expected = loaded(load, file)
    [digest] = cached_files("digests")
    for content in (b"", b"{", b"[]", b'{"identity": [], "sha256": "0"}'):
        (folder / digest.name).write_bytes(content)
        cached, result = loaded(load, file)
        assert cached
        np.testing.assert_array_equal(result, expected)
