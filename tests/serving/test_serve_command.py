"""The command `interposer serve`: its start, its signals, its logs and its workers."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import interposer as ip
from interposer.writers import tflite
from tests.native import started_by
from tests.parameters import one_in
from tests.serving.running import TOKEN, Client, doubler, infer_body, wait_until

for package in ("starlette", "uvicorn", "prometheus_client", "flatbuffers"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [pytest.mark.needs_cpuref, pytest.mark.usefixtures("warm_python")]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("models") / "doubler.tflite"
    tflite.save(doubler(shape=(1, 4)), path)
    return str(path)


@contextmanager
def started(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start the command and yield the process and its first line; the process is killed at the end."""
    command = [sys.executable, "-m", "interposer", "serve", "--backends", "CpuRef", "--port", "0", "--no-grpc", *words]
    environment = {**os.environ, "INTERPOSER_SERVE_TOKEN": TOKEN}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.slow
def test_too_few_open_files_are_refused_before_a_library_aborts(file: str) -> None:
    words = ["-m", "interposer", "serve", file, "--backends", "CpuRef", "--port", "0"]
    program = f"ulimit -n 40; exec {shlex.join([sys.executable, *words])}"
    done = subprocess.run(["sh", "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (
        2,
        "interposer: a server needs 64 open files or more, but this process may have 40; ulimit -n 1024 allows more\n",
    )


def client_of(line: str) -> Client:
    return Client(int(re.search(r"http://127.0.0.1:(\d+)", line)[1]))


@pytest.mark.parametrize("number", one_in(2, [signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_the_server_in_order(file, number):
    with started(file, "--name", "twice") as (process, line):
        assert re.fullmatch(r"serving twice at http://127.0.0.1:\d+\n", line)
        answer = client_of(line).post("/v2/models/twice/infer", infer_body())
        assert answer.json["outputs"][0]["data"] == [2, 4, 6, 8]
        process.send_signal(number)
        assert process.wait(300) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--trusted-key", __file__, "--least-version", "doublr=7"], "no model 'doublr'; did you mean 'doubler'?"),
        (["--allow-host", "https://app.example"], "expected the name of a host without scheme and port"),
        (["--allow-origin", "*"], "expected the origin of pages, such as https://app.example"),
        (["s3://models/a.onnx", "--timeout", "0s"], "--timeout must be more than 0 seconds"),
    ],
)
def test_wrong_options_end_the_command_before_it_loads_models(file, words, text):
    with started(file, *words) as (process, line):
        assert process.wait(300) == 2
        assert line == ""
        assert text in process.stderr.read()


@pytest.mark.parametrize(("number", "since"), [("nonsense", "1.5"), ("0", ""), ("0", "nonsense"), ("0", "nan")])
def test_variables_of_workers_that_no_server_has_set_are_refused(file, monkeypatch, number, since):
    monkeypatch.setenv("INTERPOSER_SERVE_WORKER", number)
    monkeypatch.setenv("INTERPOSER_SERVE_SINCE", since)
    with started(file) as (process, line):
        assert (process.wait(300), line) == (2, "")
        assert process.stderr.read() == (
            f"interposer: INTERPOSER_SERVE_WORKER is {number!r}, and INTERPOSER_SERVE_SINCE is {since!r}; only a "
            "server sets these environment variables, for the processes of --workers; unset both\n"
        )


def test_json_logs_have_a_line_for_each_request(file):
    with started(file, "--json-logs", "--metrics-port", "0") as (process, line):
        client = client_of(line)
        client.post("/v2/models/doubler/infer", infer_body(id="q1"))
        client.post("/v2/models/doubler/infer", infer_body(datatype="INT8"))
        assert client.get("/metrics").status == 404
        assert b"/metrics" not in client.get("/").body
        metrics_client = Client(int(re.search(r"metrics at http://127.0.0.1:(\d+)", line)[1]))
        assert b"interposer_requests_total" in metrics_client.get("/metrics").body
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(text) for text in process.stderr.read().splitlines()]
    requests = [line_of_log for line_of_log in lines if line_of_log["message"] == "request"]
    assert [(line_of_log["model"], line_of_log["code"], line_of_log["id"]) for line_of_log in requests] == [
        ("doubler", "OK", "q1"),
        ("doubler", "INVALID_ARGUMENT", ""),
    ]


def test_json_logs_have_the_warnings_of_libraries_too(file):
    with started(file, "--json-logs") as (process, line):
        with socket.create_connection(("127.0.0.1", client_of(line).port)) as connection:
            connection.sendall(b"no HTTP\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 400")
        process.send_signal(signal.SIGTERM)
        lines = [json.loads(text) for text in process.stderr.read().splitlines()]
    assert [line_of_log["level"] for line_of_log in lines] == ["warning"]


@pytest.mark.parametrize("count", ["1", "2"])
def test_the_address_of_ipv6_is_in_brackets(file, count):
    if not has_ipv6():
        pytest.skip("this host has no IPv6")
    with started(file, "--host", "::1", "--workers", count) as (process, line):
        port = int(re.search(r"http://\[::1\]:(\d+)\n", line)[1])
        socket.create_connection(("::1", port)).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(
    ("words", "text"),
    one_in(
        3,
        [
            (["{folder}/damaged.tflite"], "damaged.tflite: "),
            (["{file}", "--backends", "Nobody"], "unknown backend 'Nobody' (known: "),
            (
                ["{file}", "--port", "{port}"],
                "the server cannot listen on 127.0.0.1, port {port}: Address already in use; "
                "choose another port, as with --port",
            ),
            (["{file}", "{file}"], "two models have the name 'doubler'; a server needs different names"),
            (["{empty}"], "the folder has no models, such as kws.tflite or kws/1/model.onnx"),
            (["{file}", "--workers", "2", "--backends", "Nobody"], " did not start; its message is above"),
            (["{file}", "--isolate", "Nobody"], "backend 'Nobody' is to be isolated, but it is unknown"),
            (
                ["{file}", "--port", "{port}", "--metrics-port", "{port}", "--workers", "2"],
                "HTTP, gRPC, metrics and health need different ports; port {port} cannot be that of two",
            ),
        ],
    ),
)
def test_a_server_that_cannot_start_says_why(file, tmp_path, words, text):
    (tmp_path / "damaged.tflite").write_bytes(b"damaged")
    (tmp_path / "empty").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        values = {"folder": tmp_path, "file": file, "port": port, "empty": tmp_path / "empty"}
        with started(*(word.format(**values) for word in words)) as (process, line):
            assert process.wait(300) == 2
            said = process.stderr.read()
            assert line == ""
            assert text.format(**values) in said
            assert "Traceback" not in said


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a signed and an unsigned saved network, a key, and settings that try to change it."""
    pytest.importorskip("cryptography", reason="the package cryptography (the extra sign) is not installed")
    from cryptography.hazmat.primitives.asymmetric import ed25519

    from tests.saved.test_signing import written

    folder = tmp_path_factory.mktemp("signed")
    secret, _ = written(folder, "key", ed25519.Ed25519PrivateKey.generate())
    written(folder, "other", ed25519.Ed25519PrivateKey.generate())
    for name in ("good", "unsigned", "hostile"):
        (folder / name).mkdir()
    with ip.load(doubler(shape=(1, 4)), ["CpuRef"]) as model:
        model.save(folder / "good" / "doubler.ipn", sign_key=secret)
        model.save(folder / "unsigned" / "plain.ipn")
        model.save(folder / "hostile" / "plain.ipn")
    (folder / "hostile" / "plain.toml").write_text("trusted_keys = []\n")
    return folder


def test_only_files_of_a_trusted_key_are_served(signed):
    with started(str(signed / "good"), "--trusted-key", str(signed / "key.pub")) as (process, line):
        assert ask(client_of(line)) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0


@pytest.mark.parametrize(
    ("words", "text"),
    one_in(
        2,
        [
            (["{signed}/unsigned"], "plain.ipn: the saved network is not signed, and only signed ones are trusted"),
            (["{signed}/good", "--trusted-key", "{signed}/none.pub"], "none.pub: there is no such file"),
            (["{signed}/hostile"], "plain.toml: unknown key 'trusted_keys' (known: backends, plan, "),
            (["{file}"], "--trusted-key is for saved networks; "),
            (["{signed}/unsigned", "--workers", "2"], " did not start; its message is above"),
        ],
    ),
)
def test_a_server_that_trusts_keys_refuses_other_files(signed, file, words, text):
    with started(
        "--trusted-key", str(signed / "key.pub"), *(word.format(signed=signed, file=file) for word in words)
    ) as (
        process,
        line,
    ):
        assert process.wait(300) == 2
        said = process.stderr.read()
        assert line == ""
        assert text in said
        assert "Traceback" not in said


def children(process: subprocess.Popen[str]) -> list[int]:
    return sorted(started_by(process.pid))


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")
@pytest.mark.usefixtures("new_interpreter")
def test_a_worker_that_dies_is_started_again(file):
    with started(file, "--workers", "2") as (process, line):
        assert "with 2 workers" in line
        client = client_of(line)
        workers = children(process)
        assert len(workers) == 2
        assert all(ask(client) == 200 for _ in range(20))
        os.kill(workers[0], signal.SIGKILL)
        wait_until(lambda: len(children(process)) == 2 and workers[0] not in children(process))
        assert all(ask(client) == 200 for _ in range(20))
        assert b"interposer_requests_total" in client.get("/metrics").body
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
        assert "worker 0 ended by SIGKILL, and is started again" in process.stderr.read()


def ask(client: Client) -> int:
    try:
        return client.post("/v2/models/doubler/infer", infer_body()).status
    except ConnectionError:
        return 0


def test_workers_serve_a_model_with_a_version_that_lacks_its_file(file, tmp_path):
    for version in ("1", "2"):
        (tmp_path / "deep" / version).mkdir(parents=True)
    (tmp_path / "deep.toml").write_text('versions = "all"')
    (tmp_path / "deep/1/model.tflite").write_bytes(Path(file).read_bytes())
    with started("--workers", "2", "--", str(tmp_path)) as (process, line):
        assert re.fullmatch(r"serving deep with 2 workers at http://127.0.0.1:\d+\n", line)
        assert client_of(line).post("/v2/models/deep/infer", infer_body()).status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
