"""The versions of the package, of the backend interface and of its vocabulary, each defined only in this module.

``docs/releasing.md`` explains when to raise each. ``tools/generate.py`` copies the last two into the C headers.
"""

__version__ = "0.1.0"

API_VERSION = (1, 0)
"""Major and minor version of the backend interface, in Python and in C."""

VOCABULARY_REVISION = 0
"""Revision of the vocabulary of the C interface: the names of operators, operands, attributes, choices and types.

Names of this and of earlier revisions are frozen. Names added since then belong to the next revision.
"""
