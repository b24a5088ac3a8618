"""Models from URLs: files and folders of stores, artifacts of registries, and their digests."""

from __future__ import annotations

import hashlib
import http.server
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interposer.core.errors import ConfigError
from interposer.serving.remote import fetched, is_url
from interposer.writers import tflite
from tests.serving.running import doubler
from tests.serving.test_serve_command import ask, client_of, started

for package in ("fsspec", "starlette", "uvicorn", "prometheus_client", "flatbuffers"):
    pytest.importorskip(package, reason=f"the package {package} is not installed")
pytestmark = pytest.mark.needs_cpuref


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder with a model, a second file, and their digests."""
    folder = tmp_path / "store"
    (folder / "deep" / "1").mkdir(parents=True)
    tflite.save(doubler(shape=(1, 4)), folder / "doubler.tflite")
    (folder / "deep" / "1" / "model.tflite").write_bytes((folder / "doubler.tflite").read_bytes())
    names = ["doubler.tflite", "deep/1/model.tflite"]
    sums = "".join(f"{digest((folder / name).read_bytes())}  ./{name}\n" for name in names)
    (folder / "SHA256SUMS").write_text(sums)
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_a_file_is_fetched_and_verified(store, target):
    data = (store / "doubler.tflite").read_bytes()
    path = fetched(f"file://{store}/doubler.tflite#sha256={digest(data)}", target)
    assert (path, path.read_bytes()) == (target / "doubler.tflite", data)


def test_a_folder_is_fetched_as_its_list_of_digests_says(store, target):
    (store / "stray.tflite").write_bytes(b"not in the list")
    sums = digest((store / "SHA256SUMS").read_bytes())
    assert fetched(f"file://{store}/#sha256={sums}", target) == target
    files = {str(path.relative_to(target)) for path in target.rglob("*") if path.is_file()}
    assert files == {"doubler.tflite", "deep/1/model.tflite"}


def test_a_file_with_another_digest_is_refused_and_removed(store, target):
    right = digest((store / "doubler.tflite").read_bytes())
    with pytest.raises(ConfigError, match=f"has the SHA-256 digest {right}, not {'0' * 64}"):
        fetched(f"file://{store}/doubler.tflite#sha256={'0' * 64}", target)
    assert list(target.iterdir()) == []


def test_a_file_that_was_changed_after_its_folder_was_listed_is_refused(store, target):
    sums = digest((store / "SHA256SUMS").read_bytes())
    (store / "deep/1/model.tflite").write_bytes(b"another model")
    with pytest.raises(ConfigError, match="deep/1/model.tflite has the SHA-256 digest"):
        fetched(f"file://{store}/#sha256={sums}", target)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("file:///models/a.onnx", "ends in #sha256= and its digest of 64 hexadecimal digits"),
        ("file:///models/a.onnx#sha256=12", "ends in #sha256= and its digest"),
        (f"file:///nowhere/a.onnx#sha256={'0' * 64}", "cannot be fetched: FileNotFoundError"),
        (f"nothing://a/b.onnx#sha256={'0' * 64}", "nothing://a/b.onnx cannot be fetched: "),
        ("oci://host/name:tag", "ends in #sha256="),
    ],
)
def test_a_url_that_cannot_be_fetched_is_explained(url, text, target):
    with pytest.raises(ConfigError, match=text):
        fetched(url, target)


@pytest.mark.parametrize("name", ["../a.tflite", "/a.tflite", "a/../../b", "a\\b", ".."])
def test_names_that_leave_the_folder_are_refused(name, tmp_path, target):
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64}  {name}\n")
    sums = digest((tmp_path / "SHA256SUMS").read_bytes())
    with pytest.raises(ConfigError, match="a file of a model cannot be named"):
        fetched(f"file://{tmp_path}/#sha256={sums}", target)


def test_paths_are_no_urls():
    assert [is_url(text) for text in ("a.onnx", "./a", "/a/b", "C:/a", "s3://a/b", "oci://a/b")] == [False] * 4 + [
        True
    ] * 2


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry with one artifact, which wants a token."""

    blobs: dict[str, bytes]

    def do_GET(self) -> None:
        if self.path.startswith("/token?"):
            self._send(200, b'{"token": "secret"}')
        elif self.headers.get("Authorization") != "Bearer secret":
            self.send_response(401)
            host = self.headers["Host"]
            challenge = f'Bearer realm="http://{host}/token",service="registry",scope="repository:m:pull"'
            self.send_header("WWW-Authenticate", challenge)
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(200, self.blobs.get(self.path.rpartition("sha256:")[2], b"{}"))

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry(store: Path) -> Iterator[tuple[str, str]]:
    """The address of a registry and the digest of its artifact."""
    model = (store / "doubler.tflite").read_bytes()
    layer = {"digest": f"sha256:{digest(model)}", "annotations": {"org.opencontainers.image.title": "doubler.tflite"}}
    manifest = json.dumps({"schemaVersion": 2, "layers": [layer, {"digest": "sha256:" + "1" * 64}]}).encode()
    handler = type("Handler", (Registry,), {"blobs": {digest(data): data for data in (model, manifest)}})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", digest(manifest)
        server.shutdown()


def test_an_artifact_of_a_registry_is_fetched_and_verified(registry, store, target):
    address, manifest = registry
    path = fetched(f"oci://{address}/models/m:v1@sha256:{manifest}", target)
    assert path == target / "doubler.tflite"
    assert path.read_bytes() == (store / "doubler.tflite").read_bytes()
    assert [file.name for file in target.iterdir()] == ["doubler.tflite"]


def test_an_artifact_with_another_digest_is_refused(registry, target):
    address, _ = registry
    with pytest.raises(ConfigError, match="has the SHA-256 digest"):
        fetched(f"oci://{address}/models/m@sha256:{'0' * 64}", target)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.usefixtures("warm_python")
def test_a_model_from_a_url_is_served(store, workers, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    data = (store / "doubler.tflite").read_bytes()
    url = f"file://{store}/doubler.tflite#sha256={digest(data)}"
    with started(url, "--workers", workers) as (process, line):
        assert line.startswith("serving doubler ")
        assert ask(client_of(line)) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    assert list(tmp_path.glob("interposer-models-*")) == []


def test_a_model_from_a_store_with_the_protocol_of_s3_is_fetched(store, target, monkeypatch):
    pytest.importorskip("s3fs", reason="the package s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="the package moto is not installed")
    import fsspec

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        files = fsspec.filesystem("s3")
        files.mkdir("models")
        files.put(str(store / "doubler.tflite"), "models/doubler.tflite")
        data = (store / "doubler.tflite").read_bytes()
        path = fetched(f"s3://models/doubler.tflite#sha256={digest(data)}", target)
        assert path.read_bytes() == data
    finally:
        server.stop()
