"""Compiled parts in the cache folder: restored, made again where they are of no use, and never in anybody's way."""

import ctypes
import os
import threading
import time

import numpy as np
import pytest

from interposer import Network, OptimizerOptions, TensorInfo, optimize
from interposer.core.cache import cached_files, has_cached, later, read_cached, write_cached
from interposer.plugins.capi.abi import structs as abi
from interposer.plugins.capi.caching import part_cache as cached_parts
from interposer.plugins.capi.caching.blobs import Blob, Blobs
from interposer.plugins.capi.caching.part_cache import TRIAL, CachedPart, Mark, read_mark, read_part, trial
from interposer.plugins.capi.caching.recording import recording
from interposer.plugins.capi.library.library import open_library
from interposer.plugins.capi.running import compiling
from interposer.plugins.capi.running.backend import DynamicBackend


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def restored(monkeypatch):
    """How many parts were restored until now."""
    result = []
    plain = Blobs.restore_tables

    def counted(self, *arguments):
        created = plain(self, *arguments)
        result.append(created)
        return created

    monkeypatch.setattr(Blobs, "restore_tables", counted)
    return lambda: len(result)


@pytest.fixture
def plugin(built, opened, runtime_with):
    """Opens one file of a plug-in again and again, as several processes would; gives what loads and runs a network."""
    path = str(built("arithmetic.cpp"))

    def plugin():
        runtime = runtime_with(DynamicBackend(open_library(ctypes.CDLL(path), path)))

        def run(constant=2.0, **options):
            how = OptimizerOptions(model_options={"Arithmetic": options})
            with recording("sums.onnx"):
                optimized = optimize(sums(constant), ["Arithmetic"], runtime.device_spec, how)
            network_id = runtime.load_network(optimized)
            return runtime.enqueue_workload(network_id, {0: np.float32([1, 2, 3])})[0].tolist()

        return run

    return plugin


def sums(constant):
    """Return a network that computes ``(x + x) + [c, c, c]``."""
    network = Network("sums")
    x = network.add_input_layer(0, TensorInfo((3,)), name="x")
    other = network.add_constant_layer(np.full(3, constant, np.float32), name="c")
    twice = network.add_addition_layer(x, x, name="twice")
    network.add_output_layer(0, network.add_addition_layer(twice, other, name="more"))
    return network


def kept():
    return [file.name for file in cached_files("compiled")]


def test_a_part_is_restored_by_the_next_who_compiles_it(plugin, restored):
    run = plugin()
    assert (run(), restored(), len(kept())) == ([4, 6, 8], 0, 1)
    assert (run(), restored(), len(kept())) == ([4, 6, 8], 1, 1)


def test_other_constants_and_other_options_are_other_parts(plugin, restored):
    run = plugin()
    assert run(2.0) == [4, 6, 8]
    assert run(3.0) == [5, 7, 9]
    assert run(2.0, gain=2.0) != [4, 6, 8]
    assert (restored(), len(kept())) == (0, 3)


def test_nothing_is_kept_of_what_nobody_records(plugin, backend, runtime_with):
    runtime = runtime_with(backend("arithmetic.cpp"))
    optimize(sums(2.0), ["Arithmetic"], runtime.device_spec)
    assert kept() == []


@pytest.mark.parametrize("damage", [
    lambda old: old[:-1], lambda old: b"", lambda old: old[:-70] + b"\1" + old[-69:], lambda old: old[:40] + b"x" * 60,
], ids=["truncated", "empty", "one byte", "no record"])  # fmt: skip
def test_what_is_damaged_is_compiled_anew_and_replaced(damage, plugin, restored):
    run = plugin()
    run()
    [name] = kept()
    write_cached(name, damage(read_cached(name)))
    assert (run(), restored()) == ([4, 6, 8], 0)
    assert (run(), restored()) == ([4, 6, 8], 1)


def test_what_the_plug_in_refuses_is_compiled_anew_and_replaced(plugin, restored):
    run = plugin()
    run()
    [name] = kept()
    part = read_part(read_cached(name))
    write_cached(name, CachedPart(part.origin, Blob(b"TAPE9999" + bytes(part.blob.data[8:]), True)).content())
    assert (run(), restored()) == ([4, 6, 8], 0)
    assert (run(), restored()) == ([4, 6, 8], 1)


def end_a_process_at(name, **how):
    child = os.fork()
    if child == 0:
        with trial(name, **how):
            os._exit(0)
    os.waitpid(child, 0)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_may_end_once_while_a_part_is_saved(plugin, restored, folder):
    run = plugin()
    run()
    [name] = kept()
    (folder / name).unlink()
    end_a_process_at(name, saves=True)
    assert read_mark(name) is Mark.ONCE
    end_a_process_at(name, saves=True)
    assert read_mark(name) is Mark.FATAL
    (folder / (name + TRIAL)).unlink()
    end_a_process_at(name, saves=True)
    assert (run(), run(), restored()) == ([4, 6, 8], [4, 6, 8], 1)
    assert read_mark(name) is Mark.NONE


@pytest.fixture
def tables(monkeypatch):
    """The tables of all parts that are compiled, with their constants."""
    result = []
    plain = compiling._compiled

    def noting(library, tables, *arguments):
        result.append(tables)
        return plain(library, tables, *arguments)

    monkeypatch.setattr(compiling, "_compiled", noting)
    return result


def change_constant(tables, value):
    constant = abi.Constant.from_address(tables.struct.constants)
    ctypes.memmove(constant.data, np.full(3, value, np.float32).tobytes(), 12)


def test_a_part_whose_constants_change_while_it_is_compiled_is_not_kept(plugin, restored, tables, monkeypatch):
    run, plain = plugin(), compiling._compiled
    with monkeypatch.context() as patch:
        patch.setattr(compiling, "_compiled", lambda *value: (plain(*value), change_constant(tables[0], 3.0))[0])
        run()
    assert kept() == []
    assert (run(), run(), restored()) == ([4, 6, 8], [4, 6, 8], 1)


def test_a_part_whose_constants_change_before_it_is_written_is_kept_as_it_was(plugin, restored, tables, monkeypatch):
    run, let = plugin(), threading.Event()
    monkeypatch.setattr(cached_parts, "LATER", -1)
    later("block", lambda: let.wait(300))
    run(concurrent=True)
    assert not has_cached("compiled", ".2-4-1-1-1")
    change_constant(tables[0], 3.0)
    let.set()
    assert (run(3.0, concurrent=True), restored()) == ([5, 7, 9], 0)
    assert (run(2.0, concurrent=True), restored()) == ([4, 6, 8], 1)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_part_that_ended_a_process_is_neither_restored_nor_saved_again(plugin, restored, folder):
    run = plugin()
    run()
    [name] = kept()
    end_a_process_at(name)
    assert read_mark(name) is Mark.FATAL
    assert (run(), run(), restored()) == ([4, 6, 8], [4, 6, 8], 0)
    (folder / (name + TRIAL)).unlink()
    assert (run(), restored()) == ([4, 6, 8], 1)


def test_a_folder_is_not_listed_again_after_parts_of_this_process(plugin, restored, monkeypatch):
    run, list_folder, listed = plugin(), os.listdir, []
    run(1.0)
    run(2.0)
    monkeypatch.setattr(os, "listdir", lambda path: [listed.append(path), list_folder(path)][1])
    assert (run(3.0), run(1.0), run(3.0), restored()) == ([5, 7, 9], [3, 5, 7], [5, 7, 9], 2)
    assert listed == []


@pytest.mark.parametrize("age", ["of yesterday", "of an earlier start of the machine"])
def test_a_part_is_tried_again_when_the_end_of_a_process_is_long_ago(age, plugin, restored, folder):
    run = plugin()
    run()
    [name] = kept()
    with trial(name):
        said = (folder / (name + TRIAL)).read_bytes()
    mark = folder / (name + TRIAL)
    mark.write_bytes(said if age == "of yesterday" else b"begun on the machine that runs since 2001")
    if age == "of yesterday":
        os.utime(mark, (time.time() - 25 * 3600,) * 2)
    assert read_mark(name) is Mark.PAST
    assert (run(), restored()) == ([4, 6, 8], 1)
    assert not mark.exists()


def test_the_mark_of_a_process_that_is_at_work_is_left_alone(plugin, restored, folder):
    run = plugin()
    run()
    [name] = kept()
    with trial(name) as allowed:
        mark = folder / (name + TRIAL)
        os.utime(mark, (time.time() - 25 * 3600,) * 2)
        assert (allowed, read_mark(name)) == (True, Mark.NONE)
        assert (run(), restored()) == ([4, 6, 8], 1)
        assert mark.exists()


def test_a_folder_that_cannot_be_written_to_disturbs_nobody(plugin, restored, folder):
    folder.write_text("a file in the place of the folder")
    run = plugin()
    assert (run(), run(), restored()) == ([4, 6, 8], [4, 6, 8], 0)


def test_several_threads_keep_and_restore_the_same_part(plugin):
    run = plugin()
    result = []
    threads = [threading.Thread(target=lambda: result.append(run())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert result == [[4, 6, 8]] * 6
    [name] = kept()
    assert read_mark(name) is Mark.NONE
