"""The parser of TensorFlow Lite files, under the module name that PyArmNN gives it."""

from pyarmnn._tflite import ITfLiteParser, TfLiteParserOptions

__all__ = ["ITfLiteParser", "TfLiteParserOptions"]
