"""An extension of Griffe: the decorator of `interposer.core.records` makes dataclasses."""

from __future__ import annotations

from typing import Any, Final

import griffe

_DECORATOR: Final = "interposer.core.records.dataclass"
_STANDARD: Final = "dataclasses.dataclass"


class Records(griffe.Extension):
    """Take the decorator for that of the standard library, which Griffe knows."""

    def on_alias_instance(self, *, alias: griffe.Alias, **_: Any) -> None:
        """Change the target of an import of the decorator."""
        if alias.target_path == _DECORATOR:
            alias.target_path = _STANDARD
