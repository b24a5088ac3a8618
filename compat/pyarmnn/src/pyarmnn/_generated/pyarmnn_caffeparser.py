"""The parser of Caffe models, under the module name that PyArmNN gives it."""

from pyarmnn._iterators import SwigPyIterator
from pyarmnn._named_parsers import ICaffeParser
from pyarmnn._parser_vectors import BindingPointInfo, MapStringTensorShape, StringVector
from pyarmnn._streams import ios, ios_base, iostream, istream, ostream

__all__ = [
    "BindingPointInfo",
    "ICaffeParser",
    "MapStringTensorShape",
    "StringVector",
    "SwigPyIterator",
    "ios",
    "ios_base",
    "iostream",
    "istream",
    "ostream",
]
