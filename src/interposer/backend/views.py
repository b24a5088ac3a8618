"""A backend's answer for a subgraph that it optimizes: substitutions, failures and untouched layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from interposer.core.errors import BackendContractError
from interposer.core.records import dataclass
from interposer.core.schema import Op
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.subgraph import SubgraphView, quotient_is_acyclic
from interposer.ops.control import PreCompiled

__all__ = ["Failure", "OptimizationViews", "Substitution"]


@dataclass(frozen=True, slots=True)
class Substitution:
    """A part of the view, and its replacement: one layer, or a graph of layers.

    A single layer (an operator) gets `inputs`. By default, these are all values that enter the part, in the order of
    first use; for a `PreCompiled`, constants are excluded. Its results replace the part's outputs. A graph has an Input
    layer for each of ``part.operands`` and an Output layer for each of ``part.outputs``, in the same order.
    """

    part: SubgraphView
    replacement: Op | Graph
    inputs: tuple[Value, ...] | None = None

    @property
    def entering(self) -> tuple[Value, ...]:
        """The values that the replacement takes as inputs."""
        if self.inputs is not None:
            return tuple(self.inputs)
        return self.part.inputs if isinstance(self.replacement, PreCompiled) else self.part.operands


@dataclass(frozen=True, slots=True)
class Failure:
    """A part of a view that a backend accepted when it was asked, but cannot run after all, with the reason.

    The optimizer then asks other backends about its layers.
    """

    part: SubgraphView
    reason: str


class OptimizationViews:
    """A backend's answer to `Backend.optimize_subgraph`: what becomes of the layers of one view.

    `substitutions` replace parts of the view, and `failed` has the parts that the backend cannot run. All other layers
    of the view stay unchanged. `remarks` are sentences for the user about how the backend runs the view, such as "the
    device has no float16, so it computes in float32"; an explanation of the network contains them.
    """

    def __init__(
        self,
        view: SubgraphView,
        *,
        substitutions: Sequence[Substitution] = (),
        failed: Sequence[Failure] = (),
        remarks: Sequence[str] = (),
    ) -> None:
        self.view = view
        self.substitutions = tuple(substitutions)
        self.failed = tuple(failed)
        self.remarks = tuple(remarks)

    @classmethod
    def all_failed(cls, view: SubgraphView, reason: str) -> OptimizationViews:
        """Return the answer that the backend can run no layer of the view, for this reason."""
        return cls(view, failed=[Failure(view, reason)])

    @property
    def untouched(self) -> tuple[Layer, ...]:
        """The layers of the view that are neither substituted nor failed."""
        touched_guids = {layer.guid for part in self._parts() for layer in part}
        return tuple(layer for layer in self.view if layer.guid not in touched_guids)

    def _parts(self) -> Iterator[SubgraphView]:
        yield from (substitution.part for substitution in self.substitutions)
        yield from (failure.part for failure in self.failed)

    def validate(self) -> None:
        """Check that the answer is consistent.

        Raises:
            BackendContractError: parts overlap, leave the view or would form a cycle, or the inputs and outputs of a
                replacement differ from the part's.
        """
        errors = list(self._kind_problems())
        errors += () if errors else self._part_problems()
        errors += (
            () if errors else [text for substitution in self.substitutions for text in _border_problems(substitution)]
        )
        if not errors and not quotient_is_acyclic(
            self.view, [substitution.part.layers for substitution in self.substitutions]
        ):
            errors.append("the substituted parts would depend on each other in a cycle")
        if errors:
            raise BackendContractError(f"optimize_subgraph returned an answer that cannot be used: {'; '.join(errors)}")

    def _kind_problems(self) -> Iterator[str]:
        for substitution in self.substitutions:
            yield from _type_problem(substitution, Substitution, "a substitution")
            if isinstance(substitution, Substitution):
                yield from _type_problem(substitution.part, SubgraphView, "a substituted part")
                yield from _type_problem(substitution.replacement, Op | Graph, "a replacement")
                yield from (
                    error for value in substitution.inputs or () for error in _type_problem(value, Value, "an input")
                )
        for failure in self.failed:
            yield from _type_problem(failure, Failure, "a failure")
            if isinstance(failure, Failure):
                yield from _type_problem(failure.part, SubgraphView, "a failed part")
                yield from _type_problem(failure.reason, str, "the reason of a failure")
        for remark in self.remarks:
            yield from _type_problem(remark, str, "a remark")

    def _part_problems(self) -> Iterator[str]:
        seen_layers: set[int] = set()
        for part in self._parts():
            if not len(part):
                yield "a part is empty"
            for layer in part:
                if layer not in self.view:
                    yield f"layer {layer} is not in the view"
                if layer.guid in seen_layers:
                    yield f"layer {layer} is in two parts"
                seen_layers.add(layer.guid)


def _type_problem(value: object, kind: Any, subject: str) -> Iterator[str]:
    if not isinstance(value, kind):
        expected = " or ".join(expected_type.__name__ for expected_type in getattr(kind, "__args__", (kind,)))
        yield f"{subject} is {value!r}; expected {expected}"


def _border_problems(substitution: Substitution) -> Iterator[str]:
    num_outputs = len(substitution.part.outputs)
    allowed_values = set(substitution.part.operands)
    for value in dict.fromkeys(substitution.entering):
        if value not in allowed_values:
            yield f"the value {value.name!r} does not enter the part"
    if isinstance(substitution.replacement, Graph):
        yield from _count_problems(substitution, substitution.replacement)
    elif substitution.replacement.num_results() != num_outputs:
        num_results = substitution.replacement.num_results()
        yield f"{substitution.replacement.op_name()} has {num_results} outputs, but the part has {num_outputs}"


def _count_problems(substitution: Substitution, graph: Graph) -> Iterable[str]:
    inputs, outputs = len(substitution.entering), len(substitution.part.outputs)
    if len(graph.inputs) != inputs:
        yield f"the replacement has {len(graph.inputs)} inputs, but the part has {inputs}"
    if len(graph.outputs) != outputs:
        yield f"the replacement has {len(graph.outputs)} outputs, but the part has {outputs}"
    yield from (
        f"output {layer.name!r} of the replacement is not connected" for layer in graph.outputs if not layer.values
    )
