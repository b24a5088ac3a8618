"""The package torch, imported on first use because it is optional and slow to import."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from interposer._distribution import install_command
from interposer.core.errors import InterposerError

__all__ = ["pytree", "torch"]


class _Package:
    """A lazily imported package; attributes are cached after their first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # introspection of this module, which must not import torch
            raise AttributeError(name)
        try:
            attribute = getattr(import_module(self._name), name)
        except ImportError as error:
            raise InterposerError(f"PyTorch is required: {install_command('torch')} ({error})") from error
        setattr(self, name, attribute)
        return attribute


torch: Final[Any] = _Package("torch")
pytree: Final[Any] = _Package("torch.utils._pytree")
