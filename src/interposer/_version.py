"""The version numbers of the package, of the backend interface and of its vocabulary: each is written here alone.

``docs/releasing.md`` says when each is raised. ``tools/generate.py`` writes the second and the third into the headers.
"""

__version__ = "0.1.0"

API_VERSION = (1, 0)
"""Major and minor version of the backend interface, in Python and in C."""

VOCABULARY_REVISION = 0
"""Revision of the vocabulary of the C interface: the names of operators, operands, attributes, choices and types.

Names of this revision and of those before are frozen. Names that were added since belong to the next revision.
"""
