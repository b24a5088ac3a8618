"""Options of backends that users write as text: on a command line, or in the options of a program that loads us."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from interposer.backend import OptionValue
from interposer.core.errors import InvalidArgumentError
from interposer.runtime import Runtime

__all__ = ["has_option", "option_value", "sorted_options", "truth"]

_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")
_KINDS: Final = {bool: "true or false", int: "a whole number", float: "a number"}
_log: Final = logging.getLogger("interposer.session")


def sorted_options(
    texts: Mapping[str, Mapping[str, str]], runtime: Runtime, title: str
) -> tuple[dict[str, dict[str, OptionValue]], dict[str, dict[str, OptionValue]]]:
    """Return the options of backends for the runtime, and those for networks, both by backend and name.

    An option that can be set for both is set for networks. `title` is how messages name an option, such as
    ``"--option"``.

    Raises:
        UnknownBackendError: no backend has one of the ids.
        InvalidArgumentError: a text is no value of the type that the backend declares.
    """
    of_runtime: dict[str, dict[str, OptionValue]] = {}
    of_networks: dict[str, dict[str, OptionValue]] = {}
    for backend_id, options in texts.items():
        backend = runtime.registry.get(backend_id)
        declared_options = {option.name: option for option in getattr(backend, "declared_options", ())}
        for name, text in options.items():
            is_for_runtime = name in declared_options and "network" not in declared_options[name].scopes
            target = of_runtime if is_for_runtime else of_networks
            target.setdefault(backend_id, {})[name] = option_value(backend, name, text, title)
    return of_runtime, of_networks


def option_value(backend: Any, name: str, text: str, title: str) -> OptionValue:
    """Return the value of an option, of the type of its default; without a default, a number or truth if it is one.

    Raises:
        InvalidArgumentError: the text is no value of this type. The message names the option after `title`.
        OptionError: the backend has no such option, and checks the names of its options.
    """
    kind = _kind_of(backend, name)
    if kind is None:
        guess = _guessed(text)
        backend.layer_support({name: guess})  # a backend that checks the names of options refuses this one
        _log.warning("backend %s declares no option %r; %s may have no effect", backend.id, name, title)
        return guess
    if kind is str:
        return text
    try:
        return truth(text) if kind is bool else kind(text)
    except ValueError:
        raise InvalidArgumentError(
            f"{title} {backend.id}.{name}: expected {_KINDS.get(kind, kind.__name__)}, not {text!r}"
        ) from None


def truth(text: str) -> bool:
    """Return the meaning of a text such as ``yes`` or ``0``; raise ValueError if it has none."""
    if text.lower() not in (*_TRUE, *_FALSE):
        raise ValueError
    return text.lower() in _TRUE


def has_option(backend: Any, name: str) -> bool:
    """Return True if a backend declares an option of this name."""
    return _kind_of(backend, name) is not None


def _kind_of(backend: Any, name: str) -> Any:
    defaults = backend.capabilities.to_dict()
    defaults |= {option.name: option.default for option in getattr(backend, "declared_options", ())}
    return type(defaults[name]) if name in defaults else None


def _guessed(text: str) -> OptionValue:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
