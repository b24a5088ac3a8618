"""Explanations and models as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from interposer.ir.html import Border, border_table, box, counted, folded, paragraph, preformatted, table, title

__all__ = ["explained", "explanation_html", "model_html"]

SHOWN_LINES: Final = 40
Rows: TypeAlias = Sequence[tuple[str, ...]]
"""A table whose first row has the titles of the columns; empty if there is nothing to show."""


def model_html(name: str, inputs: Border, outputs: Border, explanation: str, note: str = "") -> str:
    """Return a model as HTML for notebooks: its inputs and outputs, as pairs of name and info, and its explanation.

    `explanation` is HTML already; if it is empty, the text `note` is shown instead.
    """
    return box(title("Model", name), border_table(inputs, outputs), explanation or paragraph(note))


def explanation_html(network: str, summary: Sequence[str], parts: Rows, layers: Rows) -> str:
    """Return the explanation of the network with this name as HTML for notebooks, in a box with a title.

    `summary` are its lines, and `parts` and `layers` the rows of its tables.
    """
    return box(title("Explanation", network), explained(summary, parts, layers))


def explained(summary: Sequence[str], parts: Rows, layers: Rows) -> str:
    """Return an explanation as HTML: the lines of its summary, and its tables of parts and layers, folded up.

    `parts` and `layers` are the rows of the tables, the titles first.
    """
    return "".join(
        [
            preformatted(_shortened(summary)),
            folded(counted(len(parts) - 1, "part"), table(parts[0], parts[1:])) if parts else "",
            folded(counted(len(layers) - 1, "layer"), table(layers[0], layers[1:])),
        ]
    )


def _shortened(lines: Sequence[str]) -> str:
    """Return the first 40 lines as one text, and a last line that says how many more there are."""
    num_hidden = len(lines) - SHOWN_LINES
    return "\n".join([*lines[:SHOWN_LINES], *([f"  ... and {num_hidden} lines more"] if num_hidden > 0 else [])])
