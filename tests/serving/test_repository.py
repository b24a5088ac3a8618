"""Folders of models, their settings, and models that are loaded, replaced and unloaded while requests run."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import shutil
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer import Network, TensorInfo
from interposer.core.errors import ConfigError, InterposerError
from interposer.serving.folder import ModelSettings, found_in
from interposer.serving.loading import Loader
from interposer.serving.options import ServeOptions
from interposer.serving.repository import Repository
from interposer.serving.settings_text import text_of_settings
from interposer.serving.triton_config import TritonConfig, read_config
from interposer.serving.warming import WarmUp
from interposer.writers import tflite
from tests.serving.running import Running, doubler, infer_body, running, wait_until

pytest.importorskip("flatbuffers", reason="the package flatbuffers is not installed")
pytestmark = pytest.mark.needs_cpuref
DEFAULTS = ModelSettings(backends=("CpuRef",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tflite.save(doubler(shape=(1, 4)), tmp_path / "flat.tflite")
    for version in ("1", "2", "10"):
        (tmp_path / "deep" / version).mkdir(parents=True)
        shutil.copy(tmp_path / "flat.tflite", tmp_path / "deep" / version / "model.tflite")
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(folder: Path) -> list[tuple[str, str]]:
    return [(source.name, source.version) for source in found_in(str(folder))]


def problems(folder: Path) -> dict[str, str]:
    return {source.name: source.problem for source in found_in(str(folder)) if source.problem}


def test_a_folder_has_flat_files_and_models_with_versions(folder):
    assert names(folder) == [("deep", "10"), ("flat", "1")]


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("latest { num_versions: 2 }", ["10", "2"]),
        ("all {}", ["10", "2", "1"]),
        ("specific { versions: [1, 2] }", ["2", "1"]),
        ("specific: { versions: 1, versions: 10 }", ["10", "1"]),
    ],
)
def test_the_version_policy_of_triton_is_followed(folder, policy, versions):
    (folder / "deep" / "config.pbtxt").write_text(f'name: "other"\nversion_policy: {{ {policy} }}')
    assert [item for item in names(folder) if item[0] == "other"] == [("other", version) for version in versions]


def test_settings_come_from_toml_files(folder):
    (folder / "flat.toml").write_text('backends = ["A", "B"]\nbatch = 4\nbatch_delay_ms = 5\nplan = "p.json"\n')
    (folder / "deep.toml").write_text('versions = "all"\n[shapes]\nx = [2, 4]\n')
    settings_of = {source.name: source.settings for source in found_in(str(folder), DEFAULTS)}
    assert settings_of["flat"] == ModelSettings(("A", "B"), str(folder / "p.json"), batch=4, batch_delay=0.005)
    assert settings_of["deep"] == ModelSettings(("CpuRef",), shapes={"x": [2, 4]}, versions="all")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("backend = 1", "unknown key 'backend'; did you mean 'backends'? (known: backends, plan, shapes, isolate, "
         "format, batch, batch_delay_ms, rate, burst, instances, priority, priority_levels, warmup, cache, feedback, "
         "ensemble, sequences, versions)"),
        ("batch = 0", "batch must be a whole number from 1 on, not 0"),
        ("backends = 'A'", "backends must be a list of ids of backends, not 'A'"),
        ("versions = 'newest'", "versions must be \"latest\", \"all\", or a list of numbers, not 'newest'"),
    ],
)  # fmt: skip
def test_wrong_settings_are_refused_with_a_sentence(folder, text, message):
    (folder / "flat.toml").write_text(text)
    assert problems(folder) == {"flat": f"{folder / 'flat.toml'}: {message}"}


def test_settings_are_regular_files_of_a_mebibyte_at_most(folder):
    (folder / "flat.toml").write_text("#" * (1 << 20))
    (folder / "device.toml").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe.toml")
    assert problems(folder) == {}
    with pytest.raises(OSError, match="it is not a regular file"):  # a pipe that has just replaced a file
        text_of_settings(folder / "pipe.toml")
    (folder / "flat.toml").write_text("#" * ((1 << 20) + 1))
    assert problems(folder) == {"flat": f"{folder / 'flat.toml'} cannot be read: it has more than 1,048,576 bytes"}


def test_settings_that_are_nested_too_deeply_are_a_problem_of_their_model_only(folder):
    (folder / "flat.toml").write_text(f"backends = {'[' * 100_000}")
    message = f"{folder / 'flat.toml'} cannot be read: its lists or tables are nested too deeply"
    assert problems(folder) == {"flat": message}
    assert ("deep", "10") in names(folder)


def test_a_version_that_is_missing_leaves_the_others(folder):
    (folder / "deep.toml").write_text("versions = [2, 77]")
    (folder / "deep" / "2" / "model.tflite").rename(folder / "deep" / "2" / "model.txt")
    (folder / "deep" / "10" / "model.tflite").unlink()
    found = {source.version: source.problem for source in found_in(str(folder)) if source.name == "deep"}
    assert found["77"] == "versions has 77, but the model has 10, 2, 1"
    assert "has no model" in found["2"]
    (folder / "deep" / "2" / "model.txt").rename(folder / "deep" / "2" / "model.tflite")
    found = {source.version: source.problem for source in found_in(str(folder)) if source.name == "deep"}
    assert found == {"77": "versions has 77, but the model has 10, 2, 1", "2": ""}


def test_settings_that_are_not_read_are_named_once(folder, caplog):
    for path in ("model.toml", "1/deep.toml", "deep.toml"):
        (folder / "deep" / path).write_text("batch = 2")
    for _ in range(2):
        list(found_in(str(folder)))
    own = folder / "deep" / "deep.toml"
    assert caplog.messages == [
        f"{folder / 'deep' / path} is not read; the settings of model 'deep' are in {own}"
        for path in ("1/deep.toml", "model.toml")
    ]


def test_a_version_without_a_model_is_refused(folder):
    (folder / "deep" / "10" / "model.tflite").unlink()
    text = f"the folder {folder / 'deep' / '10'} has no model, such as model.onnx or model.tflite"
    assert problems(folder) == {"deep": text}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_requests_cannot_have_is_a_problem(folder):
    shutil.copytree(folder / "deep", os.fsdecode(os.fsencode(folder) + b"/\xff"))
    (folder / "deep" / "config.pbtxt").write_text('name: "a/b"')
    assert problems(folder) == {
        name: f"requests cannot have the model name {name!r}; use UTF-8 without /" for name in ("?", "a/b")
    }


def test_the_fields_of_triton_are_read_and_the_others_named(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("""
        name: "resnet" # a comment
        platform: "onnxruntime_onnx"
        max_batch_size: 8
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] } ]
        dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 500 }
        parameters { key: "a" value: { string_value: 'two ' "parts" } }
        optimization < graph: { level: 1 }; >
        instance_group [ { count: 1 kind: KIND_GPU }, { count: 1 } ]
        response_cache { enable: true }
        default_model_filename: "net.onnx"
    """)
    ignored = ("parameters", "optimization", "dynamic_batching.preferred_batch_size")
    assert read_config(path) == TritonConfig("resnet", 8, True, 0.0005, "latest", 1, "net.onnx", 2, True, ignored)
    assert read_config(tmp_path / "none") == TritonConfig()


def test_warm_up_requests_and_priorities_of_triton_are_read(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("""
        max_batch_size: 8
        dynamic_batching { priority_levels: 3 }
        model_warmup [
            { name: "a" batch_size: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } },
            { count: 3 inputs { key: "x" value { dims: 4 random_data: true } } },
            { inputs { key: "x" value { dims: 4 input_data_file: "raw" } } }
        ]
    """)
    config = read_config(path)
    assert config.levels == 3
    assert config.warmup == (WarmUp({"x": ("zeros", (2, 4))}), WarmUp({"x": ("random", (1, 4))}, 3))
    assert config.ignored == ("model_warmup with input_data_file",)


def test_warm_up_requests_of_triton_run_before_the_model_is_ready(folder):
    text = "model_warmup { inputs { key: 'x' value { dims: [ 5, 5, 5 ] zero_data: true } } }"
    (folder / "deep" / "config.pbtxt").write_text(text)
    source = next(source for source in found_in(str(folder), DEFAULTS) if source.name == "deep")
    with pytest.raises(ConfigError, match=re.escape("the model expects")):
        Loader(1)(source)


def test_polling_goes_on_after_any_error(caplog):
    def sources() -> Any:
        raise RuntimeError("the store is gone")

    asyncio.run(Repository(sources).look_for_changes())
    assert caplog.messages == ["the models cannot be listed: RuntimeError: the store is gone"]


def test_batching_needs_both_of_its_fields(tmp_path):
    path = tmp_path / "config.pbtxt"
    path.write_text("max_batch_size: 8")
    assert read_config(path).ignored == ("max_batch_size without dynamic_batching",)
    path.write_text("dynamic_batching {}")
    assert read_config(path).ignored == ("dynamic_batching without max_batch_size",)


def test_a_warning_names_fields_without_a_meaning_and_settings_of_no_model(folder, caplog):
    (folder / "deep" / "config.pbtxt").write_text("model_metrics {}")
    (folder / "flatt.toml").write_text("batch = 4")
    list(found_in(str(folder)))
    assert caplog.messages == [
        f"{folder / 'flatt.toml'}: there is no model 'flatt'; did you mean 'flat'?",
        f"{folder / 'deep' / 'config.pbtxt'}: these fields are ignored: model_metrics",
    ]


def test_the_file_of_a_version_has_the_name_that_triton_is_given(folder):
    config = folder / "deep" / "config.pbtxt"
    for path in (folder / "deep").glob("*/model.*"):
        path.rename(path.with_stem("net"))
        path.with_stem("other").write_bytes(b"")
    config.write_text(f'default_model_filename: "net{path.suffix}"')
    assert {Path(source.path).stem for source in found_in(str(folder)) if source.name == "deep"} == {"net"}
    config.write_text('default_model_filename: "model.bin"')
    assert "has no file 'model.bin', which default_model_filename names" in problems(folder)["deep"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_batchsize: 8", "there is no field 'max_batchsize'; did you mean 'max_batch_size'?"),
        (
            "dynamic_batching { max_queue_delay_microsecond: 1 }",
            "there is no field 'dynamic_batching.max_queue_delay_microsecond'; did you mean "
            "'max_queue_delay_microseconds'?",
        ),
        ("version_policy { lates {} }", "there is no field 'version_policy.lates'; did you mean 'latest'?"),
        (
            "version_policy { latest { num_version: 2 } }",
            "there is no field 'version_policy.latest.num_version'; did you mean 'num_versions'?",
        ),
    ],
)
def test_a_field_that_triton_does_not_have_is_refused(tmp_path, text, message):
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value) == f"{path} cannot be read: {message}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("flat.toml", 'versions = "all"', "versions is for a folder with a subfolder for each version"),
        ("flat.toml", "batch_delay_ms = 5", "batch_delay_ms is for batches; set batch to 2 or more, too"),
        ("deep.toml", "versions = [77]", "versions has 77, but the model has"),
    ],
)
def test_settings_without_an_effect_are_refused(folder, name, text, message):
    (folder / name).write_text(text)
    assert message in problems(folder)[Path(name).stem]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name", "expected a value, not 'the end'"),
        ("name: }", "expected a value, not '}'"),
        ("a { b: 1", "expected the name of a field, not 'the end'"),
        ("max_batch_size: 1.5", "max_batch_size is not a whole number"),
        ("max_batch_size: -1", "max_batch_size is not a whole number"),
        ("dynamic_batching { priority_levels: 1001 }", "dynamic_batching.priority_levels is 1001, more than 1000"),
        ("model_warmup { count: 1001 }", "model_warmup.count is 1001, more than 1000"),
        ("model_warmup: 3", "model_warmup is not a message in braces"),
        ("model_warmup { inputs {} }", "model_warmup.inputs is not a message with key and value"),
        ("version_policy: 3", "version_policy is not a message in braces"),
        ('a: "x', "unexpected character '\"' in line 1"),
        ("a {" * 100, "messages are nested too deeply"),
        ("a: " + "[" * 100, "messages are nested too deeply"),
    ],
)
def test_a_damaged_configuration_is_refused_with_a_sentence(tmp_path, text, message):
    path = tmp_path / "config.pbtxt"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path)
    assert str(caught.value) == f"{path} cannot be read: {message}"


@given(st.text(alphabet="a:{}[]<>,;\"'# \n1\\", max_size=40))
def test_no_configuration_causes_another_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.pbtxt"
    path.write_text(text)
    try:
        read_config(path)
    except ConfigError as error:
        assert str(error)


@pytest.fixture
def server(folder: Path) -> Iterator[Running]:
    for package in ("starlette", "uvicorn", "prometheus_client"):
        pytest.importorskip(package, reason=f"the package {package} is not installed")

    def repository() -> Repository:
        return Repository(lambda: found_in(str(folder), DEFAULTS), Loader(2))

    with running(repository, ServeOptions(control=True, token="t")) as running_server:
        yield running_server


def control(server: Running, name: str, what: str) -> Any:
    return server.client.post(f"/v2/repository/models/{name}/{what}", {}, Authorization="Bearer t")


def test_models_are_loaded_and_unloaded_on_request(server, folder):
    infer = "/v2/models/flat/infer"
    assert server.client.post(infer, infer_body()).status == 200
    assert server.client.post("/v2/repository/models/flat/unload", {}).status == 401
    assert control(server, "flat", "unload").status == 200
    assert server.client.post(infer, infer_body()).json == {"error": "model 'flat' is not loaded"}
    index = server.client.post("/v2/repository/index", {}).json
    assert {"name": "flat", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"} in index
    assert [model["name"] for model in server.client.post("/v2/repository/index", {"ready": True}).json] == ["deep"]
    assert control(server, "flat", "load").status == 200
    assert server.client.post(infer, infer_body()).status == 200
    assert control(server, "none", "load").json == {"error": "the server has no file for a model 'none'"}
    assert control(server, "none", "unload").status == 404


def test_a_new_version_replaces_the_old_one(server, folder):
    assert server.client.post("/v2/models/deep/infer", infer_body()).json["model_version"] == "10"
    shutil.copytree(folder / "deep" / "10", folder / "deep" / "11")
    assert control(server, "deep", "load").status == 200
    assert server.client.post("/v2/models/deep/infer", infer_body()).json["model_version"] == "11"
    assert server.client.post("/v2/models/deep/versions/10/infer", infer_body()).status == 404


def test_requests_are_counted_for_the_models_that_answered_them(server):
    expected: Counter[str] = Counter()
    for name in ("flat", "deep") * 6:  # a closed model and a new one may have the same address
        assert control(server, name, "load").status == 200
        gc.collect()
        for asked in ("flat", "deep"):
            assert server.client.post(f"/v2/models/{asked}/infer", infer_body()).status == 200
            expected[asked] += 1
    text = server.client.get("/metrics", Authorization="Bearer t").body.decode()
    counts = re.findall(r'^interposer_batch_size_count\{model="(\w+)",.*\} (\S+)$', text, re.MULTILINE)
    assert {name: float(count) for name, count in counts} == expected


def test_a_model_that_cannot_be_loaded_leaves_the_old_one(server, folder):
    (folder / "flat.tflite").write_bytes(b"damaged")
    answer = control(server, "flat", "load")
    assert answer.status == 400
    assert str(folder) not in answer.json["error"]
    assert server.client.post("/v2/models/flat/infer", infer_body()).status == 200


def test_wrong_settings_of_a_model_do_not_concern_the_others(server, folder):
    (folder / "deep" / "config.pbtxt").write_text("name: {")
    assert [model["state"] for model in server.client.post("/v2/repository/index", {}).json if model["name"] == "deep"]
    assert control(server, "flat", "load").status == 200
    refused = control(server, "deep", "load")
    assert (refused.status, "ConfigError" in refused.json["error"]) == (400, True)
    assert server.client.post("/v2/models/deep/infer", infer_body()).status == 200


@pytest.mark.parametrize("names", [["bad"], ["bad", "worse"]])
def test_the_reasons_why_no_model_can_be_loaded_are_each_given_once(tmp_path, caplog, names):
    for name in names:
        (tmp_path / f"{name}.onnx").write_bytes(b"no model")
    repository = Repository(lambda: found_in(str(tmp_path), DEFAULTS), Loader(1))
    with pytest.raises(InterposerError) as caught:
        asyncio.run(repository.load_all(needs_all=False))
    texts = [*caplog.messages, str(caught.value)]
    assert [sum(f"{name}.onnx: " in text for text in texts) for name in names] == [1] * len(names)
    assert len(names) == 1 or texts[-1] == "none of the 2 models can be loaded; the log has the reasons"


def test_a_server_runs_the_versions_that_are_there(folder, caplog):
    (folder / "deep.toml").write_text("versions = [1, 2, 77]")
    repository = Repository(lambda: found_in(str(folder), DEFAULTS), Loader(1))
    asyncio.run(repository.load_all())
    assert repository.versions("deep") == ["1", "2"]
    reasons = {
        (row["version"], row["reason"]) for row in asyncio.run(repository.index()) if row["state"] == "UNAVAILABLE"
    }
    assert reasons == {("77", "ConfigError")}
    assert "version 77 of model 'deep' is left out: versions has 77, but the model has 10, 2, 1" in caplog.messages
    repository.close()


def test_the_index_has_the_models_that_run_when_their_folder_is_gone(server, folder):
    shutil.rmtree(folder)
    index = server.client.post("/v2/repository/index", {}).json
    assert [(model["name"], model["state"]) for model in index] == [("deep", "READY"), ("flat", "READY")]
    assert server.client.post("/v2/models/flat/infer", infer_body()).status == 200


def test_the_memory_of_a_model_that_is_replaced_is_released(server):
    graph = weakref.ref(server.core.repository.find("flat").model.optimized.graph)
    assert control(server, "flat", "load").status == 200
    gc.disable()
    try:
        wait_until(lambda: graph() is None)
    finally:
        gc.enable()


def test_the_memory_of_a_model_is_released_soon_after_an_earlier_event_loop_has_ended(folder):
    async def replaced() -> Callable[[], object]:
        repository = Repository(lambda: found_in(str(folder), DEFAULTS), Loader(1))
        await repository.load("flat")
        graph = weakref.ref(repository.find("flat").model.optimized.graph)
        await repository.load("flat")
        return graph

    async def released() -> None:
        graph = await replaced()
        gc.disable()
        try:
            await asyncio.to_thread(wait_until, lambda: graph() is None)
        finally:
            gc.enable()

    asyncio.run(replaced())  # ends before it collects
    asyncio.run(released())


def test_no_request_is_lost_while_a_model_is_replaced(server):
    statuses: list[int] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            statuses.append(server.client.post("/v2/models/flat/infer", infer_body()).status)

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        assert control(server, "flat", "load").status == 200
    stop.set()
    for thread in threads:
        thread.join()
    assert set(statuses) == {200}


def test_a_served_model_does_not_change_with_its_file_until_it_is_loaded_again(tmp_path):
    path, size = tmp_path / "adder.tflite", 1 << 19
    contents = []
    for constant in (1, 2):
        network = Network("adder")
        x = network.add_input_layer(0, TensorInfo((1, size)), name="x")
        ones = network.add_constant_layer(np.full((1, size), constant, np.float32), name="constant")
        network.add_output_layer(0, network.add_addition_layer(x, ones, name="sum"), name="y")
        tflite.save(network, path)
        contents.append(path.read_bytes())
    path.write_bytes(contents[0])

    def first(server: Running) -> float:
        x = {"name": "x", "datatype": "FP32", "shape": [1, size], "parameters": {"binary_data_size": 4 * size}}
        y = {"name": "y", "parameters": {"classification": 1}}
        header = json.dumps({"inputs": [x], "outputs": [y]}).encode()
        length = {"Inference_Header_Content_Length": str(len(header))}
        answer = server.client.post("/v2/models/adder/infer", header + bytes(4 * size), **length)
        return float(answer.json["outputs"][0]["data"][0].partition(":")[0])

    loader = Loader()
    repository = Repository(lambda: found_in(str(tmp_path), ModelSettings(backends=("CpuRef",))), loader)
    with running(lambda: repository, ServeOptions(control=True)) as server:
        assert first(server) == 1
        with path.open("r+b") as file:
            file.write(contents[1])
        assert first(server) == 1
        os.truncate(path, 1000)
        assert first(server) == 1
        path.write_bytes(contents[1])
        assert server.client.post("/v2/repository/models/adder/load", {}).status == 200
        assert first(server) == 2
    loader.close()
