"""`replay`: the function with which the script of a finding reproduces it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from interposer.backend import Options
from interposer.core.codec import array_from_plain
from interposer.core.errors import InvalidArgumentError
from interposer.core.types import Array
from interposer.ir.network import Network
from interposer.ir.text import parse_graph
from interposer.testing.judge.serving import Setup, check_limits, named_backends
from interposer.testing.judge.solo import Solo
from interposer.testing.judge.subject import Conditions, Subject, Verdict
from interposer.testing.judge.workers import nursery_for
from interposer.testing.replay import Factory
from interposer.testing.tolerances import Tolerances

__all__ = ["judge_network", "replay"]

SECONDS: Final = 30.0
MEMORY: Final = 2 << 30


def judge_network(
    backends: str | Factory | Sequence[str | Factory],
    network: Network,
    feeds: Mapping[int, Array],
    *,
    conditions: Conditions | None = None,
    options: Mapping[str, Options] | None = None,
    tolerances: Tolerances | None = None,
    seconds: float = SECONDS,
    memory: int = MEMORY,
) -> Verdict:
    """Judge one network on a backend by comparing it with the reference kernels, in a child process.

    Args:
        backends: the backend, or several in order of preference: ids, ``module:Class``, paths of shared objects, or
            functions that create a backend.
        network: any valid network.
        feeds: the arrays of its inputs by binding id.
        conditions: the route of the network and settings of the optimizer.
        options: model options by backend id.
        tolerances: the allowed differences for one layer; by default quantized results must be equal bit by bit.
        seconds: the time limit.
        memory: the bytes of memory that the process may use beyond its use at the start.

    Raises:
        UnknownBackendError, BackendUnavailableError, PluginError: a backend cannot be created.
    """
    check_limits(seconds, memory)
    setup = Setup(named_backends(backends), dict(options or {}), tolerances or Tolerances(steps=0), memory)
    with nursery_for(setup) as nursery, Solo(nursery, seconds) as solo:
        return solo.judge(Subject(network, feeds, conditions or Conditions()))


def replay(
    backend: str | Factory | Sequence[str | Factory] | None,
    network: str,
    inputs: Mapping[str, Mapping[str, Any]],
    *,
    options: Mapping[str, Options] | None = None,
    steps: int = 0,
    seconds: float = SECONDS,
    **conditions: Any,
) -> None:
    """Judge a network in text form again, and print the failure.

    Args:
        backend: the backend, or several in order of preference.
        network: the network, as `interposer.ir.text.print_graph` writes it.
        inputs: its inputs by binding id, as plain data.
        options: model options by backend id.
        steps: the number of steps by which the quantized results of one layer may differ.
        seconds: the time limit.
        conditions: the fields of `Conditions`.

    Raises:
        SystemExit: the failure occurs again; the exit status is 1.
        InvalidArgumentError: `backend` is None, since the script could not name the backend.
    """
    if backend is None:
        raise InvalidArgumentError(
            "the backend cannot be imported by a name; write the function that makes it in place of None"
        )
    feeds = {int(key): array_from_plain(plain) for key, plain in inputs.items()}
    verdict = judge_network(
        backend, Network(graph=parse_graph(network)), feeds,
        conditions=Conditions(**conditions), options=options, tolerances=Tolerances(steps=steps), seconds=seconds,
    )  # fmt: skip
    if verdict.is_finding:
        sort = verdict.sort.value if verdict.sort else ""
        print(f"{sort}, the cause: {verdict.culprit}\n{verdict.text}")
        raise SystemExit(1)
    print(f"It does not show again: {verdict.outcome.value}.")
