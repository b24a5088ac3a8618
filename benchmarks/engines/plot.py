"""A plot of the times: for each network, every engine relative to the best of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from .ours import FAST_MATH

__all__ = ["svg"]

COLOURS: Final = ("#c8102e", "#1f6fb4", "#e08a00", "#2e8b57", "#7a4fa3", "#666666", "#00919c")
LINE: Final = 18
LEFT, WIDTH, GAP, TOP = 210, 420, 40, 60


def svg(rows: Sequence[dict[str, Any]], engines: Sequence[str]) -> str:
    """Return an SVG with a panel for each number of threads.

    Times are relative to the best other engine, on a log scale.
    """
    threads = sorted({row["threads"] for row in rows})
    names = list(dict.fromkeys(_title(row) for row in rows))
    points = [point for row in rows for point in _points(row, engines)]
    low, high = _range([value for *_, value in points])
    width = LEFT + len(threads) * (WIDTH + GAP)
    height = TOP + LINE * len(names) + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(engines),
        *(_text(LEFT - 10, _y(k), name, "end") for k, name in enumerate(names)),
    ]
    for column, count in enumerate(threads):
        left = LEFT + column * (WIDTH + GAP)
        parts += _grid(left, len(names), low, high, "1 thread" if count == 1 else f"{count} threads")
        for name, number, engine, value in points:
            if number == count:
                x, y = left + _x(value, low, high), _y(names.index(name))
                colour = COLOURS[engine % len(COLOURS)]
                tip = escape(f"{engines[engine]}: {value:.2f}")
                parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity="0.8">'
                             f"<title>{tip}</title></circle>")  # fmt: skip
    return "\n".join([*parts, "</svg>"]) + "\n"


def _points(row: dict[str, Any], engines: Sequence[str]) -> Iterator[tuple[str, int, int, float]]:
    """Yield the network, the threads, the number of the engine, and its time relative to the best other engine."""
    times = {name: figures["median_ms"] for name, figures in row["engines"].items() if "median_ms" in figures}
    peer_times = [value for name, value in times.items() if name != engines[0] and not name.endswith(FAST_MATH)]
    best = min(peer_times or times.values(), default=None)
    for name, value in times.items():
        assert best is not None
        yield _title(row), row["threads"], list(engines).index(name), value / best


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the powers of two that enclose all values and 1."""
    low, high = min([*values, 0.5]), max([*values, 2.0])
    return 2.0 ** math.floor(math.log2(low)), 2.0 ** math.ceil(math.log2(high))


def _x(value: float, low: float, high: float) -> float:
    return WIDTH * math.log(value / low) / math.log(high / low)


def _y(line: int) -> int:
    return TOP + LINE * line + LINE // 2


def _legend(engines: Sequence[str]) -> Iterator[str]:
    for k, name in enumerate(engines):
        x = LEFT + 150 * k
        yield f'<circle cx="{x}" cy="16" r="5" fill="{COLOURS[k % len(COLOURS)]}"/>' + _text(x + 10, 16, name)


def _grid(left: int, lines: int, low: float, high: float, title: str) -> Iterator[str]:
    bottom = TOP + LINE * lines
    yield _text(left + WIDTH // 2, 42, title, "middle")
    for k in range(round(math.log2(high / low)) + 1):
        value = low * 2**k
        x = left + _x(value, low, high)
        colour = "#444" if value == 1 else "#ddd"
        yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
        yield _text(x, bottom + 14, f"{value:g}", "middle")
    yield _text(left + WIDTH // 2, bottom + 34, "time, as a part of the best other engine's (less is better)", "middle")


def _text(x: float, y: float, said: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y}" text-anchor="{anchor}" dominant-baseline="middle"'
    return f"<text {place}>{escape(said)}</text>"


def _title(row: dict[str, Any]) -> str:
    return str(row["network"]) if row["batch"] == 1 else f"{row['network']} x{row['batch']}"
