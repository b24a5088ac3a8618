"""`Listen`: the addresses of a server, and its sockets."""

from __future__ import annotations

import errno
import os
import socket
import stat
from contextlib import suppress
from dataclasses import replace

from interposer.core.errors import ConfigError
from interposer.core.records import dataclass
from interposer.serving.tls import check_tls

__all__ = ["Listen", "host_and_port"]


def host_and_port(host: str, port: int | None) -> str:
    """Return an address with its port; an IPv6 address is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def remove_socket(path: str, identity: tuple[int, int] | None) -> None:
    """Remove a Unix socket at the end of its server, unless another server has replaced it since.

    Args:
        path: the path of the socket.
        identity: the device and the inode that the path had when it was bound; None does nothing.
    """
    with suppress(OSError):
        if identity is not None and identity_of(path) == identity:
            os.unlink(path)


def identity_of(path: str) -> tuple[int, int] | None:
    """Return the device and the inode of a path; None if there is nothing."""
    with suppress(OSError):
        status = os.lstat(path)
        return status.st_dev, status.st_ino
    return None


def _remove_old(path: str) -> None:
    """Remove the Unix socket of a server that has ended; raise OSError for other files, and if a server listens."""
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        raise OSError(errno.EEXIST, "there is a file that is no socket; give another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        else:
            raise OSError(errno.EADDRINUSE, "another server listens there")


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a server listens; a port of 0 is chosen by the system.

    Args:
        host: the address, such as ``127.0.0.1`` or ``0.0.0.0``.
        port: the port for HTTP.
        grpc_port: the port for gRPC; None without gRPC.
        metrics_port: the port for ``/metrics``; None for that of HTTP.
        certificate: a file with the certificate for TLS; None without TLS.
        key: a file with the private key of the certificate.
        client_ca: a file with the authorities whose clients may connect; None lets all clients connect.
        is_shared: whether several processes listen on the same ports.
        health_port: a port for answers about health only, from a process of its own; None without it.
        unix_socket: the path of a Unix socket for HTTP; None without it.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    grpc_port: int | None = 8081
    metrics_port: int | None = None
    certificate: str | None = None
    key: str | None = None
    client_ca: str | None = None
    is_shared: bool = False
    health_port: int | None = None
    unix_socket: str | None = None

    def check_tls(self) -> None:
        """Check the files for TLS; raise `ConfigError` if the server cannot use them."""
        if self.certificate is not None and self.key is not None:
            check_tls(self.certificate, self.key, self.client_ca)

    def check_free(self) -> None:
        """Check that no other server listens on one of the ports; raise `ConfigError` if one does.

        Several processes may share a port, so this has to be checked before the first of them listens.
        """
        unshared = replace(self, is_shared=False)
        for port in (self.port, self.grpc_port, self.metrics_port, self.health_port):
            if port:
                unshared.bound(port).close()

    def bound_unix(self) -> socket.socket | None:
        """Return the Unix socket, bound to its path, or None; raise `ConfigError` if that is not possible.

        Every user may connect; the server knows which user a process belongs to.
        """
        if self.unix_socket is None:
            return None
        bound_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            _remove_old(self.unix_socket)
            bound_socket.bind(self.unix_socket)
            os.chmod(self.unix_socket, 0o666)
        except OSError as error:
            bound_socket.close()
            raise ConfigError(f"the server cannot listen on {self.unix_socket}: {error.strerror or error}") from None
        return bound_socket

    def bound(self, port: int) -> socket.socket:
        """Return a socket that is bound to a port; raise `ConfigError` if that is not possible."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        bound_socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.is_shared:
                bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound_socket.bind((self.host, port))
        except OSError as error:
            bound_socket.close()
            reason = error.strerror or str(error)
            hint = "; choose another port, as with --port" if error.errno == errno.EADDRINUSE else ""
            raise ConfigError(f"the server cannot listen on {self.host}, port {port}: {reason}{hint}") from None
        return bound_socket
