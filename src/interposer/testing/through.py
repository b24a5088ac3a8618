"""Samples on a backend inside another runtime, the host, which calls the backend through a bridge."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Protocol

from interposer.backend import Backend
from interposer.core.errors import InterposerError, InvalidArgumentError, UnwritableError
from interposer.core.types import Array
from interposer.ir.graph import binding_id
from interposer.ir.network import Network
from interposer.testing.conformance import all_samples, patterns_of
from interposer.testing.oracle import reference_outputs
from interposer.testing.outcome import Result, Status
from interposer.testing.report import Report
from interposer.testing.sample import Sample
from interposer.testing.tolerances import Tolerances

__all__ = ["Host", "HostUnableError", "check_through"]


class HostUnableError(Exception):
    """Raised by a host that cannot run a network, whatever the backend does."""


class Host(Protocol):
    """Another runtime, with a bridge to the backend under test."""

    name: str

    def express(self, network: Network) -> bytes:
        """Return a network as a file of the host; raise `UnwritableError` if its format lacks something."""

    def run(self, content: bytes, inputs: Sequence[Array]) -> tuple[Sequence[Array], Sequence[str]]:
        """Run a file once on the backend under test, and return the outputs in order and no reasons.

        If the backend does not take all of it, there are no outputs, but the reasons.

        Raises:
            HostUnableError: the host cannot run such a network.
            ExecutionError: the run failed.
        """


def check_through(
    backend: Backend,
    host: Host,
    *,
    families: Collection[str] = (),
    only: str | Collection[str] = "*",
    expected_failures: Mapping[str, str] | None = None,
    progress: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Run all samples that the format of a host can express, and compare the results with those of the reference.

    Args:
        backend: the backend, which the bridge of the host uses.
        host: the host.
        families: the families of operators; empty means all.
        only: patterns of cases, such as ``through-litert/Softmax-*``.
        expected_failures: by pattern of cases, the reason why they fail.
        progress: called with each result.

    Raises:
        InvalidArgumentError: no case matches.
    """
    check, patterns, results = f"through-{host.name}", patterns_of(only), list[Result]()
    for sample in all_samples():
        case = f"{check}/{sample.id}"
        is_meant = not families or sample.op.family in families
        if not is_meant or not any(fnmatchcase(case, pattern) for pattern in patterns):
            continue
        status, text = _expected(case, expected_failures or {}, *_outcome(host, sample))
        results.append(Result(case, check, sample.op.family, sample.op.op_name(), status, text))
        progress(results[-1])
    if not results:
        raise InvalidArgumentError(f"no case matches {', '.join(patterns)!r}; cases are named {check}/OPERATOR-...")
    return Report(backend.id, backend.version, results)


def _expected(case: str, reasons: Mapping[str, str], status: Status, text: str) -> tuple[Status, str]:
    reason = next((reason for pattern, reason in reasons.items() if fnmatchcase(case, pattern)), None)
    if reason is not None and status is Status.FAIL:
        return Status.XFAIL, reason
    if reason is not None and status is Status.PASS:
        return Status.XPASS, f"it was expected to fail ({reason}), but it passes"
    return status, text


def _outcome(host: Host, sample: Sample) -> tuple[Status, str]:
    """Run one sample; return its status, and the error or the reason why it was not judged."""
    if sample.extreme:
        return Status.SKIP, "its values overflow in some compositions of operators"
    network, feeds = sample.network()
    arrays = [feeds[binding_id(layer)] for layer in network.graph.inputs]
    try:
        expected = reference_outputs(network.graph, feeds)
        content = host.express(network)
    except UnwritableError as error:
        return Status.SKIP, f"files of {host.name} cannot express it: {next(iter(error.layers.values()))[1]}"
    except InterposerError as error:
        return Status.SKIP, f"the reference kernels do not compute it: {error}"
    try:
        outputs, refusals = host.run(content, arrays)
    except HostUnableError as error:
        return Status.SKIP, f"{host.name} cannot run it: {error}"
    except InterposerError as error:
        return Status.FAIL, str(error)
    if refusals:
        return Status.REFUSED, refusals[0]
    problem = _difference(sample, network, outputs, expected)
    return (Status.FAIL, problem) if problem else (Status.PASS, "")


def _difference(sample: Sample, network: Network, outputs: Sequence[Array], expected: Mapping[int, Array]) -> str:
    for array, (key, output) in zip(outputs, network.outputs.items(), strict=True):
        info = output.values[0].known
        if sample.statistical:
            difference = None if array.shape == expected[key].shape else f"the shape is {list(array.shape)}"
        else:
            difference = Tolerances().difference(array, expected[key], info)
        if difference:
            return f"output {key}: {difference}"
    return ""
