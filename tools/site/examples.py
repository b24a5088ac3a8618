"""An extension of Griffe: sections ``Example:`` of docstrings are shown as sessions of Python, as ``Examples:`` are."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

_TITLE: Final = re.compile(r"^( *)Example:$", re.MULTILINE)


class Examples(griffe.Extension):
    """Rename the sections before they are parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rename the section in one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _TITLE.sub(r"\1Examples:", obj.docstring.value)
