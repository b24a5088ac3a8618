"""The files of an ensemble: its settings and its Python modules, whether they can be trusted, and a copy of them."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from interposer.core.errors import ConfigError, InterposerError, UntrustedFileError
from interposer.core.ownership import why_untrusted
from interposer.saved.signing import check_signature, public_keys
from interposer.serving.ensemble import Ensemble, ensemble_of_table
from interposer.serving.folder import ModelSource
from interposer.serving.functions import FunctionPool
from interposer.serving.settings_text import content_of_settings, table_of_settings
from interposer.serving.triton_config import ensemble_of_config

__all__ = ["check_signed", "files_of_modules", "functions_of"]

_SUMS: Final = "SHA256SUMS"
_LINE: Final = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?:\./)?(?P<name>.+)")
_MOST_FILES: Final = 1000
_MOST_BYTES: Final = 256 << 20


def functions_of(source: ModelSource) -> FunctionPool | None:
    """Check the files of an ensemble, and start processes for its Python functions; None if it has no functions.

    Raises:
        InterposerError: the files are not signed although they must be, other users could have written them, or a
            module cannot be imported.
    """
    ensemble = source.settings.ensemble
    assert ensemble is not None
    contents = _contents(source) if ensemble.functions else {}
    if source.settings.trusted_keys:
        check_signed(source, contents)
    if not ensemble.functions:
        return None
    folder = Path(tempfile.mkdtemp(prefix="interposer-functions-"))
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return FunctionPool(folder, ensemble.functions, ensemble.processes)


def files_of_modules(folder: Path) -> Iterator[Path]:
    """Yield the files in the folder of an ensemble, without those of versions, hidden ones, and caches of Python."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__" or path.name.isdecimal():
            continue
        if path.is_dir():
            yield from files_of_modules(path)
        elif path.is_file():
            yield path


def _contents(source: ModelSource) -> dict[str, bytes]:
    """Return the files of an ensemble with functions by their paths in its folder.

    Raises:
        ConfigError: the ensemble has no folder, or too many or too large files.
        UntrustedFileError: another user could have written a file.
    """
    if not source.folder:
        raise ConfigError(
            f"{source.path}: functions are in the folder of their ensemble; make a folder {source.name}, and put this "
            "file and the modules there"
        )
    folder, contents, size = Path(source.folder), {}, 0
    for path in files_of_modules(folder):
        problem = why_untrusted(path)
        if problem:
            raise UntrustedFileError(f"functions are run only if no other user could have written them: {problem}",
                                     path=str(path))  # fmt: skip
        content = path.read_bytes()
        size += len(content)
        contents[str(path.relative_to(folder))] = content
        if len(contents) > _MOST_FILES or size > _MOST_BYTES:
            raise ConfigError(f"{folder}: an ensemble has at most {_MOST_FILES} files of {_MOST_BYTES >> 20} MiB")
    return contents


def check_signed(source: ModelSource, contents: dict[str, bytes]) -> None:
    """Check that a trusted key has signed the settings of an ensemble, and the contents of its modules.

    The settings have a file with the signature beside them, such as ``classify.toml.sig``. For modules, the file
    ``SHA256SUMS`` of the folder has the digests of all files, and ``SHA256SUMS.sig`` is its signature.

    Raises:
        UntrustedFileError: a signature is missing or does not fit, or is for another name or version.
    """
    settings, keys = Path(source.path), public_keys(source.settings.trusted_keys)
    if not contents:
        content = _content(settings)
        check_signature(content, _signature(settings), keys, str(settings))
    else:
        folder = Path(source.folder)
        sums = contents.get(_SUMS)
        if sums is None:
            raise UntrustedFileError("an ensemble with functions needs SHA256SUMS, which is signed", path=source.folder)
        check_signature(sums, _signature(folder / _SUMS), keys, str(folder / _SUMS))
        _check_sums(folder, sums.decode("utf-8", "replace"), contents)
        if settings.parent != folder:
            raise UntrustedFileError("the settings must be in the folder whose files are signed", path=str(settings))
        content = contents[settings.name]
    if _read_again(settings, content) != source.settings.ensemble:
        raise UntrustedFileError("the settings have changed while they were read", path=str(settings))
    _check_name(source)


def _signature(path: Path) -> bytes:
    try:
        return content_of_settings(path.with_name(f"{path.name}.sig"))
    except (OSError, ValueError):
        message = f"there is no {path.name}.sig with its signature, and only signed files are trusted"
        raise UntrustedFileError(message, path=str(path)) from None


def _check_sums(folder: Path, sums: str, contents: dict[str, bytes]) -> None:
    """Raise `UntrustedFileError` if a file has no digest in a list, or another one."""
    lines = [_LINE.fullmatch(line) for line in sums.splitlines()]
    digests = {line["name"]: line["digest"] for line in lines if line is not None}
    for name, content in contents.items():
        if name in (_SUMS, f"{_SUMS}.sig"):
            continue
        if digests.get(name) != hashlib.sha256(content).hexdigest():
            problem = "is not listed in SHA256SUMS" if name not in digests else "is another one than SHA256SUMS says"
            raise UntrustedFileError(f"the file {problem}", path=os.fspath(folder / name))


def _content(settings: Path) -> bytes:
    """Return the content of a file with settings; raise `ConfigError` if it cannot be read any more."""
    try:
        return content_of_settings(settings)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{settings} cannot be read: {error}") from None


def _read_again(settings: Path, content: bytes) -> Ensemble | None:
    """Return the ensemble of some settings whose signature is valid."""
    try:
        settings_text = content.decode("utf-8")
        if settings.suffix == ".toml":
            return ensemble_of_table(table_of_settings(settings_text).get("ensemble"))
        return ensemble_of_config(settings_text)
    except (ValueError, InterposerError) as error:
        raise ConfigError(f"{settings}: {error}") from None


def _check_name(source: ModelSource) -> None:
    """Raise `UntrustedFileError` if the name or the version in signed settings is not that of the ensemble."""
    settings, ensemble = source.settings, source.settings.ensemble
    assert ensemble is not None
    if not settings.signed_names and settings.least_version is None:
        return
    name, _, version = ensemble.signed_as.partition(":")
    if name != source.name:
        signed_for = repr(name) if name else "no name; add signed_as to the table ensemble"
        raise UntrustedFileError(f"the ensemble {source.name!r} is signed for {signed_for}", path=source.path)
    number = int(version) if version.isascii() and version.isdecimal() and len(version) < 19 else None
    if settings.least_version is not None and (number is None or number < settings.least_version):
        message = (
            f"the ensemble is signed for version {number}; the lowest that is accepted is {settings.least_version}"
        )
        raise UntrustedFileError(message, path=source.path)
