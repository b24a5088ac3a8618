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
    subgraph = model.subgraphs[number]
    names = Signature("", number, {}, {}) if signature is None else signature
    input_indices = _tensors(subgraph, inputs, names.inputs)
    output_indices = None if outputs is None else _tensors(subgraph, outputs, names.outputs)
    if input_indices is None or (outputs is not None and output_indices is None):
        return model
    added_inputs = {
        name: index for name, index in zip(inputs, input_indices, strict=True) if index not in subgraph.inputs
    }
    all_inputs = (*subgraph.inputs, *added_inputs.values())
    declared_outputs = subgraph.outputs if signature is None else tuple(signature.outputs.values())
    end_tensors = declared_outputs if output_indices is None else tuple(output_indices)
    shorter_subgraph = replace(
        subgraph, inputs=all_inputs, outputs=end_tensors, operators=_between(subgraph, set(all_inputs), end_tensors)
    )
    outputs_by_name = names.outputs if output_indices is None else dict(zip(outputs or (), output_indices, strict=True))
    ended_signature = replace(names, inputs={**names.inputs, **added_inputs}, outputs=outputs_by_name)
    return replace(
        model,
        subgraphs=(*model.subgraphs[:number], shorter_subgraph, *model.subgraphs[number + 1 :]),
        signatures=tuple(ended_signature if other is signature else other for other in model.signatures),
    )


def _tensors(subgraph: Subgraph, names: Sequence[str], known_indices: Mapping[str, int]) -> list[int] | None:
    """Return the indices of the tensors with these names; None unless each name is that of one tensor.

    `known_indices` has the indices of names that a signature gives.
    """
    indices: dict[str, list[int]] = {}
    for index, tensor in enumerate(subgraph.tensors):
        indices.setdefault(tensor.name, []).append(index)
    candidates = [[known_indices[name]] if name in known_indices else indices.get(name, []) for name in names]
    return [matches[0] for matches in candidates] if all(len(matches) == 1 for matches in candidates) else None


def _between(subgraph: Subgraph, sources: set[int], ends: Sequence[int]) -> tuple[Operator, ...]:
    """Return the operators on which the tensors `ends` depend, given the tensors `sources`, in the file's order."""
    needed_tensors, operators = set(ends) - sources, list[Operator]()
    for operator in reversed(subgraph.operators):
        if not operator.outputs or any(operator.mutating_variable_inputs) or needed_tensors & set(operator.outputs):
            operators.append(operator)
            needed_tensors |= set(operator.inputs) - sources
    return tuple(reversed(operators))
