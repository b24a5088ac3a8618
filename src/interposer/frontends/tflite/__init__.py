"""The TFLite front end: ``load(source)`` gives the network that a file holds."""

from interposer.frontends.tflite.importer import load, template
from interposer.frontends.tflite.tflite_converters import operators

__all__ = ["load", "operators", "template"]
