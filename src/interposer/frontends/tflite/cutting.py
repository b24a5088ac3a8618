"""A model one of whose subgraphs begins and ends at other tensors, so that operators outside need no support."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from interposer.frontends.tflite.contents import Model, Operator, Subgraph

__all__ = ["cut"]


def cut(model: Model, number: int, inputs: Sequence[str], outputs: Sequence[str] | None) -> Model:
    """Return the model whose subgraph `number` has only the operators between the named tensors.

    The subgraph keeps its inputs, to which the tensors `inputs` are added. `outputs` replace its outputs; None keeps
    them. Operators that set variables stay. The model is returned unchanged if a name is that of no tensor, or of
    several.
    """
    main = model.subgraphs[number]
    sources, results = _tensors(main, inputs), None if outputs is None else _tensors(main, outputs)
    if sources is None or (outputs is not None and results is None):
        return model
    added = tuple(index for index in sources if index not in main.inputs)
    ends = main.outputs if results is None else tuple(results)
    operators = _between(main, {*main.inputs, *added}, ends)
    shorter = replace(main, inputs=(*main.inputs, *added), outputs=ends, operators=operators)
    return replace(model, subgraphs=(*model.subgraphs[:number], shorter, *model.subgraphs[number + 1 :]))


def _tensors(subgraph: Subgraph, names: Sequence[str]) -> list[int] | None:
    """Return the indices of the tensors with these names; None unless each name is that of one tensor."""
    indices: dict[str, list[int]] = {}
    for index, tensor in enumerate(subgraph.tensors):
        indices.setdefault(tensor.name, []).append(index)
    matches = [indices.get(name, []) for name in names]
    return [match[0] for match in matches] if all(len(match) == 1 for match in matches) else None


def _between(subgraph: Subgraph, sources: set[int], ends: Sequence[int]) -> tuple[Operator, ...]:
    """Return the operators on which the tensors `ends` depend, given the tensors `sources`, in the file's order."""
    needed, result = set(ends) - sources, list[Operator]()
    for operator in reversed(subgraph.operators):
        if not operator.outputs or any(operator.mutating_variable_inputs) or needed & set(operator.outputs):
            result.append(operator)
            needed |= set(operator.inputs) - sources
    return tuple(reversed(result))
