"""`Relatives`: the models that a model creates to run its network with other outputs, or the signatures of its file."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.frontends.template import Template
from interposer.ir.network import Network
from interposer.session.loaded import CACHED, LoadedVariants

__all__ = ["Relatives"]

M = TypeVar("M")


class Relatives(Generic[M]):
    """The models that one model has created to run its network with other outputs, or a signature of its file.

    Several threads may use it at the same time; the lock is that of the model's variants.

    Args:
        create: creates a model of a network or template, with the states of the first model.
        variants: the loaded networks of the first model.
    """

    def __init__(self, create: Callable[[Network | Template], M], variants: LoadedVariants) -> None:
        self._create, self._variants = create, variants
        self._by_outputs: OrderedDict[tuple[str, ...], M] = OrderedDict()
        self._by_signature: dict[str, M] = {}
        self._all: tuple[M, ...] = ()

    def with_outputs(self, names: tuple[str, ...]) -> M:
        """Return a model of the same network whose outputs are the values with these names.

        The last eight of these models are cached; a missing one is created.
        """
        with self._variants.lock:
            self._variants.check_open()
            if names not in self._by_outputs:
                self._by_outputs[names] = self._create(self._variants.blueprint.with_outputs(names))
                while len(self._by_outputs) > CACHED:  # a running call holds a reference to its model
                    self._by_outputs.popitem(last=False)
            self._by_outputs.move_to_end(names)
            self._all = (*self._by_outputs.values(), *self._by_signature.values())
            return self._by_outputs[names]

    def of_signature(self, key: str) -> M:
        """Return the model of the network that a signature calls; it is created once.

        Raises:
            InvalidArgumentError: the file has no such signature.
        """
        with self._variants.lock:
            self._variants.check_open()
            if key not in self._by_signature:
                templates = self._variants.blueprint.templates
                if key not in templates:
                    hint, names = did_you_mean(key, templates), ", ".join(templates) or "none"
                    raise InvalidArgumentError(f"signature: the model has no signature {key!r}{hint} (it has: {names})")
                self._by_signature[key] = self._create(templates[key]())
                self._all = (*self._by_outputs.values(), *self._by_signature.values())
            return self._by_signature[key]

    def __iter__(self) -> Iterator[M]:
        return iter(self._all)

    def clear(self) -> list[M]:
        """Remove and return all of these models."""
        with self._variants.lock:
            models = list(self)
            self._by_outputs.clear()
            self._by_signature.clear()
            self._all = ()
        return models
