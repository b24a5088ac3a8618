"""The page that draws the report of a quantization: one HTML file without scripts that loads nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from interposer.pages import COLOURS
from interposer.quantization.layer_report import LayerReport, OutputReport
from interposer.quantization.statistics import decibels

__all__ = ["html"]

WIDTH, HEIGHT = 160, 34
"""The size of a drawn histogram in pixels."""
LONGEST: Final = 60.0
"""The signal-to-noise ratio in dB whose bar has the full length."""
_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_NOTES: Final = (
    "A histogram shows the values that the float network computed, from the smallest to the largest one; heights are "
    "logarithmic, and a vertical line marks zero. The signal-to-noise ratio compares the results of a layer with those "
    "of the float network; a layer that is fused with the clamp after it has none of its own."
)


def html(
    network: str,
    summary: str,
    layers: Sequence[LayerReport],
    outputs: Sequence[OutputReport],
    notes: Sequence[str],
    settings: Mapping[str, Any],
) -> str:
    """Return a self-contained HTML page that shows the report of a quantization, layer by layer.

    Texts of the network cannot become markup. The content security policy of the page forbids scripts and all network
    access.
    """
    title, style = _clean(network), COLOURS + Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">',
            f"<title>{title} - Interposer</title>\n<style>\n{style}</style>\n</head>\n<body>",
            f"<header><h1>{title}</h1><p>{_clean(summary)}</p></header>\n<main>",
            *(f"<p>Note: {_clean(note)}</p>" for note in notes),
            *_outputs(outputs),
            *_left(layers),
            *_layers(layers),
            *_settings(settings),
            "</main>\n</body>\n</html>\n",
        ]
    )


# --- sections ---------------------------------------------------------------------------------------------------------


def _outputs(outputs: Sequence[OutputReport]) -> Iterator[str]:
    if outputs:
        yield "<h2>Outputs</h2>"
        rows = [(_clean(output.name), _ratio(output.snr), f"{output.cosine:.6f}") for output in outputs]
        yield from _table(("output", "signal-to-noise ratio", "cosine"), rows, right_columns=(2,))


def _left(layers: Sequence[LayerReport]) -> Iterator[str]:
    """Yield the layers in float, grouped by reason."""
    reasons: dict[str, list[LayerReport]] = {}
    for layer in layers:
        if not layer.is_quantized:
            reasons.setdefault(layer.reason, []).append(layer)
    if not reasons:
        return
    yield "<h2>Layers in float</h2>"
    rows = [
        (
            _clean(reason),
            str(len(left_layers)),
            ", ".join(f"{_clean(left_layer.name)} ({_clean(left_layer.kind)})" for left_layer in left_layers),
        )
        for reason, left_layers in reasons.items()
    ]
    yield from _table(("reason", "number", "layers"), rows, right_columns=(1,))


def _layers(layers: Sequence[LayerReport]) -> Iterator[str]:
    if not layers:
        return
    yield "<h2>Layers</h2>"
    if any(layer.histogram for layer in layers):
        yield f'<p class="note">{_NOTES}</p>'
    titles = ("layer", "operator", "range", "values", "scale", "zero point", "signal-to-noise ratio", "of the weights")
    marks = ["" if layer.is_quantized else "left" for layer in layers]
    yield from _table((*titles, "in float, because"), [_row(layer) for layer in layers], (2, 4, 5), marks)


def _settings(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings:
        yield "<h2>Settings</h2>\n<dl>"
        for name, value in settings.items():
            yield f"<dt>{_clean(name.replace('_', ' '))}</dt><dd>{_clean(_setting(value))}</dd>"
        yield "</dl>"


def _setting(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


# --- tables and drawings ----------------------------------------------------------------------------------------------


def _table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], right_columns: Sequence[int] = (), marks: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a table without its empty columns; `marks` has the class of each row."""
    columns = [number for number in range(len(titles)) if any(row[number] for row in rows)]
    yield '<div class="wide"><table>\n<thead><tr>'
    yield from _cells("th", titles, columns, right_columns)
    yield "</tr></thead>\n<tbody>"
    for number, row in enumerate(rows):
        row_class = f' class="{marks[number]}"' if marks and marks[number] else ""
        yield f"<tr{row_class}>" + "".join(_cells("td", row, columns, right_columns)) + "</tr>"
    yield "</tbody>\n</table></div>"


def _cells(tag: str, cells: Sequence[str], columns: Iterable[int], right_columns: Sequence[int]) -> Iterator[str]:
    for column in columns:
        cell_class = ' class="right"' if column in right_columns else ""
        yield f"<{tag}{cell_class}>{cells[column]}</{tag}>"


def _row(layer: LayerReport) -> list[str]:
    return [
        _clean(layer.name),
        _clean(layer.kind),
        f"{layer.low:.4g} to {layer.high:.4g}" if layer.histogram else "",
        _histogram(layer) if layer.histogram else "",
        *_scale(layer),
        "" if layer.snr is None else _ratio(layer.snr),
        "" if layer.weights_snr is None else _ratio(layer.weights_snr),
        _clean(layer.reason),
    ]


def _scale(layer: LayerReport) -> tuple[str, str]:
    """Return the scale and the zero point; of several scales, their number."""
    quantization = layer.quantization
    if quantization is None:
        return "", ""
    return (
        (f"{len(quantization.scales)} scales", "")
        if quantization.per_axis
        else (f"{quantization.scale:.6g}", str(quantization.zero_point))
    )


def _ratio(ratio: float) -> str:
    """Return a bar as long as the ratio, with its number."""
    length = min(max(ratio / LONGEST, 0.0), 1.0)
    kind = "good" if ratio >= 30 else "fair" if ratio >= 15 else "poor"
    bar = f'<rect class="{kind}" width="{70 * length:.1f}" height="6" rx="2"/>'
    track = '<rect class="track" width="70" height="6" rx="2"/>'
    return (
        f'<span class="ratio"><svg width="70" height="6" aria-hidden="true">{track}{bar}</svg>{decibels(ratio)}</span>'
    )


def _histogram(layer: LayerReport) -> str:
    """Return the counts of the bins as steps, whose heights are logarithms."""
    highest, step = math.log1p(max(layer.histogram)) or 1.0, WIDTH / len(layer.histogram)
    heights = (HEIGHT - (HEIGHT - 2) * math.log1p(count) / highest for count in layer.histogram)
    path_steps = "".join(f"V{height:.1f}H{step * (number + 1):.4g}" for number, height in enumerate(heights))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    description = (
        f"{sum(layer.histogram)} values in {len(layer.histogram)} bins, from {layer.low:.6g} to {layer.high:.6g}"
    )
    return (
        f'<svg class="histogram" {size} role="img" aria-label="{description}"><title>{description}</title>'
        f'<path d="M0 {HEIGHT}{path_steps}V{HEIGHT}Z"/>{_zero(layer)}</svg>'
    )


def _zero(layer: LayerReport) -> str:
    if not layer.low < 0 < layer.high:
        return ""
    x = WIDTH * -layer.low / (layer.high - layer.low)
    return f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{HEIGHT}"/>'


def _clean(text: str) -> str:
    """Escape a text, without the characters that a page should not have."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in text))
