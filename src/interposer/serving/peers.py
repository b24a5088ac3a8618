"""`Peer`: who sends a request, as far as the server can know."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any, Final

from interposer.core.records import dataclass

__all__ = [
    "STATE",
    "Peer",
    "abort_of_scope",
    "connection_state",
    "crowding_client",
    "peer_of_call",
    "peer_of_scope",
    "same_address",
    "user_of_connection",
]

STATE: Final = "interposer.peer"
"""The key in the ASGI state of a connection whose value is that of `connection_state`, and `abort`, which closes it."""
_CREDENTIALS: Final = struct.Struct("iII")


@dataclass(frozen=True)
class Peer:
    """Who sends a request.

    Args:
        address: the address of the client, without its port; empty on a Unix socket.
        authorization: the header ``Authorization``, or an empty text.
        names: the names in the certificate of the client, which an authority of the server has signed.
        socket_user: the user id of a client on a Unix socket; None on others.
        ends: the addresses and ports of the client and of the server; None if they are not known.
    """

    address: str = ""
    authorization: str = ""
    names: tuple[str, ...] = ()
    socket_user: int | None = None
    ends: tuple[tuple[str, int], tuple[str, int]] | None = None

    @cached_property
    def user(self) -> int | None:
        """The id of the user whose process sends the request; None if it is not of this host, or not known."""
        if self.socket_user is not None:
            return self.socket_user
        return None if self.ends is None else user_of_connection(*self.ends)


def connection_state(transport: Any) -> dict[str, Any]:
    """Return what a connection says about its client: its names in TLS, and its user on a Unix socket."""
    connection = transport.get_extra_info("socket")
    state: dict[str, Any] = {"names": _names(transport.get_extra_info("peercert") or {})}
    if connection is not None and connection.family == getattr(socket, "AF_UNIX", None):
        state["socket_user"] = _socket_user(connection)
    return state


def _socket_user(connection: Any) -> int | None:
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:  # a system other than Linux
        return None
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))
    return int(user)


def _names(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the alternative names of a certificate, and the common names of its subject."""
    names = [str(name) for _, name in certificate.get("subjectAltName", ())]
    subject = [pair for pairs in certificate.get("subject", ()) for pair in pairs]
    return tuple(dict.fromkeys([*names, *(str(text) for key, text in subject if key == "commonName")]))


def peer_of_scope(scope: Mapping[str, Any], authorization: str) -> Peer:
    """Return who sends an HTTP request, from its ASGI scope."""
    client, server = scope.get("client"), scope.get("server")
    state = (scope.get("state") or {}).get(STATE) or {}
    ends = None if not client or not server or server[1] is None else (tuple(client[:2]), tuple(server[:2]))
    address = str(client[0]) if client else ""
    return Peer(address, authorization, state.get("names", ()), state.get("socket_user"), ends)


def abort_of_scope(scope: Mapping[str, Any]) -> Callable[[], None] | None:
    """Return what closes the connection of an HTTP request from any thread; None if its ASGI scope does not say."""
    abort = ((scope.get("state") or {}).get(STATE) or {}).get("abort")
    if abort is None:
        return None
    loop = asyncio.get_running_loop()

    def abort_soon() -> None:
        loop.call_soon_threadsafe(abort)

    return abort_soon


def peer_of_call(peer: str, server_port: int, authorization: str, identity: Mapping[str, Any]) -> Peer:
    """Return who sends a gRPC request.

    Args:
        peer: the address of the client in gRPC's form, such as ``ipv4:127.0.0.1:40000``.
        server_port: the port of the server.
        authorization: the metadata ``authorization``, or an empty text.
        identity: gRPC's properties of a client that TLS has authenticated.
    """
    address, port = _address_and_port(peer)
    ends = None if port is None else ((address, port), (address, server_port))
    keys = ("x509_subject_alternative_name", "x509_common_name") if identity else ()
    names = [name.decode("utf-8", "replace") for key in keys for name in identity.get(key, ())]
    return Peer(address, authorization, tuple(dict.fromkeys(names)), None, ends)


@lru_cache(256)
def _address_and_port(peer: str) -> tuple[str, int | None]:
    """Return the address and the port in gRPC's text for a client; no port if the text is of another kind."""
    kind, _, address_text = peer.partition(":")
    address, _, port = address_text.rpartition(":")
    address = address.replace("%5B", "").replace("%5D", "").strip("[]")
    return address, int(port) if kind in ("ipv4", "ipv6") and port.isdecimal() else None


def user_of_connection(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """Return the id of the user at the client's end of a TCP connection within this host; None if it is not known.

    Linux lists the connections of a host with their users in ``/proc/net/tcp``.
    """
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            return None
        for line in lines:
            fields = line.split()
            if _is_end(fields[1], client) and _is_end(fields[2], server) and fields[3] == _ESTABLISHED:
                return int(fields[7])
    return None


_ESTABLISHED: Final = "01"


def _is_end(text: str, end: tuple[str, int]) -> bool:
    """Return True if an address in the form of ``/proc/net/tcp`` is this address and port."""
    address, _, port = text.partition(":")
    if int(port, 16) != end[1]:
        return False
    words = [int(address[index : index + 8], 16) for index in range(0, len(address), 8)]
    return _without_mapping(struct.pack(f"={len(words)}I", *words)) == _without_mapping(_packed(end[0]))


def crowding_client(counts: Mapping[str, int], client: str) -> str | None:
    """Return the client that has to make room for another one, or None if none has to.

    It is the client that has most of something, provided that it has at least two more than `client`. So one client
    cannot keep the others out, and two clients do not take room from each other in turns.

    Args:
        counts: how many each client has, without the new one.
        client: the one that wants another.
    """
    crowding = max(counts, key=lambda name: counts[name], default=None)
    return crowding if crowding is not None and counts[crowding] >= counts.get(client, 0) + 2 else None


def same_address(one: str, other: str) -> bool:
    """Return True if two texts are the same address, which may be of IPv4 in the form of IPv6."""
    return _without_mapping(_packed(one)) == _without_mapping(_packed(other))


def _packed(address: str) -> bytes:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.inet_pton(family, address.partition("%")[0])
    except OSError:
        return b""


def _without_mapping(address: bytes) -> bytes:
    """Return an IPv4 address that is written as one of IPv6 in its short form, and any other as it is."""
    return address[12:] if len(address) == 16 and address[:12] == bytes(10) + b"\xff\xff" else address


def own_users() -> frozenset[int]:
    """Return the ids of the users that may control this process: its own, and root."""
    return frozenset({os.geteuid(), 0}) if hasattr(os, "geteuid") else frozenset()
