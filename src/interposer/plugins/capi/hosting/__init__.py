"""Backends that are written in Python, offered through the C interface by a shared object that hosts Python."""

from interposer.plugins.capi.hosting.serving import revision, table

__all__ = ["revision", "table"]
