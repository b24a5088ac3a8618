"""The Arm NN front end: ``load(source)`` returns the network in an Arm NN file (``.armnn``)."""

from interposer.core.families import import_families
from interposer.frontends.armnn.armnn_converters import layers
from interposer.frontends.armnn.importer import load

__all__ = ["layers", "load"]

import_families(__name__)  # they fill the table of converters
