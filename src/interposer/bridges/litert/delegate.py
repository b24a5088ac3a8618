"""The delegates of this process: what the library of the bridges calls for LiteRT and TensorFlow Lite.

The functions that return a status return 0, or 1 after they have reported an error to the host.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections.abc import Sequence
from typing import Final

from interposer.bridges.claims import Claims, Group, HostNode, in_names_of_host
from interposer.bridges.embedding import native, text_at
from interposer.bridges.litert import abi
from interposer.bridges.litert.host import Host, Part, counted
from interposer.bridges.litert.kernel import Kernel
from interposer.bridges.litert.options import DelegateOptions, delegate_options
from interposer.bridges.litert.pages import give_back_pages
from interposer.bridges.litert.parts import InterpreterGraph
from interposer.bridges.reporting import PartReport, Report, add_report
from interposer.bridges.stored import stored_claims
from interposer.bridges.warnings import warn_once
from interposer.core.errors import ExecutionError, InterposerError, InvalidArgumentError

__all__ = ["create", "create_kernel", "destroy", "free_kernel", "prepare", "prepare_kernel", "run_kernel"]

HOST: Final = "LiteRT"
_log: Final = logging.getLogger("interposer.bridges")
_numbers: Final = itertools.count(1)
_delegates: Final[dict[int, _Delegate]] = {}
_kernels: Final[dict[int, Kernel]] = {}
_Pending = dict[frozenset[int], tuple[InterpreterGraph, Group, PartReport]]


class _Delegate:
    """A delegate, which may be used by several interpreters, also concurrently.

    `_pending_groups` has the groups that a host is about to replace, by the address of its context and by their nodes.
    """

    def __init__(self, options: DelegateOptions) -> None:
        self.options = options
        self._pending_groups: dict[int, _Pending] = {}

    def prepare(self, host: Host, address: int) -> int:
        """Let the host replace the nodes that the backends take by kernels, and return the host's status.

        `address` is that of the delegate's C struct.
        """
        graph = InterpreterGraph(host, "")
        if not graph.plan:
            return abi.OK
        claimed = stored_claims(graph, self.options.for_threads(host.context.threads), graph.groups)
        report = Report.of(HOST, claimed)
        add_report(report, self.options.explain)
        self.options.write_dot(claimed)
        if not claimed.groups:
            return abi.OK
        status = self._replace(host, address, claimed, report)
        give_back_pages(graph.model.buffers)
        return status

    def _replace(self, host: Host, address: int, claimed: Claims, report: Report) -> int:
        graph = claimed.graph
        assert isinstance(graph, InterpreterGraph)
        pending = self._pending_groups[host.address] = {
            frozenset(graph.plan[n] for n in group.members): (graph, group, part)
            for group, part in zip(claimed.groups, report.parts, strict=True)
        }
        nodes = counted(sorted(number for numbers in pending for number in numbers))
        try:
            return int(
                native().interposer_bridge_litert_replace(
                    ctypes.c_void_p(host.address), ctypes.byref(nodes), ctypes.c_void_p(address)
                )
            )
        finally:
            for _, group, _ in self._pending_groups.pop(host.address).values():
                group.model.close()

    def kernel(self, host: Host, part: Part, address: int) -> Kernel:
        """Return the kernel for a part that the host replaces; its C struct is at `address`.

        Raises:
            ExecutionError: the host replaces other nodes than it was asked to.
        """
        pending = self._pending_groups.get(host.address, {}).pop(frozenset(part.nodes), None)
        if pending is None:
            raise ExecutionError(
                f"the host made a part of the nodes {list(part.nodes)}, which were not compiled as one"
            )
        graph, group, report = pending
        return Kernel(address, graph, part, group, report, self.options.profiles)


# --- calls of the library ---------------------------------------------------------------------------------------------


def create(keys: int, values: int, count: int, report_error: int) -> int:
    """Create a delegate with `count` options, whose names and texts are in the arrays at these addresses.

    Returns the number of the delegate; 0 after an error, which is reported to the C function at `report_error`.
    """
    names, texts = ((ctypes.c_void_p * count).from_address(array) if count else () for array in (keys, values))
    try:
        options = delegate_options({text_at(name): text_at(text) for name, text in zip(names, texts, strict=True)})
    except InterposerError as error:
        _tell(report_error, str(error))
        return 0
    number = next(_numbers)
    _delegates[number] = _Delegate(options)
    return number


def _tell(report_error: int, text: str) -> None:
    if not report_error:
        _log.error("%s", text)
        return
    ctypes.CFUNCTYPE(None, ctypes.c_char_p)(report_error)(f"Interposer: {text}".encode())


def destroy(number: int) -> int:
    """Forget a delegate; the kernels that it has created remain until the host frees them."""
    _delegates.pop(number, None)
    return 0


def prepare(context: int, address: int, number: int) -> int:
    """Let the host replace what the backends of a delegate take of the graph in the context at an address.

    Without an option that asks for an error, a graph that cannot be read or compiled is left to the host.
    """
    delegate = _delegates[number]
    try:
        return delegate.prepare(Host(context), address)
    except InvalidArgumentError as error:
        return _failed(context, error)
    except Exception as error:
        if delegate.options.strict:
            return _failed(context, error)
        warn_once("all nodes are left to the host", error)
        return abi.OK


def create_kernel(context: int, number: int, params: int, address: int) -> int:
    """Create the kernel of a part, whose C struct is at `address`; return its number, or 0 after an error."""
    try:
        kernel = _delegates[number].kernel(Host(context), Part.at(params), address)
    except InterposerError as error:
        _failed(context, error)
        return 0
    key = next(_numbers)
    _kernels[key] = kernel
    return key


def prepare_kernel(context: int, node: int, number: int) -> int:
    """Compile a kernel for the shapes of its inputs, and give its outputs their shapes; return a status."""
    kernel = _kernels[number]
    try:
        kernel.prepare(Host(context))
    except InterposerError as error:
        return _failed(context, error, kernel.nodes)
    return abi.OK


def run_kernel(context: int, node: int, number: int) -> int:
    """Run a kernel on the tensors of the host; return a status."""
    kernel = _kernels[number]
    try:
        kernel.run(Host(context))
    except InterposerError as error:
        return _failed(context, error, kernel.nodes)
    return abi.OK


def free_kernel(number: int) -> int:
    """Release a kernel, which the host does not call any more."""
    _kernels.pop(number).close()
    return 0


def _failed(context: int, error: Exception, nodes: Sequence[HostNode] = ()) -> int:
    """Report an error to the host at the address of its context; the host's exception has its text."""
    message = in_names_of_host(str(error), nodes).encode()
    native().interposer_bridge_litert_report(ctypes.c_void_p(context), ctypes.c_char_p(message))
    return abi.ERROR
