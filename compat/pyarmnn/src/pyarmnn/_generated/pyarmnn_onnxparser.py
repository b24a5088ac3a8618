"""The parser of ONNX models, under the module name that PyArmNN gives it."""

from pyarmnn._named_parsers import IOnnxParser

__all__ = ["IOnnxParser"]
