"""`optimize`: from a network to an optimized network, in the order in which the steps stand here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from interposer.backend import DeviceSpec
from interposer.errors import InvalidArgumentError, UnknownBackendError, did_you_mean, expect
from interposer.ir.graph import Graph
from interposer.ir.inference import infer_graph
from interposer.ir.network import Network
from interposer.ir.optimized import OptimizedNetwork
from interposer.ir.report import Message, Placement
from interposer.ir.verify import verify
from interposer.optimizer.assign import Assigner, is_placed_by_a_backend
from interposer.optimizer.handles import insert_copies
from interposer.optimizer.options import OptimizerOptions, choose_backends
from interposer.optimizer.passes import DEFAULT_PASSES, INVERSE_CONVERSIONS, insert_debug_layers, run_passes
from interposer.optimizer.precision import reduce_precision
from interposer.optimizer.substitute import let_backends_optimize
from interposer.types import DataType

__all__ = ["optimize"]


def optimize(
    network: Network,
    backends: Iterable[str] | None = None,
    device_spec: DeviceSpec | None = None,
    options: OptimizerOptions | None = None,
) -> OptimizedNetwork:
    """Divide a network among backends.

    Args:
        network: stays as it is.
        backends: ids in order of preference; None means all that are available, CpuRef last.
        device_spec: whose backends these are, usually ``runtime.device_spec``; None means the process's own.
        options: see `OptimizerOptions`.

    Raises:
        InvalidNetworkError: the network has faults; lists all of them.
        UnknownBackendError: an id that nobody knows.
        BackendUnavailableError: none of the backends is available.
        UnsupportedLayerError: layers that no backend takes, with what each said.
        BackendContractError: a backend broke the rules of the plug-in interface.
        InvalidArgumentError: an argument of the wrong kind, or a hint that cannot be followed.
    """
    options = OptimizerOptions() if options is None else options
    device_spec = DeviceSpec.default() if device_spec is None else device_spec
    expect(network, Network, "optimize takes a Network")
    expect(options, OptimizerOptions, "the options must be OptimizerOptions(...)")
    expect(device_spec, DeviceSpec, "the device spec must be a DeviceSpec, such as runtime.device_spec")
    chosen, absent = choose_backends(backends, device_spec)
    _check_options(options.model_options, device_spec)
    ids = tuple(backend.id for backend in chosen)
    graph, messages = _prepared(network, options, ids)
    assigner = Assigner(graph, chosen, options.model_options, absent)
    assigner.messages += [Message("warning", f"backend {one.id!r} is skipped: {one.reason}") for one in absent]
    assigner.messages += messages
    assigner.assign(filter(is_placed_by_a_backend, graph.topological()))
    run_passes(graph, INVERSE_CONVERSIONS)
    verify(graph, after="assignment")
    snapshot = graph.clone()
    let_backends_optimize(assigner)
    verify(graph, after="the backends' optimization")
    if options.debug:
        insert_debug_layers(graph)
    copies = insert_copies(graph, default=ids[0])
    verify(graph, after="inserting copies", placed=True)
    return OptimizedNetwork(
        graph=graph,
        preferences=ids,
        placements=_placements(assigner, snapshot),
        refusals=assigner.refusals,
        messages=tuple(assigner.messages),
        copies=tuple(copies),
        absent=absent,
        backends={backend.id: backend for backend in chosen},
        model_options=dict(options.model_options),
        ask=assigner.verdicts(snapshot),
    )


def _placements(assigner: Assigner, snapshot: Graph) -> tuple[Placement, ...]:
    """Those of the layers that are still there, in order; conversions may have been placed and have gone since."""
    names = dict.fromkeys(layer.name for graph in (snapshot, assigner.graph) for layer in graph.topological())
    return tuple(assigner.placements[name] for name in names if name in assigner.placements)


def _prepared(network: Network, options: OptimizerOptions, ids: tuple[str, ...]) -> tuple[Graph, list[Message]]:
    network.validate()
    graph, messages = network.graph.clone(), list[Message]()
    _set_hints(graph, options.hints, ids)
    infer_graph(graph)
    if options.rewrite:
        run_passes(graph, DEFAULT_PASSES)
    if options.reduce_fp32_to_fp16:
        messages += reduce_precision(graph, DataType.FLOAT16)
    if options.reduce_fp32_to_bf16:
        messages += reduce_precision(graph, DataType.BFLOAT16)
    verify(graph, after="the rewrites")
    return graph, messages


def _check_options(model_options: Iterable[str], device_spec: DeviceSpec) -> None:
    for backend in model_options:
        if backend not in device_spec.registry:
            raise UnknownBackendError(backend, device_spec.registry.ids)


def _set_hints(graph: Graph, hints: Mapping[str, str], ids: tuple[str, ...]) -> None:
    for name, backend in hints.items():
        if backend not in ids:
            raise InvalidArgumentError(
                f"the hint for layer {name!r} names backend {backend!r}, "
                f"which is not among those in use ({', '.join(ids)}){did_you_mean(str(backend), ids)}"
            )
        graph.layer(name).hint = backend
