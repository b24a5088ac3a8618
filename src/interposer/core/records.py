"""`dataclass`: the decorator of the standard library with the same result, for classes that are defined at import.

In Python 3.11, the decorator of the standard library compiles up to six methods of each class, which takes a
millisecond. A command imports a hundred such classes, and creates objects of some. This decorator compiles `__init__`
alone, when the first object is created.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """Make a dataclass, as `dataclasses.dataclass` does with these arguments.

        Fields may have `default`, `default_factory`, `compare` and `repr`, but not `init`, `hash` or `kw_only`.

        Raises:
            TypeError: a field has another option, or as for `dataclasses.dataclass`.
        """
        if cls is None:
            return lambda decorated_class: _made(decorated_class, frozen, slots, eq)
        return _made(cls, frozen, slots, eq)


def _made(cls: type, frozen: bool, slots: bool, eq: bool) -> type:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise, the standard library formats a signature
    inherits = any(map(dataclasses.is_dataclass, cls.__bases__))  # it checks that all or none of them are frozen
    new_class: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and inherits, slots=slots)(
        cls
    )
    parameters = new_class.__dataclass_params__
    parameters.init, parameters.repr, parameters.eq, parameters.frozen = True, True, eq, frozen
    methods = {"__init__": _Init(new_class, frozen), "__repr__": _repr}
    if eq:
        methods |= _comparisons(new_class, frozen)
    if frozen:
        methods |= _refusals(new_class)
    if frozen and slots:
        methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if not _defines(cls, name):
            setattr(new_class, name, method)
    return new_class  # type: ignore[no-any-return]


def _defines(cls: type, name: str) -> bool:
    """Return True if the body of a class defines a method; a class that defines `__eq__` alone has a hash of None."""
    member = vars(cls).get(name)
    return member is not None


class _Factory:
    """The default of an argument whose value a factory makes for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY: Final = _Factory()


class _Init:
    """`__init__` of a class until it is first used: then it is compiled, and the class has the compiled function."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        for field in dataclasses.fields(cls):
            if not field.init or field.hash is not None or field.kw_only:
                raise TypeError(f"the field {field.name!r} has init, hash or kw_only; use dataclasses.dataclass")
        self._class, self._is_frozen = cls, frozen
        self._module = sys.modules[cls.__module__].__dict__

    def __get__(self, instance: Any, owner: type | None = None) -> Callable[..., None]:
        init = _compiled_init(self._class, self._is_frozen, self._module)
        self._class.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _compiled_init(cls: Any, frozen: bool, module: dict[str, Any]) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    parameters, body = ["self"], []
    for field in fields:
        name = expression = field.name
        if field.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        elif field.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = field.default_factory
            parameters.append(f"{name}=_FACTORY")
            expression = f"_make_{name}() if {name} is _FACTORY else {name}"
        else:
            parameters.append(name)
        body.append(f"_set(self, {name!r}, {expression})" if frozen else f"self.{name} = {expression}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    lines = "\n  ".join(body or ["pass"])
    code = f"def make({', '.join(names)}):\n def __init__({', '.join(parameters)}):\n  {lines}\n return __init__"
    scope: dict[str, Any] = {}
    exec(code, module, scope)
    init: Callable[..., None] = scope["make"](**names)
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {field.name: field.type for field in fields} | {"return": None}
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    fields_text = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({fields_text})"


def _comparisons(cls: Any, frozen: bool) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    get_values = _getter(names)

    def equal(self: Any, other: object) -> Any:
        return get_values(self) == get_values(other) if type(other) is type(self) else NotImplemented

    def hashed(self: Any) -> int:
        return hash(get_values(self))

    return {"__eq__": equal, "__hash__": hashed if frozen else None}


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda instance: tuple(getattr(instance, name) for name in names)


def _refusals(cls: Any) -> dict[str, Any]:
    names = frozenset(field.name for field in dataclasses.fields(cls))

    def set_attribute(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
