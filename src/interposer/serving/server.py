"""`Server`: HTTP and gRPC on their ports, from the first open port to an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from typing import Any, Final

from interposer.core.errors import ConfigError, MissingDependencyError
from interposer.serving.connections import Connections, allowed_connections, protocol_class
from interposer.serving.core import Core
from interposer.serving.grpc_connections import close_excess
from interposer.serving.health import HealthPort
from interposer.serving.http import http_app, metrics_app
from interposer.serving.listen import Listen, host_and_port, identity_of, remove_socket

__all__ = ["Server", "run_server"]

_log: Final = logging.getLogger("interposer.serving")
_POLL: Final = 0.02
_UPDATE: Final = 1.0
_BEAT: Final = 0.1
"""Seconds between two notes about the state of the server for the process that answers about health."""
_SWITCH: Final = 0.001
"""Seconds after which a thread that runs Python code has to let the event loop have its turn."""
_FEWEST_FILES: Final = 64
"""The least limit of open files; gRPC aborts the process if it lacks some."""
_FILES: Final = 1024
"""The limit of open files that the message about too few recommends."""
_ANSWER: Final = 2.0
"""Seconds in which cancelled requests can still be answered."""


class Server:
    """One process that answers requests until it is asked to stop.

    Args:
        core: the models and the options.
        listen: the ports.
        ready: called once with the addresses when all models are loaded.
    """

    def __init__(self, core: Core, listen: Listen, ready: Any = None) -> None:
        self.core, self.listen, self._ready = core, listen, ready
        self._num_signals = 0
        self._is_loaded = self._is_delayed = False
        self._unix_identity: tuple[int, int] | None = None
        self._stop = asyncio.Event()

    def stop(self, delayed: bool = True) -> None:
        """End in order; called a second time, end at once.

        The server is not ready from now on. With `delayed`, it answers new requests for the seconds of the option
        `shutdown_delay`, in which load balancers see that it is not ready.
        """
        self._num_signals += 1
        self._is_delayed = delayed and self._is_loaded
        self.core.is_stopping = True
        self._stop.set()

    async def run(self) -> None:
        """Open the ports, load the models, and answer requests until `stop` is called.

        Raises:
            InterposerError: a model cannot be loaded, a port is taken, or a package is missing.
        """
        self.listen.check_tls()
        if self.listen.is_shared:  # the other workers answer until this one can
            await self._load_models()
        web = self._web_servers()
        rpc = await self._rpc_server()
        health = self._health_port()
        tasks = [asyncio.ensure_future(server.serve(sockets=[bound_socket])) for server, bound_socket in web]
        stop_task = asyncio.ensure_future(self._stop.wait())
        loading = asyncio.ensure_future(self._loaded())
        updating = asyncio.ensure_future(self._updated())
        polling = asyncio.ensure_future(self._polled())
        limit_task = None if rpc is None else asyncio.ensure_future(self._limited(rpc.port))
        beating = None if health is None else asyncio.ensure_future(self._beating(health[0]))
        try:
            await asyncio.wait([*tasks, loading, stop_task], return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                loading.result()
                self._is_loaded = True
                if self._ready is not None and not self._stop.is_set():
                    self._ready(self._addresses(web, rpc, health))
            await asyncio.wait([*tasks, stop_task], return_when=asyncio.FIRST_COMPLETED)
            await self._delayed()
            self.core.is_draining = True
            await self._drained()
        finally:
            self.core.is_draining = True
            stop_task.cancel()
            updating.cancel()
            polling.cancel()
            if limit_task is not None:
                limit_task.cancel()
            await self._closed([server for server, _ in web], tasks, rpc)
            if self.listen.unix_socket is not None:
                remove_socket(self.listen.unix_socket, self._unix_identity)
            if health is not None and beating is not None:
                beating.cancel()
                await asyncio.to_thread(health[0].close)

    async def _loaded(self) -> None:
        if not self.listen.is_shared:
            await self._load_models()

    async def _load_models(self) -> None:
        """Load the models; a server whose models may be repaired while it runs also starts without any of them."""
        options = self.core.options
        await self.core.repository.load_all(
            needs_all=options.exit_on_error, needs_one=options.poll is None and not options.control
        )

    async def _updated(self) -> None:
        """Update the gauges every second, for the worker that answers at ``/metrics``."""
        while True:
            self.core.metrics.update(self.core.repository.served)
            await asyncio.sleep(_UPDATE)

    def _most_connections(self) -> int:
        """Return how many connections may be open for HTTP, and as many for gRPC."""
        return allowed_connections(self.core.options.max_connections, 1 if self.listen.grpc_port is None else 2)

    async def _limited(self, port: int) -> None:
        """Close connections to the port for gRPC if there are too many."""
        max_connections = self._most_connections()
        while True:
            num_closed = await asyncio.to_thread(close_excess, port, max_connections)
            if num_closed:
                _log.warning("%d connections to the port for gRPC were closed, because there were too many", num_closed)
            await asyncio.sleep(_UPDATE)

    async def _polled(self) -> None:
        """Look for changed files of models, at intervals of the option `poll`."""
        if self.core.options.poll is None:
            return
        while True:
            await asyncio.sleep(self.core.options.poll)
            await self.core.repository.look_for_changes()

    async def _delayed(self) -> None:
        """Answer requests for the time of `shutdown_delay`; end it at the second signal."""
        deadline = asyncio.get_running_loop().time() + (self.core.options.shutdown_delay if self._is_delayed else 0)
        while self._num_signals < 2 and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL)

    async def _drained(self) -> None:
        """Wait for the requests that run; cancel them after the time for draining, or at the second signal."""
        deadline = asyncio.get_running_loop().time() + self.core.options.drain
        while self.core.in_flight and self._num_signals < 2 and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(_POLL)
        if self.core.in_flight:
            _log.warning("%d requests were cancelled because the server stops", self.core.in_flight)
            self.core.cancel_all()
            deadline = asyncio.get_running_loop().time() + (_ANSWER if self._num_signals < 2 else 0)
            while self.core.in_flight and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(_POLL)

    async def _closed(self, servers: list[Any], tasks: Sequence[asyncio.Future[Any]], rpc: Any) -> None:
        for server in servers:
            server.should_exit = True
            server.force_exit = self._num_signals > 1
        if rpc is not None:
            await rpc.stop(None if self._num_signals > 1 else 1.0)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _web_servers(self) -> list[tuple[Any, socket.socket]]:
        listen, core = self.listen, self.core
        apps = [(http_app(core, metrics=listen.metrics_port is None), listen.bound(listen.port))]
        if listen.metrics_port is not None:
            apps.append((metrics_app(core), listen.bound(listen.metrics_port)))
        try:
            unix_socket = listen.bound_unix()
        except ConfigError:
            for _, bound_socket in apps:
                bound_socket.close()
            raise
        servers = [self._web_server(app, bound_socket, "on", self._tls()) for app, bound_socket in apps]
        if listen.unix_socket is not None:
            self._unix_identity = identity_of(listen.unix_socket)
        if unix_socket is not None:  # the lifespan of the application is that of the first port
            servers.append(self._web_server(apps[0][0], unix_socket, "off", {}))
        return servers

    def _web_server(
        self, app: Any, bound_socket: socket.socket, lifespan: str, tls_settings: dict[str, Any]
    ) -> tuple[Any, socket.socket]:
        try:
            import uvicorn  # noqa: PLC0415 - an optional dependency
            from uvicorn.protocols.http.auto import AutoHTTPProtocol  # noqa: PLC0415
        except ImportError:
            raise MissingDependencyError("uvicorn", "serve", "the server") from None
        config = uvicorn.Config(
            app,
            http=protocol_class(AutoHTTPProtocol, Connections(self._most_connections())),
            ws="none",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # they would let clients choose their addresses
            lifespan=lifespan,
            timeout_graceful_shutdown=3,
            **tls_settings,
        )
        server = uvicorn.Server(config)
        server.capture_signals = contextlib.nullcontext
        server.address = bound_socket.getsockname()
        return server, bound_socket

    def _tls(self) -> dict[str, Any]:
        listen = self.listen
        if listen.certificate is None:
            return {}
        client_settings = {} if listen.client_ca is None else {"ssl_cert_reqs": ssl.CERT_REQUIRED}
        return {
            "ssl_certfile": listen.certificate, "ssl_keyfile": listen.key, "ssl_ca_certs": listen.client_ca,
            **client_settings,
        }  # fmt: skip

    async def _rpc_server(self) -> Any:
        if self.listen.grpc_port is None:
            return None
        from interposer.serving.grpc_service import start_grpc  # noqa: PLC0415 - an optional dependency

        return await start_grpc(self.core, self.listen)

    def _health_port(self) -> tuple[HealthPort, str] | None:
        """Open the port for answers about health; return it and its address."""
        if self.listen.health_port is None:
            return None
        bound_socket = self.listen.bound(self.listen.health_port)
        return HealthPort(bound_socket), f"http://{host_and_port(*bound_socket.getsockname()[:2])}"

    async def _beating(self, health: HealthPort) -> None:
        """Report the server's state to the process that answers about health."""
        while True:
            health.beat(self.core.is_ready)
            health.check()
            await asyncio.sleep(_BEAT)

    def _addresses(self, web: list[tuple[Any, Any]], rpc: Any, health: tuple[HealthPort, str] | None) -> dict[str, str]:
        scheme = "http" if self.listen.certificate is None else "https"
        names = ["http"] if self.listen.metrics_port is None else ["http", "metrics"]
        addresses = {
            name: f"{scheme}://{host_and_port(*server.address[:2])}"
            for name, (server, _) in zip(names, web, strict=False)
        }
        if health is not None:
            addresses["health"] = health[1]
        return addresses if rpc is None else addresses | {"grpc": host_and_port(self.listen.host, rpc.port)}


def run_server(create: Any, *, stops_with_stdin: bool = False) -> None:
    """Run a server until a signal ends it: SIGTERM or Ctrl-C in order, a second one at once.

    The delay of the option `shutdown_delay` is for SIGTERM.

    The event loop is that of uvloop if it is installed.

    Args:
        create: called in the event loop; returns the `Server`.
        stops_with_stdin: whether the end of standard input ends the server too, because its parent is gone.
    """

    async def main() -> None:
        server = create()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, server.stop)
        loop.add_signal_handler(signal.SIGINT, server.stop, False)
        if stops_with_stdin:
            loop.add_reader(sys.stdin, _ended, loop, server)
        await server.run()

    _check_open_files()
    sys.setswitchinterval(_SWITCH)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main())


def _check_open_files() -> None:
    """Raise `ConfigError` if this process may open so few files that libraries below the server would abort it."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft_limit < _FEWEST_FILES:
        if 0 <= hard_limit < _FEWEST_FILES:
            raise ConfigError(
                f"a server needs {_FEWEST_FILES} open files or more, but this process may have {hard_limit}; "
                f"ulimit -n {_FILES} allows more"
            )
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FEWEST_FILES, hard_limit))


def _ended(loop: asyncio.AbstractEventLoop, server: Server) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin)
        server.stop(delayed=False)


def _loop_factory() -> Any:
    if sys.platform == "win32":
        return None
    try:
        import uvloop  # noqa: PLC0415 - an optional dependency
    except ImportError:
        return None
    return uvloop.new_event_loop
