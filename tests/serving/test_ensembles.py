"""Ensembles: pipelines of models in folders, their checks when they are loaded, and their steps at run time."""

from __future__ import annotations

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interposer import CreationOptions, Runtime, TensorInfo
from interposer.core.errors import InvalidArgumentError
from interposer.serving.ensemble import Ensemble, Step, ensemble_of_table, order_of_steps
from interposer.serving.folder import ModelSettings, ModelSource, found_in
from interposer.serving.loading import Loader, served_model
from interposer.serving.options import ServeOptions
from interposer.serving.repository import Repository
from interposer.writers import tflite
from tests.runtime.test_concurrency import OpenGates
from tests.serving.running import Running, doubler, infer_body, model, running, two_by_two, wait_until

for package in ("flatbuffers", "starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
DEFAULTS = ModelSettings(backends=("CpuRef",))
SETTINGS = """
[ensemble]
inputs.start = { datatype = "FP32", shape = [1, 3] }
outputs.end = { datatype = "FP32", shape = [1, -1] }

[[ensemble.steps]]
model = "sums"
inputs = { a = "twice", b = "start" }
outputs = { total = "end" }

[[ensemble.steps]]
model = "double"
version = 1
inputs = { x = "start" }
outputs = { y = "twice" }
"""
TRITON = """
name: "of_triton" platform: "ensemble" max_batch_size: 1
input [ { name: "start" data_type: TYPE_FP32 dims: [ 3 ] } ]
output [ { name: "end" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "double" model_version: -1
      input_map { key: "x" value: "start" } output_map { key: "y" value: "twice" } },
    { model_name: "sums" model_version: -1
      input_map { key: "a" value: "twice" } input_map { key: "b" value: "start" }
      output_map { key: "total" value: "end" } }
  ]
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tflite.save(doubler(shape=(1, 3)), tmp_path / "double.tflite")
    tflite.save(two_by_two(), tmp_path / "sums.tflite")
    return tmp_path


def with_pipeline(folder: Path, text: str = SETTINGS) -> Path:
    (folder / "pipeline.toml").write_text(text)
    return folder


def repository(folder: Path) -> Repository:
    loader = Loader(2)
    return Repository(lambda: found_in(str(folder), DEFAULTS), loader)


def serve(folder: Path, **options: Any) -> Any:
    return running(lambda: repository(folder), ServeOptions(control=True, **options))


def outputs(server: Running, name: str, **fields: Any) -> Any:
    answer = server.client.post(f"/v2/models/{name}/infer", infer_body("start", [[1, 2, 3]], **fields))
    assert answer.status == 200, answer.json
    return answer.json["outputs"]


def refusal(server: Running, name: str = "pipeline") -> str:
    answer = server.client.post(f"/v2/repository/models/{name}/load", {})
    assert answer.status == 400
    return str(answer.json["error"])


def test_an_ensemble_of_the_settings_runs_its_steps_in_the_order_of_their_tensors(folder):
    with serve(with_pipeline(folder)) as server:
        assert outputs(server, "pipeline") == [{"name": "end", "datatype": "FP32", "shape": [1, 3], "data": [3, 6, 9]}]


def test_an_ensemble_of_triton_is_read(folder):
    (folder / "ensemble" / "1").mkdir(parents=True)
    (folder / "ensemble" / "config.pbtxt").write_text(TRITON)
    with serve(folder) as server:
        assert outputs(server, "of_triton")[0]["data"] == [3, 6, 9]
        config = server.client.get("/v2/models/of_triton/config").json
        assert config["ensemble_scheduling"]["step"][0] == {
            "model_name": "double", "model_version": -1, "input_map": {"x": "start"}, "output_map": {"y": "twice"},
        }  # fmt: skip


def test_an_ensemble_of_triton_runs_over_grpc(folder):
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import methods

    (folder / "ensemble").mkdir()
    (folder / "ensemble" / "config.pbtxt").write_text(TRITON)
    with running(lambda: repository(folder), grpc=True) as server, grpc.insecure_channel(server.grpc) as channel:

        def ask(name: str, /, **fields: Any) -> Any:
            request, response = methods()[name]
            path = f"/inference.GRPCInferenceService/{name}"
            send = channel.unary_unary(path, lambda item: item.SerializeToString(), response.FromString)
            return send(request(**fields))

        [first, _] = ask("ModelConfig", name="of_triton").config.ensemble_scheduling.step
        assert (first.model_name, first.model_version, dict(first.input_map)) == ("double", -1, {"x": "start"})
        tensor = {"name": "start", "datatype": "FP32", "shape": [1, 3]}
        raw = [np.array([1, 2, 3], np.float32).tobytes()]
        answer = ask("ModelInfer", model_name="of_triton", inputs=[tensor], raw_input_contents=raw)
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [3, 6, 9]


def test_an_ensemble_has_the_metadata_that_its_settings_say(folder):
    with serve(with_pipeline(folder)) as server:
        assert server.client.get("/v2/models/pipeline").json == {
            "name": "pipeline", "versions": ["1"], "platform": "ensemble",
            "inputs": [{"name": "start", "datatype": "FP32", "shape": [1, 3]}],
            "outputs": [{"name": "end", "datatype": "FP32", "shape": [1, -1]}],
        }  # fmt: skip


def test_steps_are_counted_as_requests_of_their_models(folder):
    with serve(with_pipeline(folder)) as server:
        outputs(server, "pipeline")
        for name in ("double", "sums", "pipeline"):
            [statistics] = server.client.get(f"/v2/models/{name}/stats").json["model_stats"]
            assert statistics["inference_stats"]["success"]["count"] == 1
        assert 'interposer_requests_total{code="OK",model="sums",protocol="ensemble",version="1"} 1.0' in str(
            server.client.get("/metrics").body.decode()
        )


def test_an_ensemble_may_be_a_step_of_another(folder):
    outer = SETTINGS.replace('"double"', '"pipeline"').replace('x = "start"', 'start = "start"')
    (folder / "a_first_name.toml").write_text(outer.replace('y = "twice"', 'end = "twice"'))
    with serve(with_pipeline(folder)) as server:
        assert outputs(server, "a_first_name")[0]["data"] == [4, 8, 12]


def test_an_ensemble_is_not_ready_while_a_step_lacks_its_model(folder):
    with serve(with_pipeline(folder)) as server:
        assert server.client.get("/v2/models/pipeline/ready").status == 200
        server.client.post("/v2/repository/models/sums/unload", {})
        assert server.client.get("/v2/models/pipeline/ready").status == 503
        answer = server.client.post("/v2/models/pipeline/infer", infer_body("start", [[1, 2, 3]]))
        assert (answer.status, answer.json) == (503, {"error": "step 1 (model 'sums'): model 'sums' is not loaded"})
        server.client.post("/v2/repository/models/sums/load", {})
        assert outputs(server, "pipeline")[0]["data"] == [3, 6, 9]


def test_an_ensemble_is_not_ready_while_a_new_version_does_not_fit(folder):
    with serve(with_pipeline(folder)) as server:
        tflite.save(doubler(shape=(1, 4)), folder / "double.tflite")
        server.client.post("/v2/repository/models/double/load", {})
        [state] = [row for row in server.client.post("/v2/repository/index", {}).json if row["name"] == "pipeline"]
        assert state["state"] == "UNAVAILABLE"
        assert "input 'x' has the shape [1, 4], but the tensor 'start' has [1, 3]" in state["reason"]


def test_an_ensemble_that_was_broken_is_loaded_when_its_models_are_there(folder):
    (folder / "sums.tflite").rename(folder / "sums.later")
    with serve(with_pipeline(folder)) as server:
        assert "unknown model 'sums'" in refusal(server)
        (folder / "sums.later").rename(folder / "sums.tflite")
        server.client.post("/v2/repository/models/sums/load", {})
        assert outputs(server, "pipeline")[0]["data"] == [3, 6, 9]


def chain(count: int) -> dict[str, Any]:
    """Return the table of an ensemble whose steps pass a tensor on, those first that run last."""
    info = {"datatype": "FP32", "shape": [1, 3]}
    steps = [
        {"model": "double", "inputs": {"x": f"t{index}"}, "outputs": {"y": f"t{index + 1}"}}
        for index in reversed(range(count))
    ]
    return {"inputs": {"t0": info}, "outputs": {f"t{count}": info}, "steps": steps}


def test_steps_run_in_order_and_an_ensemble_has_256_at_most():
    assert order_of_steps(ensemble_of_table(chain(256))) == list(reversed(range(256)))
    with pytest.raises(InvalidArgumentError, match="^an ensemble may have 256 steps, but this one has 257$"):
        ensemble_of_table(chain(257))


def test_an_error_names_its_step(folder):
    open_shape = SETTINGS.replace("shape = [1, 3]", "shape = [-1, 3]").replace("shape = [1, -1]", "shape = [-1, -1]")
    with serve(with_pipeline(folder, open_shape)) as server:
        answer = server.client.post("/v2/models/pipeline/infer", infer_body("start", [[1, 2, 3], [4, 5, 6]]))
        assert answer.status == 400
        assert answer.json["error"].startswith("step 2 (model 'double' version 1): input 'x' has the shape [2, 3]")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('model = "sums"', 'model = "sum"', "step 1 (model 'sum'): unknown model 'sum'; did you mean 'sums'?"),
        ("version = 1", "version = 7", "model 'double' has no version '7' that is ready (ready: 1)"),
        ('x = "start"', 'x = "end"', "wait for each other: step 1 (model 'sums') for step 2 (model 'double'"),
        ('a = "twice"', 'a = "twyce"', "reads the tensor 'twyce', which no step makes; did you mean 'twice'?"),
        ('y = "twice"', 'y = "end"', "the tensor 'end' is made twice, by step 1 (model 'sums') and by step 2"),
        ('y = "twice"', 'y = "start"', "makes the tensor 'start', which is an input of the ensemble"),
        ('y = "twice"', 'z = "twice"', "step 2 (model 'double' version 1): the model has no output 'z'"),
        ('x = "start"', 'w = "start"', "the model has no input 'w'"),
        ('x = "start"', "", "no tensor is given for the input 'x' of the model"),
        ('{ total = "end" }', "{}", "no output of the model becomes a tensor"),
        ("outputs.end", "outputs.ende", "no step makes the output 'ende' of the ensemble; did you mean 'end'?"),
        ("[ensemble]", '[ensemble]\ninputs.extra = {datatype = "FP32", shape = []}', "no step reads the input 'extra'"),
        ("[1, 3]", "[1, 4]", "has the shape [1, 3], but the tensor 'start' has [1, 4]"),
        ("[1, -1]", "[-1]", "output 'end' of the ensemble has the shape [-1], but the tensor 'end' has [1, 3]"),
        ('"FP32", shape = [1, 3]', '"INT8", shape = [1, 3]', "is FP32, but the tensor 'start' is INT8"),
    ],
)  # fmt: skip
def test_an_ensemble_that_cannot_run_is_refused_when_it_is_loaded(folder, old, new, problem):
    assert old in SETTINGS
    with serve(with_pipeline(folder, SETTINGS.replace(old, new, 1))) as server:
        assert problem in refusal(server)
        assert server.client.get("/v2/models/double/ready").status == 200


def test_ensembles_that_are_steps_of_each_other_are_refused(folder):
    (folder / "other.toml").write_text(SETTINGS.replace('"double"', '"pipeline"'))
    with serve(with_pipeline(folder, SETTINGS.replace('"double"', '"other"'))) as server:
        expected = "the ensembles form a cycle: 'pipeline' has the step 'other' has the step 'pipeline'"
        assert refusal(server) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (SETTINGS + 'modle = "a"', "step 2 has the unknown key 'modle'; did you mean 'model'?"),
        (SETTINGS.replace("version = 1", "version = -2"), "version must be a number, or -1"),
        (SETTINGS.replace('"FP32"', '"FP33"', 1), "'FP33' is unknown; did you mean"),
        (SETTINGS.replace("[1, 3]", "[1, -3]"), "has a size below -1"),
        (SETTINGS.replace("[1, 3]", '"1"'), "ensemble.inputs.start must have a datatype"),
        ("[ensemble]\nsteps = []", "ensemble.steps must be a list"),
        ("batch = 4\n" + SETTINGS, "batch is for the models of the steps"),
        (SETTINGS + "[[", "cannot be read"),
    ],
)
def test_wrong_settings_of_an_ensemble_are_a_problem_of_the_model(folder, text, problem):
    [source] = [source for source in found_in(str(with_pipeline(folder, text)), DEFAULTS) if source.name == "pipeline"]
    assert problem in source.problem


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"ensemble"', '"onnxruntime_onnx"', 'ensemble_scheduling is for the platform "ensemble"'),
        ("ensemble_scheduling {", "parameters {", "needs ensemble_scheduling"),
        ("model_name", "model_nam", "ensemble_scheduling.step.model_nam"),
        ("TYPE_FP32", "TYPE_FP33", "'FP33' is unknown"),
        ("model_version: -1", "model_version: -5", "model_version is not a whole number"),
        ('key: "x" value', 'key: "x" volue', "input_map is not a message with key and value"),
        ("input [", "output [", "needs the field input"),
        ("  step [", 255 * '  step { model_name: "double" }\n' + "  step [", "an ensemble may have 256 steps"),
    ],
)
def test_a_wrong_ensemble_of_triton_is_a_problem_of_the_model(folder, old, new, problem):
    (folder / "ensemble").mkdir()
    (folder / "ensemble" / "config.pbtxt").write_text(TRITON.replace(old, new, 1))
    [source] = [source for source in found_in(str(folder), DEFAULTS) if source.name == "ensemble"]
    assert problem in source.problem


def test_an_ensemble_keeps_the_keys_that_must_have_signed_its_settings(folder):
    [source] = [
        source
        for source in found_in(str(with_pipeline(folder)), ModelSettings(trusted_keys=("a.pem",), signed_names=True))
        if source.name == "pipeline"
    ]
    assert (source.problem, source.settings.trusted_keys, source.settings.signed_names) == ("", ("a.pem",), True)


def test_a_model_and_an_ensemble_need_different_names(folder):
    (folder / "double.toml").write_text(SETTINGS)
    [source] = [source for source in found_in(str(folder), DEFAULTS) if source.name == "double"]
    assert "double.tflite is a model with the same name" in source.problem


def of_slow(gates: OpenGates, steps: int) -> Any:
    """Return a repository with an ensemble of steps that wait until the gates are open."""
    info = TensorInfo((8, 16))
    names = [f"y{index}" for index in range(steps)]
    runtime = Runtime(CreationOptions(num_threads=2))
    runtime.registry.register("OpenGates", lambda: gates)
    served = served_model("slow", "1", model(doubler(shape=(8, 16)), runtime, "OpenGates"))
    ensemble = Ensemble(
        {"x": info}, dict.fromkeys(names, info), tuple(Step("slow", "", {"x": "x"}, {"y": name}) for name in names)
    )
    source = ModelSource("pipeline", "1", "pipeline.toml", ModelSettings(ensemble=ensemble))
    return lambda: Repository(lambda: [source], Loader(1), served=[served])


ZEROS = infer_body("x", np.zeros((8, 16)))


def test_steps_that_do_not_wait_for_each_other_overlap(gates):
    with running(of_slow(gates, 2)) as server, ThreadPoolExecutor() as pool:
        answer = pool.submit(server.client.post, "/v2/models/pipeline/infer", ZEROS)
        wait_until(lambda: server.core.repository.find("slow").in_flight == 2)
        gates.open.set()
        assert [output["name"] for output in answer.result().json["outputs"]] == ["y0", "y1"]


def test_the_deadline_of_a_request_is_that_of_its_steps(gates):
    with running(of_slow(gates, 1)) as server:
        answer = server.client.post("/v2/models/pipeline/infer", ZEROS | {"parameters": {"timeout": 50_000}})
        assert answer.status == 504
        assert answer.json["error"].startswith("step 1 (model 'slow'): ")
        wait_until(lambda: server.core.repository.find("slow").statistics.to_dict()["inference_stats"]["fail"]["count"])
        gates.open.set()


def test_a_client_that_leaves_cancels_the_steps_of_its_request(gates):
    with running(of_slow(gates, 2)) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.client.port)
        connection.request("POST", "/v2/models/pipeline/infer", json.dumps(ZEROS))
        wait_until(lambda: server.core.repository.find("slow").in_flight == 2)
        connection.close()
        wait_until(lambda: server.core.in_flight == 0)
        for name, count in (("slow", 2), ("pipeline", 1)):
            statistics = server.core.repository.find(name).statistics.to_dict()["inference_stats"]
            assert statistics["cancel"]["count"] == count
        gates.open.set()


def test_a_request_whose_steps_find_no_room_is_refused(gates):
    with running(of_slow(gates, 2), ServeOptions(queue=1)) as server, ThreadPoolExecutor() as pool:
        first = pool.submit(server.client.post, "/v2/models/pipeline/infer", ZEROS)
        wait_until(lambda: server.core.repository.find("slow").in_flight == 2)
        second = server.client.post("/v2/models/pipeline/infer", ZEROS)
        assert second.status == 503
        assert second.headers["retry-after"] == "1"
        assert "(model 'slow'): " in second.json["error"]
        gates.open.set()
        assert first.result().status == 200
