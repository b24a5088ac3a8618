"""The TFLite front end: ``load(source)`` returns the network in a TFLite file."""

from interposer.frontends.tflite.importer import load, template
from interposer.frontends.tflite.tflite_converters import operators

__all__ = ["load", "operators", "template"]
