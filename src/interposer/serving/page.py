"""The page that shows a server: its models, which backend runs what, and how many requests it answers."""

from __future__ import annotations

import html
import time
from typing import Any, Final

from interposer._version import __version__
from interposer.serving.core import Core

__all__ = ["status_page"]

_COLUMNS: Final = (
    "model",
    "version",
    "layers by backend",
    "requests",
    "failed",
    "running",
    "mean",
    "p50",
    "p90",
    "p99",
    "last",
)
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } p { margin: .2rem 0 1.2rem; color: #5a6675; }
table { border-collapse: collapse; width: 100%; } th, td { text-align: left; padding: .45rem .8rem .45rem 0; }
th { font-weight: 600; border-bottom: 2px solid #c9d2dc; } td { border-bottom: 1px solid #e4e9ee; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { display: flex; height: .55rem; width: 12rem; border-radius: .3rem; overflow: hidden; margin-top: .25rem; }
.ready { color: #15703a; } .wait { color: #a04a00; } small { color: #5a6675; }
@media (prefers-color-scheme: dark) { body { background: #14181d; color: #dde4eb; } p, small { color: #93a0ae; }
th { border-color: #3a4552; } td { border-color: #28313b; } .ready { color: #5fd38d; } .wait { color: #f0a35e; } }
"""
_SHOWN: Final = 6
"""The most inputs and outputs of a model that are shown without a click."""
_COLOURS: Final = ("#2f7ed8", "#e4862c", "#3a9d5d", "#b0509e", "#8a8f98", "#c9a227")


def status_page(core: Core, metrics: bool = True, query: str = "") -> str:
    """Return the HTML of the page, which a browser reads again every two seconds.

    Args:
        core: the server.
        metrics: whether the page has a link to metrics.
        query: the query with which the page was asked for; the link has it too, because it may have the token.
    """
    state = "stopping" if core.is_stopping else "ready" if core.is_ready else "not ready"
    style_class = "ready" if state == "ready" else "wait"
    models = core.repository.describe()
    rows = "\n".join(map(_row, models))
    in_flight = sum(model["in_flight"] for model in models)
    header = "".join(f'<th class="{_kind(name)}">{name}</th>' for name in _COLUMNS)
    target = html.escape(f"/metrics?{query}" if query else "/metrics")
    link = f' <a href="{target}">Metrics</a>' if metrics else ""
    start = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(core.started))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">
<meta name="viewport" content="width=device-width"><title>Interposer: {state}</title><style>{_STYLE}</style></head>
<body><h1>Interposer {html.escape(__version__)} is <span class="{style_class}">{state}</span></h1>
<p>Since {start}; {in_flight} requests are running or waiting.{link}</p>
<table><thead><tr>{header}</tr></thead><tbody>
{rows or '<tr><td colspan="11">No model is loaded.</td></tr>'}
</tbody></table></body></html>
"""


def _kind(name: str) -> str:
    return "" if name in ("model", "version", "layers by backend", "last") else "number"


def _row(model: dict[str, Any]) -> str:
    stats = model["stats"]["inference_stats"]
    count, total_ns = stats["success"]["count"], stats["success"]["ns"]
    times = [total_ns / count / 1e9, *model["percentiles"]] if count else []
    note = f"<br><small>{html.escape(model['note'])}</small>" if model["note"] else ""
    last_inference = model["stats"]["last_inference"]
    last_time = time.strftime("%H:%M:%S", time.gmtime(last_inference / 1e3)) if last_inference else "–"
    cells = [
        ("", f"{html.escape(model['name'])}<br><small>{html.escape(model['platform'])}</small>{note}{_tensors(model)}"),
        ("", html.escape(model["version"])),
        ("", _layers(model["layers"])),
        ("number", f"{count:,}"),
        ("number", f"{stats['fail']['count']:,}"),
        ("number", f"{model['in_flight']}"),
        *(("number", f"{seconds * 1e3:.3g} ms") for seconds in times or ()),
        *(("number", "–") for _ in range(0 if times else 4)),
        ("", last_time),
    ]
    return "<tr>" + "".join(f'<td class="{style_class}">{cell}</td>' for style_class, cell in cells) + "</tr>"


def _tensors(model: dict[str, Any]) -> str:
    """Return the inputs and outputs of a model with their types and shapes, to be unfolded."""
    lines = [
        f"{title} {html.escape(tensor['name'])}: {tensor['datatype']} {tensor['shape']}"
        for title in ("input", "output")
        for tensor in model[f"{title}s"]
    ]
    rows = "".join(f"<br><small>{line}</small>" for line in lines)
    return (
        rows if len(lines) <= _SHOWN else f"<details><summary>{len(lines)} inputs and outputs</summary>{rows}</details>"
    )


def _layers(layers: dict[str, int]) -> str:
    """Return the names and numbers of layers by backend, above a bar with their shares."""
    if not layers:
        return "<small>known after the first request</small>"
    coloured_backends = list(zip(layers.items(), _COLOURS * len(layers), strict=False))
    names = ", ".join(
        f'<span style="color:{colour}">■</span> {html.escape(name)} {count}'
        for (name, count), colour in coloured_backends
    )
    bars = "".join(
        f'<span style="flex:{count};background:{colour}"></span>' for (_, count), colour in coloured_backends
    )
    return f'{names}<span class="bar">{bars}</span>'
