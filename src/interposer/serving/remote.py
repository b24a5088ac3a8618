"""Models from URLs, verified by digest: stores that fsspec knows, such as S3, and registries of OCI artifacts."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from interposer.core.errors import ConfigError, MissingDependencyError

__all__ = ["OCI_USER", "fetched", "is_url", "with_urls"]

OCI_USER: Final = "INTERPOSER_OCI_USER"
"""Environment variable with NAME:PASSWORD for registries."""
_SUMS: Final = "SHA256SUMS"
_MIB: Final = 1 << 20
_SECONDS: Final = 60
_MANIFESTS: Final = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
_TITLE: Final = "org.opencontainers.image.title"
_LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")


def is_url(text: str) -> bool:
    """Return True for the URL of a model, and False for a path."""
    return re.match(r"[a-z][a-z0-9+.-]*://", text) is not None


def fetched(url: str, folder: Path) -> Path:
    """Fetch a model into a folder, and return the path of its file or folder there.

    ``s3://bucket/model.onnx#sha256=HEX`` is a file with this SHA-256 digest. ``s3://bucket/models/#sha256=HEX`` is a
    folder with a file ``SHA256SUMS``, as the program sha256sum writes it, that has this digest itself; its files are
    fetched. ``oci://registry/name@sha256:HEX`` is an artifact whose manifest has this digest; each of its layers with a
    title is a file. Nothing that has another digest stays in the folder.

    Raises:
        ConfigError: the URL has no digest, a file cannot be fetched, or it has another digest.
        MissingDependencyError: fsspec, or its package for this kind of store, is not installed.
    """
    oci = re.fullmatch(r"oci://([^/]+)/(.+?)(?::[\w.-]+)?@sha256:([0-9a-f]{64})", url)
    if oci is not None:
        return _artifact(oci[1], oci[2], oci[3], folder)
    address, _, digest = url.partition("#sha256=")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise ConfigError(f"{url}: the URL of a model ends in #sha256= and its digest of 64 hexadecimal digits")
    if not address.endswith("/"):
        path = folder / _name(url, PurePosixPath(urllib.parse.urlsplit(address).path).name)
        _copy(address, path, digest)
        return path
    sums = folder / _SUMS
    _copy(address + _SUMS, sums, digest)
    for file_digest, name in _lines(address, sums.read_text(encoding="utf-8", errors="replace")):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _copy(address + name, path, file_digest)
    sums.unlink()
    return folder


def _lines(address: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield digest and name of each line of a file of sha256sum."""
    for line in text.splitlines():
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](?:\./)?(.+)", line)
        if match is None:
            raise ConfigError(f"{address}{_SUMS}: the line {line[:100]!r} is no digest with the name of a file")
        yield match[1], "/".join(_name(address, part) for part in match[2].split("/"))


def _name(url: str, name: str) -> str:
    """Return a name of a file that stays in its folder; raise `ConfigError` for others."""
    if name in ("", ".", "..") or "\\" in name or "\0" in name or "/" in name:
        raise ConfigError(f"{url}: a file of a model cannot be named {name!r}")
    return name


def _copy(address: str, path: Path, digest: str) -> None:
    """Copy a file of a store that fsspec knows."""
    try:
        import fsspec  # noqa: PLC0415 - an optional dependency
    except ImportError:
        raise MissingDependencyError("fsspec", "remote", "models from URLs") from None
    try:
        with fsspec.open(address, "rb") as source:
            _write(source, path, digest, address)
    except ImportError as error:
        store = address.partition(":")[0]
        package = next(iter(re.findall(r"[Ii]nstall '?([\w-]+)", str(error))), f"for {store}")
        raise MissingDependencyError(package, "remote", f"models from {store} URLs") from None
    except ConfigError:
        raise
    except Exception as error:  # each kind of store has exceptions of its own
        raise ConfigError(f"{address} cannot be fetched: {type(error).__name__}: {error}") from None


def _write(source: BinaryIO | Any, path: Path, digest: str, address: str) -> None:
    """Write what can be read to a file; remove it and raise `ConfigError` if it has another digest."""
    written_digest = hashlib.sha256()
    temporary_path = path.with_name(f"{path.name}.part")
    try:
        with temporary_path.open("xb") as file:
            while chunk := source.read(_MIB):
                written_digest.update(chunk)
                file.write(chunk)
        if written_digest.hexdigest() != digest:
            raise ConfigError(f"{address} has the SHA-256 digest {written_digest.hexdigest()}, not {digest}")
        os.replace(temporary_path, path)
    finally:
        temporary_path.unlink(missing_ok=True)


# --- registries -------------------------------------------------------------------------------------------------------


def _artifact(registry: str, name: str, digest: str, folder: Path) -> Path:
    """Fetch the layers of an artifact; return the file if there is one, else the folder."""
    scheme = "http" if registry.rpartition(":")[0] in _LOCAL or registry in _LOCAL else "https"
    base = f"{scheme}://{registry}/v2/{name}"
    registry_client = _Registry(registry)
    path = folder / "manifest.json"
    registry_client.fetch(f"{base}/manifests/sha256:{digest}", path, digest)
    layers = _layers(base, json.loads(path.read_bytes()))
    path.unlink()
    for title, layer_digest in layers:
        (folder / title).parent.mkdir(parents=True, exist_ok=True)
        registry_client.fetch(f"{base}/blobs/sha256:{layer_digest}", folder / title, layer_digest)
    return folder / layers[0][0] if len(layers) == 1 and "/" not in layers[0][0] else folder


def _layers(base: str, manifest: Any) -> list[tuple[str, str]]:
    """Return the titles and digests of the layers that are files."""
    layers = []
    for layer in manifest.get("layers", []) if isinstance(manifest, dict) else []:
        title = layer.get("annotations", {}).get(_TITLE)
        match = re.fullmatch("sha256:([0-9a-f]{64})", str(layer.get("digest")))
        if title is not None and match is not None:
            layers.append(("/".join(_name(base, part) for part in str(title).split("/")), match[1]))
    if not layers:
        raise ConfigError(f"{base}: the artifact has no files; each is a layer with the annotation {_TITLE}")
    return layers


class _Registry:
    """Fetches from a registry, with a token if the registry wants one."""

    def __init__(self, registry: str) -> None:
        self._registry = registry
        self._authorization = ""

    def fetch(self, url: str, path: Path, digest: str) -> None:
        """Write what a URL has to a file."""
        try:
            with self._opened(url) as answer:
                _write(answer, path, digest, url)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{url} cannot be fetched: {error}") from None

    def _opened(self, url: str) -> Any:
        try:
            return self._request(url, self._authorization)
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or self._authorization:
                raise
        self._authorization = self._token(challenge)
        return self._request(url, self._authorization)

    def _request(self, url: str, authorization: str) -> Any:
        request = urllib.request.Request(url, headers={"Accept": _MANIFESTS})
        if authorization:
            request.add_unredirected_header("Authorization", authorization)  # blobs may be at another host
        return urllib.request.urlopen(request, timeout=_SECONDS)

    def _token(self, challenge: str) -> str:
        """Return the value of the header Authorization that a challenge asks for."""
        user = os.environ.get(OCI_USER, "")
        basic_authorization = f"Basic {base64.b64encode(user.encode()).decode()}" if user else ""
        if not challenge.lower().startswith("bearer "):
            return basic_authorization
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        realm = fields.pop("realm", "")
        if urllib.parse.urlsplit(realm).scheme not in ("http", "https"):
            raise ValueError("the registry asks for a token, but not from where")
        query = urllib.parse.urlencode({name: fields[name] for name in ("service", "scope") if name in fields})
        with self._request(f"{realm}?{query}", basic_authorization) as answer:
            payload = json.loads(answer.read(_MIB))
        return f"Bearer {payload.get('token') or payload.get('access_token')}"


def with_urls(models: list[str], folder: Path) -> dict[str, str]:
    """Fetch the models that are URLs, each into a folder of its own, and return their paths by URL."""
    paths = {}
    for number, url in enumerate(dict.fromkeys(filter(is_url, models))):
        model_folder = folder / str(number)
        model_folder.mkdir(mode=0o700)
        paths[url] = str(fetched(url, model_folder))
    return paths
