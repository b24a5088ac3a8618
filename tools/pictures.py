"""Write the pictures of the documentation, docs/pictures/*.svg; with ``--check``, list those that are out of date.

A picture is 440 units wide, so that a phone shows its text in a readable size. It has a background of its own, and its
colors follow the reader's choice of light or dark: it can be read on any page.

    python tools/pictures.py
    python tools/pictures.py --check
"""

from __future__ import annotations

import argparse
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

import interposer as ip

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "docs" / "pictures"
WIDTH: Final = 440
MARGIN: Final = 16
SIZE: Final = 14
"""The height of usual text, in the units of the picture."""

# Each name is a class of shapes and texts. Shapes of a color have a fill and a darker line.
LIGHT: Final = {
    "page": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "line": "#6e7781",
    "blue": "#d4e3ff", "orange": "#ffdfc2", "green": "#d2efd8", "red": "#ffd6d3", "grey": "#e9ecef",
}  # fmt: skip
DARK: Final = {
    "page": "#161b22", "ink": "#e6edf3", "muted": "#a4aeb9", "line": "#8d96a0",
    "blue": "#1d3a6b", "orange": "#6a3d12", "green": "#1e4d2b", "red": "#7a2420", "grey": "#30363d",
}  # fmt: skip
FILLS: Final = ("page", "blue", "orange", "green", "red", "grey")

Draw = Callable[["Picture"], None]
PICTURES: Final[dict[str, Draw]] = {}


def picture(draw: Draw) -> Draw:
    """Register a function that draws the picture of its name; the first line of its docstring is the description."""
    PICTURES[draw.__name__.replace("_", "-")] = draw
    return draw


@dataclass
class Picture:
    """Shapes and texts, from the top down. `bottom` is the lower end of all of them."""

    description: str
    parts: list[str] = field(default_factory=list)
    bottom: float = 0

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "", fill: str = "grey", *, small: str = ""
    ) -> None:
        """Draw a box with a text, and below it a smaller text, in its middle."""
        self.parts.append(
            f'<rect class="{fill} outline" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
        )
        self._lowest(y + height)
        middle = y + height / 2
        if text:
            self.text(
                x + width / 2, middle + (-3 if small else 5), text, anchor="middle", width=width, bold=bool(small)
            )
        if small:
            self.text(x + width / 2, middle + 15, small, anchor="middle", width=width, size=12.5)

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", kind: str = "ink", size: float = SIZE,
        bold: bool = False, width: float | None = None,
    ) -> None:  # fmt: skip
        """Write a text at a base line; raise ValueError if it is wider than `width`."""
        room = width if width is not None else WIDTH - x if anchor == "start" else WIDTH
        if len(text) * size * (0.56 if bold else 0.52) > room:
            raise ValueError(f"{text!r} is wider than {room:g}")
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}"{weight}>'
            f"{escape(text)}</text>"
        )
        self._lowest(y + 4)

    def arrow(self, *points: tuple[float, float], dashed: bool = False, head: bool = True) -> None:
        """Draw a line through points, with a head at its end."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        marker = ' marker-end="url(#head)"' if head else ""
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.parts.append(f'<polyline class="arrow" points="{path}"{marker}{dashes}/>')
        self._lowest(max(y for _, y in points))

    def area(self, x: float, y: float, width: float, height: float, title: str) -> None:
        """Draw the border of something that contains other shapes, with its title in the upper left corner."""
        self.parts.append(f'<rect class="area" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"/>')
        self.text(x + 10, y + 20, title, bold=True, width=width)
        self._lowest(y + height)

    def line(self, text: str, *, bold: bool = False) -> None:
        """Write a line of text below everything, apart from the shapes."""
        last = self.parts[-1]
        gap = 18 if last.startswith("<text") and 'font-size="13.5"' in last else 26
        self.text(MARGIN, self.bottom + gap, text, kind="ink" if bold else "muted", bold=bold, size=13.5)

    def _lowest(self, y: float) -> None:
        self.bottom = max(self.bottom, y)

    def svg(self) -> str:
        """Return the picture as the text of an SVG file."""
        height = self.bottom + MARGIN
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:g}" '
            f'viewBox="0 0 {WIDTH} {height:g}" role="img" font-family="system-ui, sans-serif">'
        )
        marker = (
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'orient="auto-start-reverse"><path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
        )
        page = f'<rect class="page" width="{WIDTH}" height="{height:g}" rx="8"/>'
        title = f"<title>{escape(self.description)}</title>"
        return "\n".join([head, title, f"<style>{_style()}</style>", marker, page, *self.parts, "</svg>", ""])


def _style() -> str:
    return f"{_colors(LIGHT)}@media (prefers-color-scheme: dark) {{{_colors(DARK)}}}"


def _colors(colors: dict[str, str]) -> str:
    rules = [f".{name}{{fill:{colors[name]}}}" for name in (*FILLS, "ink", "muted")]
    line = colors["line"]
    rules += [
        f".outline{{stroke:{line};stroke-width:1}}", f".area{{fill:none;stroke:{line};stroke-width:1.2}}",
        f".arrow{{fill:none;stroke:{line};stroke-width:1.6}}", f".head{{fill:{line}}}",
        f".curve{{fill:none;stroke:{colors['ink']};stroke-width:1.5}}",
    ]  # fmt: skip
    return "".join(rules)


@picture
def life(p: Picture) -> None:
    """A network is built, optimized, loaded and run."""
    steps = (
        ("build", "a file, or Network.add_..._layer", "blue", "Network: layers and constants"),
        ("optimize", "rewrite, ask the backends, divide", "orange", "OptimizedNetwork: a backend for each layer"),
        ("load", "compile, plan the memory", "green", "Model: ready to run"),
        ("run", "arrays in, arrays out", "grey", "outputs, and what ran where"),
    )
    for number, (name, work, fill, product) in enumerate(steps):
        top = MARGIN + number * 96
        p.box(MARGIN, top, 408, 50, name, fill, small=work)
        p.arrow((60, top + 50), (60, top + (92 if number < len(steps) - 1 else 84)))
        p.text(76, top + 76, product, kind="muted", size=13.5)
    p.line("load() does the first three; call the model for the last.")


@picture
def tensors(p: Picture) -> None:
    """A tensor goes from one backend to the next in the same memory, by an import, or by a copy."""
    ways = (
        ("direct", "both work on the same memory", "CpuAcc", "CpuRef", 1),
        ("import", "the reader maps the producer's memory", "CpuRef", "Npu", 1),
        ("copy", "the bytes are written once more", "CpuAcc", "Npu", 2),
    )
    for number, (name, meaning, first, second, memories) in enumerate(ways):
        top = MARGIN + number * 128
        p.text(MARGIN, top + 14, name, bold=True)
        p.text(MARGIN + 68, top + 14, meaning, kind="muted", size=13.5)
        p.box(MARGIN, top + 26, 96, 36, first, "blue")
        p.box(WIDTH - MARGIN - 96, top + 26, 96, 36, second, "orange")
        if memories == 1:
            p.box(160, top + 62, 120, 34, "tensor", "green")
            p.arrow((112, top + 50), (158, top + 76))
            p.arrow((282, top + 76), (326, top + 50))
        else:
            p.box(120, top + 72, 80, 34, "tensor", "green")
            p.box(240, top + 72, 80, 34, "tensor", "red")
            p.arrow((64, top + 62), (64, top + 89), (118, top + 89))
            p.arrow((202, top + 89), (238, top + 89))
            p.arrow((322, top + 89), (376, top + 89), (376, top + 64))
    p.line("explain() lists each crossing with its way and its bytes.")


BLOCKS: Final = ("stem", "block 1", "block 2", "head")
TIMES: Final = {"CpuAcc": (1.0, 2.0, 2.2, 0.4), "Npu": (0.9, 0.8, 0.9, 0.9)}
COPY: Final = 0.4
"""Milliseconds for one tensor from one backend to the other."""


def cheapest(times: dict[str, Sequence[float]], copy: float) -> tuple[float, list[str]]:
    """Return the least time and the backend of each block: a shortest path over the blocks."""
    paths = {name: (row[0], [name]) for name, row in times.items()}
    for number in range(1, len(next(iter(times.values())))):
        paths = {
            name: min(
                (cost + copy * (before[-1] != name) + row[number], [*before, name]) for cost, before in paths.values()
            )
            for name, row in times.items()
        }
    return min(paths.values())


@picture
def plan_search(p: Picture) -> None:
    """The search for a plan: times of blocks on each backend, costs of copies, and the path of least cost."""
    best, path = cheapest(TIMES, COPY)
    columns = dict(zip(TIMES, (150, 310), strict=True))
    for name, x in columns.items():
        p.text(x + 48, MARGIN + 14, name, anchor="middle", bold=True)
    centers = []
    for number, block in enumerate(BLOCKS):
        top = MARGIN + 28 + number * 74
        p.text(MARGIN, top + 24, block)
        for name, x in columns.items():
            chosen = path[number] == name
            p.box(x, top, 96, 38, f"{TIMES[name][number]:.1f} ms", "green" if chosen else "grey")
            if chosen:
                centers.append((x + 48, top))
    for (x, y), (to_x, to_y) in zip(centers, centers[1:], strict=False):
        p.arrow((x, y + 38), (to_x, to_y - 2))
        if x != to_x:
            p.text(292, y + 67, f"+ {COPY} ms copy", kind="muted", size=12.5)
    singles = ", ".join(f"{name} alone {sum(row):.1f} ms" for name, row in TIMES.items())
    p.line(f"The green path takes {best:.1f} ms: the least sum.", bold=True)
    p.line(f"{singles}.")
    p.line("The best plans are then timed as whole networks.")


@picture
def isolation(p: Picture) -> None:
    """A backend in a child process shares tensors with the host, and a crash ends only the child."""
    p.area(MARGIN, MARGIN, 190, 150, "your program")
    p.area(234, MARGIN, 190, 150, "child process")
    p.box(32, 52, 158, 40, "Model.run", "blue")
    p.box(250, 52, 158, 40, "the backend", "orange")
    p.arrow((192, 64), (248, 64))
    p.arrow((248, 82), (192, 82))
    p.box(120, 112, 200, 36, "tensors in shared memory", "green")
    p.line("When the backend crashes:", bold=True)
    top = p.bottom + 12
    p.area(MARGIN, top, 190, 100, "your program")
    p.box(32, top + 36, 158, 46, "goes on", "blue", small="the call is repeated")
    p.arrow((192, top + 70), (248, top + 78))
    p.box(250, top + 12, 158, 36, "child: ended", "red")
    p.box(250, top + 60, 158, 36, "a new child", "orange")
    p.arrow((329, top + 48), (329, top + 58))
    p.line("After the fourth crash the other backends take over. The")
    p.line("log names the layer that ran when the child ended.")


@picture
def saved_file(p: Picture) -> None:
    """A saved network has a header, sections with data, graph and variants, and an index at its end."""
    rows = (
        ("header", "256 bytes: version, place of the index, signature", "blue", 46),
        ("data", "constants: each once, mapped and shared", "green", 66),
        ("graph", "the network before it was divided", "grey", 46),
        ("variant: avx512", "placement, plan, compiled parts", "orange", 46),
        ("variant: avx2", "the same for another machine", "orange", 46),
        ("index", "place, size and SHA-256 of each section", "blue", 46),
    )
    top = float(MARGIN)
    for name, content, fill, height in rows:
        p.box(60, top, WIDTH - 60 - MARGIN, height, name, fill, small=content)
        top += height + 4
    p.arrow((60, 39), (34, 39), (34, top - 27), (58, top - 27))
    p.line("load reads the header, then the index, then only the")
    p.line("sections that this machine needs.")


def _axis(p: Picture, y: float, marks: Sequence[tuple[float, str]]) -> None:
    p.arrow((MARGIN, y), (WIDTH - MARGIN, y), head=False)
    for x, label in marks:
        p.arrow((x, y - 5), (x, y + 5), head=False)
        p.text(x, y + 22, label, anchor="middle", size=12.5)


@picture
def quantization(p: Picture) -> None:
    """Float values of a range become 256 integers; values outside saturate."""
    low, high = -1.0, 3.0
    scale = (high - low) / 255
    zero = round(-128 - low / scale)
    p.text(MARGIN, 30, "float values of a tensor, from -1.0 to 3.0", bold=True)

    def place(value: float) -> float:
        return 60 + (value - low) / (high - low) * 320

    _axis(p, 62, [(place(value), f"{value:g}") for value in (-1, 0, 1, 2, 3)])
    for value in (-1.0, 0.0, 1.0, 3.0):
        p.arrow((place(value), 92), (place(value), 132))
    p.text(MARGIN, 216, "the integers that are stored (int8)", bold=True)
    _axis(p, 150, [(place(value), f"{round(value / scale) + zero}") for value in (-1.0, 0.0, 1.0, 3.0)])
    p.bottom = 222
    p.line(f"scale {scale:.4f}: the step between two neighbors.")
    p.line(f"zero point {zero}: the integer of 0.0.")
    p.line(f"0.5 is stored as {round(0.5 / scale) + zero}; 3.7 saturates to 127.")


@picture
def observers(p: Picture) -> None:
    """A histogram of values with few outliers, and the ranges that three observers choose."""
    heights = [0, 1, 2, 5, 12, 26, 46, 62, 66, 54, 36, 20, 10, 5, 3, 2, 1, 1, 0, 0, 0, 0, 0, 1]
    step = (WIDTH - 2 * MARGIN) / len(heights)
    p.text(MARGIN, 28, "values of a tensor on the calibration data", bold=True)
    for number, height in enumerate(heights):
        if height:
            p.parts.append(
                f'<rect class="blue outline" x="{MARGIN + number * step:.1f}" y="{110 - height}" '
                f'width="{step:.1f}" height="{height}"/>'
            )
    p.arrow((MARGIN, 110), (WIDTH - MARGIN, 110), head=False)
    p.text(MARGIN + 23 * step + step / 2, 100, "*", anchor="middle")
    ranges = (("minmax", 1, 24, "no value saturates"), ("percentile", 2, 17, "outliers saturate"),
              ("mse", 3, 15, "least squared error"))  # fmt: skip
    for number, (name, first, last, meaning) in enumerate(ranges):
        y = 134 + number * 46
        left, right = MARGIN + first * step, MARGIN + last * step
        p.arrow((left, y), (right, y), head=False)
        p.arrow((left, y - 6), (left, y + 6), head=False)
        p.arrow((right, y - 6), (right, y + 6), head=False)
        p.text(MARGIN, y + 22, f"{name}: {meaning}", size=13.5)
    p.line("A narrow range has finer steps: less error for the many,")
    p.line("more for the few values outside.")


@picture
def batching(p: Picture) -> None:
    """Requests that arrive during a run wait, and run together as the next batch."""
    top, left, unit = 60.0, 90, 17
    requests = ((0, 0, 5), (1, 5, 11), (2, 5, 11), (4, 5, 11), (7, 11, 17), (9, 11, 17))
    p.text(MARGIN, 32, "dynamic batching: --batch 4", bold=True)
    for number, (arrived, start, end) in enumerate(requests):
        y = top + number * 30
        p.text(MARGIN, y + 16, f"request {number + 1}", size=12.5)
        if start > arrived:
            p.arrow((left + arrived * unit, y + 11), (left + start * unit, y + 11), dashed=True, head=False)
        p.arrow((left + arrived * unit, y + 2), (left + arrived * unit, y + 20), head=False)
        p.box(
            left + start * unit, y, (end - start) * unit, 22, "", ("blue", "orange", "green")[(0, 5, 11).index(start)]
        )
    bottom = top + len(requests) * 30
    for text, start, end in (("1 row", 0, 5), ("3 rows", 5, 11), ("2 rows", 11, 17)):
        p.text(left + (start + end) / 2 * unit, bottom + 14, text, anchor="middle", size=13)
    p.line("Dashed: the wait for the run before. Request 1 found no")
    p.line("other one running, so it ran at once.")


@picture
def timeline(p: Picture) -> None:
    """A profile as a timeline: a run, its layers on two backends, and a copy between them."""
    tracks = (
        ("thread", (("run digits", 0, 330, "grey"),)),
        ("Clamp", (("relu1", 74, 44, "orange"), ("relu2", 196, 44, "orange"))),
        ("CpuRef", (("conv1", 4, 66, "blue"), ("conv2", 122, 70, "blue"), ("pool ...", 244, 82, "blue"))),
    )
    p.text(MARGIN, 32, "one run of a network on two backends", bold=True)
    for number, (track, slices) in enumerate(tracks):
        y = 48 + number * 52
        p.text(MARGIN, y + 25, track, size=13)
        for name, start, width, fill in slices:
            p.box(82 + start, y, width, 38, "", fill)
            p.text(82 + start + width / 2, y + 24, name, anchor="middle", size=11.5, width=width + 6)
    for start in (74, 196):
        p.arrow((82 + start - 4, 150), (82 + start + 6, 140))
    for end in (118, 240):
        p.arrow((82 + end - 6, 139), (82 + end + 5, 150))
    p.line("Each track is a thread or a backend; an arrow leads to")
    p.line("the layer on another backend that reads the result.")


@picture
def refusals(p: Picture) -> None:
    """Tiny is asked for each layer of the digits network, and the layers that it refuses run on CpuRef."""
    explanation = _explained()
    p.text(150, 32, "Tiny, asked first", anchor="middle", bold=True)
    p.text(WIDTH - 100, 32, "CpuRef, asked second", anchor="middle", bold=True, size=13)
    for number, layer in enumerate(explanation["layers"]):
        y = 46 + number * 38
        refused = layer["backend"] != "Tiny"
        p.text(MARGIN, y + 20, layer["layer"], size=13)
        if refused:
            p.text(150, y + 19, "refused: no kernel", anchor="middle", kind="muted", size=12.5)
            p.arrow((212, y + 15), (262, y + 15))
            p.box(266, y, 158, 29, layer["kind"], "blue")
        else:
            p.box(86, y, 128, 29, layer["kind"], "orange")
    parts = len(explanation["parts"])
    p.line(f"{len(explanation['layers'])} layers in {parts} parts; no layer runs where it was refused.")


def _explained() -> dict[str, list[dict[str, str]]]:
    """Return the placement of the network for handwritten digits on the backend of the examples and CpuRef."""
    runtime = ip.Runtime()
    runtime.registry.register("Tiny", runpy.run_path(str(ROOT / "examples/compute_backend.py"))["TinyBackend"])
    network = str(ROOT / "examples/digits/digits.onnx")
    with ip.load(network, backends=["Tiny", "CpuRef"], runtime=runtime) as model:
        explanation: dict[str, list[dict[str, str]]] = model.explain().to_dict()
    return explanation


@picture
def server_life(p: Picture) -> None:
    """A server starts, loads, is ready, drains and ends; each state has its answers about health."""
    states = (
        ("starting", "settings and certificates are checked", "grey", "no port yet"),
        ("loading", "each model is loaded and runs once", "orange", "live 200, ready 503"),
        ("ready", "requests are answered", "green", "live 200, ready 200"),
        ("draining", "running requests end, new ones get 503", "orange", "live 200, ready 503"),
        ("ended", "", "grey", "port closed"),
    )
    causes = ("the port is open", "all models are loaded", "SIGTERM or Ctrl-C", "all ended, or --drain is over")
    for number, (name, work, fill, health) in enumerate(states):
        y = MARGIN + number * 84
        p.box(MARGIN, y, 262, 46, name, fill, small=work)
        p.text(288, y + 28, health, size=13)
        if number < len(causes):
            p.arrow((60, y + 46), (60, y + 82))
            p.text(74, y + 69, causes[number], kind="muted", size=13)


@picture
def fallback(p: Picture) -> None:
    """A backend fails in a call: its layers move to the other backends, and the call completes."""
    p.text(MARGIN, 30, "the call begins", bold=True)
    _layers(p, 42, (("conv", "orange", "on Npu"), ("relu", "red", "Npu fails"), ("softmax", "blue", "on CpuRef")))
    p.arrow((60, 92), (60, 146))
    p.text(76, 112, "Npu is disabled for the model, the network", kind="muted", size=13)
    p.text(76, 130, "is divided again, and the log says why", kind="muted", size=13)
    p.text(MARGIN, 164, "it is run again", bold=True)
    _layers(p, 176, tuple((layer, "blue", "on CpuRef") for layer in ("conv", "relu", "softmax")))
    p.line("The caller gets the result. The next calls start here.")


def _layers(p: Picture, y: float, layers: Sequence[tuple[str, str, str]]) -> None:
    for column, (layer, fill, state) in enumerate(layers):
        x = MARGIN + column * 142
        p.box(x, y, 124, 46, layer, fill, small=state)
        if column:
            p.arrow((x - 18, y + 23), (x - 2, y + 23))


@picture
def threads(p: Picture) -> None:
    """Four processors, used by one run with four threads or by four runs with one thread each."""
    p.text(MARGIN, 30, "one run at a time, 4 threads: lowest latency", bold=True)
    for row in range(4):
        for column in range(4):
            p.box(70 + column * 88, 42 + row * 26, 82, 20, "", ("blue", "orange", "green", "grey")[column])
        p.text(MARGIN, 57 + row * 26, f"cpu {row}", size=12.5)
    for column in range(4):
        p.text(111 + column * 88, 164, f"run {column + 1}", anchor="middle", size=12.5)
    p.text(MARGIN, 200, "four runs at a time, 1 thread: most throughput", bold=True)
    for row in range(4):
        p.box(70, 212 + row * 26, 310, 20, "", ("blue", "orange", "green", "grey")[row])
        p.text(225, 227 + row * 26, f"run {row + 1}", anchor="middle", size=12.5)
        p.text(MARGIN, 227 + row * 26, f"cpu {row}", size=12.5)
    p.line("The second takes less time in all: threads of one run")
    p.line("wait for each other at the end of every layer.")


@picture
def formats(p: Picture) -> None:
    """Files of seven formats become one kind of network, which backends run and writers write."""
    rows = ("ONNX", "TensorFlow Lite", "PyTorch .pt2", "TensorFlow", "Caffe", "NNAPI, Arm NN")
    for number, name in enumerate(rows):
        y = MARGIN + number * 38
        p.box(MARGIN, y, 138, 30, name, "blue")
        p.arrow((154, y + 15), (180, y + 15), (180, 125), (198, 125))
    p.box(200, 95, 92, 60, "Network", "green", small="layers")
    for number, (name, fill) in enumerate(
        (("backends run it", "orange"), ("explain shows it", "grey"), ("convert writes it", "grey"))
    ):
        y = 54 + number * 56
        p.box(314, y, 112, 30, "", fill)
        p.text(370, y + 20, name, anchor="middle", size=12.5)
        p.arrow((292, 125), (302, 125), (302, y + 15), (312, y + 15))
    p.line("The content of a file shows its format, not its name.")


@picture
def variants(p: Picture) -> None:
    """A model with an open batch dimension: one variant for each shape that it was called with."""
    p.box(MARGIN, MARGIN, 408, 44, "the model: image [batch, 3, 224, 224]", "grey")
    calls = (("batch 1", "blue"), ("batch 8", "orange"), ("batch 1", "blue"))
    for number, (name, fill) in enumerate(calls):
        y = 82 + number * 50
        p.text(MARGIN, y + 26, f"call {number + 1}: {name}")
        p.arrow((126, y + 21), (196, y + 21))
        known = number == 2
        p.box(200, y, 224, 42, f"variant for {name}", fill, small="ready" if known else "optimized now")
    p.line("The last eight variants stay ready. The first call with a")
    p.line("new shape takes longer, as the network is optimized for it.")


@picture
def arena(p: Picture) -> None:
    """Tensors whose lifetimes do not overlap share memory in the arena."""
    tensors = (("image", 0, 1, 0, 1), ("c1", 1, 3, 1, 4), ("c2", 3, 5, 0, 1), ("pool", 4, 6, 1, 2), ("out", 5, 7, 3, 1))
    left, unit, row, top = 60, 52, 34, 52
    p.text(MARGIN, 30, "the arena: who uses which bytes, and when", bold=True)
    for number, (name, begin, end, offset, size) in enumerate(tensors):
        fill = ("blue", "orange", "green", "grey", "blue")[number]
        p.box(
            left + begin * unit, top + (5 - offset - size) * row, (end - begin) * unit - 3, size * row - 3, name, fill
        )
    base = top + 5 * row + 6
    p.arrow((left, base), (left + 7 * unit, base))
    p.arrow((left - 8, base), (left - 8, top))
    p.text(left, base + 20, "layers, in running order", kind="muted", size=13)
    p.text(8, top + 10, "bytes", kind="muted", size=12)
    held = sum(size for *_, size in tensors)
    p.line(f"The tensors have {held} units in all; the arena has 5.")


def files() -> Iterator[tuple[Path, str]]:
    """Yield the path and the content of each picture."""
    for name, draw in PICTURES.items():
        drawn = Picture((draw.__doc__ or name).splitlines()[0])
        draw(drawn)
        yield FOLDER / f"{name}.svg", drawn.svg()


def stale() -> list[str]:
    """Return the names of pictures that differ from what this script draws, and of files that it does not draw."""
    drawn = dict(files())
    differing = [path for path, text in drawn.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    return sorted(path.name for path in {*differing, *(set(FOLDER.glob("*.svg")) - set(drawn))})


def main() -> int:
    """Write the pictures, or list stale ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; list pictures that are out of date")
    if parser.parse_args().check:
        print("\n".join(names := stale()))
        return bool(names)
    FOLDER.mkdir(exist_ok=True)
    for path, text in files():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
