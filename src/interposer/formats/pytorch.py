"""Files of PyTorch: recognition of exported programs, and of the files that people give instead of one."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable
from typing import Final

__all__ = ["is_zip", "kind_of_archive", "kind_of_names", "not_a_program", "not_an_archive", "refused_pickle"]

_TRUST: Final = "to read a file that you trust, call torch.export.load(path) yourself, and load its result"
_EXPORT: Final = "write the network with torch.export.save(torch.export.export(module, inputs), path)"
_PICKLE: Final = re.compile(rb"\x80[\x02-\x05]")
_SAFETENSORS: Final = re.compile(rb"(?s:.{3}\x00{5}\{)")


def is_zip(head: bytes) -> bool:
    """Return True if a file that begins with these bytes is a ZIP archive."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def not_an_archive(head: bytes) -> str | None:
    """Return what a file of the world of PyTorch is that is no ZIP archive, and what to do; None for any other file."""
    if _PICKLE.match(head):
        return (
            f"the file is a pickle of Python, which can run any program when it is opened, and is not read; {_EXPORT}"
        )
    if _SAFETENSORS.match(head):
        return f"the file has weights in the format safetensors, and no network; {_EXPORT}"
    return None


def kind_of_archive(source: str | bytes | bytearray | memoryview) -> str | None:
    """Return the kind of a ZIP archive of PyTorch, or None for any other archive or a damaged one.

    The kinds are "program" (torch.export.save), "old program" (the same before PyTorch 2.8), "script" (torch.jit.save),
    "weights" (torch.save) and "compiled" (AOTInductor).
    """
    try:
        with zipfile.ZipFile(source if isinstance(source, str) else io.BytesIO(source)) as archive:
            return kind_of_names(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError):
        return None


def kind_of_names(names: Iterable[str]) -> str | None:
    """Return the kind of an archive with members of these names, as `kind_of_archive` does."""
    inner = {name.partition("/")[2] for name in names}
    if "serialized_exported_program.json" in names:
        return "old program"
    if any(name.startswith("data/aotinductor/") for name in inner):
        return "compiled"
    if any(name.startswith("models/") and name.endswith(".json") for name in inner):
        return "program"
    if "data.pkl" in inner:
        return "script" if any(name.startswith("code/") for name in inner) else "weights"
    return None


_OTHERS: Final = {
    "script": "the file is a program of TorchScript (torch.jit.save), which is not supported",
    "weights": "the file has pickled objects (torch.save), such as the weights of a module, and no network",
    "compiled": "the file has programs that AOTInductor has compiled to machine code, which is not run",
}


def not_a_program(kind: str | None) -> str | None:
    """Return what an archive of this kind is and what to do; None if it is an exported program, or of no known kind."""
    return f"{_OTHERS[kind]}; {_EXPORT}" if kind in _OTHERS else None


def refused_pickle(member: str) -> str:
    """Return the message about a pickle inside an archive that PyTorch's rule `weights_only` does not accept."""
    return (
        f"{member} is a pickle with more than plain tensors, which could run any program, and is not opened; {_TRUST}"
    )
