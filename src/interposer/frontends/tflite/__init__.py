"""The TFLite front end: ``load(source)`` returns the network in a TFLite file.

``operator("Name")`` registers a user's converter of a custom operator, which gets a `Node`.
"""

from interposer.core.families import import_families
from interposer.frontends.tflite.custom import operator
from interposer.frontends.tflite.loading import load, template
from interposer.frontends.tflite.node import Node
from interposer.frontends.tflite.tflite_converters import operators

__all__ = ["Node", "load", "operator", "operators", "template"]

import_families(__name__)  # they fill the table of converters
