"""The command line's words for the arguments that messages of the library name."""

from __future__ import annotations

import re
import shlex
from typing import Final

__all__ = ["in_options"]

_OPTIONS: Final = {
    "backends": "--backends",
    "budget_seconds": "--budget",
    "format": "--format",
    "inputs": "--inputs",
    "outputs": "--outputs",
    "plan": "--plan",
    "shapes": "--shape",
    "signature": "--signature",
    "stand_in": "--stand-in",
    "subgraph": "--subgraph",
    "trusted_keys": "--trusted-key",
    "values": "--value",
    "weights": "--weights",
}
"""The options by the arguments of `interposer.load` and others for which they stand."""
_EXAMPLES: Final = {"shapes": "--shape NAME=1x3x8", "values": "--value NAME=0,1"}
"""Options with an example of their value, for arguments that are a mapping."""
_NAMES: Final = "|".join(_OPTIONS)
_MAPPING: Final = rf"\b({'|'.join(_EXAMPLES)})=\{{([^{{}}]*)\}}"
_MAPPINGS: Final = rf"\w+\(\.\.\., ({_MAPPING}(?:, {_MAPPING})*)\)"
_KEY: Final = r"'([^']*)': (?:\(\.\.\.\)|\.\.\.)"
_ASSIGNED: Final = rf"\b({_NAMES})=(?=[\s,;)]|\Z)"
_SUBJECT: Final = rf"\A({_NAMES})(?=: | is for | are for | must | names )"

_ALL_VALUES: Final = "Model.values lists all of them"
"""How messages of the library say where the names of values are listed."""


def in_options(error: Exception) -> str:
    """Return the message of an error with the options of the command line in place of arguments in Python.

    The path of a file with which the message begins stays as it is: a file may be called ``weights``.
    """
    message, path = str(error), str(getattr(error, "path", None) or "")
    return path + _translated(message.removeprefix(path)) if message.startswith(path) else _translated(message)


def _translated(message: str) -> str:
    """Return a message with options in place of arguments.

    >>> _translated("stand_in is for TFLite; give load(..., shapes={...}, values={...})")
    '--stand-in is for TFLite; give --shape NAME=1x3x8 and --value NAME=0,1'
    """
    message = message.replace(_ALL_VALUES, "interposer explain lists the layers, whose names stand for their results")
    message = re.sub(_MAPPINGS, lambda match: match[1].replace("}, ", "} and "), message)
    message = re.sub(_MAPPING, lambda match: _with_keys(match[1], match[2]), message)
    message = re.sub(_ASSIGNED, lambda match: _OPTIONS[match[1]], message)
    return re.sub(_SUBJECT, lambda match: _OPTIONS[match[1]], message)


def _with_keys(argument: str, content: str) -> str:
    """Return the options for a mapping whose content names inputs, such as ``'x': (...)``."""
    keys = re.findall(_KEY, content)
    options = (f"{_OPTIONS[argument]} {shlex.quote(f'{key}=...')}" for key in keys)
    return " ".join(options) or _EXAMPLES[argument]
