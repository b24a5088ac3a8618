"""A file format of its own for Interposer: networks as lines of text, such as ``y = relu x``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from interposer import Network, TensorInfo, ops
from interposer.errors import ParseError, UnwritableError
from interposer.file_formats import Certainty, Content, Format, Reading, WriteOption
from interposer.frontends.importer import Importer
from interposer.frontends.node import Node
from interposer.frontends.unsupported import UnsupportedFormError
from interposer.ir.graph import Layer, Value
from interposer.types import Array

HEAD: Final = "lines 1"


class Lines(Format):
    """The format: how its files are recognized, read and written."""

    title = "lines"
    files = "files of lines"
    suffixes = (".lines",)
    served_suffixes = (".lines",)
    written_suffix = ".lines"
    write_options = (WriteOption("digits", "the number of significant digits of constants (default: 9)", int, "N"),)

    def recognizes(self, content: Content) -> Certainty:
        return Certainty.SIGNATURE if content.head.startswith(HEAD.encode()) else Certainty.NO

    def read(self, source: Any, reading: Reading) -> Network:
        text = Path(source).read_text("utf-8") if isinstance(source, str) else bytes(source).decode("utf-8")
        return LinesImporter(Network("lines")).converted(text)

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        lines = list(written(network, options.get("digits") or 9))
        Path(path).write_text("\n".join(lines) + "\n", "utf-8")
        return f"{len(lines)} lines"


# --- reading ----------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """One layer of a file: ``name = kind operands key=1,2``."""

    number: int
    name: str
    kind: str
    operands: list[str]
    attributes: dict[str, str]


class LinesNode(Node):
    """A layer while it is converted: how its operands and attributes are found in the line."""

    importer: LinesImporter

    def __init__(self, importer: LinesImporter, line: Line) -> None:
        super().__init__(importer, line.kind, line.name, f"line {line.number}")
        self.line = line

    @property
    def num_inputs(self) -> int:
        return len(self.line.operands)

    def optional(self, index: int) -> Value | None:
        return self.importer.value(self.line.operands[index]) if index < self.num_inputs else None

    def integers(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        text = self.line.attributes.get(name)
        return self.fail(f"it needs {name}=") if text is None else tuple(map(int, text.split(",")))


CONVERTERS: Final[dict[str, Callable[[LinesNode], Value]]] = {
    "add": lambda node: node.result(ops.Addition(), *node.values()),
    "matmul": lambda node: node.result(ops.BatchMatMul(), *node.values()),
    "relu": lambda node: node.result(ops.Activation(ops.ActivationFunction.RELU), node.value(0)),
    "reshape": lambda node: node.result(ops.Reshape(node.integers("sizes")), node.value(0)),
    "softmax": lambda node: node.result(ops.Softmax(axis=node.integers("axis")[0]), node.value(0)),
}


class LinesImporter(Importer):
    """Converts the lines of a file in order; `Importer` adds layers, places errors, and collects refusals."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.known: dict[str, Value] = {}
        self.missing: set[str] = set()
        """The names of layers that are not supported, or depend on one."""

    def value(self, name: str) -> Value:
        """Return the value of a name; `ParseError` is raised if no line before defines it."""
        if name not in self.known:
            raise ParseError(f"the value {name!r} is not defined")
        return self.known[name]

    def converted(self, text: str) -> Network:
        """Convert all lines, and return the network."""
        for number, words in enumerate(map(str.split, text.splitlines()), 1):
            if self.missing.intersection(words):
                self.missing.add(words[0])
            elif number > 1 and words:
                with self.conversion(f"line {number}", partial(self.refuse_line, number, words)):
                    self.add_line(number, words)
        self.refusals.check()
        self.network.graph.erase_dead()
        return self.network

    def add_line(self, number: int, words: list[str]) -> None:
        """Convert one line, given by its words."""
        graph, name = self.network.graph, words[1]
        if words[0] == "input":
            info = TensorInfo(tuple(map(int, words[2:])))
            self.known[name] = self.network.add_input_layer(len(graph.inputs), info, name).output
            self.add_input(self.known[name])
        elif words[0] == "constant":
            self.known[name] = self.constant(array_of(words[2:]), name, f"line {number}")
        elif words[0] == "output":
            self.network.add_output_layer(len(graph.outputs), self.value(name), f"{name}/output")
        else:
            self.known[words[0]] = self.converted_layer(line_of(number, words))

    def refuse_line(self, number: int, words: list[str], error: UnsupportedFormError) -> None:
        """Record that a layer is not supported, so that the final error lists it."""
        self.missing.add(words[0])
        self.refuse(words[2], f"line {number}", error)

    def converted_layer(self, line: Line) -> Value:
        """Add the layers of a line, and return its result."""
        convert = CONVERTERS.get(line.kind)
        if convert is None:
            raise UnsupportedFormError("")  # without a reason: the operator is unknown
        return convert(LinesNode(self, line))


def array_of(words: list[str]) -> Array:
    """Return the array of a constant, as in ``2 2 = 1 2 3 4``."""
    equals = words.index("=")
    return np.array(words[equals + 1 :], np.float32).reshape([int(size) for size in words[:equals]])


def line_of(number: int, words: list[str]) -> Line:
    """Return the layer in a line, which is ``name = kind operands key=1,2``."""
    pairs = [word.partition("=") for word in words[3:] if "=" in word]
    operands = [word for word in words[3:] if "=" not in word]
    return Line(number, words[0], words[2], operands, {key: text for key, _, text in pairs})


# --- writing ----------------------------------------------------------------------------------------------------------


def written(network: Network, digits: int) -> Iterator[str]:
    """Yield the lines of a network; `UnwritableError` lists the layers that the format cannot express."""
    texts = {layer: text_of(layer, digits) for layer in network.graph}
    unwritable = {layer.name: (layer.kind, "lines have no such layer") for layer, text in texts.items() if not text}
    if unwritable:
        raise UnwritableError("lines", unwritable, network.name)
    yield HEAD
    yield from texts.values()


def text_of(layer: Layer, digits: int) -> str:
    """Return the line of a layer; empty if the format cannot express it."""
    names = " ".join(value.producer.name for value in layer.values)
    match layer.op:
        case ops.Input():
            return f"input {layer.name} {numbers(layer.output.known.shape)}"
        case ops.Constant():
            array = layer.output.known.constant
            assert array is not None
            return f"constant {layer.name} {numbers(array.shape)} = {numbers(array.flat, f'.{digits}g')}"
        case ops.Output():
            return f"output {names}"
        case ops.Reshape(target_shape=sizes):
            return f"{layer.name} = reshape {names} sizes={','.join(map(str, sizes))}"
        case ops.Softmax(axis=axis):
            return f"{layer.name} = softmax {names} axis={axis}"
        case ops.Activation(function=ops.ActivationFunction.RELU):
            return f"{layer.name} = relu {names}"
        case ops.Addition() | ops.BatchMatMul():
            return f"{layer.name} = {'add' if isinstance(layer.op, ops.Addition) else 'matmul'} {names}"
    return ""


def numbers(items: Any, form: str = "") -> str:
    """Return numbers as words."""
    return " ".join(format(item, form) for item in items)
