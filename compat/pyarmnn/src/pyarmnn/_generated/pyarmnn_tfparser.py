"""The parser of TensorFlow graphs, under the module name that PyArmNN gives it."""

from pyarmnn._named_parsers import ITfParser

__all__ = ["ITfParser"]
