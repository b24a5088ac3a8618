"""The format of exported programs of PyTorch."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, ClassVar, Final

from interposer.file_formats import Certainty, Content, Format, Reading
from interposer.formats.pytorch import is_zip, kind_of_archive, not_a_program, not_an_archive

if TYPE_CHECKING:
    from interposer.frontends.template import Template

__all__ = ["Torch"]

_PROGRAMS: Final = ("program", "old program")
_PROGRAM_MODULES: Final = ("torch.export", "interposer.frontends.torch")


class Torch(Format):
    """Files of `torch.export.save`, and exported programs in memory."""

    title: ClassVar = "PyTorch"
    files: ClassVar = "exported programs of PyTorch"
    extra: ClassVar = "torch"
    suffixes: ClassVar = (".pt2",)
    binds_shapes: ClassVar = True

    def recognizes(self, content: Content) -> Certainty:
        """Return SIGNATURE for an archive with a program."""
        return Certainty.SIGNATURE if _kind_of(content) in _PROGRAMS else Certainty.NO

    def explains(self, content: Content) -> str | None:
        """Return what another file of PyTorch is, and what to do."""
        return not_a_program(_kind_of(content)) or not_an_archive(content.head)

    def accepts(self, source: object) -> bool:
        """Return True for an exported program, which is recognized without importing PyTorch."""
        kind = type(source)
        return kind.__name__ in {"ExportedProgram", "Program"} and kind.__module__.startswith(_PROGRAM_MODULES)

    def read(self, source: Any, reading: Reading) -> Template:
        """Return a template of the network of a program or a file."""
        from interposer.frontends import torch  # noqa: PLC0415 - front ends are imported when a model asks for them
        from interposer.frontends.torch.archive import program_of  # noqa: PLC0415

        return torch.template(source if self.accepts(source) else program_of(source), shapes=reading.shapes)

    def open(self, request: Any) -> Any:
        """Return a model that is called as the module of the program."""
        from interposer.session.torch.program_model import load_program  # noqa: PLC0415 - it imports PyTorch

        return load_program(request)


def _kind_of(content: Content) -> str | None:
    """Return the kind of an archive of PyTorch, or None; see `kind_of_archive`."""
    if not is_zip(content.head):
        return None
    return kind_of_archive(os.fspath(content.source) if isinstance(content.source, str) else content.source)
