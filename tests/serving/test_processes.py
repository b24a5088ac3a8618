"""Server processes: metrics of several workers, ports that are taken, missing accelerators, and requests at the end."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.parameters import one_in
from tests.serving.running import TOKEN, Client, infer_body, wait_until
from tests.serving.test_serve_command import ask, children, client_of, file, started

for package in ("starlette", "uvicorn", "prometheus_client", "flatbuffers"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [
    pytest.mark.usefixtures("warm_python"),
    pytest.mark.needs_cpuref,
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
]
__all__ = ["file"]


def metric(client: Client, line: str) -> float:
    """Return the value in the line of the metrics that begins with a text."""
    text = client.get("/metrics").body.decode()
    match = re.search(rf"^{re.escape(line)}\S* (\S+)$", text, re.MULTILINE)
    return 0.0 if match is None else float(match[1])


@pytest.mark.usefixtures("new_interpreter")
def test_metrics_are_sums_over_the_workers_also_after_one_has_died(file):
    with started(file, "--workers", "3") as (process, line):
        client = client_of(line)
        right = sum(ask(client) == 200 for _ in range(60))
        assert right == 60
        for _ in range(5):  # whichever worker answers
            assert metric(client, 'interposer_requests_total{code="OK"') == 60
            assert metric(client, "interposer_request_duration_seconds_count") == 60
            assert metric(client, "nv_inference_request_success") == 60
            assert metric(client, 'interposer_model_ready{model="doubler"') == 1
        before = children(process)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(children(process)) == 3 and before[0] not in children(process))
        right += sum(ask(client) == 200 for _ in range(40))
        assert right >= 99  # one connection may have reached the worker while it died
        for _ in range(5):
            assert metric(client, 'interposer_requests_total{code="OK"') == right
        assert metric(client, "interposer_requests_in_flight") == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def statistics(client: Client) -> tuple[int, int, int]:
    """Return the counts of successes, failures and executions that one worker reports."""
    [model] = client.get("/v2/models/doubler/stats").json["model_stats"]
    kinds = model["inference_stats"]
    [batch] = model["batch_stats"]
    assert (batch["batch_size"], batch["compute_infer"]["count"]) == (1, model["execution_count"])
    return kinds["success"]["count"], kinds["fail"]["count"], model["execution_count"]


@pytest.mark.usefixtures("new_interpreter")
def test_statistics_and_the_page_are_those_of_all_workers_also_after_one_has_died(file):
    with started(file, "--workers", "2") as (process, line):
        client = client_of(line)
        assert [ask(client) for _ in range(30)] == [200] * 30
        assert client.post("/v2/models/doubler/infer", infer_body(datatype="INT8")).status == 400
        before = children(process)
        os.kill(before[0], signal.SIGKILL)
        wait_until(lambda: len(children(process)) == 2 and before[0] not in children(process))
        right = 30 + sum(ask(client) == 200 for _ in range(20))
        wait_until(lambda: statistics(client) == (right, 1, right))
        pages = {client.get("/").body for _ in range(12)}  # whichever worker answers
        assert len(pages) == 1
        page = pages.pop().decode()
        assert f'<td class="number">{right}</td><td class="number">1</td><td class="number">0</td>' in page
        assert "; 0 requests are running or waiting." in page
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


@pytest.mark.parametrize(("first", "second"), one_in(4, [("2", "2"), ("2", "1"), ("1", "2"), ("1", "1")]))
def test_a_second_server_does_not_share_the_port(file, first, second):
    with started(file, "--workers", first) as (_, line):
        port = client_of(line).port
        with started(file, "--workers", second, "--port", str(port)) as (process, other):
            assert process.wait(300) == 2
            assert other == ""
            assert process.stderr.read() == (
                f"interposer: the server cannot listen on 127.0.0.1, port {port}: Address already in use; "
                "choose another port, as with --port\n"
            )
        assert ask(client_of(line)) == 200


@contextmanager
def with_grpc(file: str, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "interposer", "serve", file, "--backends", "CpuRef", "--port", "0", *words]
    environment, pipe = {**os.environ, "INTERPOSER_SERVE_TOKEN": TOKEN}, subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_a_port_for_grpc_that_is_taken_is_named(file):
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with with_grpc(file, "--grpc-port", str(port)) as (process, line):
            assert process.wait(300) == 2
            said = process.stderr.read()
    assert line == ""
    assert f"interposer: the server cannot listen for gRPC on 127.0.0.1:{port}: " in said
    assert said.endswith("; choose another port, as with --grpc-port, or offer no gRPC (--no-grpc)\n")
    assert "Traceback" not in said
    assert "never awaited" not in said


def test_workers_answer_over_grpc_too(file):
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import message

    with with_grpc(file, "--workers", "2", "--grpc-port", "0") as (process, line):
        address = re.search(r"gRPC at (\S+)", line)[1]
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "contents": {"fp32_contents": [1, 2, 3, 4]}}
        request = message("ModelInferRequest")(model_name="doubler", inputs=[tensor])
        for _ in range(8):
            with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
                call = channel.unary_unary(
                    "/inference.GRPCInferenceService/ModelInfer",
                    lambda value: value.SerializeToString(),
                    message("ModelInferResponse").FromString,
                )
                assert list(call(request, timeout=300).outputs[0].contents.fp32_contents) == [2, 4, 6, 8]
        assert metric(client_of(line), 'interposer_requests_total{code="OK",model="doubler",protocol="grpc"') == 8
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


WITHOUT = """
import runpy, sys
for name in ("uvloop", "httptools", "orjson"):
    sys.modules[name] = None
runpy.run_module("interposer", run_name="__main__", alter_sys=True)
"""


@pytest.mark.usefixtures("new_interpreter")
def test_a_server_needs_neither_uvloop_nor_httptools_nor_orjson(file):
    pytest.importorskip("h11", reason="the package h11, which uvicorn uses without httptools, is not installed")
    command = [sys.executable, "-c", WITHOUT, "serve", file, "--backends", "CpuRef", "--port", "0", "--no-grpc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            client = client_of(process.stdout.readline())
            answer = client.post("/v2/models/doubler/infer", infer_body())
            assert answer.json["outputs"][0]["data"] == [2, 4, 6, 8]
            assert client.post("/v2/models/doubler/infer", b"[").status == 400
            process.send_signal(signal.SIGTERM)
            assert process.wait(300) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.parametrize("workers", one_in(2, ["1", "2"]))
def test_no_request_is_lost_when_a_signal_ends_the_server(file, workers):
    answers: Counter[int] = Counter()
    with started(file, "--workers", workers) as (process, line):
        client = client_of(line)

        def work() -> None:
            while process.poll() is None:
                try:
                    answers[client.post("/v2/models/doubler/infer", infer_body()).status] += 1
                except ConnectionRefusedError:
                    return
                except OSError as error:  # accepted by the system, but not by the server, which has ended
                    assert isinstance(error, BrokenPipeError | ConnectionResetError) or "closed" in str(error), error

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        wait_until(lambda: answers[200] > 50)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        for thread in threads:
            thread.join()
        assert answers.keys() <= {200, 503}
        assert "Traceback" not in process.stderr.read()


def test_folders_for_metrics_of_workers_are_removed(file, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with started(file, "--workers", "2") as (process, line):
        assert ask(client_of(line)) == 200
        [folder] = Path(tmp_path).glob("interposer-metrics-*")
        assert len(list(folder.iterdir())) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        time.sleep(0.1)
    assert list(Path(tmp_path).glob("interposer-metrics-*")) == []
