"""Backends in shared objects: found, checked and loaded through the C interface ``interposer/backend.h``."""
