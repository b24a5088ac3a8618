"""The parser of Caffe models, under the module name that PyArmNN gives it."""

from pyarmnn._named_parsers import ICaffeParser

__all__ = ["ICaffeParser"]
