"""The parser of TensorFlow Lite files, under the module name that PyArmNN gives it."""

from pyarmnn._iterators import SwigPyIterator
from pyarmnn._parser_vectors import BindingPointInfo, MapStringTensorShape, StringVector
from pyarmnn._streams import ios, ios_base, iostream, istream, ostream
from pyarmnn._tflite import ITfLiteParser, TfLiteParserOptions

__all__ = [
    "BindingPointInfo",
    "ITfLiteParser",
    "MapStringTensorShape",
    "StringVector",
    "SwigPyIterator",
    "TfLiteParserOptions",
    "ios",
    "ios_base",
    "iostream",
    "istream",
    "ostream",
]
