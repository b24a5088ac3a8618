"""A model one of whose subgraphs begins and ends at other tensors, so that operators outside need no support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from interposer.frontends.tflite.contents import Model, Operator, Signature, Subgraph

__all__ = ["cut"]


def cut(
    model: Model,
    number: int,
    inputs: Sequence[str],
    outputs: Sequence[str] | None,
    signature: Signature | None = None,
) -> Model:
    """Return the model whose subgraph `number` has only the operators between the named tensors.

    The subgraph keeps its inputs, to which the tensors `inputs` are added. `outputs` replace its outputs; None keeps
    them. Operators that set variables stay. The model is returned unchanged if a name is that of no tensor, or of
    several.

    A `signature` that calls the subgraph gets the same inputs and outputs. Its own names have precedence over those of
    tensors.
    """
    main = model.subgraphs[number]
    titles = Signature("", number, {}, {}) if signature is None else signature
    sources = _tensors(main, inputs, titles.inputs)
    results = None if outputs is None else _tensors(main, outputs, titles.outputs)
    if sources is None or (outputs is not None and results is None):
        return model
    added = {name: index for name, index in zip(inputs, sources, strict=True) if index not in main.inputs}
    known = (*main.inputs, *added.values())
    declared_outputs = main.outputs if signature is None else tuple(signature.outputs.values())
    ends = declared_outputs if results is None else tuple(results)
    shorter = replace(main, inputs=known, outputs=ends, operators=_between(main, set(known), ends))
    ended = titles.outputs if results is None else dict(zip(outputs or (), results, strict=True))
    ended_signature = replace(titles, inputs={**titles.inputs, **added}, outputs=ended)
    return replace(
        model,
        subgraphs=(*model.subgraphs[:number], shorter, *model.subgraphs[number + 1 :]),
        signatures=tuple(ended_signature if other is signature else other for other in model.signatures),
    )


def _tensors(subgraph: Subgraph, names: Sequence[str], known: Mapping[str, int]) -> list[int] | None:
    """Return the indices of the tensors with these names; None unless each name is that of one tensor.

    `known` has the indices of names that a signature gives.
    """
    indices: dict[str, list[int]] = {}
    for index, tensor in enumerate(subgraph.tensors):
        indices.setdefault(tensor.name, []).append(index)
    candidates = [[known[name]] if name in known else indices.get(name, []) for name in names]
    return [found[0] for found in candidates] if all(len(found) == 1 for found in candidates) else None


def _between(subgraph: Subgraph, sources: set[int], ends: Sequence[int]) -> tuple[Operator, ...]:
    """Return the operators on which the tensors `ends` depend, given the tensors `sources`, in the file's order."""
    needed, operators = set(ends) - sources, list[Operator]()
    for operator in reversed(subgraph.operators):
        if not operator.outputs or any(operator.mutating_variable_inputs) or needed & set(operator.outputs):
            operators.append(operator)
            needed |= set(operator.inputs) - sources
    return tuple(reversed(operators))
