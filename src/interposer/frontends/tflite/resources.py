"""The handles of resources among the tensors of a TFLite file, and what subgraphs do with variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

from interposer.frontends.tflite.contents import Operator

__all__ = ["SELECTING", "Accesses", "Bound", "handle_name", "handles_in"]

Bound: TypeAlias = tuple[tuple[int, str], ...]
"""The resources whose handles are inputs or outputs of a subgraph: pairs of the number of the input and the name."""


SELECTING: Final = frozenset({"IF", "STABLEHLO_CASE"})
"""The operators whose first input selects one of the subgraphs that they call."""


class Accesses(NamedTuple):
    """What a subgraph does with variables.

    `written` says by name whether it writes the variable; variables that it only reads have False. `outputs` has the
    resources whose handles are outputs of the subgraph.
    """

    written: Mapping[str, bool]
    outputs: Bound


def handle_name(operator: Operator) -> str:
    """Return the name of the variable or table whose handle a VAR_HANDLE or HASHTABLE operator gives."""
    if operator.name == "HASHTABLE":
        return f"table {operator.attributes.get('table_id', 0)}"
    parts = (operator.attributes.get("container"), operator.attributes.get("shared_name"))
    return "/".join(str(part) for part in parts if part) or "variable"


def handles_in(operator: Operator, handles: Mapping[int, str]) -> Bound:
    """Return the handles that an operator passes to the subgraphs that it calls; `handles` are by tensor index."""
    operands = operator.inputs[1:] if operator.name in SELECTING else operator.inputs
    return tuple((position, handles[index]) for position, index in enumerate(operands) if index in handles)
