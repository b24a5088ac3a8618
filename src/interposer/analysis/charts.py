"""Bar charts as SVG text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

__all__ = ["bars"]

LEFT, WIDTH, RIGHT, TOP, LINE, AXIS, MARKS = 160, 480, 110, 40, 26, 52, 4
COLOUR: Final = "#1f6fb4"


def bars(title: str, unit: str, values: Sequence[tuple[str, float, float]], axes: tuple[str, str] | None = None) -> str:
    """Return a chart of horizontal bars as the text of an SVG image.

    Each of `values` is a bar: its name, its length, and a smaller length that is marked by a line across the bar. The
    lengths are labelled with `unit`. `axes` are the titles of the axes of names and of lengths; None draws no axes.
    """
    longest = max((length for _, length, _ in values), default=0.0) or 1.0
    bottom = TOP + LINE * len(values)
    width, height = LEFT + WIDTH + RIGHT, bottom + (10 if axes is None else AXIS)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    lines = [
        f'{head} font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-weight="bold">{_clean(title)}</text>',
    ]
    for number, (name, length, mark) in enumerate(values):
        lines += _bar(TOP + LINE * number, name, length / longest, mark / longest, f"{length:.4g} {unit}")
    return "\n".join([*lines, *(_axes(bottom, longest, unit, axes) if axes else ()), "</svg>"]) + "\n"


def _axes(bottom: int, longest: float, unit: str, names: tuple[str, str]) -> Iterator[str]:
    """Yield the SVG elements of both axes, the tick marks with numbers, and the titles of the axes.

    `bottom` is the vertical position of the lower end of the bars in pixels, `longest` the length that fills the width,
    and `names` the titles of the axes of names and of lengths.
    """
    yield f'<path d="M{LEFT} {TOP - 4}V{bottom + 4}H{LEFT + WIDTH}" fill="none" stroke="black"/>'
    for tick in range(MARKS + 1):
        x = LEFT + WIDTH * tick / MARKS
        yield f'<line x1="{x:.1f}" y1="{bottom + 4}" x2="{x:.1f}" y2="{bottom + 9}" stroke="black"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{longest * tick / MARKS:.3g}</text>'
    names_title, lengths_title = names[0], f"{names[1]} ({unit})"
    yield f'<text x="{LEFT + WIDTH / 2:.1f}" y="{bottom + 40}" text-anchor="middle">{_clean(lengths_title)}</text>'
    yield f'<text x="{LEFT - 8}" y="{bottom + 22}" text-anchor="end" font-style="italic">{_clean(names_title)}</text>'


def _bar(top: int, name: str, length: float, mark: float, label: str) -> Iterator[str]:
    end, mark_x, text_y = LEFT + WIDTH * length, LEFT + WIDTH * mark, top + LINE // 2
    yield f'<text x="{LEFT - 8}" y="{text_y}" text-anchor="end" dominant-baseline="middle">{_clean(name)}</text>'
    yield f'<rect x="{LEFT}" y="{top + 4}" width="{end - LEFT:.1f}" height="{LINE - 8}" fill="{COLOUR}"/>'
    yield f'<line x1="{mark_x:.1f}" y1="{top + 4}" x2="{mark_x:.1f}" y2="{top + LINE - 4}" stroke="white"/>'
    yield f'<text x="{end + 6:.1f}" y="{text_y}" dominant-baseline="middle">{_clean(label)}</text>'


def _clean(text: str) -> str:
    """Remove the characters that SVG does not allow."""
    return escape("".join(letter if letter.isprintable() else "?" for letter in text))
