"""Rules for layers that an engine accepts, but then computes differently or fails to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from interposer.backend import Op
from interposer.core.types import TensorInfo
from interposer.ir.graph import Layer

__all__ = ["Rule", "Rules"]

Infos: TypeAlias = Sequence[TensorInfo | None]
Rule: TypeAlias = Callable[[Any, Infos, Sequence[TensorInfo]], str | None]
"""A function of an operator and the infos of its inputs and outputs; returns a reason for refusal, or None."""
R = TypeVar("R", bound=Rule)


class Rules:
    """Known defects of one engine as rules: functions that return why a layer must not be run by the engine, or None.

    Rules are registered for operators; rules without an operator apply to all layers.
    """

    def __init__(self) -> None:
        self._by_kind: dict[str, list[Rule]] = {}

    def __call__(self, *ops: type[Op]) -> Callable[[R], R]:
        """Register the decorated function as a rule for layers of the types `ops`; for all layers if there are none."""

        def add(rule: R) -> R:
            for kind in [op.op_name() for op in ops] or [""]:
                self._by_kind.setdefault(kind, []).append(rule)
            return rule

        return add

    def reasons(self, layer: Layer) -> list[str]:
        """Return why a layer is refused; empty if no rule applies."""
        operands = layer.op.operands
        absent_infos = [None] * (len(operands) - len(layer.inputs))
        infos = (*layer.input_infos, *absent_infos)
        rules = (*self._by_kind.get("", ()), *self._by_kind.get(layer.kind, ()))
        reasons = (rule(layer.op, infos, layer.output_infos) for rule in rules)
        return [reason for reason in reasons if reason is not None]
