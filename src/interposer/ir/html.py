"""Graphs as HTML for notebooks, and the elements of such HTML. It needs no script and no style sheet.

Colors are inherited from the surrounding page, so that the HTML can be read on dark and on light backgrounds. All
text that comes from a network or from a backend is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from interposer.core.types import TensorInfo
from interposer.ir.graph import Graph
from interposer.ops.control import Constant, Input, Output

__all__ = [
    "Border",
    "border_table",
    "box",
    "counted",
    "folded",
    "graph_html",
    "paragraph",
    "preformatted",
    "table",
    "title",
]

Border = Iterable[tuple[str, TensorInfo | None]]
"""Names and infos of inputs or outputs, which are not all known."""

MOST_ROWS: Final = 200
"""Tables are truncated to this number of rows, because notebooks save their outputs."""
MOST_LAYERS: Final = 200
_CELL: Final = (
    "text-align:left;vertical-align:top;padding:1px 12px 1px 0;background:none;border:none;"
    "max-width:36em;overflow-wrap:anywhere"
)
_BOX: Final = "font-size:90%;color:inherit;overflow-x:auto"
_LINE: Final = "border-bottom:1px solid;border-color:rgba(128,128,128,.5);font-weight:600"
_TEXT: Final = "white-space:pre;font-family:monospace;background:none;color:inherit;overflow-x:auto;margin:4px 0"


def graph_html(kind: str, graph: Graph) -> str:
    """Return a network as HTML for notebooks; `kind` is the title, such as "Network".

    It shows inputs, outputs, the number of layers of each operator, and the text form, folded up.
    """
    inputs = [(layer.name, layer.output.info) for layer in graph.inputs]
    outputs = [(layer.name, layer.values[0].info if layer.values else None) for layer in graph.outputs]
    layers = [layer for layer in graph if not isinstance(layer.op, Input | Output | Constant)]
    counts = Counter(f"{layer.kind} on {layer.backend}" if layer.backend else layer.kind for layer in layers)
    rows = [(name, str(count)) for name, count in counts.most_common()]
    graph_text = _shortened(str(graph)) if len(graph) <= 10 * MOST_LAYERS else ""
    return box(
        title(kind, graph.name),
        border_table(inputs, outputs),
        folded(
            f"{counted(len(layers), 'layer')} of {counted(len(counts), 'kind')}", table(("operator", "layers"), rows)
        ),
        folded("as text", preformatted(graph_text)) if graph_text else "",
    )


def box(*pieces: str) -> str:
    """Return pieces of HTML in a styled box, which is the outermost element of an object's display."""
    return f'<div style="{_BOX}">{"".join(pieces)}</div>'


def title(kind: str, name: str) -> str:
    """Return the first line of an object's display as HTML: the kind of object, such as "Model", and its name."""
    return f"<div><strong>{escape(kind)}</strong> <code>{escape(name)}</code></div>"


def paragraph(text: str) -> str:
    """Return a text as a block of HTML, with special characters escaped; empty if the text is empty."""
    return f"<div>{escape(text)}</div>" if text else ""


def preformatted(text: str) -> str:
    """Return escaped text whose white space is preserved."""
    return f'<div style="{_TEXT}">{escape(text)}</div>'


def folded(summary: str, content: str) -> str:
    """Return HTML that shows only the line `summary` until this is clicked, and then also `content`, which is HTML."""
    return f'<details><summary style="cursor:pointer">{escape(summary)}</summary>{content}</details>'


def border_table(inputs: Border, outputs: Border) -> str:
    """Return an HTML table of inputs and outputs with their types.

    Both are pairs of name and info; an unknown info is shown as a question mark.
    """
    rows = [("input", name, "?" if info is None else str(info)) for name, info in inputs]
    rows += [("output", name, "?" if info is None else str(info)) for name, info in outputs]
    return table(("", "name", "type"), rows)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table with these column titles and rows of texts, which are escaped.

    After `MOST_ROWS` rows, the others are only counted.
    """
    header_row = "".join(f'<th style="{_CELL};{_LINE}">{escape(title)}</th>' for title in titles)
    body_rows = "".join(f'<tr style="background:none">{"".join(map(_cell, row))}</tr>' for row in rows[:MOST_ROWS])
    omitted_count = len(rows) - MOST_ROWS
    omitted_text = paragraph(f"... and {omitted_count} more") if omitted_count > 0 else ""
    return (
        '<table style="border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit;background:none">'
        f'<thead><tr style="background:none">{header_row}</tr></thead><tbody>{body_rows}</tbody></table>{omitted_text}'
    )


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(
        lines[:MOST_LAYERS] + [f"  ... and {len(lines) - MOST_LAYERS} lines more"] * (len(lines) > MOST_LAYERS)
    )


def counted(count: int, what: str) -> str:
    """Return a count with its noun in singular or plural, such as "1 layer" or "2 layers"."""
    return f"{count} {what if count == 1 else f'{what}s'}"
