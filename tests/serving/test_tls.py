"""TLS on the ports of the server: clients that trust it, clients that do not, and files that are wrong."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from interposer.core.errors import ConfigError
from interposer.serving.listen import Listen
from interposer.serving.tls import check_tls
from tests.serving.running import Running, doubler, model, running, serving

for package in ("starlette", "uvicorn", "prometheus_client"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = [
    pytest.mark.needs_cpuref,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="openssl, which makes the certificates, is not installed"
    ),
]


class Files(NamedTuple):
    """A folder with certificates and keys, which openssl has made."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def openssl(self, *words: str) -> None:
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def sign(self, name: str, *dates: str) -> None:
        """Make NAME.pem and NAME.key, signed by the authority ca.pem."""
        self.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", "csr", "-subj", "/CN=a")
        (self.folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        words = [
            "-CA",
            "ca.pem",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-extfile",
            "names",
            *(dates or ("-days", "9")),
        ]
        self.openssl("x509", "-req", "-in", "csr", "-out", f"{name}.pem", *words)

    def authority(self, name: str) -> None:
        self.openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem",
            "-days", "9", "-subj", f"/CN={name}",
        )  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    tls_files = Files(tmp_path_factory.mktemp("tls"))
    for name in ("ca", "stranger"):
        tls_files.authority(name)
    for name in ("server", "client"):
        tls_files.sign(name)
    try:
        tls_files.sign("expired", "-days", "-1")
    except subprocess.CalledProcessError:  # OpenSSL from 3.4 on
        tls_files.sign("expired", "-not_before", "20200101000000Z", "-not_after", "20200201000000Z")
    tls_files.openssl("rsa", "-aes128", "-passout", "pass:secret", "-in", "server.key", "-out", "encrypted.key")
    for name, kind, option in (("short", "rsa", "rsa_keygen_bits:1024"), ("rare", "ec", "ec_paramgen_curve:secp224r1")):
        tls_files.openssl(
            "req", "-x509", "-newkey", kind, "-pkeyopt", option, "-nodes", "-keyout", f"{name}.key",
            "-out", f"{name}.pem", "-days", "9", "-subj", f"/CN={name}",
        )  # fmt: skip
    (tls_files.folder / "text.pem").write_text("no certificate\n")
    return tls_files


def listen(files: Files, name: str = "server", **fields: Any) -> dict[str, Any]:
    return {"certificate": files.path(f"{name}.pem"), "key": files.path(f"{name}.key"), **fields}


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[Running]:
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    with running(serving({"doubler": model(doubler())}), grpc=True, **listen(files)) as running_server:
        yield running_server


@pytest.fixture(scope="module")
def strict(files: Files) -> Iterator[Running]:
    pytest.importorskip("grpc", reason="the package grpcio is not installed")
    fields = listen(files, client_ca=files.path("ca.pem"))
    with running(serving({"doubler": model(doubler())}), grpc=True, **fields) as running_server:
        yield running_server


REFUSED = {35, 52, 55, 56}
"""Exit statuses of curl if the server closes the connection; with TLS 1.3 that is after the handshake."""


def curl(server: Running, *words: str) -> tuple[int, str]:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    url = f"https://localhost:{server.client.port}/v2/health/ready"
    command = ["curl", "-sS", "--noproxy", "*", *words, url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_curl_reaches_the_server(server, files):
    assert curl(server, "--cacert", files.path("ca.pem")) == (0, '{"ready":true}')
    code, said = curl(server, "--cacert", files.path("stranger.pem"))
    assert (code, "certificate" in said) == (60, True)


def test_curl_needs_a_certificate_if_the_server_asks_for_one(strict, files):
    trust = ("--cacert", files.path("ca.pem"))
    pair = ("--cert", files.path("client.pem"), "--key", files.path("client.key"))
    assert curl(strict, *trust, *pair) == (0, '{"ready":true}')
    assert curl(strict, *trust)[0] in REFUSED
    stranger = ("--cert", files.path("stranger.pem"), "--key", files.path("stranger.key"))
    assert curl(strict, *trust, *stranger)[0] in REFUSED


def infer(lib: Any, client: Any) -> Any:
    x = lib.InferInput("x", [1, 4], "FP32")
    x.set_data_from_numpy(np.ones((1, 4), np.float32))
    return client.infer("doubler", [x]).as_numpy("y").tolist()


def test_tritonclient_reaches_the_server_over_http(server, files):
    lib = pytest.importorskip("tritonclient.http", reason="tritonclient is not installed")
    options = {"ca_certs": files.path("ca.pem")}
    address = f"localhost:{server.client.port}"
    with lib.InferenceServerClient(address, ssl=True, ssl_options=options) as client:
        assert infer(lib, client) == [[2, 2, 2, 2]]


def test_tritonclient_with_asyncio_reaches_the_server_over_http(strict, files):
    lib = pytest.importorskip("tritonclient.http.aio", reason="tritonclient is not installed")

    async def main(context: ssl.SSLContext) -> Any:
        address = f"localhost:{strict.client.port}"
        async with lib.InferenceServerClient(address, ssl=True, ssl_context=context) as client:
            return await client.is_server_ready()

    context = ssl.create_default_context(cafile=files.path("ca.pem"))
    context.load_cert_chain(files.path("client.pem"), files.path("client.key"))
    assert asyncio.run(main(context))


def test_tritonclient_reaches_the_server_over_grpc(strict, files):
    lib = pytest.importorskip("tritonclient.grpc", reason="tritonclient is not installed")
    address = strict.grpc.replace("127.0.0.1", "localhost")
    pair = {"private_key": files.path("client.key"), "certificate_chain": files.path("client.pem")}
    trust = {"root_certificates": files.path("ca.pem")}
    with lib.InferenceServerClient(address, ssl=True, **trust, **pair) as client:
        assert infer(lib, client) == [[2, 2, 2, 2]]
    for wrong in (trust, {**trust, **{key: path.replace("client", "stranger") for key, path in pair.items()}}):
        with (
            lib.InferenceServerClient(address, ssl=True, **wrong) as client,
            pytest.raises(Exception, match="(?i)unavailable"),
        ):
            infer(lib, client)


def test_http_on_a_port_with_tls_is_refused_and_does_no_harm(server, files):
    with socket.create_connection(("127.0.0.1", server.client.port)) as plain:
        plain.sendall(b"GET /v2 HTTP/1.1\r\nHost: a\r\n\r\n")
        plain.settimeout(300)
        assert b"200" not in plain.recv(1000)
    assert curl(server, "--cacert", files.path("ca.pem"))[0] == 0


def test_a_client_that_does_not_finish_its_handshake_does_no_harm(server, files):
    with socket.create_connection(("127.0.0.1", server.client.port)) as plain:
        plain.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert curl(server, "--cacert", files.path("ca.pem"))[0] == 0


@pytest.mark.parametrize(
    ("certificate", "key", "client_ca", "text"),
    [
        ("text.pem", "server.key", None, "{folder}/text.pem has no certificate in the format PEM"),
        ("server.key", "server.key", None, "{folder}/server.key has no certificate in the format PEM"),
        ("server.pem", "server.pem", None, "{folder}/server.pem has no private key in the format PEM"),
        ("server.pem", "text.pem", None, "{folder}/text.pem has no private key in the format PEM"),
        ("server.pem", "client.key", None,
         "the private key {folder}/client.key does not belong to the certificate {folder}/server.pem"),
        ("server.pem", "rare.key", None,
         "the private key {folder}/rare.key does not belong to the certificate {folder}/server.pem"),
        ("short.pem", "short.key", None, "OpenSSL refuses the certificate {folder}/short.pem: ee key too small"),
        ("server.pem", "encrypted.key", None,
         "the private key {folder}/encrypted.key is encrypted; the server needs one without a password"),
        ("server.pem", "server.key", "text.pem", "{folder}/text.pem has no certificate in the format PEM"),
        ("server.pem", "none.key", None, "{folder}/none.key cannot be read: No such file or directory"),
        ("none.pem", "server.key", None, "{folder}/none.pem cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_wrong_files_are_named(files, certificate, key, client_ca, text):
    with pytest.raises(ConfigError) as caught:
        check_tls(files.path(certificate), files.path(key), client_ca and files.path(client_ca))
    assert str(caught.value) == text.format(folder=files.folder)


def test_a_server_does_not_start_with_wrong_files(files):
    with (
        pytest.raises(ConfigError, match=r"text.pem has no private key in the format PEM"),
        running(serving({"doubler": model(doubler())}), **listen(files) | {"key": files.path("text.pem")}),
    ):
        pass


def test_a_certificate_that_has_expired_causes_a_warning(files, caplog):
    with caplog.at_level(logging.WARNING, logger="interposer.serving"):
        Listen(**listen(files, "client")).check_tls()
        assert caplog.messages == []
        Listen(**listen(files, "expired")).check_tls()
    assert caplog.messages == [
        f"clients will refuse the certificate {files.path('expired.pem')}: certificate has expired"
    ]


def test_a_key_of_a_kind_that_clients_do_not_support_causes_a_warning(files, caplog):
    with caplog.at_level(logging.WARNING, logger="interposer.serving"):
        Listen(**listen(files, "rare")).check_tls()
    assert caplog.messages == [f"clients will refuse the certificate {files.path('rare.pem')}: no shared cipher"]
