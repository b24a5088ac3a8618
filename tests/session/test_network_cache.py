"""Networks that are cached between processes: they are restored, and created again if they are stale."""

from __future__ import annotations

import copy
import gc
import importlib
import logging
import os
import pickle
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import interposer as ip
from interposer import writers
from interposer.cli.main import main
from interposer.core.cache import cached_files, later, read_cached, settle, write_cached
from interposer.core.errors import BindingError, LoadError
from interposer.plugins.capi.library.executable import Executable
from interposer.session.network_entry import Entry, read_entry
from interposer.session.variants import KnownBlueprint
from tests import warm

load_module = importlib.import_module("interposer.session.loading")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
X = np.random.default_rng(3).standard_normal((1, 1, 8, 8), np.float32)

pytestmark = pytest.mark.usefixtures("cpuacc", "folder")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def load():
    with ip.Runtime() as runtime:
        yield lambda source=DIGITS, **how: ip.load(source, runtime=runtime, **how)


def was_cached(model):
    return isinstance(model._blueprint, KnownBlueprint)


def cached_name():
    [file] = cached_files("networks")
    return file.name


def changed(**facts):
    """Change what the entry says of how it was made."""
    entry = read_entry(read_cached(cached_name()))
    write_cached(cached_name(), Entry({**entry.origin, **facts}, entry.network, entry.parts).content())


def open_network(weight=0.5):
    """A network with a batch dimension that is open."""
    network = ip.Network("open")
    x = network.add_input_layer(0, ip.TensorInfo((None, 8)), name="x")
    weights = np.linspace(-weight, weight, 32, dtype=np.float32).reshape(8, 4)
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights, name="w"), name="product")
    network.add_output_layer(0, network.add_softmax_layer(product), name="y")
    return network


def written(network):
    pytest.importorskip("flatbuffers", reason="flatbuffers is not installed")
    return bytes(writers.tflite.write(network))


@pytest.fixture(params=["settled.onnx", "open.tflite"])
def file(request, tmp_path):
    """A file whose shapes are all known, and one whose batch may change from call to call."""
    created = tmp_path / request.param
    created.write_bytes(DIGITS.read_bytes() if "settled" in request.param else written(open_network()))
    return created


@pytest.fixture
def open_file(tmp_path):
    created = tmp_path / "open.tflite"
    created.write_bytes(written(open_network()))
    return created


def compiled_parts():
    return [thing for thing in gc.get_objects() if isinstance(thing, Executable)]


def numbers(model, batch=1):
    """Inputs for a model that has one input."""
    [info] = model.inputs.values()
    return [np.random.default_rng(3).standard_normal((batch, *info.shape[1:]), np.float32)]


def test_a_network_that_was_divided_before_is_not_divided_again(load, file):
    first, second = load(file), load(file)
    assert (was_cached(first), was_cached(second)) == (False, True)
    assert (second.inputs, second.outputs, second.name) == (first.inputs, first.outputs, first.name)
    assert repr(second) == repr(first)  # names of dimensions take no part in equality
    np.testing.assert_array_equal(second.run(numbers(first)), first.run(numbers(first)))


def test_what_was_kept_is_run_as_quickly_as_what_was_not(load, file):
    first, second = load(file), load(file)
    assert was_cached(second)
    assert type(second._loaded.fast_path) is type(first._loaded.fast_path) is not type(None)


def test_a_cached_network_that_cannot_be_loaded_is_optimized_again(load, file, monkeypatch):
    expected = (first := load(file)).run(numbers(first))
    plain, errors = ip.Runtime.load_network, [LoadError("no workload", backend="CpuAcc")]

    def failing(self, *arguments):
        if errors:
            raise errors.pop()
        return plain(self, *arguments)

    monkeypatch.setattr(ip.Runtime, "load_network", failing)
    model = load(file)
    assert was_cached(model)
    assert [event.backend for event in model.events] == ["CpuAcc"]
    np.testing.assert_allclose(model.run(numbers(model))[0], expected[0], rtol=1e-4, atol=1e-5)


def test_what_was_kept_explains_itself_as_before(load, file):
    first, second = load(file), load(file)
    assert was_cached(second)
    assert str(second.explain()) == str(first.explain())
    assert second.explain().to_dict() == first.explain().to_dict()
    assert str(second.network) == str(first.network)
    assert second.values == first.values


def test_a_cached_model_that_was_explained_holds_no_compiled_part_once_it_is_closed(load, file):
    load(file).close()
    gc.collect()
    others = {id(part) for part in compiled_parts()}
    gc.disable()
    try:
        model = load(file)
        assert was_cached(model)
        model.explain()
        assert {id(part) for part in compiled_parts()} - others
        model.close()
        assert not {id(part) for part in compiled_parts()} - others
    finally:
        gc.enable()


def test_a_cached_model_is_made_for_the_shapes_of_each_call(load, open_file):
    first, second = load(open_file), load(open_file)
    assert was_cached(second)
    for batch in (1, 3, 1, 2, 3):
        value = numbers(second, batch)
        np.testing.assert_array_equal(second.run(value), first.run(value))
        assert [layer.output.known.shape for layer in second.optimized.inputs] == [(batch, 8)]
        assert str(second.explain()) == str(first.explain())
    np.testing.assert_array_equal(second.run(value, ["product"]), first.run(value, ["product"]))


def test_a_cached_model_with_an_open_batch_refuses_what_no_batch_fits(load, open_file):
    load(open_file)
    model = load(open_file)
    assert was_cached(model)
    with pytest.raises(BindingError) as caught:
        model.run([np.zeros((2, 9), np.float32)])
    assert str(caught.value) == "input 'x' has shape [2, 9]; expected [x_0, 8]"


ELSEWHERE = """
import sys, numpy as np, interposer as ip
model = ip.load(sys.argv[1])
print(type(model._blueprint).__name__, model)
print(model.run([np.ones((3, 8), np.float32)])[0].shape)
"""


def test_another_process_finds_a_network_with_an_open_batch(load, open_file):
    model = load(open_file)
    command = [*warm.python(), "-c", ELSEWHERE, str(open_file)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout == f"KnownBlueprint {model}\n(3, 4)\n"


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy])
def test_a_copy_of_a_model_with_an_open_batch_is_prepared_as_well(load, open_file, way):
    for cached in (False, True):
        model = load(open_file)
        assert was_cached(model) == cached
        other = way(model)
        assert str(other.explain()) == str(model.explain())
        model.close()
        assert other.run(numbers(other, 2))[0].shape == (2, 4)


def test_a_pickle_of_content_with_an_open_batch_is_prepared_as_well(open_file):
    model = ip.load(open_file.read_bytes())
    other = pickle.loads(pickle.dumps(model))
    assert str(other.optimized.explain()) == str(model.optimized.explain())
    assert repr(other) == repr(model)
    assert other.run(numbers(other, 2))[0].shape == (2, 4)


def test_a_file_that_was_changed_meanwhile_is_not_taken_for_what_was_kept(load, file):
    expected = (first := load(file)).run(numbers(first))
    model = load(file)
    file.write_bytes(file.read_bytes() + b"\0")
    np.testing.assert_array_equal(model.run(numbers(model)), expected)
    changed = f"^the file '{file.name}' was changed or deleted; load the model again$"
    with pytest.raises(LoadError, match=changed):
        model.explain()
    assert changed.strip("^$").replace("'", "&#x27;") in model._repr_html_()
    if file.suffix == ".tflite":
        with pytest.raises(LoadError, match=changed):
            model.run(numbers(model, batch=2))


NOT_THE_INPUTS = [
    [],
    [["x", ["float32", [None, 9], None]]],
    [["other", ["float32", [None, 8], None]]],
    [["x", ["float32", [-1, 8], None]]],
    [["x", ["float32", 8, None]]],
]


@pytest.mark.parametrize("inputs", NOT_THE_INPUTS)
def test_a_network_whose_inputs_do_not_fit_is_made_anew(load, open_file, inputs):
    load(open_file)
    entry = read_entry(read_cached(cached_name()))
    write_cached(cached_name(), replace(entry, network={**entry.network, "inputs": inputs}).content())
    assert not was_cached(load(open_file))
    assert was_cached(load(open_file))


@pytest.mark.parametrize("how", ["replaced", "written to", "written to, with its old time"])
def test_a_file_that_is_replaced_while_it_is_loaded_is_not_kept(how, load, tmp_path, monkeypatch):
    file = tmp_path / "mine.onnx"
    shutil.copyfile(DIGITS, file)
    before = file.stat()

    def meddling(source, *arguments):
        network = plain(source, *arguments)
        if how == "replaced":
            (tmp_path / "other").write_bytes(file.read_bytes() + b"\0")
            (tmp_path / "other").replace(file)
        else:
            file.write_bytes(file.read_bytes()[:-1] + b"\0")
        if "time" in how:
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return network

    plain = load_module.read_source
    monkeypatch.setattr(load_module, "read_source", meddling)
    assert np.isfinite(load(file).run([X])[0]).all()
    assert cached_files("networks") == []


def large_network(weight):
    """Return a file with 2 MiB of constants; `weight` is a few of them, so that most of the content stays equal."""
    network = ip.Network("large")
    x = network.add_input_layer(0, ip.TensorInfo((1, 512)), name="x")
    weights = np.ones((512, 1024), np.float32)
    weights[9, 100:200] = weight
    product = network.add_batch_mat_mul_layer(x, network.add_constant_layer(weights, name="w"), name="product")
    network.add_output_layer(0, product)
    return written(network)


def test_a_file_that_is_written_to_before_it_is_kept_is_not_taken_for_what_it_was(load, tmp_path):
    file, let = tmp_path / "mine.tflite", threading.Event()
    file.write_bytes(large_network(1))  # from which the constants are mapped
    later("block", lambda: let.wait(300))
    load(file)
    with open(file, "r+b") as opened:
        opened.write(large_network(2))
    let.set()
    settle()
    for weight in (2, 1):
        file = tmp_path / f"{weight}.tflite"
        file.write_bytes(large_network(weight))
        output = load(file).run([np.ones((1, 512), np.float32)])[0]
        assert sorted(set(output[0].tolist())) == sorted({512, 511 + weight})


def test_it_is_kept_for_one_file_and_one_setting(load, tmp_path):
    load()
    assert not was_cached(load(backends=["CpuAcc"]))
    assert not was_cached(load(options=ip.OptimizerOptions(rewrite=False)))
    other = tmp_path / "other.onnx"
    shutil.copyfile(DIGITS, other)
    assert not was_cached(load(other))
    assert was_cached(load(other))
    assert not was_cached(load(DIGITS.read_bytes()))


def test_what_others_run_is_not_kept(load):
    load(backends=["CpuRef"])
    load(backends=["CpuRef", "CpuAcc"])
    assert cached_files("networks") == []


STALE = [
    ({"interposer": "0.0.9"}, "it was made by version 0.0.9 of interposer; this is"),
    ({"code": "another"}, "the package has changed since"),
    ({"backend": "CpuAcc 0.1"}, "backend 'CpuAcc' has changed since"),
]


@pytest.mark.parametrize(("facts", "reason"), STALE, ids=["version", "package", "backend"])
def test_what_is_stale_is_made_anew_and_says_why(load, capsys, facts, reason):
    load()
    changed(**facts)
    assert main(["cache", "why"]) == 0
    assert reason in capsys.readouterr().out
    assert not was_cached(load())
    assert was_cached(load())
    assert main(["cache", "why"]) == 0
    assert capsys.readouterr().out == "nothing is stale\n"


@pytest.mark.parametrize("damage", [lambda old: old[:-1], lambda old: b"", lambda old: old[:200] + b"\0" + old[201:]])
def test_what_is_damaged_is_made_anew(load, file, damage):
    load(file)
    write_cached(cached_name(), damage(read_cached(cached_name())))
    assert not was_cached(load(file))
    assert was_cached(load(file))


def test_a_folder_that_cannot_be_written_to_disturbs_nobody(load, folder):
    shutil.rmtree(folder, ignore_errors=True)  # the loader of plug-ins may have cached its results
    folder.write_text("a file in the place of the folder")
    assert not was_cached(load())
    np.testing.assert_array_equal(load().run([X]), load().run([X]))


def test_without_a_cache_folder_nothing_is_kept(load, monkeypatch, capsys):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    load()
    assert not was_cached(load())
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().out == "0 files, 0 bytes in no folder: there is to be none\n"


def test_the_command_lists_explains_and_deletes(load, capsys, folder):
    load()
    assert main(["cache", "list"]) == 0
    listed = capsys.readouterr().out
    assert "digits.onnx on CpuAcc, CpuRef" in listed
    assert "of use" in listed
    assert main(["cache", "why", str(DIGITS)]) == 0
    assert capsys.readouterr().out == (
        "digits.onnx on CpuAcc, CpuRef (divided network): it is of use\n"
        "digits.onnx on CpuAcc (compiled part): it is of use\n"
    )
    assert main(["cache", "clear", "--stale"]) == 0
    assert capsys.readouterr().out == "0 files with 0 bytes are deleted\n"
    assert main(["cache", "clear"]) == 0
    assert cached_files() == []
    capsys.readouterr()
    assert main(["cache", "why", str(DIGITS)]) == 0
    assert "is not cached: it could be, but was not loaded yet with this content" in capsys.readouterr().out


def test_only_why_takes_a_file(capsys):
    assert main(["cache", "list", "x"]) == 2
    assert capsys.readouterr().err == "interposer: 'cache list' takes no file; only 'cache why' does\n"


def placed(folder, **runtime):
    """Load in a runtime, or for a network, with a cache directory; return whether the cache had an entry."""
    options = None if folder is None else ip.OptimizerOptions(model_options={"CpuAcc": {"CacheDirectory": str(folder)}})
    with ip.Runtime(ip.CreationOptions(**runtime)) as created:
        return was_cached(ip.load(DIGITS, runtime=created, options=options))


def folders(where):
    return [file.name.partition("/")[0] for file in cached_files(folder=str(where))]


def test_networks_are_kept_where_the_options_of_a_runtime_or_a_network_say(tmp_path):
    item, two = tmp_path / "one", tmp_path / "two"
    of_one = {"backend_options": {"CpuAcc": {"CacheDirectory": str(item)}}}
    assert [placed(None, **of_one), placed(two), placed(None)] == [False, False, False]
    assert [folders(item), folders(two), folders("")] == [["compiled", "networks"]] * 3
    assert [placed(None, **of_one), placed(item), placed(two), placed(two, **of_one)] == [True] * 4
    shutil.rmtree(item)
    assert not placed(None, **of_one)


def test_a_cache_directory_is_used_where_the_package_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    assert [placed(None), placed(tmp_path / "mine"), placed(tmp_path / "mine")] == [False, False, True]


def test_a_cache_directory_is_taken_from_the_working_directory_or_that_of_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert [placed("mine"), placed("./mine"), placed(tmp_path / "mine")] == [False, True, True]
    assert [placed("~/mine"), placed(tmp_path / "home/mine")] == [False, True]


def test_a_cache_directory_that_cannot_be_written_to_is_one_line_in_the_log(tmp_path, caplog):
    taken = tmp_path / "taken"
    taken.write_text("a file in the place of the folder")
    assert not any(placed(folder) for folder in (taken, taken, "/proc/none", "\0"))
    lines = [line for line in map(logging.LogRecord.getMessage, caplog.records) if str(taken) in line]
    assert len(lines) == 1
    assert f"cannot be stored in the cache folder {taken}" in lines[0]


def test_the_command_looks_into_a_cache_directory(tmp_path, capsys):
    placed(tmp_path / "mine")
    assert main(["cache", "list", "--dir", str(tmp_path / "mine")]) == 0
    assert "2 files, " in (said := capsys.readouterr().out)
    assert f"bytes in {tmp_path / 'mine'}" in said
    assert main(["cache", "why", str(DIGITS), "--dir", str(tmp_path / "mine")]) == 0
    assert "it is of use" in capsys.readouterr().out
    assert main(["cache", "clear", "--dir", str(tmp_path / "mine")]) == 0
    assert folders(tmp_path / "mine") == []


# --- with limits, and on the command line -----------------------------------------------------------------------------


def test_a_cached_network_is_found_with_limits_and_held_to_them(load):
    load()
    assert was_cached(load(limits=ip.Limits()))
    needed = read_entry(read_cached(cached_name())).network["needed"]
    assert was_cached(load(limits=ip.Limits(needed["peak_bytes"], needed["operations"])))
    with pytest.raises(ip.errors.LimitExceededError, match=f"needs {needed['peak_bytes']:,} bytes of memory"):
        load(limits=ip.Limits(max_bytes=needed["peak_bytes"] - 1))
    with pytest.raises(ip.errors.LimitExceededError, match=f"needs {needed['operations']:,} operations"):
        load(limits=ip.Limits(max_operations=needed["operations"] - 1))


def test_a_network_that_exceeds_the_limits_is_not_cached(load):
    with pytest.raises(ip.errors.LimitExceededError):
        load(limits=ip.Limits(max_bytes=10))
    assert cached_files("networks") == []


def test_the_default_limits_hold_for_what_was_cached_without_limits(load, monkeypatch):
    load(limits=ip.Limits(None, None))
    name = cached_name()
    entry = read_entry(read_cached(name))
    absurd = {**entry.network, "needed": {**entry.network["needed"], "peak_bytes": 1 << 60}}
    write_cached(name, Entry(entry.origin, absurd, entry.parts).content())
    assert was_cached(load(limits=ip.Limits(None, None)))
    with pytest.raises(ip.errors.LimitExceededError):
        load()


def test_the_command_line_uses_what_load_has_cached_and_the_other_way_round(load, capsys, folder):
    image = str(DIGITS.parent / "seven.png")
    assert main(["run", str(DIGITS), "--input", image]) == 0
    assert was_cached(load())
    times = {file.name: file.time for file in cached_files("networks")}
    assert main(["run", str(DIGITS), "--input", image]) == 0
    assert main(["explain", str(DIGITS)]) == 0
    assert {file.name: file.time for file in cached_files("networks")} == times
    capsys.readouterr()
    assert main(["run", str(DIGITS), "--input", image, "--limit-bytes", "10"]) == 2
    assert capsys.readouterr().err.endswith("raise it with --limit-bytes if the file is trusted\n")


def apart(folder):
    network = ip.Network("apart")
    x = network.add_input_layer(0, ip.TensorInfo((64, 64)), name="x")
    weights = network.add_constant_layer(np.ones((64, 64), np.float32), name="w")
    network.add_output_layer(0, network.add_addition_layer(x, weights), name="y")
    writers.onnx.save(network, folder / "apart.onnx", external_data=True)
    return folder / "apart.onnx"


def why(capsys, file):
    capsys.readouterr()
    assert main(["cache", "why", str(file)]) == 0
    return capsys.readouterr().out.removeprefix(f"{file} is not cached: ").strip()


def test_why_a_network_is_not_cached_is_found_out(capsys, tmp_path, monkeypatch, folder):
    assert why(capsys, DIGITS).startswith("it could be, but was not loaded yet with this content")
    assert cached_files() == [file for file in cached_files() if not file.name.startswith(("networks", "compiled"))]
    assert why(capsys, apart(tmp_path)) == "its weights are in separate files"
    (tmp_path / "empty.onnx").touch()
    assert why(capsys, tmp_path / "empty.onnx").startswith("the file cannot be read, is empty, or has more than")
    (tmp_path / "bad.txt").write_text("graph {\n  %x = Inptu\n}\n")
    assert why(capsys, tmp_path / "bad.txt").startswith("it cannot be loaded: ")
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", "")
    assert why(capsys, DIGITS) == "there is no cache folder, as INTERPOSER_CACHE_DIR is empty"


def test_an_unwritable_cache_is_told_once(load, caplog, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("INTERPOSER_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with caplog.at_level(logging.WARNING, "interposer.cache"):
        load()
        settle()
    said = [record.getMessage() for record in caplog.records if record.name == "interposer.cache"]
    assert len(said) == 1
    assert said[0].endswith(
        f"cannot be stored in the cache folder {tmp_path}/file/cache: Not a directory "
        "(set INTERPOSER_CACHE_DIR to an empty text to disable the cache)"
    )
