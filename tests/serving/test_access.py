"""Who may do what: tokens, Unix sockets, names in certificates, and pages of other sites."""

from __future__ import annotations

import argparse
import hashlib
import http.client
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from interposer.cli.serve import known_clients
from interposer.errors import ConfigError, InvalidArgumentError
from interposer.serving.access import Access, Client, read_clients
from interposer.serving.doors import host_of, local_hosts, origin_of
from interposer.serving.listen import Listen
from interposer.serving.options import ServeOptions
from interposer.serving.peers import Peer, connection_state, user_of_connection
from interposer.serving.protocol.errors import ServingError, Status
from tests.serving.running import TOKEN, Running, doubler, infer_body, model, running, serving
from tests.serving.running import Client as HttpClient

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref
INFER = "/v2/models/double/infer"
STATISTICS = ("/v2/models/stats", "/v2/models/double/stats", "/metrics", "/")


def served(**options: object) -> object:
    return running(serving({"double": model(doubler())}), ServeOptions(**options))


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def refusal(access: Access, *arguments: object) -> ServingError:
    with pytest.raises(ServingError) as caught:
        access.check(*arguments)
    return caught.value


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("right", ["statistics", "control", "shared_memory"])
def test_without_a_token_nobody_on_the_network_may_do_more_than_infer(right):
    access = Access()
    access.check("infer", Peer("127.0.0.1"))
    error = refusal(access, right, Peer("127.0.0.1", "Bearer x"))
    assert error.status is Status.FORBIDDEN
    assert "INTERPOSER_SERVE_TOKEN" in str(error)
    access.check(right, Peer(socket_user=os.geteuid()))
    refusal(access, right, Peer(socket_user=os.geteuid() + 1))


@pytest.mark.parametrize("sent", ["", "Bearer", "Bearer t", "Bearer to", "Basic token", "token", "bearer\ttoken"])
def test_a_wrong_token_is_refused(sent):
    assert refusal(Access("token"), "control", Peer("127.0.0.1", sent)).status is Status.UNAUTHENTICATED
    Access("token").check("control", Peer("127.0.0.1", "Bearer token"))


def test_the_word_bearer_may_be_written_in_small_letters():
    Access("token").check("control", Peer("127.0.0.1", "bearer token"))


@pytest.mark.parametrize("token", ["", " ", "secret\n", " secret", "se\ncret", "se\0cret", "schlüssel"])
def test_a_token_that_no_client_can_send_is_an_error(token):
    with pytest.raises(InvalidArgumentError, match="token must"):
        ServeOptions(token=token)
    ServeOptions(token="a secret")


def test_statistics_need_a_token_on_loopback_too():
    with served() as server:
        stranger = HttpClient(server.client.port, token=None)
        for path in STATISTICS:
            assert server.client.get(path).status == 200
            assert stranger.get(path).status == 401
            assert stranger.get(f"{path}?token={TOKEN.replace(' ', '+')}").status == 200
        assert stranger.post(INFER, infer_body()).status == 200
        assert stranger.get("/v2/health/ready").status == 200


def test_the_page_passes_its_token_on_to_the_metrics():
    with served() as server:
        stranger = HttpClient(server.client.port, token=None)
        page = stranger.get(f"/?token={TOKEN.replace(' ', '+')}&x=%22%3E<b>").body.decode()
        assert f'href="/metrics?token={TOKEN.replace(" ", "+")}&amp;x=%22%3E' in page
        assert "<b>" not in page.partition("Metrics")[0].rpartition("href")[2]


def test_a_token_in_a_query_changes_nothing():
    with served(control=True) as server:
        stranger = HttpClient(server.client.port, token=None)
        path = f"/v2/repository/models/double/unload?token={TOKEN.replace(' ', '+')}"
        assert stranger.post(path, {}).status == 401


# --- clients with names -----------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clients.toml"
    path.write_text(
        f'[clients.alice]\ntoken_sha256 = "{digest("a")}"\nmodels = ["double", "k*"]\n'
        f'[clients.bob]\ncertificate = "bob.example"\nmay = ["statistics"]\n'
    )
    path.chmod(0o600)
    return path


def test_clients_may_use_their_models(file):
    access = Access(None, read_clients(str(file)))
    alice, bob = Peer("1.2.3.4", "Bearer a"), Peer("1.2.3.4", names=("bob.example",))
    access.check("infer", alice, "double")
    access.check("infer", alice, "kws")
    assert str(refusal(access, "infer", alice, "other")) == "the client 'alice' may not use model 'other'"
    assert str(refusal(access, "statistics", alice)) == "the client 'alice' may not use statistics"
    access.check("statistics", bob)
    assert refusal(access, "infer", bob, "double").status is Status.FORBIDDEN
    assert refusal(access, "infer", Peer("1.2.3.4", "Bearer b"), "double").status is Status.UNAUTHENTICATED
    assert (access.name_of(alice), access.name_of(Peer("1.2.3.4"))) == ("client alice", "1.2.3.4")


def test_a_server_with_clients_answers_nobody_else():
    clients = (Client("alice", digest("a"), models=("double",)),)
    with served(clients=clients) as server:
        stranger, alice = HttpClient(server.client.port, None), HttpClient(server.client.port, "a")
        for method, path in (("POST", INFER), ("GET", "/v2/models/double"), ("POST", "/v2/repository/index")):
            assert stranger.send(method, path, infer_body()).status == 401
            assert alice.send(method, path, infer_body()).status == 200
        assert alice.get("/v2/models/stats").status == 403
        assert stranger.get("/v2/health/live").status == 200


def test_grpc_needs_the_same_tokens():
    grpc = pytest.importorskip("grpc", reason="the package grpcio is not installed")
    from interposer.serving.protocol.grpc_messages import message

    options = ServeOptions(clients=(Client("alice", digest("a"), models=("double",)),))
    with running(serving({"double": model(doubler())}), options, grpc=True) as server:
        tensor = {"name": "x", "datatype": "FP32", "shape": [1, 4], "contents": {"fp32_contents": [1, 2, 3, 4]}}
        request = message("ModelInferRequest")(model_name="double", inputs=[tensor]).SerializeToString()
        with grpc.insecure_channel(server.grpc) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer", None, None)
            statistics = channel.unary_unary("/inference.GRPCInferenceService/ModelStatistics", None, None)
            infer(request, metadata=[("authorization", "Bearer a")])
            for call, data, token, code in (
                (infer, request, "Bearer b", grpc.StatusCode.UNAUTHENTICATED),
                (statistics, b"", "", grpc.StatusCode.UNAUTHENTICATED),
                (statistics, b"", "Bearer a", grpc.StatusCode.PERMISSION_DENIED),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    call(data, metadata=[("authorization", token)])
                assert caught.value.code() is code


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no tables such as [clients.NAME]"),
        ("[clients.a]\n", "a client needs token_sha256 or certificate"),
        ('[clients.a]\ntoken = "x"', "unknown key 'token' (known: token_sha256, certificate, models, may)"),
        ('[clients.a]\ntoken_sha256 = "x"', "must be 64 hexadecimal digits"),
        (f'[clients.a]\ntoken_sha256 = "{digest("")}"', "token_sha256 is the digest of an empty text"),
        ('[clients.a]\ncertificate = "x"\nmay = ["control", "infr"]', "may has 'infr'; did you mean 'infer'?"),
        ('[clients.a]\ncertificate = "x"\nmodels = "double"', "models must be a list of texts"),
        ("[clients", "cannot be read"),
        ("x = " + "[" * 100000, "cannot be read: its lists or tables are nested too deeply"),
    ],
)
def test_a_wrong_file_of_clients_is_refused(file, text, problem):
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_clients(str(file))
    assert problem in str(caught.value)


def test_a_file_of_clients_that_others_can_write_is_refused(file):
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="it cannot be trusted: .* can be written by all users"):
        read_clients(str(file))


def test_a_certificate_that_the_server_would_not_ask_for_is_refused(tmp_path):
    file = tmp_path / "clients.toml"
    file.write_text('[clients.bob]\ncertificate = "bob.example"\n')
    arguments = argparse.Namespace(clients=str(file), tls_client_ca=None)
    with pytest.raises(InvalidArgumentError, match="the client 'bob' has a certificate.*--tls-client-ca"):
        known_clients(arguments)
    arguments.tls_client_ca = "ca.pem"
    assert [client.name for client in known_clients(arguments)] == ["bob"]


# --- Unix sockets and users -------------------------------------------------------------------------------------------


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self._path)


def test_this_user_needs_no_token_on_a_unix_socket(tmp_path):
    path = str(tmp_path / "s")
    options = ServeOptions(control=True)
    with running(serving({"double": model(doubler())}), options, unix_socket=path):
        for method, target, status in (
            ("GET", "/v2/models/stats", 200),
            ("POST", "/v2/repository/models/x/unload", 404),
        ):
            connection = UnixConnection(path)
            connection.request(method, target, "{}")
            assert connection.getresponse().status == status
            connection.close()


def test_the_unix_socket_is_removed_at_the_end_unless_another_server_has_replaced_it(tmp_path):
    path = tmp_path / "s"
    with running(serving({"double": model(doubler())}), unix_socket=str(path)):
        assert path.is_socket()
    assert not path.exists()
    with running(serving({"double": model(doubler())}), unix_socket=str(path)):
        path.rename(tmp_path / "old")
        path.touch()
    assert path.exists()


def test_another_user_on_a_unix_socket_needs_a_token(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    tmp_path.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        path = "/tmp/interposer-test-" + str(os.getpid())
        listening.bind(path)
        os.chmod(path, 0o666)
        listening.listen()
        code = f"import os, socket\nos.setuid(65534)\ns = socket.socket(socket.AF_UNIX)\ns.connect({path!r})\ns.recv(1)"
        with subprocess.Popen([sys.executable, "-I", "-c", code]) as process:
            connection, _ = listening.accept()
            with connection:
                state = connection_state(_Transport(connection))
            process.wait(60)
        os.unlink(path)
    assert state["socket_user"] == 65534


class _Transport:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def get_extra_info(self, name: str) -> object:
        return self._connection if name == "socket" else None


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_the_user_at_the_other_end_of_a_connection_is_known(family, address):
    if not Path("/proc/net/tcp").exists():
        pytest.skip("only Linux lists the connections of a host with their users")
    try:
        listening = socket.create_server((address, 0), family=family)
    except OSError:
        pytest.skip(f"this host has no address {address}")
    with listening, socket.create_connection(listening.getsockname()[:2]) as client:
        ends = client.getsockname()[:2], listening.getsockname()[:2]
        assert user_of_connection(*ends) == os.geteuid()
        assert user_of_connection(ends[0], (address, 1)) is None


def test_a_socket_of_a_server_that_has_ended_is_used_again(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    with running(serving({"double": model(doubler())}), unix_socket=str(path)) as server:
        assert server.client.get("/v2").status == 200
        with (
            pytest.raises(ConfigError, match="cannot listen on"),
            running(serving({"double": model(doubler())}), unix_socket=str(path)),
        ):
            pass


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "s"
    path.write_text("a text")
    with pytest.raises(ConfigError, match="there is a file that is no socket; give another path"):
        Listen(unix_socket=str(path)).bound_unix()
    assert path.read_text() == "a text"


# --- pages of other sites ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def local() -> Running:
    with served(control=True, hosts=local_hosts("127.0.0.1"), origins=("https://app.example",)) as server:
        yield server


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (None, None, 200),
        ("localhost:8080", None, 200),
        ("[::1]:80", None, 200),
        ("LOCALHOST.", None, 200),
        ("evil.example", None, 403),
        ("localhost.evil.example", None, 403),
        ("evil.example", "http://evil.example", 403),
        (None, "http://evil.example", 403),
        (None, "null", 403),
        ("localhost:1", "http://localhost:2", 403),
        ("localhost:1", "http://localhost:1", 200),
        (None, "https://app.example", 200),
        ("", None, 403),
    ],
)
def test_foreign_hosts_and_pages_are_refused(local, host, origin, status):
    headers = {} if host is None else {"Host": host}
    headers |= {} if origin is None else {"Origin": origin}
    answer = local.client.post(INFER, infer_body(), **headers, Content_Type="text/plain")
    assert answer.status == status
    assert local.client.get("/v2/health/live", **headers).status == 200
    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == ("https://app.example" if origin == "https://app.example" else None)
    assert ("retry-after" in answer.headers.get("access-control-expose-headers", "")) == (allowed is not None)


def test_only_allowed_pages_get_permission_in_advance(local):
    question = {"Access-Control-Request-Method": "POST"}
    allowed = local.client.send("OPTIONS", INFER, None, {"Origin": "https://app.example", **question})
    assert (allowed.status, allowed.headers["access-control-allow-methods"]) == (204, "GET, POST")
    refused = local.client.send("OPTIONS", INFER, None, {"Origin": "http://evil.example", **question})
    assert refused.status == 403
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_cannot_bind_its_name_to_the_port_for_metrics():
    options = ServeOptions(hosts=local_hosts("127.0.0.1"))
    with running(serving({"double": model(doubler())}), options, metrics_port=0) as server:
        metrics = HttpClient(int(server.addresses["metrics"].rpartition(":")[2]), token=None)
        assert metrics.get("/metrics", Host="evil.example").status == 403
        assert metrics.get("/metrics").status == 200


@pytest.mark.parametrize(
    ("text", "host"), [("App.Example", "app.example"), ("[::1]", "::1"), ("10.0.0.1", "10.0.0.1"), ("*", "*")]
)
def test_the_name_of_a_host_is_compared_in_small_letters(text, host):
    assert host_of(text) == host


@pytest.mark.parametrize("text", ["", "https://app.example", "app.example:8080", "app.example/", "*.example ", "a b@c"])
def test_a_host_that_no_request_can_name_is_an_error(text):
    with pytest.raises(InvalidArgumentError, match="expected the name of a host"):
        host_of(text)


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://App.Example/", "https://app.example"),
        ("https://app.example:443", "https://app.example"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("chrome-extension://abc", "chrome-extension://abc"),
    ],
)
def test_an_origin_is_written_as_browsers_do(text, origin):
    assert origin_of(text) == origin


@pytest.mark.parametrize(
    "text", ["", "*", "null", "app.example", "https://a.example/page", "https://*.a", "http://a:b"]
)
def test_a_text_that_is_no_origin_is_an_error(text):
    with pytest.raises(InvalidArgumentError, match="expected the origin of pages"):
        origin_of(text)


def test_a_page_cannot_bind_its_name_to_a_server_that_has_any_name():
    with served() as server:
        page = {"Host": "evil.example", "Origin": "http://evil.example"}
        assert server.client.post(INFER, infer_body(), **page).status == 403
        assert server.client.post(INFER, infer_body(), Host="models.example").status == 200
