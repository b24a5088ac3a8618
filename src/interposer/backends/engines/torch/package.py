"""The package torch, imported on first use because it is optional and slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__all__ = ["functional", "fx", "nn", "torch"]


class _Package:
    """A lazily imported package; attributes are cached after their first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # introspection of this module, which must not import torch
            raise AttributeError(name)
        attribute = getattr(import_module(self._name), name)
        setattr(self, name, attribute)
        return attribute


torch: Final[Any] = _Package("torch")
functional: Final[Any] = _Package("torch.nn.functional")
nn: Final[Any] = _Package("torch.nn")
fx: Final[Any] = _Package("torch.fx")
