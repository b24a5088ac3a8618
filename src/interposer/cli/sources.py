"""The files that a command reads, so that it does not overwrite one of them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from interposer.cli.inputs import input_files
from interposer.cli.parsing import SEPARATOR
from interposer.core.errors import InterposerError
from interposer.session.source import files_of_weights

__all__ = ["sources_of"]


def sources_of(args: argparse.Namespace) -> Iterator[str]:
    """Yield the paths of all files that a command reads, so that it does not overwrite one of them.

    These include external files with the weights of a model, and the files in a folder of inputs. An --input of the
    form ``NAME=FILE`` is yielded both as a whole and without its name, as a path may contain "=".
    """
    for name in ("network", "plan", "labels", "weights", "sign_key", "data"):
        if getattr(args, name, None) is not None:
            yield getattr(args, name)
    yield from getattr(args, "trusted_key", [])
    for path in _inputs(getattr(args, "input", [])):
        yield path
        yield from _files(path)
    if getattr(args, "data", None) is not None:
        yield from _files(args.data)
    if getattr(args, "network", None) is not None:
        yield from _weights(args.network)
    yield from _served(getattr(args, "model", None) or [])


def _inputs(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for word in text.split(SEPARATOR):
            yield word
            yield word.partition("=")[2]


def _files(path: str) -> Iterator[str]:
    """Yield the inputs in a folder; nothing for another path."""
    with suppress(OSError):
        yield from (os.path.join(path, name) for name in input_files(path))


def _weights(path: str) -> Iterator[str]:
    with suppress(InterposerError, OSError):
        yield from map(str, files_of_weights(path))


def _served(paths: Iterable[str]) -> Iterator[str]:
    """Yield the files of models, and those in folders with models that have a known format."""
    for path in paths:
        yield path
        yield from _weights(path)
        for file in _entries(path):
            with suppress(InterposerError, OSError):
                weights = files_of_weights(file)
                yield file
                yield from map(str, weights)


def _entries(folder: str) -> list[str]:
    try:
        return [entry.path for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        return []
