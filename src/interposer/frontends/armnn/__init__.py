"""The Arm NN front end: ``load(source)`` returns the network in an Arm NN file (``.armnn``)."""

from interposer.frontends.armnn.armnn_converters import layers
from interposer.frontends.armnn.importer import load

__all__ = ["layers", "load"]
