"""The PyTorch front end: `load` converts a ``torch.export.ExportedProgram`` to a `Network`.

Converters are functions in family files (convolution, elementwise ...), registered with `registry.aten` for the ATen
overloads that they convert. Operators without a converter are decomposed by PyTorch to core ATen operators first.
"""

from interposer.core.families import import_families
from interposer.frontends.torch.program import Argument, Program, Returned, load, read, template

__all__ = ["Argument", "Program", "Returned", "load", "read", "template"]

import_families(__name__)  # they fill the table of converters
