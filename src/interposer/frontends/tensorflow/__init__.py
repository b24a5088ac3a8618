"""The TensorFlow front end: `load` converts a frozen graph or a SavedModel to a `Network`, `template` to a `Template`.

Converters are functions in family files (convolution, elementwise ...), registered by the name of the operator. To
support a new operator, add a function with the decorator of `tensorflow_converters`.
"""

from interposer.core.families import import_families
from interposer.frontends.tensorflow.model import load, signatures, template
from interposer.frontends.tensorflow.tensorflow_converters import operators

__all__ = ["load", "operators", "signatures", "template"]

import_families(__name__)  # they fill the table of converters
