"""Reading a `Network` from a path, bytes, an open file or a document in any supported format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from io import UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError, ParseError, UnboundInputError, did_you_mean, expect, memory_to
from interposer.core.files import check_regular, reason_of
from interposer.formats.armnn.recognition import is_armnn
from interposer.formats.caffe import is_caffe
from interposer.formats.foreign import foreign
from interposer.formats.pytorch import is_zip, kind_of_archive, not_a_program, not_an_archive
from interposer.formats.tensorflow import is_saved_model, is_tensorflow, missing
from interposer.frontends.template import Template, Values
from interposer.ir.inference import infer_graph
from interposer.ir.network import Network
from interposer.ir.text import parse_graph
from interposer.saved.container import is_saved
from interposer.saved.documents import TrustedKeys
from interposer.session.cutting import with_inputs
from interposer.session.requested import ending_at
from interposer.session.shapes import Shapes, bound
from interposer.session.values import with_values

__all__ = [
    "FORMATS",
    "Reading",
    "Source",
    "content_of",
    "files_of_weights",
    "is_saved_source",
    "is_torch",
    "read_network",
    "read_source",
]

Source: TypeAlias = (
    "str | os.PathLike[str] | BinaryIO | bytes | bytearray | memoryview"
    " | Network | Template | Mapping[str, Any] | ModelProto | ExportedProgram"
)
ModelProto: TypeAlias = Any
"""An `onnx.ModelProto`."""
ExportedProgram: TypeAlias = Any
"""A `torch.export.ExportedProgram`."""
FORMATS: Final = ("armnn", "caffe", "nnapi", "onnx", "saved", "tensorflow", "text", "tflite", "torch")
_FORMATS_BY_SUFFIX: Final = {
    "caffemodel": "caffe",
    "ipn": "saved",
    "pbtxt": "tensorflow",
    "prototxt": "caffe",
    "pt2": "torch",
}
_HEAD: Final = 4096
"""How many bytes of a file are read to recognize its format."""


class Reading(NamedTuple):
    """How a source is read: the arguments of `read_network` but for the source."""

    format: str | None = None
    shapes: Shapes | None = None
    values: Values | None = None
    weights: Any = None
    outputs: Sequence[str] | None = None
    signature: str | None = None
    inputs: Sequence[str] | None = None
    stand_in: bool = False
    subgraph: int = 0
    trusted_keys: Any = None

    @property
    def is_plain(self) -> bool:
        """True if the network is the one that the source alone describes."""
        optional_arguments = (self.weights, self.outputs, self.signature, self.inputs)
        return not (self.shapes or self.values or self.stand_in or self.subgraph) and all(
            argument is None for argument in optional_arguments
        )

    def check(self) -> None:
        """Raise `InvalidArgumentError` if an argument has the wrong type, or if the format is unknown."""
        expect(self.format, str | None, "the format must be the name of one")
        expect(self.shapes, Mapping | None, "shapes must be a mapping from input's name to shape")
        expect(self.values, Mapping | None, "values must be a mapping from input's name to array")
        expect(self.signature, str | None, "the signature must be the key of one")
        expect(self.stand_in, bool, "stand_in must be True or False")
        expect(self.subgraph, int, "subgraph must be the index of one")
        expect(
            self.trusted_keys, str | os.PathLike | Iterable | None, "trusted_keys must be the path of a file, or a list"
        )
        _check_names("inputs", self.inputs)
        _check_names("outputs", self.outputs)
        if self.format is not None and self.format not in FORMATS:
            hint, known = did_you_mean(self.format, FORMATS), ", ".join(FORMATS)
            raise InvalidArgumentError(f"unknown format {self.format!r}{hint} (known: {known})")


def _check_names(argument: str, names: Sequence[str] | None) -> None:
    if names is None:
        return
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidArgumentError(f"{argument} must be a list of names, not {names!r}")


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
        format: one of `FORMATS`; None detects the format from the content.
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
    reading.check()
    source = content_of(source)
    return _full(source, reading) if reading.inputs is None else _cut(source, reading)


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
    declared = _read(source, reading._replace(shapes=None))
    late_names = [name for name in names if name not in _input_names(declared)]
    at_shapes = isinstance(declared, Template) and declared.cuts_at_shapes
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
        raise InvalidArgumentError(f"stand_in is for TFLite files; {_kind(source)} has no unknown operators")
    if reading.trusted_keys is not None and isinstance(source, Template | Network | Mapping):
        raise InvalidArgumentError(f"trusted_keys= is for saved networks; {_kind(source)} has no signature")


def _read(source: Any, reading: Reading) -> Network | Template:
    """Return the network of a source without the values and outputs of `reading`."""
    format, shapes, signature = reading.format, reading.shapes, reading.signature
    _check_has_file(source, reading)
    if signature is not None and not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"signature: {signature!r} names a signature of a file; {_kind(source)} has none")
    if isinstance(source, Template):
        if shapes:
            raise InvalidArgumentError("a template takes its shapes where it is made: template(..., shapes={...})")
        return source
    if isinstance(source, Network):
        return bound(source, shapes) if shapes else source
    if isinstance(source, Mapping):
        return _built(source, format, shapes)
    if type(source).__name__ == "ModelProto" and format in {None, "onnx"}:
        format = "onnx"
    elif _is_program(source) and format in {None, "torch"}:
        format = "torch"
    elif not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        raise InvalidArgumentError(
            f"a model must be a path, an open file, bytes or a Network, not {type(source).__name__}"
        )
    source = os.fsdecode(source) if isinstance(source, os.PathLike) else source
    return _load(format or _format_of(source), source, reading)


def _is_program(source: Any) -> bool:
    """Return True for an exported program of PyTorch, which is recognized without importing PyTorch."""
    kind = type(source)
    return kind.__name__ in {"ExportedProgram", "Program"} and kind.__module__.startswith(_PROGRAM_MODULES)


_PROGRAM_MODULES: Final = ("torch.export", "interposer.frontends.torch")


def is_torch(source: Any, format: str | None) -> bool:
    """Return True if a source is an exported program of PyTorch, or a file with one.

    `format` is the format that the caller has named, or None.
    """
    if format is not None or _is_program(source):
        return format in {None, "torch"} and (format == "torch" or _is_program(source))
    if not isinstance(source, str | os.PathLike | bytes | bytearray | memoryview):
        return False
    if isinstance(source, str | os.PathLike) and not os.path.isfile(source):
        return False
    head = _head(source) if isinstance(source, str | os.PathLike) else bytes(source[:4])
    return _kind_of_archive(source, head) in _PROGRAMS


_PROGRAMS: Final = ("program", "old program")


def _kind_of_archive(source: Any, head: bytes) -> str | None:
    """Return the kind of an archive of PyTorch that begins with `head`, or None; see `kind_of_archive`."""
    if not is_zip(head):
        return None
    return kind_of_archive(os.fsdecode(source) if isinstance(source, str | os.PathLike) else source)


def _kind(source: Any) -> str:
    return "an NNAPI document" if isinstance(source, Mapping) else f"a {type(source).__name__}"


def content_of(source: Any) -> Any:
    """Return the bytes of an open file, read from its position to its end; return any other source unchanged.

    Raises:
        InvalidArgumentError: the file is opened in text mode, closed, or write-only.
        ParseError: the file cannot be read.
    """
    read = getattr(source, "read", None)
    if isinstance(source, memoryview):
        return source.cast("B") if source.c_contiguous else source.tobytes()
    if isinstance(source, str | os.PathLike | bytes | bytearray) or not callable(read):
        return source
    try:
        content = read()
    except (ValueError, UnsupportedOperation) as error:
        raise InvalidArgumentError(f"the open file cannot be read: {error}") from error
    except OSError as error:
        raise ParseError(f"the open file cannot be read: {error.strerror or error}") from error
    if isinstance(content, str):
        raise InvalidArgumentError('the file is opened as text; open it with open(path, "rb")')
    if not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidArgumentError(f"read() of the file gave {type(content).__name__}; expected bytes")
    return content


def files_of_weights(path: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Return the paths of the external weight files of an ONNX, TFLite or Caffe model; empty for other formats.

    Raises:
        ParseError: the file cannot be read.
    """
    format = _format_of(path)
    if format == "caffe":
        from interposer.frontends import caffe  # noqa: PLC0415 - front ends are imported when a model asks

        weights = caffe.weights_of(path)
        return () if weights is None else (weights,)
    if format == "tflite":
        from interposer.frontends.tflite import container  # noqa: PLC0415

        return container.files_of_weights(path)
    if format != "onnx":
        return ()
    from interposer.frontends.onnx import external  # noqa: PLC0415

    return external.files_of_weights(path)


def _built(document: Mapping[str, Any], format: str | None, shapes: Shapes | None) -> Network:
    if format not in {None, "nnapi"}:
        raise InvalidArgumentError(f"a mapping is an NNAPI document, and no model of format {format!r}")
    from interposer.frontends import nnapi  # noqa: PLC0415 - front ends are imported when a model asks for them

    return nnapi.build(document, shapes=shapes)


_ONLY_FOR: Final = {
    "weights": ("caffe",),
    "signature": ("tflite", "tensorflow", "saved"),
    "stand_in": ("tflite",),
    "subgraph": ("tflite",),
    "trusted_keys": ("saved",),
}
"""The formats that have what an argument selects."""


def _load(format: str, source: Any, reading: Reading) -> Network | Template:
    for argument, formats in _ONLY_FOR.items():
        if getattr(reading, argument) not in (None, False) and format not in formats:
            *others, last = (_TITLES[format_name] for format_name in formats)
            names = f"{', '.join(others)} and {last}" if others else last
            title = source if isinstance(source, str) else "this"
            raise InvalidArgumentError(f"{argument}= is for {names}; {title} is a model of format {format!r}")
    return _READERS[format](source, reading)


_TITLES: Final = {
    "saved": "saved networks",
    "caffe": "Caffe networks",
    "tflite": "TFLite files",
    "tensorflow": "TensorFlow models",
}


def _caffe(source: Any, reading: Reading) -> Template:
    from interposer.frontends import caffe  # noqa: PLC0415 - front ends are imported when a model asks for them

    weights = content_of(reading.weights)
    return caffe.template(source, weights=weights, shapes=reading.shapes, outputs=reading.outputs)


def _tflite(source: Any, reading: Reading) -> Template:
    from interposer.frontends import tflite  # noqa: PLC0415

    return tflite.template(
        source, shapes=reading.shapes, dynamic=True, signature=reading.signature, stand_in=reading.stand_in,
        inputs=reading.inputs or (), outputs=reading.outputs, subgraph=reading.subgraph,
    )  # fmt: skip


def _tensorflow(source: Any, reading: Reading) -> Template:
    from interposer.frontends import tensorflow  # noqa: PLC0415

    template_with = partial(tensorflow.template, source, shapes=reading.shapes, signature=reading.signature)
    try:
        return template_with(outputs=reading.outputs)
    except InvalidArgumentError:
        template = template_with()
        if reading.outputs is None or not template.signatures:
            raise
        return template  # the outputs may be values in the functions of a SavedModel, which the network has


def _nnapi(source: Any, reading: Reading) -> Network:
    from interposer.frontends import nnapi  # noqa: PLC0415

    return nnapi.load(source, shapes=reading.shapes)


def _armnn(source: Any, reading: Reading) -> Network:
    from interposer.frontends import armnn  # noqa: PLC0415

    network = armnn.load(source)
    return bound(network, reading.shapes) if reading.shapes else network


def _onnx(source: Any, reading: Reading) -> Template:
    from interposer.frontends import onnx  # noqa: PLC0415

    return onnx.template(source, shapes=reading.shapes, inputs=reading.inputs or (), outputs=reading.outputs)


def _torch(source: Any, reading: Reading) -> Template:
    from interposer.frontends import torch  # noqa: PLC0415
    from interposer.frontends.torch.archive import program_of  # noqa: PLC0415

    return torch.template(source if _is_program(source) else program_of(source), shapes=reading.shapes)


def _saved(source: Any, reading: Reading) -> Network | Template:
    from interposer.session.saved import read_saved  # noqa: PLC0415

    return read_saved(source, reading.shapes, reading.signature, reading.trusted_keys)


def _text(source: Any, reading: Reading) -> Network:
    """Read a network in the text format from a path or from bytes, with the shapes of `reading`, and return it."""
    path = None if isinstance(source, bytes | bytearray | memoryview) else str(source)
    try:
        if path is not None:
            check_regular(path)
        text = (Path(path).read_bytes() if path is not None else bytes(source)).decode()
    except UnicodeDecodeError as error:
        raise ParseError("the file is truncated or damaged, or is no text in UTF-8", path=path) from error
    except (OSError, ValueError) as error:
        raise ParseError(f"the file cannot be read: {reason_of(error)}", path=path) from error
    try:
        graph = parse_graph(text)
    except ParseError as error:
        raise error.at(path) if path is not None else error from None
    infer_graph(graph)
    network = Network(graph.name, graph)
    return bound(network, reading.shapes) if reading.shapes else network


_READERS: Final[Mapping[str, Callable[[Any, Reading], Network | Template]]] = {
    "armnn": _armnn,
    "caffe": _caffe,
    "nnapi": _nnapi,
    "onnx": _onnx,
    "saved": _saved,
    "tensorflow": _tensorflow,
    "text": _text,
    "tflite": _tflite,
    "torch": _torch,
}


def _format_of(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> str:
    if isinstance(source, bytes | bytearray | memoryview):
        path, head = None, bytes(source[:_HEAD])
    elif is_saved_model(source):
        return "tensorflow"
    else:
        head = _head(source)
        path = Path(source)
    kind = _kind_of_archive(source, head)
    if kind in _PROGRAMS:
        return "torch"
    message = not_a_program(kind) or not_an_archive(head) or foreign(head)
    if message is not None:
        raise ParseError(message, path=str(path) if path is not None else None)
    format = _format_of_content(head, partial(_piece, source))
    if format is not None:
        return format
    suffix = path.suffix.lower().lstrip(".") if path is not None else ""
    suffix = _FORMATS_BY_SUFFIX.get(suffix, suffix)
    if suffix in FORMATS or head.startswith((b"\x08", b"ir_version")):
        return suffix if suffix in FORMATS else "onnx"
    content = f"its content starts with {head[:8]!r}" if head else "it is empty"
    raise ParseError(
        f"this is no model of a known format ({', '.join(FORMATS)}): {content}; name the format if it is one",
        path=str(path) if path is not None else None,
    )


def _format_of_content(head: bytes, piece: Callable[[int, int], bytes]) -> str | None:
    """Return the format that the first bytes of a file show; None if only its name shows it.

    The function `piece` returns other bytes of the file: at a position, and at most of the given number.
    """
    if is_saved(head):
        return "saved"
    if head[4:8] == b"TFL3":
        return "tflite"
    if is_armnn(head, piece):
        return "armnn"
    if is_tensorflow(head):
        return "tensorflow"
    if head.lstrip().startswith(b"{"):
        return "nnapi"
    if head.lstrip().startswith((b"graph ", b"graph{")):
        return "text"
    return "caffe" if is_caffe(head) and not head.startswith(b"ir_version") else None


def is_saved_source(source: Any, format: str | None) -> bool:
    """Return True if a source of this format (None: not known) is a saved network."""
    if format is not None:
        return format == "saved"
    if isinstance(source, bytes | bytearray | memoryview):
        return is_saved(bytes(source[:_HEAD]))
    if not isinstance(source, str | os.PathLike) or is_saved_model(source):
        return False
    return is_saved(_head(source))


def _piece(source: str | os.PathLike[str] | bytes | bytearray | memoryview, start: int, size: int) -> bytes:
    """Return at most `size` bytes of a file or of its bytes, from position `start` on."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source[start : start + size])
    with open(source, "rb") as file:
        file.seek(start)
        return file.read(size)


def _head(path: str | os.PathLike[str]) -> bytes:
    try:
        if os.path.isdir(path):
            raise ParseError(missing(Path(os.fsdecode(path))), path=os.fsdecode(path))
        check_regular(path)
        with open(path, "rb") as file:
            return file.read(_HEAD)
    except (OSError, ValueError) as error:
        raise ParseError(f"the file cannot be read: {reason_of(error)}", path=os.fsdecode(path)) from error
