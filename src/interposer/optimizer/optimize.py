"""`optimize`: the steps from a network to an optimized network, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from interposer.backend import Backend
from interposer.core.constants import check_unchanged
from interposer.core.errors import (
    BackendUnavailableError,
    InvalidArgumentError,
    UnknownBackendError,
    UnsupportedLayerError,
    did_you_mean,
    expect,
    memory_to,
)
from interposer.core.types import Array, DataType
from interposer.ir.graph import Graph
from interposer.ir.inference import inferences_remembered
from interposer.ir.network import Network
from interposer.ir.regions import Place, find_layer, named_graphs, places
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.ir.verify import verify
from interposer.ops.control import Constant
from interposer.ops.control_flow import ControlFlow
from interposer.optimizer.activation_rounding import DropActivationRounding
from interposer.optimizer.assign import Assigner, Records
from interposer.optimizer.declared_shapes import require_declared_shapes, with_expanded_dims
from interposer.optimizer.handles import place_tensors
from interposer.optimizer.integers import ComputeInIntegers
from interposer.optimizer.offers import Offers
from interposer.optimizer.optimizer_options import OptimizerOptions, choose_backends, refuse_measurement
from interposer.optimizer.packed_weights import UnpackWeights
from interposer.optimizer.passes import DEFAULT_PASSES, INVERSE_CONVERSIONS, Pass, insert_debug_layers, run_passes
from interposer.optimizer.precision import reduce_precision
from interposer.optimizer.preference import Preference
from interposer.optimizer.substitute import let_backends_optimize
from interposer.plugins import DeviceSpec
from interposer.profiling import Category
from interposer.profiling.recorder import interval
from interposer.report.optimized import OptimizedNetwork
from interposer.report.records import Crossing, Message, Placement

__all__ = ["optimize", "simplified"]


@memory_to("optimize the network")
@inferences_remembered()
def optimize(
    network: Network,
    backends: Iterable[str] | None = None,
    device_spec: DeviceSpec | None = None,
    options: OptimizerOptions | None = None,
) -> OptimizedNetwork:
    """Divide a network among backends.

    Args:
        network: the network, which is not changed.
        backends: ids in order of preference; None means all that are available without the capability `OnlyByName`
            (engines have it), CpuRef last.
        device_spec: the registry of the backends, usually ``runtime.device_spec``; None means that of the process.
        options: see `OptimizerOptions`.

    Raises:
        InvalidNetworkError: the network has errors; lists all of them.
        UnknownBackendError: no backend has one of the ids.
        BackendUnavailableError: none of the backends is available.
        UnsupportedLayerError: no backend supports some layers; has the reasons of each backend.
        BackendContractError: a backend violated the plug-in interface.
        InvalidArgumentError: an argument has the wrong type, or a hint names an unknown layer or backend.
        LoadError: there is not enough memory, or a model file whose weights are mapped was written to or truncated.

    Example:
        >>> import interposer as ip
        >>> network = ip.Network("twice")
        >>> x = network.add_input_layer(0, ip.TensorInfo((2,)), name="x")
        >>> y = network.add_output_layer(0, network.add_addition_layer(x, x, name="sum"), name="y")
        >>> print(ip.optimize(network, ["CpuRef"]))
        graph "twice" {
          %x = Input @CpuRef : float32[2]
          %sum = Addition %x, %x @CpuRef : float32[2]
          Output %sum as "y"
        }
    """
    options = OptimizerOptions() if options is None else options
    device_spec = DeviceSpec.default() if device_spec is None else device_spec
    expect(network, Network, "optimize takes a Network")
    refuse_measurement(options)
    expect(device_spec, DeviceSpec, "the device spec must be a DeviceSpec, such as runtime.device_spec")
    with interval(Category.OPTIMIZE, "optimize"):
        return _optimized(network, backends, device_spec, options)


def check_choice(backends: Iterable[str] | None, device_spec: DeviceSpec, options: OptimizerOptions) -> None:
    """Check what `optimize` refuses for every network: backends and their options.

    Raises:
        UnknownBackendError: an id is unknown.
        BackendUnavailableError: none of the backends is available.
        InvalidArgumentError: a hint names a backend that is not among those in use, or a backend refuses its options.
    """
    chosen_backends, _ = choose_backends(backends, device_spec)
    _check_options(options, device_spec)
    ids = tuple(backend.id for backend in chosen_backends)
    for layer, backend_id in options.hints.items():
        _check_hint(layer, backend_id, ids)
    for backend_id, backend_options in options.model_options.items():
        with suppress(BackendUnavailableError):
            device_spec.registry.get(backend_id).layer_support(backend_options)


def _optimized(
    network: Network, backends: Iterable[str] | None, device_spec: DeviceSpec, options: OptimizerOptions
) -> OptimizedNetwork:
    chosen_backends, absent_backends = choose_backends(backends, device_spec)
    _check_options(options, device_spec)
    ids = tuple(backend.id for backend in chosen_backends)
    graph, messages = _prepared(network, options, chosen_backends)
    records = Records()
    records.messages += [Message("warning", f"backend {b.id!r} is skipped: {b.reason}") for b in absent_backends]
    records.messages += messages
    assigner = Assigner(
        graph, chosen_backends, options.model_options, absent_backends, records, exclude=options.exclude
    )
    snapshot = _divided(assigner)
    if options.debug:
        insert_debug_layers(graph)
    with interval(Category.OPTIMIZE, "place tensors"):
        crossings = _place_tensors(graph, chosen_backends, options)
    verify(graph, after="placing tensors", placed=True)
    return OptimizedNetwork(
        graph=graph,
        preferences=ids,
        placements=_placements(records, snapshot, graph),
        refusals=tuple(records.refusals.values()),
        messages=tuple(records.messages),
        crossings=tuple(crossings),
        absent=absent_backends,
        backends={backend.id: backend for backend in chosen_backends},
        model_options=dict(options.model_options),
        ask=assigner.verdicts(snapshot),
        divided=lambda: snapshot,
        import_enabled=options.import_enabled,
        export_enabled=options.export_enabled,
    )


def _divided(assigner: Assigner) -> Graph:
    """Assign the layers to backends, and let each backend replace its parts of the graph.

    Returns a copy of the graph as it was after the assignment, before any replacement.
    """
    graph, records = assigner.graph, assigner.records
    with interval(Category.OPTIMIZE, "assign layers to backends"):
        _assign(assigner.with_regions())
    verify(graph, after="assignment")
    records.messages += map(
        _region_message, (place for place in places(graph) if isinstance(place.layer.op, ControlFlow))
    )
    snapshot = graph.clone()
    for graph_assigner in assigner.with_regions():
        let_backends_optimize(graph_assigner)
    verify(graph, after="the backends' optimization")
    return snapshot


@memory_to("optimize the network")
def simplified(
    network: Network,
    backends: Iterable[str] | None = None,
    device_spec: DeviceSpec | None = None,
    options: OptimizerOptions | None = None,
) -> Network:
    """Return the network as backends are queried about it: with all infos, after the backend-independent rewrites.

    The arguments are those of `optimize`. Hints stay with their layers.

    Raises:
        InvalidNetworkError: the network has errors; lists all of them.
        InterposerError: an argument is invalid, as for `optimize`.
    """
    options = OptimizerOptions() if options is None else options
    chosen_backends, _ = choose_backends(backends, DeviceSpec.default() if device_spec is None else device_spec)
    graph, _ = _prepared(network, options, chosen_backends)
    return Network(network.name, graph)


def _place_tensors(graph: Graph, backends: Sequence[Backend], options: OptimizerOptions) -> list[Crossing]:
    """Choose the kind of memory of every tensor, once the layers are assigned, and insert copies between backends.

    Returns a record of each tensor that passes from one backend to another. `backends` are in order of preference.
    """
    backends_with_layers = {place.layer.backend for place in places(graph)} - {None} or {backends[0].id}
    offers = Offers.of(
        backends,
        {str(backend_id) for backend_id in backends_with_layers} | {str(backends[0].id)},
        options.model_options,
    )
    offers = offers.restricted(imports=options.import_enabled, exports=options.export_enabled)
    return place_tensors(graph, str(backends[0].id), offers)


def _assign(assigners: Sequence[Assigner]) -> None:
    """Assign the layers of the network and of all regions; there is one assigner for each graph, the network's first.

    Raises:
        UnsupportedLayerError: no backend supports some layers; a single error for all graphs.
    """
    failures = []
    for assigner in assigners:
        try:
            assigner.assign(filter(is_placed_by_a_backend, assigner.graph.topological()))
        except UnsupportedLayerError as error:
            failures.append(error)
    if len(failures) > 1:
        refusals = [refusal for error in failures for refusal in error.refusals]
        raise UnsupportedLayerError("\n".join(map(str, failures)), refusals)
    if failures:
        raise failures[0]
    run_passes(assigners[0].graph, INVERSE_CONVERSIONS)


def _region_message(place: Place) -> Message:
    message_text = (
        f"layer {place.name!r} ({place.layer.kind}) is run by the runtime, and its regions' layers by their backends"
    )
    return Message("info", message_text)


def _placements(records: Records, *graphs: Graph) -> tuple[Placement, ...]:
    """Return the recorded placements of the layers in these graphs and their regions, in running order.

    Records of layers that no longer exist, such as removed conversions, are left out.
    """
    names = dict.fromkeys(place.name for graph in graphs for place in places(graph))
    return tuple(records.placements[name] for name in names if name in records.placements)


def _prepared(
    network: Network, options: OptimizerOptions, backends: tuple[Backend, ...]
) -> tuple[Graph, list[Message]]:
    check_unchanged(_constants(network.graph))  # reading beyond the end of a truncated file would end the process
    if options.shape_inference == "validate":
        require_declared_shapes(network)
    network = with_expanded_dims(network) if options.allow_expanded_dims else network
    network.validate()
    graph, messages = network.graph.clone(), list[Message]()  # with the infos that `validate` has inferred
    _set_hints(graph, options.hints, tuple(backend.id for backend in backends))
    if options.rewrite:
        run_passes(graph, _passes(options, backends))
    if options.reduce_fp32_to_fp16:
        messages += reduce_precision(graph, DataType.FLOAT16)
    if options.reduce_fp32_to_bf16:
        messages += reduce_precision(graph, DataType.BFLOAT16)
    if options.reduce_fp32_to_fp16 or options.reduce_fp32_to_bf16:  # rewrites are verified one by one
        verify(graph, after="the reduction of precision")
    return graph, messages


def _passes(options: OptimizerOptions, backends: tuple[Backend, ...]) -> Sequence[Pass]:
    preference = Preference(backends, options.model_options)
    integers = (ComputeInIntegers(preference),) if options.compute_in_integers else ()
    rounding = DropActivationRounding(preference, keep=options.round_activations)
    return *integers, *DEFAULT_PASSES, UnpackWeights(preference), rounding


def _constants(graph: Graph) -> Iterator[Array]:
    """Yield the values of all constants of a graph and of the regions in it."""
    layers = (layer for _, region in named_graphs(graph) for layer in region)
    return (layer.op.value for layer in layers if isinstance(layer.op, Constant))


def _check_options(options: OptimizerOptions, device_spec: DeviceSpec) -> None:
    """Raise `UnknownBackendError` if the options name a backend that is not registered."""
    for backend in chain(options.model_options, *options.exclude.values()):
        if backend not in device_spec.registry:
            raise UnknownBackendError(backend, device_spec.registry.ids)


def _set_hints(graph: Graph, hints: Mapping[str, str], ids: tuple[str, ...]) -> None:
    for name, backend in hints.items():
        _check_hint(name, backend, ids)
        find_layer(graph, name).hint = backend


def _check_hint(layer: str, backend: str, ids: tuple[str, ...]) -> None:
    """Raise `InvalidArgumentError` unless the backend that a hint names for a layer is among those in use, `ids`."""
    if backend not in ids:
        raise InvalidArgumentError(
            f"the hint for layer {layer!r} names backend {backend!r}, "
            f"which is not among those in use ({', '.join(ids)}){did_you_mean(str(backend), ids)}"
        )
