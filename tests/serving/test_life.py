"""The life of a server: broken models, models that stop working, files that change, workers that die, and its end."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interposer import CreationOptions, Model, Runtime
from interposer.backends.reference import ReferenceBackend
from interposer.serving import workers
from interposer.serving.folder import ModelSettings, found_in
from interposer.serving.loading import Loader
from interposer.serving.options import ServeOptions
from interposer.serving.repository import Repository
from interposer.serving.watching import fingerprints
from interposer.serving.workers import _Worker
from interposer.writers import tflite
from tests.failing import NEVER, Failing
from tests.serving.running import Client, Running, doubler, infer_body, model, running, serving, wait_until
from tests.serving.test_serve_command import ask, children, client_of, file, started

for package in ("starlette", "uvicorn", "prometheus_client", "flatbuffers"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
DEFAULTS = ModelSettings(backends=("CpuRef",))
__all__ = ["file"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model that runs and one that is damaged."""
    tflite.save(doubler(shape=(1, 4)), tmp_path / "good.tflite")
    (tmp_path / "broken.tflite").write_bytes(b"damaged")
    return tmp_path


def files(folder: Path) -> Repository:
    return Repository(lambda: found_in(str(folder), DEFAULTS), Loader(1))


def infer(client: Client, name: str) -> int:
    return client.post(f"/v2/models/{name}/infer", infer_body()).status


def test_a_broken_model_does_not_stop_the_others(folder):
    with running(lambda: files(folder)) as server:
        assert server.client.get("/v2/health/ready").status == 200
        assert infer(server.client, "good") == 200
        assert infer(server.client, "broken") == 503
        assert server.client.get("/v2/models/broken/ready").status == 503
        states = {row["name"]: row["state"] for row in server.client.post("/v2/repository/index", {}).json}
        assert states == {"broken": "UNAVAILABLE", "good": "READY"}


def test_with_strict_readiness_all_models_must_run(folder):
    with running(lambda: files(folder), ServeOptions(strict_readiness=True)) as server:
        assert server.client.get("/v2/health/ready").status == 503
        assert infer(server.client, "good") == 200


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.usefixtures("warm_python")
def test_exit_on_error_ends_a_server_with_a_broken_model(folder, workers):
    with started(str(folder), "--exit-on-error", "--workers", workers) as (process, line):
        assert process.wait(300) == 2
        assert line == ""
        assert "broken.tflite: " in process.stderr.read()


@pytest.mark.usefixtures("warm_python")
def test_a_server_without_any_model_that_can_be_loaded_ends(folder):
    (folder / "good.tflite").unlink()
    with started(str(folder)) as (process, line):
        assert process.wait(300) == 2
        assert line == ""


@pytest.mark.usefixtures("warm_python")
def test_the_only_model_of_a_folder_can_have_another_name(folder):
    with started(str(folder), "--name", "other") as (process, _):
        assert process.wait(300) == 2
        assert "--name is for one model; the folder has broken, good" in process.stderr.read()
    (folder / "broken.tflite").unlink()
    with started(str(folder), "--name", "other") as (process, line):
        assert line.startswith("serving other at ")
        assert infer(client_of(line), "other") == 200


@pytest.fixture
def failing() -> Iterator[tuple[Failing, Model]]:
    backend = Failing(ReferenceBackend, "Failing")
    with Runtime(CreationOptions(num_threads=1)) as runtime:
        runtime.registry.register("Failing", lambda: backend)
        with model(doubler(shape=(1, 4)), runtime, "Failing") as loaded:
            yield backend, loaded


def test_a_model_that_cannot_run_is_not_ready_until_it_can(failing, monkeypatch):
    monkeypatch.setattr("interposer.serving.readiness._FIRST_PAUSE", 0.05)
    backend, loaded = failing
    models = {"fragile": loaded, "good": model(doubler(shape=(1, 4)))}
    with running(serving_tried(models)) as server:
        assert server.client.get("/v2/models/fragile/ready").status == 200
        backend.at = 1
        assert infer(server.client, "fragile") == 500
        wait_until(lambda: server.client.get("/v2/models/fragile/ready").status == 503)
        assert server.client.get("/v2/models/good/ready").status == 200
        assert server.client.get("/v2/health/ready").status == 200
        assert 'interposer_model_ready{model="fragile",version="1"} 0.0' in metrics(server)
        backend.at = NEVER
        wait_until(lambda: server.client.get("/v2/models/fragile/ready").status == 200)
        assert infer(server.client, "fragile") == 200


def test_a_server_whose_only_model_cannot_run_is_not_ready(failing):
    backend, loaded = failing
    with running(serving_tried({"fragile": loaded})) as server:
        backend.at = 1
        assert infer(server.client, "fragile") == 500
        wait_until(lambda: server.client.get("/v2/health/ready").status == 503)
        backend.at = NEVER
        assert infer(server.client, "fragile") == 200
        assert server.client.get("/v2/health/ready").status == 200


def test_a_failure_that_does_not_repeat_leaves_a_model_ready(failing):
    backend, loaded = failing
    with running(serving_tried({"fragile": loaded})) as server:

        def fail_once() -> None:
            backend.at = NEVER
            raise RuntimeError("only once")

        backend.how, backend.at = fail_once, 1
        runs = backend.runs
        assert infer(server.client, "fragile") == 500
        wait_until(lambda: backend.runs > runs + 1)  # the request, then a trial
        assert server.client.get("/v2/health/ready").status == 200


def serving_tried(models: dict[str, Model]):
    """Return a function that makes a repository of models that have run once."""

    def repository() -> Repository:
        made = serving(models)()
        for served in made.served:
            served.warm_up()
        return made

    return repository


def metrics(server: Running) -> str:
    return server.client.get("/metrics").body.decode()


def test_files_that_appear_change_and_go_are_followed(folder):
    options = ServeOptions(poll=0.05)
    with running(lambda: files(folder), options) as server:
        assert infer(server.client, "new") == 404
        shutil.copy(folder / "good.tflite", folder / "new.tflite")
        wait_until(lambda: infer(server.client, "new") == 200)
        before = server.core.repository.find("good")
        tflite.save(doubler(shape=(2, 4)), folder / "good.new")
        os.replace(folder / "good.new", folder / "good.tflite")
        wait_until(lambda: server.core.repository.find("good") is not before)
        assert server.client.get("/v2/models/good").json["inputs"][0]["shape"] == [2, 4]
        shutil.copy(folder / "new.tflite", folder / "broken.tflite")
        wait_until(lambda: infer(server.client, "broken") == 200)
        (folder / "new.tflite").unlink()
        wait_until(lambda: infer(server.client, "new") == 404 or infer(server.client, "new") == 503)


def test_a_damaged_file_leaves_the_version_that_runs(folder, caplog):
    with running(lambda: files(folder), ServeOptions(poll=0.05)) as server:
        (folder / "good.tflite").write_bytes(b"half a file")
        wait_until(lambda: "model 'good' cannot be loaded" in caplog.text)
        assert infer(server.client, "good") == 200


def test_a_model_that_a_client_unloads_stays_unloaded_until_its_file_changes(folder):
    options = ServeOptions(poll=0.05, control=True)
    with running(lambda: files(folder), options) as server:
        assert server.client.post("/v2/repository/models/good/unload").status == 200
        shutil.copy(folder / "good.tflite", folder / "other.tflite")
        wait_until(lambda: infer(server.client, "other") == 200)
        assert infer(server.client, "good") == 503
        os.utime(folder / "good.tflite", (1, 1))
        wait_until(lambda: infer(server.client, "good") == 200)


def test_a_fingerprint_changes_with_the_files_and_the_settings_of_a_model(folder):
    def fingerprint() -> object:
        return fingerprints(found_in(str(folder), DEFAULTS))["good"]

    seen = [fingerprint()]
    for change in (
        lambda: (folder / "good.toml").write_text("batch = 2"),
        lambda: (folder / "good.toml").write_text("batch = 4"),
        lambda: (folder / "good.data").write_bytes(b"weights"),
        lambda: (folder / "good.data").write_bytes(b"weights and more"),
        lambda: os.utime(folder / "good.tflite", (5, 5)),
    ):
        assert fingerprint() == seen[-1]
        change()
        seen.append(fingerprint())
    assert len(set(map(repr, seen))) == len(seen)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.usefixtures("warm_python")
def test_during_the_shutdown_delay_requests_are_answered_but_the_server_is_not_ready(file, workers):
    with started(file, "--shutdown-delay", "60s", "--workers", workers) as (process, line):
        client = client_of(line)
        assert client.get("/v2/health/ready").status == 200
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: client.get("/v2/health/ready").status == 503)
        assert client.get("/v2/health/live").status == 200
        assert client.get("/v2/models/doubler/ready").status == 503
        assert ask(client) == 200
        process.send_signal(signal.SIGTERM)  # the second signal ends it at once
        assert process.wait(300) in (0, 1)


@pytest.mark.usefixtures("warm_python")
def test_after_the_shutdown_delay_the_server_ends(file):
    with started(file, "--shutdown-delay", "200ms") as (process, line):
        assert ask(client_of(line)) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
def test_workers_that_die_again_and_again_do_not_end_the_server(file):
    with started(file, "--workers", "2") as (process, line):
        client, survivor = client_of(line), children(process)[1]
        statuses: list[int] = []
        for _ in range(4):
            wait_until(lambda: len(children(process)) == 2)
            [victim] = set(children(process)) - {survivor}
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda victim=victim: victim not in children(process))
            statuses += [ask(client) for _ in range(5)]
        assert survivor in children(process)
        assert statuses.count(200) >= 16  # the kernel may have given a connection to a worker that was killed
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        said = process.stderr.read()
        assert "worker 0 ended by SIGKILL, and is started again\n" in said
        assert "worker 0 ended by SIGKILL, and is started again in 0.5 seconds" in said
        assert "worker 0 ended by SIGKILL, and is started again in 2 seconds" in said


def test_the_pauses_of_a_worker_that_dies_grow_to_a_minute_until_it_lives_for_one():
    worker = _Worker(0)
    assert [worker.died(10.0) for _ in range(10)] == [0, 0.5, 1, 2, 4, 8, 16, 32, 60, 60]
    assert worker.died(10.0 + workers._STABLE) == 0
