"""Model files in the text format of Protocol Buffers."""

from __future__ import annotations

import re

__all__ = ["first_field"]


def first_field(head: bytes) -> bytes:
    """Return the name of the field with which a text begins, after comments and blanks; empty if it is no such text.

    >>> first_field(b"# a comment\\nir_version: 8")
    b'ir_version'
    """
    text = head.lstrip()
    while text.startswith(b"#"):
        text = text.partition(b"\n")[2].lstrip()
    match = re.match(rb"(\w+)\s*[:{<]", text)
    return match[1] if match else b""
