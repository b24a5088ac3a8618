"""Reading a `Network` from a path, bytes, an open file or an object in memory, in any registered format."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from interposer.core.errors import (
    InterposerError,
    InvalidArgumentError,
    ParseError,
    UnboundInputError,
    memory_to,
)
from interposer.file_formats import Content, Format, Reading, process_formats
from interposer.frontends.template import Template, Values
from interposer.ir.network import Network
from interposer.saved.container import is_saved
from interposer.saved.documents import TrustedKeys
from interposer.session.cutting import with_inputs
from interposer.session.requested import ending_at
from interposer.session.shapes import Shapes, bound
from interposer.session.values import with_values

__all__ = [
    "Reading",
    "Source",
    "check_reading",
    "content_of",
    "files_of_weights",
    "format_of",
    "is_saved_source",
    "read_network",
    "read_source",
]

ModelProto: TypeAlias = Any
"""An `onnx.ModelProto`."""
ExportedProgram: TypeAlias = Any
"""A `torch.export.ExportedProgram`."""
Source: TypeAlias = (
    str
    | os.PathLike[str]
    | BinaryIO
    | bytes
    | bytearray
    | memoryview
    | Network
    | Template
    | Mapping[str, Any]
    | ModelProto
    | ExportedProgram
)

AS_IS: Final = Reading()
"""Reads the network that a source describes, in the format of its content."""


@memory_to("read the network")
def read_network(
    source: Source,
    format: str | None = None,
    shapes: Shapes | None = None,
    values: Values | None = None,
    signature: str | None = None,
    *,
    weights: Source | None = None,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    stand_in: bool = False,
    subgraph: int = 0,
    trusted_keys: TrustedKeys | None = None,
) -> Network:
    """Return the network of a file or its bytes, of a `Network`, an exported program, or an NNAPI document.

    Dimensions that a TFLite file leaves open get the sizes that the file stores as an example. To get the network with
    open dimensions, use `Model.network` of a loaded model.

    Args:
        source: a path, an open binary file, the bytes of a file, a network, a template of a front end, an
            `onnx.ModelProto`, or a document for `interposer.frontends.nnapi.build`.
        format: the name of a format, such as "onnx"; None detects the format from the content.
        shapes: shapes of inputs by name, or sizes of named dimensions.
        values: values of inputs by name; these inputs become constants.
        signature: the key of a signature of a TFLite file; the network is the one that it calls.
        weights: a path or the bytes of the file with the weights of a Caffe network.
        inputs: names of values of the network that are its inputs, instead of those that the file declares; the layers
            before them are dropped. `shapes` may have shapes of these values.
        outputs: names of values of the network that are its outputs, instead of those that the file declares; layers
            that they do not need are dropped.
        stand_in: use a `StandIn` layer for each unknown custom operator of a TFLite file.
        subgraph: the index of the subgraph of a TFLite file that is the network; 0 is the main one.
        trusted_keys: the path of a PEM file with public Ed25519 keys, or several paths; `source` must be a saved
            network that was signed with one of them.

    Raises:
        ParseError: the file cannot be read, is damaged, or its format is not recognized.
        UnboundInputError: operators need values or shapes of inputs that were not given.
        InvalidArgumentError: the format is unknown, the inputs cannot have the shapes or values, or weights are given
            for another format than Caffe.
        BindingError: the network has no value of a name in `inputs` or `outputs`, or an output depends on an input that
            `inputs` does not name.
        InvalidNetworkError: shapes or values do not fit the layers of a `Network`.
    """
    network = read_source(
        source, Reading(format, shapes, values, weights, outputs, signature, inputs, stand_in, subgraph, trusted_keys)
    )
    return network.network(network.usual) if isinstance(network, Template) else network


def read_source(source: Source, reading: Reading = AS_IS) -> Network | Template:
    """Read a network as `read_network` does, or return a template from which it can be built later.

    A template stands for a model whose layers depend on values or shapes of inputs that are not given.
    """
    check_reading(reading)
    source = content_of(source)
    return _full(source, reading) if reading.inputs is None else _cut(source, reading)


def check_reading(reading: Reading) -> None:
    """Raise `InvalidArgumentError` if an argument has the wrong type, or if the format is unknown."""
    reading.check()
    if reading.format is not None:
        process_formats().named(reading.format)


def _full(source: Any, reading: Reading) -> Network | Template:
    """Read a network with the inputs that the source declares."""
    source_network, values = _read(source, reading), reading.values or {}
    source_network = (
        source_network.bound(values) if isinstance(source_network, Template) else with_values(source_network, values)
    )
    return source_network if reading.outputs is None else _with_outputs(source_network, reading.outputs)


def _cut(source: Any, reading: Reading) -> Network:
    """Read a network, and cut it at the inputs that `reading` names.

    Shapes and values of inputs that the source itself declares apply before the cut, and all others after it.
    """
    names = reading.inputs or ()
    declared_network = _read(source, reading._replace(shapes=None))
    late_names = [name for name in names if name not in _input_names(declared_network)]
    at_shapes = isinstance(declared_network, Template) and declared_network.cuts_at_shapes
    shapes, cut_shapes = _split(reading.shapes or {}, () if at_shapes else late_names)
    values, cut_values = _split(reading.values or {}, late_names)
    uncut = _full(source, reading._replace(shapes=shapes or None, values=values))
    network = with_inputs(_network_of(uncut), names)
    return with_values(bound(network, cut_shapes) if cut_shapes else network, cut_values)


def _input_names(source: Network | Template) -> list[str]:
    return list(source.inputs) if isinstance(source, Template) else [layer.name for layer in source.graph.inputs]


def _split(by_input: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the items whose keys are not in `names`, and those whose keys are."""
    inner = {name: setting for name, setting in by_input.items() if name in names}
    return {name: setting for name, setting in by_input.items() if name not in names}, inner


def _network_of(source: Network | Template) -> Network:
    """Return the network of a source with open dimensions if it can be built so, else with the usual shapes."""
    if isinstance(source, Network):
        return source
    try:
        return source.network()
    except UnboundInputError:
        return source.network(source.usual)


def _with_outputs(source: Network | Template, names: Sequence[str]) -> Network | Template:
    """Return the network, or the template of networks, with the named values as outputs."""
    if isinstance(source, Network):
        return ending_at(source, names)
    build = source.build
    outputs = {name: source.outputs.get(name) for name in names}
    return replace(source, outputs=outputs, build=lambda shapes, values: ending_at(build(shapes, values), names))


def _check_has_file(source: Any, reading: Reading) -> None:
    """Raise `InvalidArgumentError` if an argument is for files, and the source is none."""
    if reading.stand_in and isinstance(source, Template | Network | Mapping):
        raise InvalidArgumentError(
            f"stand_in is for {_formats_with('stand_in')}; {_kind(source)} has no unknown operators"
        )
    if reading.trusted_keys is not None and isinstance(source, Template | Network | Mapping):
        raise InvalidArgumentError(
            f"trusted_keys= is for {_formats_with('trusted_keys')}; {_kind(source)} has no signature"
        )
    for argument in ("weights", "subgraph") if isinstance(source, Template | Network) else ():
        if argument in reading.options:
            raise InvalidArgumentError(f"{argument}= is for {_formats_with(argument)}; {_kind(source)} is no such file")
    if reading.format is not None and isinstance(source, Template | Network):
        raise InvalidArgumentError(f"format: {_kind(source)} is no model of format {reading.format!r}")


def _read(source: Any, reading: Reading) -> Network | Template:
    """Return the network of a source without the values and outputs of `reading`."""
    shapes, signature = reading.shapes, reading.signature
    _check_has_file(source, reading)
    if signature is not None and not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"signature: {signature!r} names a signature of a file; {_kind(source)} has none")
    if isinstance(source, Template):
        if shapes:
            raise InvalidArgumentError("a template takes its shapes where it is made: template(..., shapes={...})")
        return source
    if isinstance(source, Network):
        return bound(source, shapes) if shapes else source
    name = _name_of_format(source, reading)
    if name is None:
        raise InvalidArgumentError(
            f"a model must be a path, an open file, bytes or a Network, not {type(source).__name__}"
        )
    return _load(name, os.fsdecode(source) if isinstance(source, os.PathLike) else source, reading)


def _kind(source: Any) -> str:
    """Return what messages call a source that is no file."""
    formats = process_formats()
    name = formats.accepting(source)
    return (formats.named(name).object_title if name is not None else "") or f"a {type(source).__name__}"


def content_of(source: Any) -> Any:
    """Return the bytes of an open file, read from its position to its end, or of a memoryview.

    Any other source is returned unchanged.

    Raises:
        InvalidArgumentError: the file is opened in text mode, closed, or write-only.
        ParseError: the file cannot be read.
    """
    read_method = getattr(source, "read", None)
    if isinstance(source, memoryview):
        return source.cast("B") if source.c_contiguous else source.tobytes()
    if isinstance(source, str | os.PathLike | bytes | bytearray) or not callable(read_method):
        return source
    try:
        content = read_method()
    except (ValueError, UnsupportedOperation) as error:
        raise InvalidArgumentError(f"the open file cannot be read: {error}") from error
    except OSError as error:
        raise ParseError(f"the open file cannot be read: {error.strerror or error}") from error
    if isinstance(content, str):
        raise InvalidArgumentError('the file is opened as text; open it with open(path, "rb")')
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"read() of the file gave {type(content).__name__}; expected bytes")
    return content


def files_of_weights(path: str | os.PathLike[str], format: str | None = None) -> tuple[Path, ...]:
    """Return the paths of the other files of a model, such as external weights; empty if it has none.

    `format` is the name of the format; None detects it from the content.

    Raises:
        ParseError: the file cannot be read.
    """
    formats = process_formats()
    return formats.named(format or formats.of(path)).files_of_weights(path)


def is_saved_source(source: Any, format: str | None) -> bool:
    """Return True if a source of this format (None: not known) is a saved network."""
    if format is not None:
        return format == "saved"
    return isinstance(source, str | os.PathLike | bytes | bytearray | memoryview) and is_saved(
        Content(os.fsdecode(source) if isinstance(source, os.PathLike) else source).head
    )


def format_of(source: Any, reading: Reading) -> Format | None:
    """Return the format of a source, by its name in `reading` or by its content; None for one that is no file.

    An object in memory that a format accepts, such as a document, counts as a file.

    Raises:
        ParseError: the file cannot be read, or is of no known format.
        InvalidArgumentError: the object is of another format than `reading` names.
    """
    name = _name_of_format(source, reading)
    return None if name is None else process_formats().named(name)


def _name_of_format(source: Any, reading: Reading) -> str | None:
    if isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        return reading.format or process_formats().of(source)
    name = process_formats().accepting(source)
    if name is not None and reading.format is not None and reading.format.lower() != name.lower():
        raise InvalidArgumentError(f"{_kind(source)} is no model of format {reading.format!r}")
    return name


def _load(name: str, source: Any, reading: Reading) -> Network | Template:
    """Return the network of a source in this format, or a template of it, with the shapes of `reading`."""
    format = process_formats().named(name)
    for argument in reading.options:
        if argument not in format.options:
            source_title = source if isinstance(source, str) else "this"
            raise InvalidArgumentError(
                f"{argument}= is for {_formats_with(argument)}; {source_title} is a model of format {name!r}"
            )
    network = _read_by(format, name, source, reading._replace(weights=content_of(reading.weights)))
    if format.binds_shapes or not reading.shapes or isinstance(network, Template):
        return network
    return bound(network, reading.shapes)


def _read_by(format: Format, name: str, source: Any, reading: Reading) -> Network | Template:
    """Return what a format reads; a failure of its code, which may be a plug-in's, is a `ParseError` with its name."""
    path = source if isinstance(source, str) else None
    try:
        network: object = format.read(source, reading)
    except ParseError as error:
        located_error = error if path is None else error.at(path)
        if located_error is error:
            raise
        raise located_error from error
    except (InterposerError, MemoryError):
        raise
    except Exception as error:
        raise ParseError(
            f"the format {name!r} failed to read it: {type(error).__name__}: {error}", path=path
        ) from error
    if not isinstance(network, Network | Template):
        message = f"the format {name!r} gave {type(network).__name__}; expected a Network or a Template"
        raise ParseError(message, path=path)
    return network


def _formats_with(argument: str) -> str:
    """Return what the files of the formats are called that accept an argument of `load`."""
    *other_files, last_file = sorted(format.files for _, format in process_formats() if argument in format.options)
    return f"{', '.join(other_files)} and {last_file}" if other_files else last_file
