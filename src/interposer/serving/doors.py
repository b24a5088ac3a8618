"""Checks of the headers ``Host`` and ``Origin``, with which a browser says whose page sends a request."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from interposer.core.errors import InvalidArgumentError
from interposer.serving.bodies import headers_of
from interposer.serving.peers import STATE

__all__ = ["Doors", "host_of", "local_hosts", "origin_of"]

Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_PORTS: Final = {"http": 80, "https": 443}
_HEALTH: Final = frozenset({"/v2/health/live", "/v2/health/ready"})
_SHORT: Final = 256
"""Characters of a host up to which its name is remembered."""
_METHODS: Final = b"GET, POST"
_HEADERS: Final = b"authorization, content-type, content-encoding, inference-header-content-length"
_EXPOSED: Final = b"inference-header-content-length, retry-after"
"""Headers of answers that a page needs, and that browsers hide from pages of other sites otherwise."""


def local_hosts(host: str) -> tuple[str, ...] | None:
    """Return the names that clients of a server on a loopback address use; None for other addresses."""
    try:
        is_local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return None
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", host))) if is_local else None


def host_of(text: str) -> str:
    """Return the name of a host as `Doors` compares it: in lower case, without brackets; ``*`` stays.

    Raises:
        InvalidArgumentError: the text is not a name or an address alone.
    """
    name = text.strip("[]").rstrip(".").lower()
    is_plain = "*" not in name and not any(letter.isspace() for letter in name)
    if text == "*" or (is_plain and name and name == _name_of(f"[{name}]" if ":" in name else name)):
        return name
    raise InvalidArgumentError(f"expected the name of a host without scheme and port, or *, not {text!r}")


def origin_of(text: str) -> str:
    """Return the origin of pages as browsers write it, in lower case.

    Raises:
        InvalidArgumentError: the text has no scheme or host, or has more than these and a port.
    """
    with suppress(ValueError):
        parts = urlsplit(text.lower())
        port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        is_whole = text.lower().rstrip("/") == f"{parts.scheme}://{parts.netloc}" and "@" not in text
        if parts.scheme and host and is_whole and "*" not in host:
            return f"{parts.scheme}://{host}{port}"
    raise InvalidArgumentError(f"expected the origin of pages, such as https://app.example, not {text!r}")


class Doors:
    """An ASGI application that refuses requests of foreign pages, and passes the others on.

    A page of another site can send requests to this host, and one whose name is then bound to this address counts as
    of the same site. The first has a foreign ``Origin``, the second a foreign ``Host``. Health is for everybody.

    Args:
        app: the application.
        hosts: the names that ``Host`` may have, without ports; None allows all.
        origins: the origins of pages that may use the server, such as ``https://app.example``.
    """

    def __init__(self, app: Any, hosts: tuple[str, ...] | None, origins: tuple[str, ...]) -> None:
        self._app, self._hosts, self._origins = app, hosts, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _HEALTH or _is_unix(scope):
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        origin = headers.get("origin")
        problem = self._problem(scope, headers, origin)
        if problem:
            await _answer(send, 403, json.dumps({"error": problem}).encode(), [])
        elif origin in self._origins and origin is not None:
            await self._shared(scope, receive, send, origin, headers)
        else:
            await self._app(scope, receive, send)

    def _problem(self, scope: Scope, headers: dict[str, str], origin: str | None) -> str:
        host = headers.get("host", "")
        name = _name_of(host)
        if self._hosts is not None and name not in self._hosts:
            return f"this server does not answer requests for the host {name[:200]!r}; see its option --allow-host"
        if origin is None or origin in self._origins:
            return ""
        is_own = origin == f"{scope.get('scheme', 'http')}://{host}" and (self._hosts is not None or _is_address(name))
        if is_own:
            return ""
        return f"this server does not answer pages of {origin[:200]!r}; see its option --allow-origin"

    async def _shared(self, scope: Scope, receive: Any, send: Send, origin: str, headers: dict[str, str]) -> None:
        """Answer a page of another site that may use the server, or its question whether it may."""
        allowed_headers = [(b"access-control-allow-origin", origin.encode("latin-1")), (b"vary", b"origin")]
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            preflight_headers = [
                (b"access-control-allow-methods", _METHODS),
                (b"access-control-allow-headers", _HEADERS),
            ]
            await _answer(send, 204, b"", allowed_headers + preflight_headers)
            return

        allowed_headers.append((b"access-control-expose-headers", _EXPOSED))

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *allowed_headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _is_unix(scope: Scope) -> bool:
    """Return True for a connection on a Unix socket, which no page can open."""
    return ((scope.get("state") or {}).get(STATE) or {}).get("socket_user") is not None


def _name_of(host: str) -> str:
    """Return the name in the header ``Host`` in lower case, without the port."""
    return _parsed_name(host) if len(host) < _SHORT else _parsed_name.__wrapped__(host)


@lru_cache(256)
def _parsed_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost"
    return True


async def _answer(send: Send, status: int, content: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
