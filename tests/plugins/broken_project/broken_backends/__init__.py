"""Backends that are broken, and one that works."""
