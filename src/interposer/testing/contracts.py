"""The checks of a backend as a whole, on networks of several layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from interposer.backend import Capabilities, MemoryManager, OptimizationViews, WorkloadFactory
from interposer.core.errors import InvalidArgumentError, UnsupportedLayerError
from interposer.ir.graph import Graph, binding_id
from interposer.ir.subgraph import SubgraphView
from interposer.runtime import Runtime
from interposer.testing.bench import Bench, Loaded, view_of
from interposer.testing.checks import Check, subject_of
from interposer.testing.order import context_problems, order_problems
from interposer.testing.outcome import Refused, Skipped
from interposer.testing.patterns import PATTERNS, VARIANTS, Growth
from interposer.testing.recording import Recording
from interposer.testing.single_layers import one_by_one
from interposer.testing.tolerances import same
from interposer.testing.trial import Outputs, run_recorded

__all__ = ["BACKEND_CHECKS", "grown", "on_backend", "require"]

Run = Callable[[Bench, str], Iterator[str]]
BACKEND_CHECKS: Final[list[Check]] = []
_NETWORKS: Final = tuple(f"{name}-{number}" for name in PATTERNS for number in range(VARIANTS))


def on_backend(*variants: str) -> Callable[[Run], Run]:
    """Register the decorated function as a check of the backend as a whole.

    It is called once with each variant's name.
    """

    def add(run: Run) -> Run:
        BACKEND_CHECKS.append(Check(run.__name__, subject_of(run), run, variants))
        return run

    return add


def grown(bench: Bench, variant: str) -> Growth:
    """Return the network of a variant such as "chain-3": the name of a pattern in `PATTERNS`, and a seed.

    It is built from supported samples and cached.

    Raises:
        Refused: no supported samples fit the pattern.
    """
    if variant not in bench.growths:
        bench.growths[variant] = new_growth(bench, variant)
    return bench.growths[variant]


def new_growth(bench: Bench, variant: str) -> Growth:
    """Return the same network as `grown`, but built again, for a check in which the backend may change the network."""
    growth = Growth(bench.pool, variant)
    PATTERNS[variant.partition("-")[0]](growth)
    return growth


def require(bench: Bench) -> None:
    """Raise `Skipped` if the backend supports no sample at all."""
    if not bench.taken:
        raise Skipped("the backend takes none of the samples")


# --- description of the backend ---------------------------------------------------------------------------------------


@on_backend("capabilities", "objects", "unknown-options")
def description(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if the backend's description or the objects that it creates have types that the interface forbids.

    Capabilities must be named values. Managers and factories must have the right types, and each network must get new
    ones. Unknown options must not prevent the backend from answering.
    """
    yield from {"capabilities": _capabilities, "objects": _objects, "unknown-options": _unknown_options}[variant](bench)


def _capabilities(bench: Bench) -> Iterator[str]:
    capabilities: object = bench.backend.capabilities
    if not isinstance(capabilities, Capabilities):
        yield f"its capabilities are {capabilities!r}; expected Capabilities"
        return
    for capability in capabilities:
        if not isinstance(capability.value, bool | int | float | str):
            name, value = capability.name, capability.value
            yield f"the capability {name!r} is {value!r}; expected a truth value, a number or a text"
    for name in ("DynamicShapes", "Deterministic", "NonConstWeights", "ConstantTensorsAsInputs", "HasFp16"):
        if not isinstance(capabilities.get(name), bool | None):
            yield f"the capability {name!r} is {capabilities.get(name)!r}; expected True or False"


def _objects(bench: Bench) -> Iterator[str]:
    managers = [bench.backend.create_memory_manager() for _ in range(2)]
    if any(manager is not None and not isinstance(manager, MemoryManager) for manager in managers):
        yield f"create_memory_manager gave {managers[0]!r}; expected a MemoryManager or None"
    elif managers[0] is not None and managers[0] is managers[1]:
        yield "create_memory_manager gave the same manager twice; every network needs one of its own"
    factories = [bench.backend.create_workload_factory(manager, bench.settings.options) for manager in managers]
    if not isinstance(factories[0], WorkloadFactory):
        yield f"create_workload_factory gave {factories[0]!r}; expected a WorkloadFactory"


def _unknown_options(bench: Bench) -> Iterator[str]:
    require(bench)
    network, _ = bench.taken[0].network()
    unknown_option = "NobodyKnowsThisOption"
    options = {**bench.settings.options, unknown_option: True}
    try:
        verdicts = bench.backend.layer_support(options).query(view_of(network.graph))
    except InvalidArgumentError as error:
        if unknown_option not in str(error):
            yield f"it refuses an unknown option without naming it: {error}"
        return
    if not all(verdicts):
        yield "with an unknown option it refuses layers that it accepts without the option"


# --- compiled subgraphs -----------------------------------------------------------------------------------------------


@on_backend(*_NETWORKS)
def substitution(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if the answer of `optimize_subgraph` cannot be run, or if the view itself was changed.

    The subgraphs in the answer must be inside of the view, disjoint and convex, and must not form a cycle together.
    Each must have the same inputs and outputs as its replacement. Subgraphs that the backend returns unchanged need a
    reason.
    """
    graph = new_growth(bench, variant).network.graph
    view, state_before = view_of(graph), _state(graph)
    offered_views: object = bench.offer(view)
    if not isinstance(offered_views, OptimizationViews):
        yield f"optimize_subgraph gave {type(offered_views).__name__}; expected OptimizationViews"
        return
    if offered_views.view is not view:
        yield "optimize_subgraph gave an answer for another view"
        return
    offered_views.validate()
    for replacement in offered_views.substitutions:
        if not replacement.part.is_convex():
            yield f"the part {_names(replacement.part)} is not convex: a path leaves it and comes back"
    for failure in offered_views.failed:
        if not failure.reason.strip():
            yield f"the part {_names(failure.part)} is given back without a reason"
    if _state(graph) != state_before:
        yield "optimize_subgraph changed the graph that it was shown"


def _state(graph: Graph) -> list[object]:
    return [(layer.guid, layer.op, layer.backend, layer.inputs, layer.output_infos) for layer in graph]


def _names(part: SubgraphView) -> str:
    return ", ".join(repr(layer.name) for layer in part)


# --- whole networks and their layers ----------------------------------------------------------------------------------


@on_backend(*_NETWORKS)
def composition(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if a network gives other results than its layers one by one, or uses memory in the wrong order.

    Tensors whose lifetimes do not overlap may share memory, and several layers may be compiled into one. Neither may
    affect the results.
    """
    growth, recording = grown(bench, variant), Recording()
    try:
        optimized = bench.optimize(growth.network, recording)
    except UnsupportedLayerError as error:
        raise Refused(str(error)) from None
    with bench.loaded(optimized) as loaded_network:
        recording.mark("loaded")
        recording.spoil_unmanaged()
        outputs = run_recorded(loaded_network, recording, growth.feeds)
        recording.mark("unload")
    recording.mark("unloaded")
    yield from dict.fromkeys(recording.problems)
    yield from order_problems(recording)
    yield from _differences(bench, growth, outputs, one_by_one(bench, growth.network, growth.feeds))


@on_backend(*_NETWORKS)
def division(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if results change if every other layer runs on another backend, with copies in between."""
    growth = grown(bench, variant)
    names = [layer.name for layer in view_of(growth.network.graph)]
    for held_back in (names[::2], names[1::2]):
        recording = Recording()
        optimized = bench.optimize(growth.network, recording, beside=["Oracle"], held_back=held_back)
        with bench.loaded(optimized) as loaded_network:
            outputs = run_recorded(loaded_network, recording, growth.feeds)
            recording.mark("unload")
        recording.mark("unloaded")
        yield from dict.fromkeys(recording.problems)
        yield from order_problems(recording)
        expected = one_by_one(bench, growth.network, growth.feeds, held_back)
        yield from _differences(bench, growth, outputs, expected)


def _differences(bench: Bench, growth: Growth, outputs: Outputs, expected: Outputs) -> Iterator[str]:
    tolerances = bench.tolerances.times(len(growth.network))
    for layer in growth.network.graph.outputs:
        error = tolerances.difference(outputs[binding_id(layer)], expected[binding_id(layer)], layer.values[0].known)
        yield from [f"output {binding_id(layer)}: {error}"] if error else []


# --- networks concurrently --------------------------------------------------------------------------------------------


@on_backend("twice", "in-turns", "after-unloading")
def isolation(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if networks that are loaded at the same time overwrite each other's tensors.

    The same optimized network may be loaded twice; runs of several networks may alternate; a network must still run
    after another one is unloaded.
    """
    growth = grown(bench, "chain-0")
    second_growth = growth if variant == "twice" else grown(bench, "chain-1")
    expected, optimized = bench.run(growth.network, growth.feeds), bench.optimize(growth.network)
    second_network = optimized if variant == "twice" else bench.optimize(second_growth.network)
    with bench.loaded(optimized) as loaded_before:
        with bench.loaded(second_network) as second:
            for _ in range(3):
                yield from _unequal(loaded_before.run(growth.feeds), expected)
                second.run(second_growth.feeds)
        if variant == "after-unloading":
            yield from _unequal(loaded_before.run(growth.feeds), expected)


def _unequal(outputs: Outputs, expected: Outputs) -> Iterator[str]:
    for key, array in expected.items():
        if not same(outputs[key], array):
            yield f"output {key} is not the same as when the network was the only one"


@on_backend("notices")
def context(bench: Bench, variant: str) -> Iterator[str]:
    """Yield an error if the backend context rejects a network, or misses a notification or their order."""
    require(bench)
    recording = Recording()
    optimized = bench.optimize(grown(bench, "chain-0").network, recording)
    with Runtime() as runtime:
        loaded_networks = [Loaded(runtime, optimized) for _ in range(2)]
        for network in loaded_networks:
            network.unload()
    if not recording.objects("before_load_network"):
        raise Refused("the backend has no context")
    yield from recording.problems
    yield from context_problems(recording)
