"""`Format`: what Interposer must know of a file format, and the arguments of reading and writing."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

from interposer.core.errors import InvalidArgumentError, as_int, expect, expect_names
from interposer.core.files import check_regular, unreadable

if TYPE_CHECKING:
    from interposer.frontends.resizing import Resizes
    from interposer.frontends.template import Template, Values
    from interposer.ir.graph import Layer
    from interposer.ir.network import Network

__all__ = ["Certainty", "Content", "File", "Format", "Reading", "WriteOption"]

File: TypeAlias = "str | bytes | bytearray | memoryview"
"""A model file: its path, or its bytes."""

_HEAD: Final = 4096
"""How many bytes of a file are read to recognize its format."""


class Certainty(IntEnum):
    """How surely the content of a file shows its format; of several formats, the surest one reads the file."""

    NO = 0
    """The file is not of this format."""
    GUESS = 1
    """It may be, if the suffix names no other format."""
    LIKELY = 2
    """Its first bytes are possible ones of the format, but not only of this one."""
    STRUCTURE = 3
    """Its first bytes have the structure of the format."""
    SIGNATURE = 4
    """It has a signature that no file of another format has."""


class Content:
    """The beginning of a model file, by which formats recognize it; `path` is None for bytes."""

    def __init__(self, source: File) -> None:
        self.source = source
        self.path = Path(source) if isinstance(source, str) else None

    @property
    def is_folder(self) -> bool:
        """True if the source is the path of a folder."""
        return isinstance(self.source, str) and os.path.isdir(self.source)

    @cached_property
    def head(self) -> bytes:
        """The first bytes of the file, at most 4096; empty for a folder. `ParseError` if it cannot be read."""
        if not isinstance(self.source, str):
            return bytes(self.source[:_HEAD])
        try:
            if self.is_folder:
                return b""
            check_regular(self.source)
            with open(self.source, "rb") as file:
                return file.read(_HEAD)
        except (OSError, ValueError) as error:
            raise unreadable(error, self.source) from error

    def piece(self, start: int, size: int) -> bytes:
        """Return the bytes of the file from position `start` on, at most `size`. `ParseError` if it cannot be read."""
        if not isinstance(self.source, str):
            return bytes(self.source[start : start + size])
        try:
            with open(self.source, "rb") as file:
                file.seek(start)
                return file.read(size)
        except (OSError, ValueError) as error:
            raise unreadable(error, self.source) from error


class Reading(NamedTuple):
    """How a source is read: the arguments of `read_network` but for the source."""

    format: str | None = None
    shapes: Resizes | None = None
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
        other_arguments = (self.weights, self.outputs, self.signature, self.inputs)
        return not (self.shapes or self.values or self.stand_in or self.subgraph) and all(
            argument is None for argument in other_arguments
        )

    @property
    def options(self) -> list[str]:
        """The names of the arguments that were given and that only some formats accept; see `Format.options`."""
        return [name for name in _OPTIONS if getattr(self, name) not in (None, False)]

    def check(self) -> None:
        """Raise `InvalidArgumentError` if an argument has the wrong type."""
        expect(self.format, str | None, "the format must be the name of one")
        expect(self.shapes, Mapping | None, "shapes must be a mapping from input's name to shape")
        expect(self.values, Mapping | None, "values must be a mapping from input's name to array")
        expect(self.signature, str | None, "the signature must be the key of one")
        expect(self.stand_in, bool, "stand_in must be True or False")
        as_int(self.subgraph, "subgraph must be the index of one")
        expect(
            self.trusted_keys, str | os.PathLike | Iterable | None, "trusted_keys must be the path of a file, or a list"
        )
        for argument, names in (("inputs", self.inputs), ("outputs", self.outputs)):
            if names is not None:
                _check_in_order(names, argument)
        if self.outputs is not None:
            _check_outputs(self.outputs)


_OPTIONS: Final = ("weights", "signature", "stand_in", "subgraph", "trusted_keys")


class WriteOption(NamedTuple):
    """An option of a writer, which ``interposer convert`` offers as ``--name``.

    `kind` is int for a positive number, str for a text, and bool for a flag. `argument` is what messages of the writer
    call it.
    """

    name: str
    help: str
    kind: type[int] | type[str] | type[bool] = bool
    metavar: str = ""
    argument: str = ""


def _check_in_order(names: Collection[str], argument: str) -> None:
    """Raise `InvalidArgumentError` unless the value of an argument is a list of names, in an order."""
    expect_names(names, argument)
    if isinstance(names, Set) and len(names) > 1:
        raise InvalidArgumentError(
            f"the order of {argument} matters, and a set has none; pass a list, such as {sorted(names)}"
        )


def _check_outputs(names: Collection[str]) -> None:
    """Raise `InvalidArgumentError` if there are no outputs, or if one is named twice."""
    if not names:
        raise InvalidArgumentError(
            "outputs is empty, so no layer would run; name one value or more, or leave it out for all outputs"
        )
    name_list = list(names)
    duplicate_name = next((name for name in name_list if name_list.count(name) > 1), None)
    if duplicate_name is not None:
        raise InvalidArgumentError(f"outputs: {duplicate_name!r} is named twice; name each value once")


class Format(ABC):
    """A file format of models. A format that reads overrides `read`, one that writes overrides `write`.

    `title` is the name in messages, by default that of the class, and `files` what its files are called there. `extra`
    is the extra of the package that installs what reader and writer need, as in ``pip install 'interposer-nn[onnx]'``.
    """

    title: ClassVar[str] = ""
    files: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """A file with one of these suffixes is of this format, unless its content shows another one."""
    served_suffixes: ClassVar[tuple[str, ...]] = ()
    """The suffixes by which the server finds models of this format in a folder."""
    written_suffix: ClassVar[str] = ""
    """The suffix of the files that `write` is asked for; empty for a format that is only read."""
    options: ClassVar[frozenset[str]] = frozenset()
    """The arguments of `load` that only some formats accept, such as ``signature``, and this one does."""
    write_options: ClassVar[tuple[WriteOption, ...]] = ()
    """What `write` accepts beside the network and the path."""
    binds_shapes: ClassVar[bool] = False
    """Whether `read` applies the shapes of the caller; otherwise they are applied to the network that it returns."""
    backends: ClassVar[tuple[str, ...]] = ()
    """The ids of the backends that `load` uses if the caller names none; empty for the usual ones."""
    object_title: ClassVar[str] = ""
    """What messages call an object that `accepts` takes, such as "an NNAPI document"."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Complete the texts for messages that the class does not declare."""
        super().__init_subclass__(**arguments)
        cls.title = cls.title or cls.__name__
        cls.files = cls.files or f"{cls.title} files"

    # --- recognition --------------------------------------------------------------------------------------------------

    @abstractmethod
    def recognizes(self, content: Content) -> Certainty:
        """Return how surely a file is of this format, judged by its content."""

    def explains(self, content: Content) -> str | None:
        """Return why a file that is near to this format cannot be read, and what to do; None for any other file."""
        return None

    def accepts(self, source: object) -> bool:
        """Return True for an object in memory that `read` takes, such as a parsed model."""
        return False

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def reads(self) -> bool:
        """True if the format can be read."""
        return type(self).read is not Format.read

    def read(self, source: Any, reading: Reading) -> Network | Template:
        """Return the network of a file, given by its path or bytes, or a template from which it can be built.

        Values and outputs of `reading` that are not applied are applied to what it returns.
        """
        raise InvalidArgumentError(f"{self.title} is a format that is only written")

    def open(self, request: Any) -> Any:
        """Return the model for a request of `load`, or None if `read` suffices for it.

        A saved network overrides this: its file has compiled parts besides the network.
        """
        return None

    def files_of_weights(self, path: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Return the paths of the other files that a model consists of."""
        return ()

    def operators(self) -> Iterable[str]:
        """Return the names of the operators that the reader converts."""
        return ()

    # --- writing ------------------------------------------------------------------------------------------------------

    @property
    def writes(self) -> bool:
        """True if the format can be written."""
        return bool(self.written_suffix) and type(self).write is not Format.write

    def write(self, network: Network, path: str, options: Mapping[str, Any]) -> str:
        """Write a network to a file, and return what was written, as in "ONNX, opset 20".

        `options` has the values of `write_options` by name; one that is not given may be missing, or None.
        """
        raise InvalidArgumentError(f"{self.title} is a format that is only read")

    def refusals(self, layer: Layer) -> list[str]:
        """Return why `write_quantized` cannot write a layer whose infos are known; an empty list if it can."""
        return []

    def write_quantized(self, network: Network, path: str) -> str:
        """Write the result of `quantize`, in the form in which other programs run it best."""
        return self.write(network, path, {})
