"""The base of all classes of this package, with the attributes that PyArmNN's wrappers of C++ objects have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, TypeVar

__all__ = ["Abstract", "Proxy", "borrowed"]

P = TypeVar("P", bound="Proxy")

GENERATED = "pyarmnn._generated.pyarmnn"
"""The module in which programs see the classes of Arm NN's core."""


def _owned(self: Proxy) -> bool:
    return self._thisown


def _set_owned(self: Proxy, value: Any) -> None:
    self._thisown = bool(value)


class Proxy:
    """An object of Arm NN's interface.

    `thisown` says whether Python owns the object. It is information only: Python frees all memory of this package.
    """

    _cpp: ClassVar[str] = ""
    """The C++ type that the representation names."""
    _thisown: bool = True

    thisown = property(_owned, _set_owned, doc="Whether Python owns the object.")

    def __init_subclass__(
        cls, *, module: str | None = GENERATED, cpp: str | None = None, destructor: bool = True
    ) -> None:
        """Name the module and the C++ type that a class shows, and give it a destructor unless it is abstract."""
        super().__init_subclass__()
        if module is not None:
            cls.__module__ = module
        cls._cpp = cpp or f"armnn::{cls.__name__}"
        if destructor:
            cls.__swig_destroy__ = staticmethod(_destructor(cls.__name__))  # type: ignore[attr-defined]

    def _release(self) -> None:
        """Free what the object holds; does nothing unless a class overrides it."""

    def __repr__(self) -> str:
        name = f"{type(self).__module__}.{type(self).__name__}"
        return f"<{name}; proxy of <Swig Object of type '{self._cpp} *' at {id(self):#x}> >"


def _destructor(name: str) -> Callable[[Proxy], None]:
    def destroy(self: Proxy) -> None:
        self._thisown = False
        self._release()

    destroy.__name__ = destroy.__qualname__ = f"delete_{name}"
    return destroy


class Abstract(Proxy, module=None, destructor=False):
    """The base of classes that programs cannot create themselves."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise AttributeError("No constructor defined - class is abstract")

    @classmethod
    def _create(cls) -> Self:
        """Return an object whose attributes the caller sets."""
        return object.__new__(cls)


def borrowed(proxy: P) -> P:
    """Mark an object as owned by another object, and return it."""
    proxy._thisown = False
    return proxy
