"""``interposer convert``: convert a network of any format that is read to any format that is written."""

from __future__ import annotations

import argparse
from pathlib import Path

from interposer.cli.arguments.convert import _flag, _options, configure
from interposer.cli.network import names_of, reading_of
from interposer.cli.outputs import check_writable
from interposer.cli.sources import sources_of
from interposer.cli.tables import counted, say
from interposer.cli.writing import writer_of
from interposer.core.errors import InterposerError, InvalidArgumentError, UnboundInputError, UnwritableError
from interposer.core.types import Dim, TensorInfo
from interposer.file_formats import Format
from interposer.frontends.template import Template
from interposer.ir.network import Network
from interposer.ops import Constant, Input, Output
from interposer.session.requested import value_named
from interposer.session.source import Reading, read_network, read_source

__all__ = ["configure", "execute"]


def execute(args: argparse.Namespace) -> None:
    """Read the network, write it, and print a summary."""
    format = writer_of("the output", args.output)
    _refuse_options_of_others(args, format)
    for path in (args.output, f"{args.output}.data"):
        check_writable("the output", Path(path), sources_of(args))
    inputs, outputs = names_of("--inputs", args.inputs), names_of("--outputs", args.outputs)
    reading = Reading(**reading_of(args), inputs=inputs, outputs=outputs)
    network, fixed_network = _with_open_dimensions(read_source(args.network, reading)), None
    try:
        summary = _write(format, network, args)
    except InterposerError as error:
        if not _open_inputs(network):
            raise
        fixed_network = _with_fixed_dimensions(args.network, reading, network)
        if fixed_network is None:
            raise InterposerError(f"{error}\n{_advice(network)}") from error
        network, summary = fixed_network, _write(format, fixed_network, args)
    count = sum(not isinstance(layer.op, Input | Output | Constant) for layer in network)
    say(f"{args.output}: {counted(count, 'layer')} as {summary}")
    if fixed_network is not None:
        shapes = ", ".join(f"{layer.name} {layer.output.known.shape}" for layer in fixed_network.graph.inputs)
        say(f"open dimensions cannot be written; they have the sizes in {args.network}: {shapes}")


def _with_open_dimensions(source: Network | Template) -> Network:
    """Return the network that a file describes, with its open dimensions left open if possible.

    If a layer cannot be built without known sizes, the dimensions get the sizes that the file records as usual ones.
    """
    try:
        return source.network() if isinstance(source, Template) else source
    except UnboundInputError:
        return read_network(source)


def _open_inputs(network: Network) -> dict[str, TensorInfo]:
    """Return the infos of the inputs with open dimensions, by name."""
    return {layer.name: layer.output.known for layer in network.graph.inputs if not layer.output.known.is_concrete}


def _advice(network: Network) -> str:
    """Return what to do about the open dimensions of a network's inputs."""
    infos = _open_inputs(network)
    shapes = ", ".join(f"{name} {info.shape}" for name, info in infos.items())
    options = " ".join(f"-s {name}={_example(info)}" for name, info in infos.items())
    return f"open dimensions ({shapes}) may be the reason; give the sizes of the inputs, such as: {options}"


def _example(info: TensorInfo) -> str:
    """Return a shape for the command line in which open dimensions are 1."""
    if not info.is_ranked:
        return "1x3x8"
    return "x".join("1" if isinstance(size, Dim) else str(size) for size in info.shape)


def _with_fixed_dimensions(path: str, reading: Reading, network: Network) -> Network | None:
    """Return the network with its open dimensions fixed to the usual sizes that the file records.

    Inputs that cut the network get the shapes that the values have for these sizes. The result is None if the file
    records no sizes.
    """
    whole_model = read_source(path, reading._replace(inputs=None, outputs=None))
    if not isinstance(whole_model, Template):
        return None
    try:
        fixed_network = whole_model.network(whole_model.usual)
    except UnboundInputError:
        return None
    inputs = [layer.name for layer in network.graph.inputs]
    shapes = {name: value_named(fixed_network.graph, name, "inputs").known.shape for name in inputs}
    if not all(shape.is_concrete for shape in shapes.values()):
        return None
    return read_network(path, **reading._replace(shapes=shapes)._asdict())


def _refuse_options_of_others(args: argparse.Namespace, format: Format) -> None:
    own_names = {option.name for option in format.write_options}
    for option, titles in _options().items():
        if option.name not in own_names and getattr(args, option.name) not in (None, False):
            message = f"{_flag(option.name)} is for {' and '.join(titles)}, but the output is {args.output!r}"
            raise InvalidArgumentError(message)


def _write(format: Format, network: Network, args: argparse.Namespace) -> str:
    """Write the network, and return what was written; errors name the options of the command line."""
    options = {option.name: getattr(args, option.name) for option in format.write_options}
    try:
        return format.write(network, args.output, options)
    except UnwritableError as error:
        message = str(error)
        for option in format.write_options:
            message = message.replace(option.argument, _flag(option.name)) if option.argument else message
        raise InterposerError(message) from error
