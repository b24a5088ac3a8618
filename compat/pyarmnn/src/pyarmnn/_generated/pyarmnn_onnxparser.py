"""The parser of ONNX models, under the module name that PyArmNN gives it."""

from pyarmnn._iterators import SwigPyIterator
from pyarmnn._named_parsers import IOnnxParser
from pyarmnn._parser_vectors import BindingPointInfo, MapStringTensorShape, StringVector
from pyarmnn._streams import ios, ios_base, iostream, istream, ostream

__all__ = [
    "BindingPointInfo",
    "IOnnxParser",
    "MapStringTensorShape",
    "StringVector",
    "SwigPyIterator",
    "ios",
    "ios_base",
    "iostream",
    "istream",
    "ostream",
]
