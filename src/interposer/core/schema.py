"""The declaration of operators: one class defines attributes, validation, shape inference, serialization and docs.

A class decorated with `@op` names its operands and results with `operand` and `result`, and its attributes with
annotations. It may define `check`, an iterator of error messages, and `infer`, which returns the infos of the results.
Everything else is derived::

    @op
    class DepthToSpace(Op):
        input = operand(rank=4)
        output = result(rank=4, dtype_of="input")
        block_size: int = attribute(ge=1)

        def check(self, input: TensorInfo) -> Iterator[str]: ...
        def infer(self, input: TensorInfo) -> TensorInfo: ...

`check` and `infer` take one argument per operand: a `TensorInfo`, None if an optional operand is absent, and a tuple
for a variadic operand. The infos include constants, and unknown dimensions of their shapes are `Dim` objects.
"""

from __future__ import annotations

import inspect
import reprlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, cast, dataclass_transform, overload

from interposer.core.codec import Codec, codec_of
from interposer.core.errors import InvalidArgumentError, did_you_mean
from interposer.core.ranks import is_ranked, of_every_rank, true_of_all
from interposer.core.types import COLLECTIONS, DataType, TensorInfo

__all__ = [
    "Attribute",
    "Op",
    "Operand",
    "Result",
    "annotation",
    "attribute",
    "op",
    "op_class",
    "operand",
    "registered_ops",
    "result",
]

_MISSING: Final = object()
_T = TypeVar("_T")
Rank = int | tuple[int, int] | None


class _Slot:
    """The declaration of an operand or a result of an operator: its name, and the ranks and types that it may have."""

    name: str = ""

    def __init__(self, rank: Rank, dtypes: Iterable[DataType] | None, optional: bool, variadic: bool, doc: str) -> None:
        self.rank, self.optional, self.variadic, self.doc = rank, optional, variadic, doc
        self.dtypes = None if dtypes is None else frozenset(dtypes)

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def problems(self, info: TensorInfo, label: str) -> Iterator[str]:
        if self.dtypes is None and info.dtype in COLLECTIONS:
            yield f"{label} is {info}; expected a tensor"
            return
        low, high = self.rank if isinstance(self.rank, tuple) else (self.rank, self.rank)
        if low is not None and high is not None and not low <= info.rank <= high:
            requested = f"{low}" if low == high else f"{low} to {high}"
            yield f"{label} has rank {info.rank}, shape {info.shape}; expected rank {requested}"
        if self.dtypes is not None and info.dtype not in self.dtypes:
            yield f"{label} is {info.dtype}; expected one of {', '.join(sorted(map(str, self.dtypes)))}"


class Operand(_Slot):
    """The declaration of an input of an operator: its rank and types, and whether it is optional or variadic.

    `same_dtype_as` names another operand that must have the same type.
    """

    def __init__(self, *, same_dtype_as: str | None, **common: Any) -> None:
        super().__init__(**common)
        self.same_dtype_as = same_dtype_as


class Result(_Slot):
    """The declaration of an output of an operator: its rank and types, and whether it is optional or variadic.

    `like` names the operand whose info the output has, unless `Op.infer` returns another info.
    """

    def __init__(self, *, like: str | None, dtype_of: str | None, dynamic: bool, **common: Any) -> None:
        super().__init__(**common)
        self.like, self.dtype_of, self.dynamic = like, dtype_of or like, dynamic


class Attribute:
    """The declaration of an attribute of an operator: its default, bounds, allowed values and documentation.

    Its type comes from the annotation.
    """

    def __init__(self, default: Any, bounds: Mapping[str, float], choices: Sequence[Any] | None, doc: str) -> None:
        self.default, self.bounds, self.doc = default, dict(bounds), doc
        self.choices = None if choices is None else tuple(choices)
        self.name = ""

    @property
    def required(self) -> bool:
        """True if there is no default."""
        return self.default is _MISSING

    def problems(self, value: Any) -> Iterator[str]:
        """Yield an error message for each bound or choice that a value of the right type violates."""
        yield from self._bound_problems(value)
        if self.choices is not None and value not in self.choices:
            yield f"{self.name} is {value}; expected one of {', '.join(map(str, self.choices))}"

    def _bound_problems(self, item: Any) -> Iterator[str]:
        if isinstance(item, tuple):
            yield from (error for part in item for error in self._bound_problems(part))
        for name, bound in self.bounds.items() if isinstance(item, (int, float)) else ():
            if not _COMPARE[name](item, bound):
                yield f"{self.name} is {item}; expected {_SIGNS[name]} {bound:g}"


_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda a, b: a >= b,
    "gt": lambda a, b: a > b,
    "le": lambda a, b: a <= b,
    "lt": lambda a, b: a < b,
}
_SIGNS: Final = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def operand(
    *,
    rank: Rank = None,
    dtypes: Iterable[DataType] | None = None,
    optional: bool = False,
    variadic: bool = False,
    same_dtype_as: str | None = None,
    doc: str = "",
) -> Operand:
    """Declare an input of an operator.

    Args:
        rank: one rank, or (lowest, highest); None for any.
        dtypes: the allowed types; None for all types of tensors.
        optional: whether the operand may be absent.
        variadic: whether the operand takes all remaining values; such an operand must come last.
        same_dtype_as: name of another operand that must have the same type.
        doc: a line for the reference.
    """
    return Operand(rank=rank, dtypes=dtypes, optional=optional, variadic=variadic, same_dtype_as=same_dtype_as, doc=doc)


def result(
    *,
    rank: Rank = None,
    dtypes: Iterable[DataType] | None = None,
    like: str | None = None,
    dtype_of: str | None = None,
    variadic: bool = False,
    optional: bool = False,
    dynamic: bool = False,
    doc: str = "",
) -> Result:
    """Declare an output of an operator.

    Args:
        rank: one rank, or (lowest, highest); None for any.
        dtypes: the allowed types; None for all types of tensors.
        like: name of the operand whose info the output has, without its constant.
        dtype_of: name of the operand whose type the output has.
        variadic: whether the result stands for several outputs; `Op.num_results` returns the number of all outputs.
        optional: whether the output may be absent.
        dynamic: whether the output's shape depends on data.
        doc: a line for the reference.
    """
    return Result(
        rank=rank, dtypes=dtypes, like=like, dtype_of=dtype_of, variadic=variadic, optional=optional,
        dynamic=dynamic, doc=doc,
    )  # fmt: skip


def attribute(
    *,
    default: Any = _MISSING,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    choices: Sequence[Any] | None = None,
    doc: str = "",
) -> Any:
    """Declare an attribute of an operator; without `default`, it must be given.

    Args:
        default: the value if none is given.
        ge: the value must be greater than or equal to this bound; bounds apply to every element of a tuple.
        gt: the value must be greater than this bound.
        le: the value must be less than or equal to this bound.
        lt: the value must be less than this bound.
        choices: the allowed values; None for all.
        doc: a line for the reference.
    """
    bounds = {name: bound for name, bound in (("ge", ge), ("gt", gt), ("le", le), ("lt", lt)) if bound is not None}
    return Attribute(default, bounds, choices, doc)


class _Signature:
    """A descriptor that computes `inspect.signature` of an operator class on access."""

    def __get__(self, instance: Op | None, owner: type[Op]) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=inspect.Parameter.empty if a.required else a.default)
                for name, a in owner.attributes.items()
            ]
        )


class Op:
    """The base class of all operators. Instances are immutable; they are equal if class and attributes are equal.

    Raises:
        InvalidArgumentError: an attribute that is missing, unknown, of the wrong type, or out of its bounds.
    """

    operands: ClassVar[tuple[Operand, ...]] = ()
    results: ClassVar[tuple[Result, ...]] = ()
    attributes: ClassVar[dict[str, Attribute]] = {}
    executable: ClassVar[bool] = True
    """False if there is no kernel: for inputs, outputs, placeholders, compiled subgraphs, and control flow."""
    pure: ClassVar[bool] = True
    """False if two runs on equal inputs may differ or have side effects; such a layer is never folded or merged."""
    in_place: ClassVar[tuple[str, ...]] = ()
    """Names of operands with the output's shape and size whose memory the output may overwrite, element by element."""
    family: ClassVar[str] = ""
    """Name of the module that declares the operator; the modules of its kernels and samples have the same name."""
    __signature__: ClassVar[_Signature] = _Signature()
    _codecs: ClassVar[dict[str, Codec] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name, value in self._bound(args, kwargs).items():
            object.__setattr__(self, name, value)
        for error in self._attribute_problems():
            raise InvalidArgumentError(f"{type(self).__name__}: {error}")

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        title, names = type(self).__name__, tuple(self.attributes)
        if len(args) > len(names):
            raise InvalidArgumentError(f"{title} has {len(names)} attributes, but {len(args)} were given")
        value = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in value:
                raise InvalidArgumentError(f"{title}: {name} is given twice")
            if name not in names:
                raise InvalidArgumentError(f"{title} has no attribute {name!r}{did_you_mean(name, names)}")
        value |= kwargs
        codecs = self.codecs()
        return {name: self._coerced(name, value, codecs[name]) for name in names}

    def _coerced(self, name: str, arguments: dict[str, Any], codec: Codec) -> Any:
        declared = self.attributes[name]
        value = arguments.get(name, declared.default)
        if value is _MISSING:
            raise InvalidArgumentError(f"{type(self).__name__} needs the attribute {name!r}")
        try:
            return codec.coerce(value)
        except (TypeError, ValueError) as error:
            shown = reprlib.repr(value)
            raise InvalidArgumentError(f"{type(self).__name__}: {name} must be {codec.title}, not {shown}") from error

    def _attribute_problems(self) -> Iterator[str]:
        for name, declared in self.attributes.items():
            if declared.bounds or declared.choices is not None:
                yield from declared.problems(getattr(self, name))

    @classmethod
    def codecs(cls) -> dict[str, Codec]:
        """Return the codec of each attribute, by name; derived from the annotations on first use."""
        if cls.__dict__.get("_codecs") is None:
            cls._codecs = {name: _codec(cls, name) for name in cls.attributes}
        return cast("dict[str, Codec]", cls._codecs)

    @classmethod
    def op_name(cls) -> str:
        """Return the operator's name in the text format, in messages and in files."""
        return cls.__name__

    def attribute_values(self) -> dict[str, Any]:
        """Return all attributes by name, defaults included."""
        return {name: getattr(self, name) for name in self.attributes}

    def changed_attributes(self) -> dict[str, Any]:
        """Return the attributes whose values differ from their defaults, by name."""
        codecs = self.codecs()
        return {
            name: value
            for name, value in self.attribute_values().items()
            if self.attributes[name].required or not codecs[name].equal(value, self._default(name))
        }

    def _default(self, name: str) -> Any:
        return self.codecs()[name].coerce(self.attributes[name].default)

    def replace(self, **changes: Any) -> typing.Self:
        """Return a copy with some attributes changed."""
        return type(self)(**(self.attribute_values() | changes))

    def canonical(self) -> Op:
        """Return the form in which a network stores this operator: `self`, or an operator of a more specific class."""
        return self

    def num_results(self) -> int:
        """Return how many outputs there are; operators with a variadic result override this."""
        return len(self.results)

    def result_name(self, index: int) -> str:
        """Return the declared name of the output at `index`; outputs of a variadic result are numbered."""
        declared = self.results[min(index, len(self.results) - 1)]
        return f"{declared.name}_{index - len(self.results) + 1}" if declared.variadic else declared.name

    def check(self, *operands: Any) -> Iterator[str]:
        """Yield error messages for the operands; called only if their ranks and types are valid."""
        return iter(())

    def infer(self, *operands: Any) -> TensorInfo | tuple[TensorInfo | None, ...]:
        """Return the infos of the results; by default, each result is like the operand that its declaration names.

        None stands for a result that cannot be inferred; its info must be passed when the layer is added.
        """
        by_name = dict(zip((o.name for o in self.operands), operands, strict=True))
        return tuple(_like(declared, by_name) for declared in self.results for _ in range(self._count(declared)))

    def _count(self, declared: Result) -> int:
        return self.num_results() - len(self.results) + 1 if declared.variadic else 1

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        """Return an estimate of the arithmetic operations of one run: by default, one per input and output element.

        Operators that do more override this method. The limits of a network are compared to the sum over its layers.
        """
        return sum(int(info.num_elements) for info in (*inputs, *outputs) if info is not None)

    def arguments(self, ts: Sequence[_T | None]) -> list[Any]:
        """Assign a flat list of inputs to the operator's operands, and return one item per operand.

        The item is None if an optional operand is absent, and a tuple of all remaining inputs for a variadic operand.
        """
        fixed = [o for o in self.operands if not o.variadic]
        padded = [*ts, *[None] * (len(fixed) - len(ts))]
        if len(fixed) < len(self.operands):
            return [*padded[: len(fixed)], tuple(ts[len(fixed) :])]
        return padded

    def operand_name(self, index: int) -> str:
        """Return the name of the operand that takes the input at `index`.

        The inputs of a variadic operand are numbered, as in ``inputs[1]``.
        """
        declared = self.operands[min(index, len(self.operands) - 1)]
        return f"{declared.name}[{index - len(self.operands) + 1}]" if declared.variadic else declared.name

    def arity_problem(self, count: int) -> str | None:
        """Return an error message if `count` inputs are more than the operator has operands, else None."""
        variadic = bool(self.operands) and self.operands[-1].variadic
        if variadic or count <= len(self.operands):
            return None
        return f"{self.op_name()} takes at most {len(self.operands)} inputs, but {count} were given"

    def violations(self, *infos: TensorInfo | None) -> list[str]:
        """Return error messages for operands with these infos; empty if the operator is valid for them.

        Operands of unknown rank are valid if there is a rank for which the operator is valid.
        """
        error = self.arity_problem(len(infos))
        if error:
            return [error]
        if not all(map(is_ranked, infos)):
            return min((self.violations(*ranked) for ranked in of_every_rank(infos)), key=len)
        arguments = self.arguments(infos)
        texts = [text for o, info in zip(self.operands, arguments, strict=True) for text in _operand_problems(o, info)]
        texts += () if texts else self._dtype_problems(arguments)
        return texts or list(self.check(*arguments))

    def _dtype_problems(self, arguments: list[Any]) -> Iterator[str]:
        by_name = dict(zip((o.name for o in self.operands), arguments, strict=True))
        for declared in self.operands:
            for first in _flat(by_name.get(declared.same_dtype_as or ""))[:1]:
                for info in _flat(by_name[declared.name]):
                    if info.dtype is not first.dtype:
                        requested = f"{first.dtype}, the type of {declared.same_dtype_as}"
                        yield f"{declared.name} is {info.dtype}; expected {requested}"

    def infer_infos(self, *infos: TensorInfo | None) -> tuple[TensorInfo | None, ...]:
        """Return the infos of all results for valid operands; None for a result whose info must be declared.

        If the rank of an operand is unknown, each info is what the results for all valid ranks have in common.
        """
        if not all(map(is_ranked, infos)):
            return true_of_all(self._inferred_for(ranked) for ranked in of_every_rank(infos))
        match = self.infer(*self.arguments(infos))
        match = match if isinstance(match, tuple) else (match,)
        if len(match) != self.num_results():
            raise InvalidArgumentError(f"{self.op_name()} infers {len(match)} infos for {self.num_results()} results")
        return match

    def _inferred_for(self, infos: Sequence[TensorInfo | None]) -> tuple[TensorInfo | None, ...] | None:
        """Return the infos of all results; None if the operator is not valid for the operands."""
        if self.violations(*infos):
            return None
        try:
            return self.infer_infos(*infos)
        except InvalidArgumentError:
            return None

    def to_plain(self) -> dict[str, Any]:
        """Return the operator as JSON-compatible data: its name, and the attributes that differ from their defaults."""
        codecs = self.codecs()
        return {"op": self.op_name()} | {
            name: codecs[name].to_plain(value) for name, value in self.changed_attributes().items()
        }

    @staticmethod
    def from_plain(plain: Mapping[str, Any]) -> Op:
        """Return the operator that `to_plain` wrote; raise `InvalidArgumentError` if the data is not valid."""
        if not isinstance(plain, Mapping):
            raise InvalidArgumentError(f"an operator is described by a mapping, not {reprlib.repr(plain)}")
        if "op" not in plain:
            raise InvalidArgumentError("the description of an operator has no name ('op')")
        cls = op_class(str(plain["op"]))
        codecs, arguments = cls.codecs(), {name: value for name, value in plain.items() if name != "op"}
        for name in arguments.keys() - codecs.keys():
            raise InvalidArgumentError(f"{cls.__name__} has no attribute {name!r}{did_you_mean(name, codecs)}")
        try:
            return cls(**{name: codecs[name].from_plain(value) for name, value in arguments.items()})
        except InvalidArgumentError:
            raise
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise InvalidArgumentError(f"{cls.__name__} cannot be read: {error}") from error

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __reduce__(self) -> tuple[Callable[..., Op], tuple[Any, ...]]:
        return _rebuilt, (type(self), self.attribute_values())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        codecs = self.codecs()
        return all(codecs[name].equal(getattr(self, name), getattr(other, name)) for name in self.attributes)

    def __hash__(self) -> int:
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            codecs = self.codecs()
            known = hash((type(self), *(codecs[name].hash(getattr(self, name)) for name in self.attributes)))
            object.__setattr__(self, "_hash", known)  # attributes never change
        return known

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.changed_attributes().items())
        return f"{type(self).__name__}({shown})"


def _codec(cls: type[Op], name: str) -> Codec:
    try:
        return codec_of(annotation(cls, name))
    except (InvalidArgumentError, NameError, TypeError) as error:
        raise InvalidArgumentError(f"{cls.__name__}.{name}: {error}") from error


def annotation(cls: type[Op], name: str) -> Any:
    """Return the annotated type of the attribute `name` of an operator."""
    owner = next(base for base in cls.__mro__ if name in base.__dict__.get("__annotations__", {}))
    hint = owner.__dict__["__annotations__"][name]
    if not isinstance(hint, str):
        return hint
    if not owner.__module__.startswith("interposer."):  # a cell of a notebook may define other classes of these names
        return eval(hint, vars(sys.modules[owner.__module__]))
    return _evaluated(hint, owner.__module__)


@cache
def _evaluated(hint: str, module: str) -> Any:
    return eval(hint, vars(sys.modules[module]))


def _rebuilt(cls: type[Op], values: dict[str, Any]) -> Op:
    return cls(**values)


def _flat(info: Any) -> tuple[TensorInfo, ...]:
    return tuple(item for item in (info if isinstance(info, tuple) else (info,)) if item is not None)


def _operand_problems(declared: Operand, info: Any) -> Iterator[str]:
    if declared.variadic:
        if not info and not declared.optional:
            yield f"{declared.name} needs at least one value"
        for index, item in enumerate(info):
            if item is not None:
                yield from declared.problems(item, f"{declared.name}[{index}]")
            elif not declared.optional:
                yield f"{declared.name}[{index}] is not connected"
    elif info is not None:
        yield from declared.problems(info, declared.name)
    elif not declared.optional:
        yield f"{declared.name} is not connected"


def _like(declared: Result, by_name: Mapping[str, Any]) -> TensorInfo | None:
    return None if declared.like is None else _flat(by_name[declared.like])[0].with_constant(None)


_REGISTRY: Final[dict[str, type[Op]]] = {}
_RESERVED: Final = frozenset(name for name in dir(Op) if not name.startswith("__")) | {"op"}


@overload
def op(cls: type[_T], /) -> type[_T]: ...
@overload
def op(
    *, executable: bool | None = None, pure: bool | None = None, register: bool = True
) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(attribute,))
def op(cls: Any = None, /, *, executable: bool | None = None, pure: bool | None = None, register: bool = True) -> Any:
    """Turn a class into an operator and register its name.

    Args:
        cls: the class to decorate.
        executable: value of `Op.executable`; None to inherit it.
        pure: value of `Op.pure`; None to inherit it.
        register: whether files and `op_class` can name the operator.

    Raises:
        InvalidArgumentError: the declaration is not valid, or another operator has the name.
    """
    if cls is None:
        return lambda decorated: _declare(decorated, executable, pure, register)
    return _declare(cls, executable, pure, register)


def _declare(cls: Any, executable: bool | None, pure: bool | None, register: bool) -> Any:
    if not (isinstance(cls, type) and issubclass(cls, Op)):
        raise InvalidArgumentError(f"@op needs a subclass of Op, but {getattr(cls, '__name__', cls)} is not one")
    cls.operands = _declared(cls, Operand)
    cls.results = _declared(cls, Result)
    cls.attributes = _declared_attributes(cls)
    cls.executable = cls.executable if executable is None else executable
    cls.pure = cls.pure if pure is None else pure
    cls.family = cls.__module__.rpartition(".")[2]
    for error in _declaration_problems(cls):
        raise InvalidArgumentError(f"{cls.__name__}: {error}")
    for name in cls.attributes:
        if name in cls.__dict__:
            delattr(cls, name)
    if register:
        _register(cls)
    return cls


def _declaration_problems(cls: type[Op]) -> Iterator[str]:
    operands = {declared.name: declared for declared in cls.operands}
    yield from (f"the name {name!r} is reserved: every operator has it" for name in _own_names(cls) & _RESERVED)
    for slots in (cls.operands, cls.results):
        yield from (f"{slot.name!r} is variadic and must come last" for slot in slots[:-1] if slot.variadic)
    for name, item in cls.__dict__.items():
        if isinstance(item, Attribute) and name not in cls.attributes:
            yield f"the attribute {name!r} has no annotation"
    for other in (slot.same_dtype_as for slot in cls.operands):
        if other is not None and other not in operands:
            yield f"same_dtype_as names {other!r}, which is not an operand"
    for other in (slot.like for slot in cls.results):
        if other is not None and (other not in operands or operands[other].optional):
            yield f"like names {other!r}, which is not a required operand"
    yield from (error for name in ("check", "infer") for error in _arguments_problems(cls, name))


def _own_names(cls: type[Op]) -> set[str]:
    return {*cls.attributes, *(slot.name for slot in (*cls.operands, *cls.results))}


def _arguments_problems(cls: type[Op], name: str) -> Iterator[str]:
    code = getattr(cls.__dict__.get(name), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return
    if code.co_argcount != len(cls.operands) + 1:
        operands = ", ".join(["self", *(declared.name for declared in cls.operands)])
        yield f"{name} takes {code.co_argcount} arguments; expected {name}({operands})"


def _register(cls: type[Op]) -> None:
    taken = _REGISTRY.get(cls.op_name())
    if taken is not None and taken.__module__ != cls.__module__:
        raise InvalidArgumentError(f"an operator {cls.op_name()!r} is declared in {taken.__module__} already")
    _REGISTRY[cls.op_name()] = cls


def _declared(cls: type[Op], kind: type[Any]) -> tuple[Any, ...]:
    match: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        match.update({name: item for name, item in vars(base).items() if isinstance(item, kind)})
    return tuple(match.values())


def _declared_attributes(cls: type[Op]) -> dict[str, Attribute]:
    match: dict[str, Attribute] = {}
    for base in cls.__mro__[1:]:
        match = dict(getattr(base, "attributes", {})) | match
    for name, hint in cls.__dict__.get("__annotations__", {}).items():
        if not str(hint).startswith(("ClassVar", "typing.ClassVar")):
            match[name] = _attribute_from(cls.__dict__.get(name, _MISSING))
            match[name].name = name
    return match


def _attribute_from(value: Any) -> Attribute:
    return value if isinstance(value, Attribute) else Attribute(value, {}, None, "")


def registered_ops() -> dict[str, type[Op]]:
    """Return all operators declared so far, sorted by name (import `interposer.ops` for the built-in operators)."""
    return dict(sorted(_REGISTRY.items()))


def op_class(name: str) -> type[Op]:
    """Return the operator with this name; raise `InvalidArgumentError` with the most similar name if there is none."""
    match = _REGISTRY.get(name)
    if match is None:
        raise InvalidArgumentError(f"unknown operator {name!r}{did_you_mean(name, _REGISTRY)}")
    return match
