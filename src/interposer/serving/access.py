"""`Access`: who may infer, read statistics, load models, and use shared memory."""

from __future__ import annotations

import fnmatch
import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from interposer.core.errors import ConfigError, InvalidArgumentError, did_you_mean
from interposer.core.ownership import why_untrusted
from interposer.core.records import dataclass
from interposer.serving.peers import Peer, own_users
from interposer.serving.protocol.errors import ServingError, Status
from interposer.serving.protocol.messages import named
from interposer.serving.settings_text import table_of_settings

__all__ = ["Access", "Client", "check_token", "read_clients"]

_RIGHTS: Final = ("infer", "statistics", "control", "shared_memory")
_TITLES: Final = {
    "infer": "requests for models", "statistics": "statistics", "control": "loading and unloading models",
    "shared_memory": "shared memory",
}  # fmt: skip
_KEYS: Final = ("token_sha256", "certificate", "models", "may")
_WITHOUT_TOKEN: Final = tuple(hashlib.sha256(text).hexdigest() for text in (b"", b"\n"))
"""Digests that programs print for a token that was not set."""


@dataclass(frozen=True, slots=True)
class Client:
    """A client that a server knows.

    Args:
        name: its name in messages.
        token: the SHA-256 digest of its token, in hexadecimal; None if it has no token.
        certificate: a name in its certificate; None if it has no certificate.
        models: the names of the models for which it may send requests; ``*`` stands for any letters.
        may: what it may do: ``infer``, ``statistics``, ``control``, ``shared_memory``.
    """

    name: str
    token: str | None = None
    certificate: str | None = None
    models: tuple[str, ...] = ("*",)
    may: frozenset[str] = frozenset({"infer"})

    def is_sender(self, digest: str, peer: Peer) -> bool:
        """Return True if a request with this digest of its token, or from this peer, is from the client."""
        has_token = self.token is not None and hmac.compare_digest(self.token, digest)
        return has_token or (self.certificate is not None and self.certificate in peer.names)

    def may_use(self, model: str) -> bool:
        """Return True if the client may send requests for a model."""
        return any(fnmatch.fnmatchcase(model, pattern) for pattern in self.models)


class Access:
    """What clients may do. Inference is open to everybody unless there are clients with names.

    The token of the server, and processes of its user or of root on a Unix socket, may do everything.

    Args:
        token: the token of the server; None if it has none.
        clients: the clients that are known.
    """

    def __init__(self, token: str | None = None, clients: Iterable[Client] = ()) -> None:
        self._token, self._clients = token, tuple(clients)

    @property
    def is_open(self) -> bool:
        """True if inference needs no token."""
        return not self._clients

    def check(self, right: str, peer: Peer, model: str = "") -> None:
        """Check that a client may do something.

        Args:
            right: ``infer``, ``statistics``, ``control`` or ``shared_memory``.
            peer: who sends the request.
            model: the model of the request, for ``infer``.

        Raises:
            ServingError: the client is not known, or may not do that.
        """
        if (right == "infer" and self.is_open) or self.is_owner(peer):
            return
        client = self._client(peer)
        if client is None:
            raise self._unknown(right)
        if right not in client.may:
            raise ServingError(Status.FORBIDDEN, f"the client {client.name!r} may not use {_TITLES[right]}")
        if model and not client.may_use(model):
            raise ServingError(Status.FORBIDDEN, f"the client {client.name!r} may not use model {model[:200]!r}")

    def may_use(self, peer: Peer, model: str) -> bool:
        """Return True if a client may send requests for a model."""
        try:
            self.check("infer", peer, model)
        except ServingError:
            return False
        return True

    def name_of(self, peer: Peer) -> str:
        """Return the name of the client that sends a request, or its address."""
        client = None if self.is_open else self._client(peer)
        return peer.address if client is None else named(client.name)

    def is_owner(self, peer: Peer) -> bool:
        """Return True if a client may do everything: it has the token of the server, or is a process of its user."""
        if peer.socket_user is not None and peer.socket_user in own_users():
            return True
        if self._token is None:
            return False
        return hmac.compare_digest(_digest(self._token.encode()), _digest(_as_bytes(_bearer_token(peer))))

    def _client(self, peer: Peer) -> Client | None:
        token = _bearer_token(peer)
        digest = _digest(_as_bytes(token)) if token else ""
        return next((client for client in self._clients if client.is_sender(digest, peer)), None)

    def _unknown(self, right: str) -> ServingError:
        if self._token is None and not self._clients:
            return ServingError(
                Status.FORBIDDEN,
                f"this server offers {_TITLES[right]} to nobody over the network: it was started without "
                "INTERPOSER_SERVE_TOKEN; its Unix socket (--socket) needs no token",
            )
        return ServingError(Status.UNAUTHENTICATED, "the request needs the header Authorization: Bearer TOKEN")


def check_token(token: str, place: str = "token") -> None:
    """Raise `InvalidArgumentError` for a token that no client could send; `place` says where it is from."""
    if not token or token != token.strip():
        raise InvalidArgumentError(
            f"{place} must be a text without white space at its ends; files written by `echo` end with a new line, "
            "and those written by `printf %s` do not"
        )
    if not (token.isascii() and token.isprintable()):
        raise InvalidArgumentError(f"{place} must have printable ASCII characters only, as headers cannot have others")


def _bearer_token(peer: Peer) -> str:
    """Return the token of a request; an empty text if it has none."""
    kind, _, token = peer.authorization.partition(" ")
    return token if kind.lower() == "bearer" else ""


def _digest(token: bytes) -> str:
    """Return the digest of a token. The time to compare digests does not depend on the length of a token."""
    return hashlib.sha256(token).hexdigest()


def _as_bytes(text: str) -> bytes:
    return text.encode("latin-1", "replace")  # the bytes of HTTP


def read_clients(path: str) -> tuple[Client, ...]:
    """Return the clients in a TOML file, which has a table ``clients.NAME`` for each.

    Raises:
        ConfigError: the file cannot be read, other users can write it, or it has unknown keys or wrong values.
    """
    problem = why_untrusted(path)
    if problem:
        raise ConfigError(f"{path} says who may do what, but it cannot be trusted: {problem}")
    try:
        tables = table_of_settings(Path(path).read_text(encoding="utf-8")).get("clients")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    if not isinstance(tables, dict) or not tables or not all(isinstance(table, dict) for table in tables.values()):
        raise ConfigError(f"{path} has no tables such as [clients.NAME]")
    return tuple(_client(path, name, table) for name, table in tables.items())


def _client(path: str, name: str, table: dict[str, Any]) -> Client:
    place = f"{path}, clients.{name}"
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{place}: unknown key {key!r}{did_you_mean(key, _KEYS)} (known: {', '.join(_KEYS)})")
    token, certificate = table.get("token_sha256"), table.get("certificate")
    if token is None and certificate is None:
        raise ConfigError(f"{place}: a client needs token_sha256 or certificate")
    if token is not None and not (isinstance(token, str) and _is_digest(token)):
        raise ConfigError(f"{place}: token_sha256 must be 64 hexadecimal digits, as `sha256sum` prints them")
    if token is not None and token.lower() in _WITHOUT_TOKEN:
        raise ConfigError(f"{place}: token_sha256 is the digest of an empty text; use `printf %s TOKEN | sha256sum`")
    if certificate is not None and not isinstance(certificate, str):
        raise ConfigError(f"{place}: certificate must be a name in the certificate of the client")
    models, rights = _texts(place, table, "models", ["*"]), _texts(place, table, "may", ["infer"])
    for right in rights:
        if right not in _RIGHTS:
            raise ConfigError(f"{place}: may has {right!r}{did_you_mean(right, _RIGHTS)} (known: {', '.join(_RIGHTS)})")
    return Client(name, None if token is None else token.lower(), certificate, tuple(models), frozenset(rights))


def _is_digest(text: str) -> bool:
    return len(text) == 64 and all(letter in "0123456789abcdefABCDEF" for letter in text)


def _texts(place: str, table: dict[str, Any], key: str, default: list[str]) -> list[str]:
    texts = table.get(key, default)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{place}: {key} must be a list of texts")
    return texts
