"""The bench: a backend under test, with methods to optimize, load and run networks on it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cached_property
from typing import Any, Final

from interposer.backend import Backend, OptimizationViews, Options, SubgraphView, Support
from interposer.core.containers import as_given, as_stored
from interposer.core.errors import MemoryImportError
from interposer.core.records import dataclass
from interposer.core.room import Room
from interposer.core.schema import Op
from interposer.core.types import Array
from interposer.ir.graph import Graph, Layer
from interposer.ir.network import Network
from interposer.ir.subgraph import is_placed_by_a_backend
from interposer.optimizer import OptimizerOptions, optimize
from interposer.plugins import BackendRegistry, DeviceSpec
from interposer.report.optimized import OptimizedNetwork
from interposer.runtime import Runtime
from interposer.testing.census import Census
from interposer.testing.contents import Guarded
from interposer.testing.known_samples import KnownSamples
from interposer.testing.oracle import Oracle
from interposer.testing.patterns import Growth, Pool
from interposer.testing.progress import note
from interposer.testing.refusals import Refusals
from interposer.testing.sample import Sample
from interposer.testing.tolerances import Tolerances
from interposer.testing.watched import Observer, Watched

__all__ = ["Bench", "Loaded", "Settings", "view_of"]


@dataclass(frozen=True)
class Settings:
    """The settings of a conformance run.

    Args:
        options: model options for the backend.
        tolerances: the allowed differences of results.
        examples: the maximum number of random networks; fewer are tried for a backend of few operators.
        folder: the folder for scripts that reproduce failures of random networks.
        loads: how often networks are loaded by the check for leaks.
        patience: seconds without progress (a load, a run, a finished layer ...) after which a case counts as hanging.
            None runs the cases in this process, without a watchdog.
    """

    options: Options = field(default_factory=dict)
    tolerances: Tolerances = field(default_factory=Tolerances)
    examples: int = 100
    folder: str = "conformance-failures"
    loads: int = 40
    patience: float | None = 60.0


MOST_BYTES: Final = 1 << 30
"""The most memory in bytes that a run of a check may need for tensors whose sizes follow from values of inputs."""


class Loaded:
    """A network of a check, loaded in a runtime until `unload`."""

    def __init__(self, runtime: Runtime, optimized: OptimizedNetwork) -> None:
        self.runtime, self.optimized = runtime, optimized
        note("loading a network")
        self.id = runtime.load_network(optimized, room=Room(MOST_BYTES))
        note("going on after a network was loaded")

    def run(self, feeds: Mapping[int, Array], outputs: Mapping[int, Array] | None = None) -> dict[int, Array]:
        """Run the network once on the inputs `feeds`, and return the outputs; both map binding ids to arrays.

        The results are written to the arrays `outputs` if these are given, else to new arrays with guard margins, which
        are checked. Values that are not tensors, such as sequences, are passed in their stored form.
        """
        bindings = self.runtime.bindings(self.id)
        input_arrays = {key: as_given(bindings.inputs[key].info, array) for key, array in feeds.items()}
        guards = (
            None
            if outputs is not None
            else {key: Guarded(bindings.outputs[key].info) for key in bindings.new_outputs()}
        )
        targets = outputs if guards is None else {key: guarded.array for key, guarded in guards.items()}
        note("running a network")
        outputs_by_id = self.runtime.enqueue_workload(self.id, input_arrays, targets)
        note("going on after a network has run")
        for key, guard in (guards or {}).items():
            guard.check(key)
        return {
            key: as_stored("", bindings.outputs[key].info, array, lambda *arguments: arguments[2])
            for key, array in outputs_by_id.items()
        }

    def run_imported(self, inputs: Mapping[int, Array], outputs: Mapping[int, Array]) -> bool:
        """Run the network once on imported arrays, by binding id; return False if it cannot use them in place."""
        try:
            input_ids = self.runtime.import_inputs(self.id, inputs)
            output_ids = self.runtime.import_outputs(self.id, outputs)
        except MemoryImportError:
            return False
        note("running a network on imported memory")
        self.runtime.enqueue_workload(self.id, {}, {}, imported_inputs=input_ids, imported_outputs=output_ids)
        note("going on after a network has run")
        self.runtime.clear_imported_inputs(self.id, input_ids)
        self.runtime.clear_imported_outputs(self.id, output_ids)
        return True

    def unload(self) -> None:
        """Unload the network."""
        note("unloading a network")
        self.runtime.unload_network(self.id)
        note("going on after a network was unloaded")


class Bench:
    """Runs networks on one backend under test, for all checks of that backend.

    It caches what several checks need, such as which samples the backend supports. `samples` are the samples that
    checks may use, and `others` the backends that run a network together with the backend under test.
    """

    def __init__(
        self,
        backend: Backend,
        samples: Iterable[Sample],
        settings: Settings | None = None,
        others: Sequence[Backend] = (),
    ) -> None:
        self.backend, self.samples, self.other_backends = backend, samples, others
        self.settings = settings or Settings()
        self.runtime = Runtime()
        self.latest: Any = None  # the last trial, which several checks share
        self.alone: dict[
            tuple[object, ...], dict[int, Array]
        ] = {}  # results of layers that ran as single-layer networks
        self.optimized_alone: dict[tuple[object, ...], OptimizedNetwork] = {}  # networks of such layers
        self.growths: dict[str, Growth] = {}  # networks of several layers that checks share
        self.verdicts: dict[Sample, bool] = {}  # whether the backend supports a sample, as far as queried
        self.refusals = Refusals()
        self.is_partial = False  # whether the samples of some families were left out
        self.backend_source: Any = None  # the id, class or path that another process makes the backend from

    @property
    def tolerances(self) -> Tolerances:
        """The allowed differences between results of the backend and of the reference, as the settings give them."""
        return self.settings.tolerances

    @cached_property
    def alignment(self) -> int:
        """The alignment in bytes that the backend needs for memory of the caller, if it uses it in place."""
        factory = self.backend.create_workload_factory(self.backend.create_memory_manager(), self.settings.options)
        return int(getattr(factory, "alignment", 1))

    def device(self, observer: Observer | None = None, held_back: Collection[str] = ()) -> DeviceSpec:
        """Return a registry of the backend under test in a `Watched`, the reference kernels and the other backends.

        `observer` receives every object that the backend creates. The wrapper refuses the layers named in `held_back`.
        """
        registry = BackendRegistry()
        watched_backend = Watched(self.backend, observer or Census(), held_back)
        registry.register(self.backend.id, lambda: watched_backend)
        for other_backend in (Oracle(), *self.other_backends):
            if other_backend.id not in registry:
                registry.register(other_backend.id, _always(other_backend))
        return DeviceSpec(registry)

    def optimize(
        self,
        network: Network,
        observer: Observer | None = None,
        *,
        beside: Sequence[str] = (),
        before: Sequence[str] = (),
        held_back: Collection[str] = (),
        rewrite: bool = False,
    ) -> OptimizedNetwork:
        """Optimize a network for the backend under test; layers that it does not support run on the others.

        Args:
            network: the network.
            observer: receives every object that the backend under test creates.
            beside: ids of backends that get layers only if the backend under test refuses them.
            before: ids of backends that are preferred to the backend under test.
            held_back: names of layers that the backend under test must not get.
            rewrite: whether the optimizer's own graph rewrites are applied.
        """
        ids = [*before, self.backend.id, *beside]
        model_options = {self.backend.id: self.settings.options} if self.settings.options else {}
        options = OptimizerOptions(rewrite=rewrite, model_options=model_options)
        note("optimizing a network")
        return optimize(network, ids, self.device(observer, held_back), options)

    @contextmanager
    def loaded(self, optimized: OptimizedNetwork) -> Iterator[Loaded]:
        """Load an optimized network for the duration of a ``with`` block, which gets it as a `Loaded`."""
        loaded = Loaded(self.runtime, optimized)
        try:
            yield loaded
        finally:
            loaded.unload()

    def run(self, network: Network, feeds: Mapping[int, Array], **how: Any) -> dict[int, Array]:
        """Optimize, load, run and unload a network; return its outputs by binding id.

        `feeds` are the arrays of its inputs by binding id, and `how` has the arguments of `optimize`.
        """
        with self.loaded(self.optimize(network, **how)) as loaded_network:
            return loaded_network.run(feeds)

    def query(self, view: SubgraphView) -> list[Support]:
        """Ask the backend which layers of a view it supports; return one verdict for each layer."""
        note("asking whether the backend takes a layer")
        return self.backend.layer_support(self.settings.options).query(view)

    def offer(self, view: SubgraphView) -> OptimizationViews:
        """Call the backend's `optimize_subgraph` for a view, and return its answer."""
        note("asking the backend to optimize a view")
        return self.backend.optimize_subgraph(view, self.settings.options)

    def takes(self, sample: Sample) -> bool:
        """Return True if the backend supports the layer of a sample; the answer is cached."""
        if self.refusals.of(sample, self) is not None:
            return False
        if sample not in self.verdicts:
            self.verdicts[sample] = self.takes_all(sample.network()[0].graph)
        return self.verdicts[sample]

    def takes_all(self, graph: Graph) -> bool:
        """Return True if the backend supports all layers of a graph, False also if the query fails.

        Layers whose result shapes depend on data need the capability DynamicShapes.
        """
        view = view_of(graph)
        if not (all(map(can_be_shaped, view)) or self.backend.capabilities.has("DynamicShapes")):
            return False
        try:
            return all(self.query(view))
        except Exception:
            return False

    def samples_of(self, op: type[Op]) -> Sequence[Sample]:
        """Return the samples of the operator `op`."""
        return self.samples.of(op) if isinstance(self.samples, KnownSamples) else self._samples_by_operator[op]

    @cached_property
    def _samples_by_operator(self) -> dict[type[Op], list[Sample]]:
        samples_by_op: dict[type[Op], list[Sample]] = {}
        for sample in self.samples:
            samples_by_op.setdefault(type(sample.op), []).append(sample)
        return samples_by_op

    @cached_property
    def taken(self) -> tuple[Sample, ...]:
        """The samples that the backend supports, without those that have empty tensors or random results."""
        comparable_samples = (sample for sample in self.samples if not sample.statistical and not _is_empty(sample))
        return tuple(filter(self.takes, comparable_samples))

    @cached_property
    def pool(self) -> Pool:
        """The supported samples that fit together, from which checks build networks of several layers."""
        return Pool(self.taken)

    def close(self) -> None:
        """Unload everything."""
        self.runtime.close()


def _always(backend: Backend) -> Any:
    return lambda: backend


def _is_empty(sample: Sample) -> bool:
    return any(operand is not None and operand.info.num_elements == 0 for operand in sample.inputs)


def can_be_shaped(layer: Layer) -> bool:
    """Return True if the shapes of all results are known before running."""
    return all(info.is_concrete for info in layer.output_infos)


def view_of(graph: Graph) -> SubgraphView:
    """Return a view of a graph without layers that no backend runs, such as inputs, outputs and constants."""
    return SubgraphView(graph, filter(is_placed_by_a_backend, graph))
