"""The arguments of ``interposer serve``."""

from __future__ import annotations

import argparse
import re
from typing import Final

from interposer.cli.arguments.shared import add_running_arguments, add_trust_argument, backend_ids
from interposer.cli.numbers import positive, threads

__all__ = ["TOKEN", "configure"]

TOKEN: Final = "INTERPOSER_SERVE_TOKEN"


_HELP: Final = f"""\
A folder has files such as kws.tflite, or models in Triton's form, kws/1/model.tflite.
Clients speak the Open Inference Protocol, version 2, over HTTP and gRPC; a browser
shows the models and live figures at the address itself. SIGTERM ends the server in
order, a second one at once. The environment variable {TOKEN} has the
token that requests for --control, --shared-memory and statistics must send.
"""


_SECONDS: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0}


_BYTES: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command-line arguments of `interposer serve`."""
    parser.epilog = _HELP
    parser.add_argument("model", nargs="+", help="files, folders or URLs of models")
    parser.add_argument(
        "--name", metavar="N", help="the name of the model, if there is one (default: that of its file)"
    )
    parser.add_argument("--backends", type=backend_ids, metavar="A,B", help="backends in order of preference, or auto")
    parser.add_argument("--plan", metavar="FILE", help="place the network as this file says")
    parser.add_argument("--isolate", type=backend_ids, metavar="A,B", help="run these backends in child processes")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8080, metavar="P", help="the port for HTTP (default: 8080)")
    parser.add_argument("--grpc-port", type=_port, metavar="P", help="the port for gRPC (default: 8081)")
    parser.add_argument("--no-grpc", action="store_true", help="do not offer gRPC")
    parser.add_argument("--metrics-port", type=_port, metavar="P", help="a port of its own for /metrics")
    parser.add_argument("--health-port", type=_port, metavar="P", help="a port of its own for answers about health")
    parser.add_argument("--batch", type=positive, default=1, metavar="N", help="run up to N requests together")
    parser.add_argument(
        "--batch-delay", type=_seconds, default=0.002, metavar="T", help="how long to wait for them (default: 2ms)"
    )
    parser.add_argument("--threads", type=threads, metavar="N", help="how many threads runs may use in total")
    parser.add_argument("--workers", type=positive, default=1, metavar="N", help="processes that answer (default: 1)")
    _add_limits(parser)
    _add_life_arguments(parser)
    _add_model_arguments(parser)
    parser.add_argument(
        "--control", choices=("none", "explicit"), default="none", help="whether clients may load and unload models"
    )
    _add_access_arguments(parser)
    parser.add_argument("--shared-memory", action="store_true", help="let clients put tensors in shared memory")
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate, for TLS on all ports")
    parser.add_argument("--tls-key", metavar="FILE", help="the private key of the certificate")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="authorities that must have signed clients' certificates"
    )
    add_trust_argument(parser)
    _add_signature_arguments(parser)
    add_running_arguments(parser)
    parser.add_argument("--json-logs", action="store_true", help="write a line of JSON for each request and message")


def _add_life_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about broken models, changed files and the end of a server."""
    parser.add_argument(
        "--shutdown-delay", type=_seconds, default=0.0, metavar="T", help="time from SIGTERM to refusals (0s)"
    )
    parser.add_argument("--exit-on-error", action="store_true", help="end if a model cannot be loaded at the start")
    parser.add_argument(
        "--strict-readiness", action="store_true", help="be ready only if all models can run (default: one of them)"
    )
    parser.add_argument("--poll", type=_seconds, metavar="T", help="look for changed files of models at this interval")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about how much requests may need."""
    parser.add_argument(
        "--queue", type=positive, default=64, metavar="N", help="requests of a model that may wait (64)"
    )
    parser.add_argument("--max-body", type=_bytes, default=64 << 20, metavar="N", help="largest request (64MiB)")
    parser.add_argument(
        "--max-memory", type=_bytes, metavar="N", help="bytes that all requests hold together (8 times --max-body)"
    )
    parser.add_argument(
        "--max-connections", type=positive, default=1024, metavar="N", help="connections for HTTP, and for gRPC (1024)"
    )
    parser.add_argument("--timeout", type=_seconds, default=30.0, metavar="T", help="longest request (default: 30s)")
    parser.add_argument("--drain", type=_seconds, default=30.0, metavar="T", help="time to end at SIGTERM (30s)")


def _add_access_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about who may use the server."""
    parser.add_argument("--socket", metavar="PATH", help="a Unix socket, where this user needs no token")
    parser.add_argument("--clients", metavar="FILE", help="a TOML file with clients, their tokens and their rights")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="a name of this server in requests, or *"
    )
    parser.add_argument(
        "--allow-origin", action="append", default=[], metavar="URL", help="let pages of this origin use the server"
    )


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about the requests of each model, which the settings of a model override."""
    parser.add_argument("--rate", type=_rate, metavar="N", help="most requests per second of a model (no limit)")
    parser.add_argument(
        "--instances", type=_instances, metavar="N", help="runs of a model at the same time (--threads)"
    )
    parser.add_argument("--cache-size", type=_bytes, metavar="N", help="cache results of all models in N bytes")


def _rate(text: str) -> float:
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text) or not float(text):
        raise argparse.ArgumentTypeError(f"expected a number of requests per second above 0, not {text!r}")
    return float(text)


def _instances(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,3}", text) or int(text) > 1024:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 1024, not {text!r}")
    return int(text)


def _add_signature_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments about what signatures must be for."""
    parser.add_argument(
        "--signed-names", action="store_true", help="models must be signed for their names, and versions of folders"
    )
    parser.add_argument(
        "--least-version", type=_least_version, action="append", default=[], metavar="NAME=V",
        help="the lowest version for which a model must be signed",
    )  # fmt: skip


def _least_version(text: str) -> tuple[str, int]:
    name, _, version = text.rpartition("=")
    if not name or not (version.isascii() and version.isdecimal() and len(version) < 19):
        raise argparse.ArgumentTypeError(f"expected a model and a version such as digits=7, not {text!r}")
    return name, int(version)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"expected a port from 0 to 65535, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) > 1e6:
        raise argparse.ArgumentTypeError(f"expected a time such as 2ms, 30s or 5min, not {text!r}")
    return float(match[1]) * _SECONDS[match[2]]


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,15})\s*(?:([kmg]?)(?:i?b)?)", text.lower())
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"expected a number of bytes such as 64MiB or 1G, not {text!r}")
    return int(match[1]) * _BYTES[match[2] or ""]
