"""`OptimizedNetwork`: a graph with a backend for every layer, and records of how it was divided."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interposer.core.lazy_names import lazy_type
from interposer.core.records import dataclass
from interposer.ir.graph import Graph, Layer
from interposer.report.estimate import operations_of
from interposer.report.records import Crossing, Message, Placement, Refusal

if TYPE_CHECKING:
    from interposer.report.explanation import Explanation, Times, Verdict
else:  # most runs are not explained
    Explanation, Times, Verdict = (
        lazy_type("interposer.report.explanation", name) for name in ("Explanation", "Times", "Verdict")
    )

__all__ = ["AbsentBackend", "OptimizedNetwork"]

Verdicts = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class AbsentBackend:
    """A backend that the caller named, but that was skipped because it is not available; `reason` says why."""

    id: str
    reason: str


@dataclass(frozen=True, eq=False)
class OptimizedNetwork:
    """A network that is divided among backends and ready to be loaded by a runtime.

    `graph` has the layers as they will run. `placements` has one record for each layer before backends replaced some of
    them, `refusals` every refusal, and `crossings` every tensor that passes between backends. The object keeps the
    backends alive and is immutable; several runtimes may load it.
    """

    graph: Graph
    preferences: tuple[str, ...]
    placements: tuple[Placement, ...]
    refusals: tuple[Refusal, ...]
    messages: tuple[Message, ...]
    crossings: tuple[Crossing, ...]
    absent: tuple[AbsentBackend, ...]
    backends: Mapping[str, Any]
    model_options: Mapping[str, Mapping[str, Any]]
    ask: Callable[[str], Verdicts]
    """A function from a backend's id to its reasons against each layer, by name; empty for a supported layer."""
    divided: Callable[[], Graph]
    """A function that returns the graph before backends replaced parts of it."""
    import_enabled: bool = True
    """False if inputs of the caller and tensors of other backends are copied, never used in place."""
    export_enabled: bool = True
    """False if outputs are never computed in arrays of the caller, but copied there."""
    known_operations: Mapping[str, int] | None = None
    """The numbers of operations of the layers of `divided`, by name, if they are known without building that graph."""

    @property
    def copies(self) -> tuple[Crossing, ...]:
        """The records of the tensors that are copied from one backend's memory to another's in every run."""
        return tuple(crossing for crossing in self.crossings if crossing.is_copy)

    def operations(self) -> dict[str, int]:
        """Return the numbers of operations of the layers that run, and of those that backends replaced, by name."""
        operations_before = operations_of(self.divided()) if self.known_operations is None else self.known_operations
        return {**operations_of(self.graph), **operations_before}

    @property
    def name(self) -> str:
        """The network's name."""
        return self.graph.name

    @property
    def inputs(self) -> Sequence[Layer]:
        """The Input layers, by binding id."""
        return self.graph.inputs

    @property
    def outputs(self) -> Sequence[Layer]:
        """The Output layers, by binding id."""
        return self.graph.outputs

    def free_after_last_use(self) -> None:
        """Free the graphs as soon as nothing refers to them any more; see `Graph.free_after_last_use`."""
        self.graph.free_after_last_use()
        if self.known_operations is None:
            self.divided().free_after_last_use()

    def explain(self, times: Times | None = None) -> Explanation:
        """Return the backend of each layer, and why the other backends do not run it.

        Backends that were not asked are asked now.

        Args:
            times: the measured times of runs; `Model.explain` passes them.
        """
        from interposer.report.explanation import Explanation  # noqa: PLC0415
        from interposer.report.facts import facts_of  # noqa: PLC0415

        refusals = {(refusal.layer, refusal.backend): refusal.reasons for refusal in self.refusals}
        return Explanation(
            self.name,
            self.preferences,
            tuple((placement, tuple(self._verdicts(placement, refusals))) for placement in self.placements),
            self.crossings,
            tuple((backend.id, backend.reason) for backend in self.absent),
            tuple(map(str, self.messages)),
            tuple(message.text for message in self.messages if not message.refusals),
            facts_of(self.graph, self.divided(), {placement.layer for placement in self.placements}, self.crossings),
            times,
        )

    def _verdicts(self, placement: Placement, refusals: Mapping[tuple[str, str], tuple[str, ...]]) -> Iterator[Verdict]:
        """Yield what each other backend says about the layer of `placement`, in order of preference.

        `refusals` has the recorded reasons by names of layer and backend. A backend that was not asked before is asked
        now.
        """
        from interposer.report.explanation import LATE, Verdict  # noqa: PLC0415

        for backend in self.preferences:
            if backend == placement.backend:
                continue
            reasons = refusals.get((placement.layer, backend))
            yield Verdict(backend, self.ask(backend).get(placement.layer, LATE) if reasons is None else reasons)

    def save(self, path: str | os.PathLike[str], *, sign_key: str | os.PathLike[str] | None = None) -> None:
        """Save the network to a file, with the compiled parts of the backends that offer them.

        `interposer.load` creates a model from the file, without dividing and compiling the network again. The file has
        the network as the rewrites of the optimizer left it; `Model.save` also saves open dimensions.

        Args:
            path: the file, usually with the suffix ``.ipn``. An existing file is replaced when the new one is complete.
            sign_key: a file with a private Ed25519 key in the format PEM, with which the file is signed.

        Raises:
            InvalidArgumentError: the shape of an input is not known, or the key cannot be read.
            UnwritableError: a layer has an attribute that cannot be saved.
            FileWriteError: the file cannot be written; an existing file is unchanged.
        """
        from interposer.saved.writing import save_optimized  # noqa: PLC0415 - few networks are saved

        save_optimized(path, self, sign_key)

    def to_dot(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the layers as they will run in the DOT language of Graphviz; with a path, also write it to this file.

        Layers are nodes with their backends, tensors are edges labeled with their shapes. ``dot -Tsvg net.dot`` draws
        it.

        Raises:
            FileWriteError: the file cannot be written.
        """
        from interposer.ir.dot import save_dot  # noqa: PLC0415 - seldom needed

        return save_dot(self.graph, path)

    def _repr_html_(self) -> str:
        from interposer.ir.html import graph_html  # noqa: PLC0415 - only notebooks need it

        return graph_html("OptimizedNetwork", self.graph)

    def __str__(self) -> str:
        return str(self.graph)

    def __repr__(self) -> str:
        return f"<OptimizedNetwork {self.name!r}: {len(self.graph)} layers on {', '.join(self.preferences)}>"
