"""``interposer serve``: answer requests of the Open Inference Protocol for models."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from interposer.cli.arguments.serve import TOKEN, configure
from interposer.cli.running import ModelOptions, required_options
from interposer.cli.streams import printable
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.runtime import CreationOptions

__all__ = ["configure", "execute"]

_TITLES: Final = {"grpc": "gRPC", "metrics": "metrics", "health": "health"}


def execute(args: argparse.Namespace) -> None:
    """Serve until a signal ends the server."""
    _check(args)  # before models are fetched
    with _fetched(args):
        _serve(args)


@contextlib.contextmanager
def _fetched(args: argparse.Namespace) -> Iterator[None]:
    """Fetch the models that are URLs, and name their files in the arguments; the files are removed at the end."""
    from interposer.serving.remote import is_url, with_urls  # noqa: PLC0415 - only to serve

    with contextlib.ExitStack() as stack:
        if any(map(is_url, args.model)):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="interposer-models-"))
            paths = with_urls(args.model, Path(folder))
            args.model = [paths.get(model, model) for model in args.model]
            args.words = [paths.get(str(word), word) for word in args.words]
        yield


def _serve(args: argparse.Namespace) -> None:
    from interposer.serving.server import run_server  # noqa: PLC0415 - optional dependencies
    from interposer.serving.workers import Workers, parent_started  # noqa: PLC0415

    _check_least_versions(args)
    if args.json_logs:
        _log_json()
    _add_token(args)
    since = parent_started()
    if args.workers == 1 or since is not None:
        with required_options(args, checks_use=False) as options:
            run_server(lambda: _server(args, since, *options), stops_with_stdin=since is not None)
        return
    _check_models(args)
    parent = Workers(args.workers, lambda ports: _command(args, ports), _listen(args), args.drain + args.shutdown_delay)
    parent.run(lambda ports: _say_workers(args, ports))


def _check_least_versions(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` for a lowest version of an unknown model; a typing error would drop it otherwise."""
    if not args.least_version or args.poll is not None:  # models may appear later
        return
    names = {source.name for source in _sources(args)}
    for name, _ in args.least_version:
        if name not in names:
            raise InvalidArgumentError(f"--least-version: there is no model {name!r}{did_you_mean(name, names)}")


def _check_models(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for a model without a version that can be loaded, so that each worker need not report it."""
    from interposer.serving.repository import by_name, usable  # noqa: PLC0415 - optional dependencies

    all_versions = list(by_name(_sources(args)).values())
    if args.poll is None and not args.exit_on_error:
        all_versions.sort(key=lambda versions: all(version.problem for version in versions))
        del all_versions[1:]  # one model that can be loaded is enough
    for versions in all_versions if args.poll is None else ():
        usable(versions)


def _command(args: argparse.Namespace, ports: list[int | None]) -> list[str]:
    """Return the command of a worker: this command, with the ports that its parent has reserved."""
    words = [str(word) for word in args.words]
    place = words.index("--") if "--" in words else len(words)
    options = zip(("--port", "--grpc-port", "--metrics-port", "--health-port"), ports, strict=True)
    words[place:place] = [f"{option}={port}" for option, port in options if port is not None]
    return [sys.executable, "-P", "-m", "interposer", *words]


def _say_workers(args: argparse.Namespace, ports: list[int | None]) -> None:
    from interposer.serving.listen import host_and_port  # noqa: PLC0415 - optional dependencies

    names = ", ".join(dict.fromkeys(source.name for source in _sources(args)))
    scheme = "http" if args.tls_cert is None else "https"
    message = f"serving {names} with {args.workers} workers at {scheme}://{host_and_port(args.host, ports[0])}"
    print(
        printable(message if ports[1] is None else f"{message}, gRPC at {host_and_port(args.host, ports[1])}"),
        flush=True,
    )
    _say_page(args, f"{scheme}://{host_and_port(args.host, ports[0])}")


def _check(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` for arguments that do not fit each other."""
    from interposer.serving.remote import is_url  # noqa: PLC0415 - only to serve

    files = [path for path in args.model if not os.path.isdir(path) and not is_url(path)]
    missing_path = next((path for path in files if not os.path.exists(path)), None)
    if missing_path is not None:
        raise InvalidArgumentError(f"{missing_path}: there is no such file or folder")
    if args.name is not None and len(args.model) > 1:
        raise InvalidArgumentError("--name is for one model; several have the names of their files")
    if args.name is not None and ("/" in args.name or not args.name):
        raise InvalidArgumentError(f"--name is part of a path, so it cannot be {args.name!r}")
    _check_files(args)
    for is_wrong, problem in _CONFLICTS:
        if is_wrong(args):
            raise InvalidArgumentError(problem)
    _check_ports(args)
    _check_access(args)


def _has_workers(args: argparse.Namespace) -> bool:
    return bool(args.workers > 1)


_CONFLICTS: Final[tuple[tuple[Callable[[argparse.Namespace], bool], str], ...]] = (
    (lambda args: args.timeout <= 0, "--timeout must be more than 0 seconds"),
    (
        lambda args: _has_workers(args) and (args.control == "explicit" or args.shared_memory),
        "--control explicit and --shared-memory need --workers 1, as each request reaches one",
    ),
    (
        lambda args: _has_workers(args) and args.socket is not None,
        "--socket needs --workers 1, as processes cannot share a Unix socket",
    ),
    (lambda args: args.poll is not None and args.poll <= 0, "--poll must be more than 0 seconds"),
    (
        lambda args: _has_workers(args) and args.profile_to is not None,
        "--profile-to needs --workers 1, as each worker would write the same profile",
    ),
    (lambda args: args.no_grpc and args.grpc_port is not None, "--no-grpc and --grpc-port contradict each other"),
)
"""Which arguments contradict each other, and the sentence about them, in the order in which they are checked."""


def _grpc_port(args: argparse.Namespace) -> int | None:
    return None if args.no_grpc else 8081 if args.grpc_port is None else args.grpc_port


def _check_ports(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` if two services have the same port, which the system allows for several workers."""
    ports = [port for port in (args.port, _grpc_port(args), args.metrics_port, args.health_port) if port]
    repeated_port = next((port for port in ports if ports.count(port) > 1), None)
    if repeated_port is not None:
        raise InvalidArgumentError(
            f"HTTP, gRPC, metrics and health need different ports; port {repeated_port} cannot be that of two"
        )


def _check_files(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` for files of options that do not exist, and for TLS and signatures without keys."""
    if (args.signed_names or args.least_version) and not args.trusted_key:
        raise InvalidArgumentError("--signed-names and --least-version are about signatures; give --trusted-key")
    if (args.tls_cert is None) != (args.tls_key is None) or (args.tls_client_ca and args.tls_cert is None):
        raise InvalidArgumentError("TLS needs both --tls-cert and --tls-key")
    for path in filter(
        None, (args.tls_cert, args.tls_key, args.tls_client_ca, args.plan, args.clients, *args.trusted_key)
    ):
        if not os.path.isfile(path):
            raise InvalidArgumentError(f"{path}: there is no such file")


def _check_access(args: argparse.Namespace) -> None:
    """Raise `InvalidArgumentError` for a wrong token, host or origin, and for options that need a token."""
    if args.allow_host or args.allow_origin:
        _hosts(args)
        _origins(args)
    if os.environ.get(TOKEN):
        from interposer.serving.access import check_token  # noqa: PLC0415 - only to serve

        check_token(os.environ[TOKEN], f"the environment variable {TOKEN}")
    if os.environ.get(TOKEN) or args.socket is not None or args.clients is not None:
        return
    for option, is_set in (("--control explicit", args.control == "explicit"), ("--shared-memory", args.shared_memory)):
        if is_set:
            raise InvalidArgumentError(
                f"{option} is for clients with a token, also on this host; set {TOKEN} to one, or use --socket"
            )


def _add_token(args: argparse.Namespace) -> None:
    """Make a token for the status page if a user at a terminal has set none."""
    args.has_new_token = sys.stdout.isatty() and not os.environ.get(TOKEN) and args.clients is None
    if args.has_new_token:
        os.environ[TOKEN] = secrets.token_urlsafe(16)


def _say_page(args: argparse.Namespace, address: str) -> None:
    """Print where the status page is, with its token, if the token is not known to anybody else."""
    if args.has_new_token:
        print(f"models and figures at {address}/?token={os.environ[TOKEN]}", flush=True)


def _hosts(args: argparse.Namespace) -> tuple[str, ...] | None:
    """Return the names that requests may have for this server; None for all."""
    from interposer.serving.doors import host_of, local_hosts  # noqa: PLC0415 - optional dependencies

    allowed_hosts = tuple(map(host_of, args.allow_host))
    if "*" in allowed_hosts:
        return None
    local = local_hosts(args.host)
    return local if not allowed_hosts else (*(local or (args.host,)), *allowed_hosts)


def _origins(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the origins of pages that may use the server."""
    from interposer.serving.doors import origin_of  # noqa: PLC0415 - optional dependencies

    return tuple(map(origin_of, args.allow_origin))


def _server(
    args: argparse.Namespace, since: float | None, creation: CreationOptions, model_options: ModelOptions
) -> Any:
    """Return the server; `since` is when the parent of a worker process was started."""
    from interposer.serving.core import Core  # noqa: PLC0415
    from interposer.serving.loading import Loader  # noqa: PLC0415
    from interposer.serving.options import ServeOptions  # noqa: PLC0415
    from interposer.serving.repository import Repository  # noqa: PLC0415
    from interposer.serving.server import Server  # noqa: PLC0415

    options = ServeOptions(
        queue=args.queue, max_body=args.max_body, timeout=args.timeout, drain=args.drain,
        shutdown_delay=args.shutdown_delay, strict_readiness=args.strict_readiness, exit_on_error=args.exit_on_error,
        poll=args.poll, **({} if args.cache_size is None else {"cache": args.cache_size}),
        control=args.control == "explicit", shared_memory=args.shared_memory, token=os.environ.get(TOKEN) or None,
        clients=known_clients(args), hosts=_hosts(args),
        origins=_origins(args), max_memory=args.max_memory, max_connections=args.max_connections,
    )  # fmt: skip
    is_worker = since is not None
    loader = Loader(
        args.threads, sequences=(options.sequence_idle, options.max_sequences), allows_states=not is_worker,
        cache=options.cache, workers=args.workers,
        creation=creation, model_options=model_options,
    )  # fmt: skip
    core = Core(Repository(lambda: _sources(args), loader, workers=args.workers), options)
    core.started = core.started if since is None else since
    return Server(core, _listen(args), lambda addresses: _say(args, core, addresses, is_worker))


def known_clients(args: argparse.Namespace) -> tuple[Any, ...]:
    """Return the clients that the server knows; raise `InvalidArgumentError` if one could never be recognized."""
    from interposer.serving.access import read_clients  # noqa: PLC0415 - only to serve

    clients = () if args.clients is None else read_clients(args.clients)
    unseen = next((client.name for client in clients if client.certificate is not None), None)
    if unseen is not None and args.tls_client_ca is None:
        raise InvalidArgumentError(
            f"{args.clients}: the client {unseen!r} has a certificate, which the server asks for with --tls-client-ca "
            "only; give that option with the authority that has signed the certificate"
        )
    return clients


def _listen(args: argparse.Namespace) -> Any:
    from interposer.serving.listen import Listen  # noqa: PLC0415 - optional dependencies

    return Listen(
        args.host, args.port, _grpc_port(args), args.metrics_port, args.tls_cert, args.tls_key,
        args.tls_client_ca, args.workers > 1, args.health_port, args.socket,
    )  # fmt: skip


def _sources(args: argparse.Namespace) -> list[Any]:
    """Return the models of all files and folders; those with the same name have a problem.

    Raises:
        InvalidArgumentError: a folder has no models.
    """
    from interposer.serving.folder import ModelSettings, found_in, source_of_file  # noqa: PLC0415

    settings = ModelSettings(
        backends=None if args.backends is None else tuple(args.backends), plan=args.plan,
        isolate=tuple(args.isolate or ()), batch=args.batch, batch_delay=args.batch_delay,
        rate=args.rate, instances=args.instances, cache=args.cache_size is not None,
        trusted_keys=tuple(args.trusted_key), signed_names=args.signed_names,
    )  # fmt: skip
    sources: list[Any] = []
    for path in args.model:
        in_path = list(found_in(path, settings)) if _is_folder(path) else [source_of_file(path, args.name, settings)]
        if not in_path and args.poll is None:
            raise InvalidArgumentError(f"{path}: the folder has no models, such as kws.tflite or kws/1/model.onnx")
        if args.name is not None:
            in_path = _renamed(in_path, args.name)
        known_names = {source.name for source in sources}
        for source_in_path in in_path:
            if source_in_path.name in known_names:
                raise InvalidArgumentError(_same_name(source_in_path.name))
            if _count_equal(source_in_path, in_path) > 1:
                source_in_path = replace(source_in_path, problem=_same_name(source_in_path.name))
            sources.append(_with_least_version(source_in_path, dict(args.least_version)))
    return sources


def _with_least_version(source: Any, versions: dict[str, int]) -> Any:
    """Return a model with the lowest version for which it must be signed, if there is one."""
    if source.name not in versions:
        return source
    return replace(source, settings=replace(source.settings, signed_names=True, least_version=versions[source.name]))


def _renamed(sources: list[Any], name: str) -> list[Any]:
    """Return the versions of the only model with another name; raise `InvalidArgumentError` if there are several."""
    names = sorted({source.name for source in sources})
    if len(names) > 1:
        raise InvalidArgumentError(f"--name is for one model; the folder has {', '.join(names)}")
    return [replace(source, name=name) for source in sources]


def _same_name(name: str) -> str:
    return f"two models have the name {name!r}; a server needs different names"


def _count_equal(source: Any, sources: list[Any]) -> int:
    return sum((other_source.name, other_source.version) == (source.name, source.version) for other_source in sources)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not path.rstrip("/").endswith(".savedmodel")


def _say(args: argparse.Namespace, core: Any, addresses: dict[str, str], is_worker: bool) -> None:
    from interposer.serving.workers import READY  # noqa: PLC0415 - optional dependencies

    if is_worker:
        print(READY, flush=True)
        return
    names = ", ".join(dict.fromkeys(model.name for model in core.repository.served))
    other_services = [f"{_TITLES[key]} at {address}" for key, address in addresses.items() if key in _TITLES]
    print(printable(", ".join([f"serving {names} at {addresses['http']}", *other_services])), flush=True)
    _say_page(args, addresses["http"])


def _log_json() -> None:
    """Write all log messages, and a line for each request, as JSON on standard error."""
    logger = logging.getLogger("interposer")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    for old_handler in tuple(logger.handlers):
        logger.removeHandler(old_handler)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logging.getLogger().addHandler(handler)  # warnings of the libraries for HTTP and gRPC
    logging.captureWarnings(True)


class _Json(logging.Formatter):
    """One JSON object in a line: time, level, logger, message, and the fields of a request."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", None)
        line = {"time": round(record.created, 6), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage()} if fields is None else {"message": "request", **fields}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
