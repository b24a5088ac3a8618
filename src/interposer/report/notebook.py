"""Explanations and models as HTML for notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interposer.ir.html import Border, border_table, box, counted, folded, paragraph, preformatted, table, title

if TYPE_CHECKING:
    from interposer.report.explanation import Explanation

__all__ = ["explanation_html", "model_html"]


def model_html(name: str, inputs: Border, outputs: Border, explanation: Explanation | None, note: str = "") -> str:
    """Return a model as HTML: inputs, outputs and the folded explanation, or `note` if there is no explanation yet."""
    below = paragraph(note) if explanation is None else _explained(explanation)
    return box(title("Model", name), border_table(inputs, outputs), below)


def explanation_html(explanation: Explanation) -> str:
    """Return an explanation: its summary, and the tables of parts and of layers, the latter folded up."""
    return box(title("Explanation", explanation.network), _explained(explanation))


def _explained(explanation: Explanation) -> str:
    lines = list(explanation.summary())
    parts, layers = explanation.part_table(), explanation.table()
    return "".join(
        [
            preformatted("\n".join(lines[:40] + [f"  ... and {len(lines) - 40} lines more"] * (len(lines) > 40))),
            folded(counted(len(parts) - 1, "part"), table(parts[0], parts[1:])) if parts else "",
            folded(counted(len(layers) - 1, "layer"), table(layers[0], layers[1:])),
        ]
    )
