"""The base of Arm NN's descriptors: classes whose fields have a C type and a default."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Self, overload

from pyarmnn._arguments import Kind, count_error, overload_error
from pyarmnn._proxy import Proxy
from pyarmnn._shapes import TensorShape

__all__ = ["Descriptor", "Field"]


class Field:
    """An attribute of a C type; assigned values are converted, and wrong ones are refused.

    Args:
        kind: the C type.
        default: the value of a new object, or a function without parameters that returns it.
    """

    def __init__(self, kind: Kind, default: Any) -> None:
        self.kind = kind
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self._method = f"{owner.__name__}_{name}_set"

    @property
    def default(self) -> Any:
        """The value of a new object; a new one each time if it can be changed."""
        return self._default() if isinstance(self._default, Callable) else copy.copy(self._default)  # type: ignore[arg-type]

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...

    @overload
    def __get__(self, instance: Descriptor, owner: type) -> Any: ...

    def __get__(self, instance: Descriptor | None, owner: type) -> Any:
        if instance is None:
            return self
        value = instance._values[self._name]
        return list(value) if isinstance(value, list) else value

    def __set__(self, instance: Descriptor, value: Any) -> None:
        instance._values[self._name] = self.kind(value, self._method, 2)

    def __delete__(self, instance: Descriptor) -> None:
        raise AttributeError(f"property '{self._name}' of '{type(instance).__name__}' object has no deleter")


class Descriptor(Proxy, destructor=False):
    """The parameters of a layer.

    A descriptor is created with default values, or with the values of the fields that `_constructors` names. Layers get
    a copy: a change after the layer was added has no effect.
    """

    _constructors: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """The fields that each constructor with arguments takes, in order."""
    _fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        """Collect the fields of the class."""
        super().__init_subclass__(**options)
        cls._fields = {name: field for name, field in vars(cls).items() if isinstance(field, Field)}

    def __init__(self, *args: Any) -> None:
        if args and not self._constructors:
            name = type(self).__name__
            raise TypeError(f"{name}.__init__() takes 1 positional argument but {1 + len(args)} were given")
        self._values = {name: field.default for name, field in self._fields.items()}
        if args:
            self._construct(args)

    def _construct(self, args: tuple[Any, ...]) -> None:
        most = max(map(len, self._constructors))
        if len(args) > most:
            raise count_error(f"new_{type(self).__name__}", most, len(args), self._overload_error())
        for names in self._constructors:
            kinds = [self._fields[name].kind for name in names]
            if len(names) == len(args) and all(map(Kind.accepts, kinds, args)):
                for name, value in zip(names, args, strict=True):
                    setattr(self, name, value)
                return
        raise self._overload_error()

    def _overload_error(self) -> TypeError:
        name = type(self).__name__
        prototypes = [[self._fields[field].kind.parameter for field in names] for names in ((), *self._constructors)]
        return overload_error(f"new_{name}", f"armnn::{name}::{name}", prototypes)

    def _copy(self) -> Self:
        """Return a descriptor with the same values."""
        duplicate = object.__new__(type(self))
        duplicate._values = copy.deepcopy(self._values)
        return duplicate

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descriptor) and type(self) is type(other) and self._plain() == other._plain()

    def _plain(self) -> dict[str, Any]:
        """Return the values, with shapes as lists of their sizes: shapes are equal only to themselves."""
        values = self._values.items()
        return {name: list(value) if isinstance(value, TensorShape) else value for name, value in values}

    __hash__ = None  # type: ignore[assignment]
