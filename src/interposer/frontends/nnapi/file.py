"""NNAPI documents in JSON files."""

from __future__ import annotations

import json
from typing import Any

from interposer.core.errors import ParseError, memory_to
from interposer.frontends.nnapi.importer import Shapes, build
from interposer.frontends.sources import Source, errors_at, read_file
from interposer.ir.network import Network

__all__ = ["load"]


@memory_to("read the network")
def load(source: Source, *, shapes: Shapes | None = None) -> Network:
    """Return the network that a JSON file describes; see `build`.

    Args:
        source: a path, or the bytes of a file.
        shapes: shapes by input name, as for `build`.

    Raises:
        ParseError: the file cannot be read, or `build` refuses the document.
        InvalidArgumentError: `source` is not a path or bytes, or a shape does not fit its input.
    """
    path, data = read_file(source)
    with errors_at(path):
        return build(_document(bytes(data)), shapes=shapes)


def _document(data: bytes) -> Any:
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ParseError("the file is nested too deeply") from error
    except ValueError as error:
        raise ParseError(f"the file is truncated or damaged, or is no JSON: {error}") from error
