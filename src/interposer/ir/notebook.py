"""What notebooks show of networks, explanations and models: plain HTML that needs no script and no style sheet.

Colors are those of the page around it, so that it can be read on dark and on light ground. Everything that comes from a
network or from a backend is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Final

from interposer.ir.graph import Graph
from interposer.ops.control import Constant, Input, Output
from interposer.types import TensorInfo

if TYPE_CHECKING:
    from interposer.ir.explain import Explanation

__all__ = ["Border", "explanation_html", "graph_html", "model_html"]

Border = Iterable[tuple[str, TensorInfo | None]]
"""Names and infos of inputs or outputs, which are not all known."""

MOST_ROWS: Final = 200
"""Larger tables are cut off, as a notebook keeps what it shows."""
MOST_LAYERS: Final = 200
_CELL: Final = (
    "text-align:left;vertical-align:top;padding:1px 12px 1px 0;background:none;border:none;"
    "max-width:36em;overflow-wrap:anywhere"
)
_BOX: Final = "font-size:90%;color:inherit;overflow-x:auto"
_LINE: Final = "border-bottom:1px solid;border-color:rgba(128,128,128,.5);font-weight:600"
_TEXT: Final = "white-space:pre;font-family:monospace;background:none;color:inherit;overflow-x:auto;margin:4px 0"


def model_html(name: str, inputs: Border, outputs: Border, explanation: Explanation | None, note: str = "") -> str:
    """A model: its inputs and outputs, and who runs what, folded up; `note` stands where that is not known yet."""
    below = _paragraph(note) if explanation is None else _explained(explanation)
    return _box(_title("Model", name), _border_table(inputs, outputs), below)


def explanation_html(explanation: Explanation) -> str:
    """An explanation: its summary, and the tables of parts and of layers, the latter folded up."""
    return _box(_title("Explanation", explanation.network), _explained(explanation))


def graph_html(kind: str, graph: Graph) -> str:
    """A network: inputs, outputs, how many layers of each operator, and the text form, folded up."""
    inputs = [(layer.name, layer.output.info) for layer in graph.inputs]
    outputs = [(layer.name, layer.values[0].info if layer.values else None) for layer in graph.outputs]
    layers = [layer for layer in graph if not isinstance(layer.op, Input | Output | Constant)]
    counts = Counter(f"{layer.kind} on {layer.backend}" if layer.backend else layer.kind for layer in layers)
    rows = [(title, str(count)) for title, count in counts.most_common()]
    text = _shortened(str(graph)) if len(graph) <= 10 * MOST_LAYERS else ""
    return _box(
        _title(kind, graph.name),
        _border_table(inputs, outputs),
        _folded(
            f"{_counted(len(layers), 'layer')} of {_counted(len(counts), 'kind')}", _table(("operator", "layers"), rows)
        ),
        _folded("as text", _preformatted(text)) if text else "",
    )


def _explained(explanation: Explanation) -> str:
    lines = list(explanation.summary())
    parts, layers = explanation.part_table(), explanation.table()
    return "".join(
        [
            _preformatted("\n".join(lines[:40] + [f"  ... and {len(lines) - 40} lines more"] * (len(lines) > 40))),
            _folded(_counted(len(parts) - 1, "part"), _table(parts[0], parts[1:])) if parts else "",
            _folded(_counted(len(layers) - 1, "layer"), _table(layers[0], layers[1:])),
        ]
    )


def _box(*pieces: str) -> str:
    return f'<div style="{_BOX}">{"".join(pieces)}</div>'


def _title(kind: str, name: str) -> str:
    return f"<div><strong>{escape(kind)}</strong> <code>{escape(name)}</code></div>"


def _paragraph(text: str) -> str:
    return f"<div>{escape(text)}</div>" if text else ""


def _preformatted(text: str) -> str:
    return f'<div style="{_TEXT}">{escape(text)}</div>'


def _folded(title: str, content: str) -> str:
    return f'<details><summary style="cursor:pointer">{escape(title)}</summary>{content}</details>'


def _border_table(inputs: Border, outputs: Border) -> str:
    rows = [("input", name, "?" if info is None else str(info)) for name, info in inputs]
    rows += [("output", name, "?" if info is None else str(info)) for name, info in outputs]
    return _table(("", "name", "type"), rows)


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th style="{_CELL};{_LINE}">{escape(title)}</th>' for title in titles)
    body = "".join(f'<tr style="background:none">{"".join(map(_cell, row))}</tr>' for row in rows[:MOST_ROWS])
    more = len(rows) - MOST_ROWS
    rest = _paragraph(f"... and {more} more") if more > 0 else ""
    return (
        '<table style="border-collapse:collapse;margin:4px 0;font-size:inherit;color:inherit;background:none">'
        f'<thead><tr style="background:none">{head}</tr></thead><tbody>{body}</tbody></table>{rest}'
    )


def _cell(text: str) -> str:
    return f'<td style="{_CELL}">{escape(text)}</td>'


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(
        lines[:MOST_LAYERS] + [f"  ... and {len(lines) - MOST_LAYERS} lines more"] * (len(lines) > MOST_LAYERS)
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else f'{what}s'}"
