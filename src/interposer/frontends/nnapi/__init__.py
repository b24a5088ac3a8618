"""The NNAPI front end: models for Android's Neural Networks API, described as plain data."""

from interposer.frontends.nnapi.file import load
from interposer.frontends.nnapi.importer import build
from interposer.frontends.nnapi.nnapi_converters import operators

__all__ = ["build", "load", "operators"]
