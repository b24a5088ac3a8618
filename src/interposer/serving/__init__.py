"""A server for models, with the Open Inference Protocol (version 2)."""

from __future__ import annotations
