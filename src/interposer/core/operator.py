"""The base class of operators, and the registry of their names."""

from __future__ import annotations

import inspect
import math
import reprlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any, ClassVar, Final, TypeVar

from interposer.core.codec import Codec, codec_of
from interposer.core.declarations import MISSING, Attribute, Operand, Result
from interposer.core.errors import BindingError, InvalidArgumentError, did_you_mean
from interposer.core.ranks import are_ranked, of_every_rank, true_of_all
from interposer.core.traits import ResultQuantization, Role, Trait
from interposer.core.types import DataType, TensorInfo

__all__ = ["Op", "annotation", "op_class", "register_op", "registered_ops"]

_T = TypeVar("_T")


class _Signature:
    """A descriptor that computes `inspect.signature` of an operator class on access."""

    def __get__(self, instance: Op | None, owner: type[Op]) -> inspect.Signature:
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=_signature_default(declared_attribute))
                for name, declared_attribute in owner.attributes.items()
            ]
        )


def _signature_default(declared_attribute: Attribute) -> Any:
    if declared_attribute.by:
        return None
    return inspect.Parameter.empty if declared_attribute.required else declared_attribute.default


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
    declared_traits: ClassVar[Trait] = Trait.NONE
    """The traits that `@op(traits=...)` declares for all instances; ask an instance for its `traits`."""
    declared_quantization: ClassVar[ResultQuantization | None] = None
    """What `@op(quantized=...)` declares for all instances; ask an instance for its `result_quantization`."""
    family: ClassVar[str] = ""
    """Name of the module that declares the operator; the modules of its kernels and samples have the same name."""
    __signature__: ClassVar[_Signature] = _Signature()
    _codecs: ClassVar[dict[str, Codec] | None] = None
    _defaults: ClassVar[dict[str, Any] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        arguments = self._named(args, kwargs) if args or not kwargs.keys() <= self.attributes.keys() else kwargs
        self.__dict__.update(self._bound(arguments))
        self._check_attributes(arguments)

    def _named(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name; raise `InvalidArgumentError` for one that no attribute takes."""
        class_name, names = type(self).__name__, tuple(self.attributes)
        if len(args) > len(names):
            raise InvalidArgumentError(f"{class_name} has {len(names)} attributes, but {len(args)} were given")
        arguments = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name in arguments:
                raise InvalidArgumentError(f"{class_name}: {name} is given twice")
            if name not in names:
                raise InvalidArgumentError(f"{class_name} has no attribute {name!r}{did_you_mean(name, names)}")
        return arguments | kwargs

    def _bound(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the values of all attributes for these arguments, which are by name."""
        values = dict(self._fixed_defaults())
        for name, codec in self.codecs().items():
            if name in values and name not in arguments:
                continue
            declared_attribute, argument = self.attributes[name], arguments.get(name, MISSING)
            is_absent = argument is MISSING or (argument is None and declared_attribute.by)
            values[name] = self._coerced(
                name, declared_attribute.default_with(values) if is_absent else argument, codec
            )
        return values

    def _coerced(self, name: str, value: Any, codec: Codec) -> Any:
        if value is MISSING:
            raise InvalidArgumentError(f"{type(self).__name__} needs the attribute {name!r}")
        try:
            return codec.coerce(value)
        except BindingError as error:
            raise InvalidArgumentError(f"{type(self).__name__}: {name}: {error}") from error
        except (TypeError, ValueError) as error:
            value_text = reprlib.repr(value)
            raise InvalidArgumentError(
                f"{type(self).__name__}: {name} must be {codec.title}, not {value_text}"
            ) from error

    def _check_attributes(self, names: Iterable[str]) -> None:
        """Raise `InvalidArgumentError` if one of these attributes is out of its bounds, or if attributes do not fit."""
        attributes = self.attributes
        doubtful = [
            name
            for name in names
            if attributes[name].is_limited and not attributes[name].surely_accepts(getattr(self, name))
        ]
        for name in doubtful:
            attributes[name].check_bounds(type(self).__name__, getattr(self, name))
        errors = (error for name in doubtful for error in attributes[name].problems(getattr(self, name)))
        for error in chain(errors if doubtful else (), self._attribute_problems()):
            raise InvalidArgumentError(f"{type(self).__name__}: {error}")

    def _attribute_problems(self) -> Iterator[str]:
        """Yield error messages for attributes that do not fit each other; each is within its own bounds."""
        return iter(())

    @classmethod
    def codecs(cls) -> dict[str, Codec]:
        """Return the codec of each attribute, by name; derived from the annotations on first use."""
        codecs: dict[str, Codec] | None = cls.__dict__.get("_codecs")
        if codecs is None:
            cls._codecs = codecs = {name: _codec(cls, name) for name in cls.attributes}
        return codecs

    @classmethod
    def _fixed_defaults(cls) -> dict[str, Any]:
        """Return the defaults that depend on no other attribute, by name, in their stored form.

        Raises:
            InvalidArgumentError: a default is out of the bounds of its attribute.
        """
        fixed_defaults: dict[str, Any] | None = cls.__dict__.get("_defaults")
        if fixed_defaults is None:
            defaults = {}
            for name, codec in cls.codecs().items():
                declared_attribute = cls.attributes[name]
                values = [codec.coerce(value) for value in declared_attribute.all_defaults()]
                for error in [error for value in values for error in declared_attribute.problems(value)]:
                    raise InvalidArgumentError(f"{cls.__name__}: {error}")
                if values and not declared_attribute.by:
                    [defaults[name]] = values
            cls._defaults = fixed_defaults = defaults
        return fixed_defaults

    @classmethod
    def op_name(cls) -> str:
        """Return the operator's name in the text format, in messages and in files."""
        return cls.__name__

    def attribute_values(self) -> dict[str, Any]:
        """Return all attributes by name, defaults included."""
        return {name: getattr(self, name) for name in self.attributes}

    def changed_attributes(self) -> dict[str, Any]:
        """Return the attributes whose values differ from their defaults, by name.

        An attribute whose default depends on another one is left out only if its value is the default in all cases.
        """
        values = self.attribute_values()
        return {name: value for name, value in values.items() if not self._is_default(name, values)}

    def _is_default(self, name: str, values: Mapping[str, Any]) -> bool:
        declared_attribute, codec = self.attributes[name], self.codecs()[name]
        defaults = (
            {declared_attribute.default, declared_attribute.default_with(values)}
            if declared_attribute.by
            else (declared_attribute.default,)
        )
        return not declared_attribute.required and all(
            codec.equal(values[name], codec.coerce(value)) for value in defaults
        )

    def replace(self, **changes: Any) -> typing.Self:
        """Return a copy with some attributes changed."""
        for name in changes.keys() - self.attributes.keys():
            raise InvalidArgumentError(
                f"{type(self).__name__} has no attribute {name!r}{did_you_mean(name, self.attributes)}"
            )
        copy, codecs = object.__new__(type(self)), self.codecs()
        for name in self.attributes:  # only what changes is checked
            value = self._coerced(name, changes[name], codecs[name]) if name in changes else getattr(self, name)
            object.__setattr__(copy, name, value)
        copy._check_attributes(changes)
        return copy

    def canonical(self) -> Op:
        """Return the form in which a network stores this operator: `self`, or an operator of a more specific class."""
        return self

    def num_results(self) -> int:
        """Return how many outputs there are; operators with a variadic result override this."""
        return len(self.results)

    def result_name(self, index: int) -> str:
        """Return the declared name of the output at `index`; outputs of a variadic result are numbered."""
        declared_result = self.results[min(index, len(self.results) - 1)]
        return (
            f"{declared_result.name}_{index - len(self.results) + 1}"
            if declared_result.variadic
            else declared_result.name
        )

    def check(self, *operands: Any) -> Iterator[str]:
        """Yield error messages for the operands; called only if their ranks and types are valid."""
        return iter(())

    def infer(self, *operands: Any) -> TensorInfo | tuple[TensorInfo | None, ...]:
        """Return the infos of the results; by default, each result is like the operand that its declaration names.

        None stands for a result that cannot be inferred; its info must be passed when the layer is added.
        """
        by_name = self._by_name(operands)
        return tuple(
            _like(declared_result, by_name)
            for declared_result in self.results
            for _ in range(self._output_count(declared_result))
        )

    def _output_count(self, declared_result: Result) -> int:
        return self.num_results() - len(self.results) + 1 if declared_result.variadic else 1

    def operations(self, inputs: Sequence[TensorInfo | None], outputs: Sequence[TensorInfo]) -> int:
        """Return an estimate of the arithmetic operations of one run: by default, one per input and output element.

        Operators that do more override this method. The limits of a network are compared to the sum over its layers.
        All sizes of `inputs` and `outputs` must be known (`TensorInfo.is_concrete`).
        """
        return sum([int(math.prod(info.shape)) for info in (*inputs, *outputs) if info is not None])

    @property
    def traits(self) -> Trait:
        """The traits of this operator: by default those of `@op(traits=...)`.

        Operators whose traits depend on their attributes override this property.
        """
        return self.declared_traits

    @classmethod
    def may_have(cls, traits: Trait) -> bool:
        """Return True if an instance of this class may have one of these traits."""
        return cls.declared_traits.overlaps(traits) or cls.traits is not Op.traits

    def result_quantization(self, dtype: DataType) -> ResultQuantization | str:
        """Return how the results are quantized if the data operands are integers of type `dtype`, or why they cannot.

        This is what `@op(quantized=...)` declares. Without it, operators that move or choose elements keep the
        quantization of the data, and others have no form in integers. Operators for which it depends on attributes
        override this method. The reference kernel must support the types.
        """
        if self.declared_quantization is not None:
            return self.declared_quantization
        if self.traits & (Trait.MOVES | Trait.CHOOSES):
            return ResultQuantization.SAME
        return f"{self.op_name()} has no form in integers"

    @property
    def output_axis(self) -> int:
        """The axis of the weights that counts output channels, for operators with an operand that has `Role.WEIGHTS`.

        By default, this is the first axis.
        """
        return 0

    def role(self, index: int) -> Role:
        """Return the role of the operand that takes the input at `index`."""
        return self.operands[min(index, len(self.operands) - 1)].role

    def inputs_of(self, role: Role, count: int) -> tuple[int, ...]:
        """Return the indices, below `count`, of the inputs that are operands with this role."""
        return tuple([index for index in range(count if self.operands else 0) if self.role(index) is role])

    def arguments(self, inputs: Sequence[_T | None]) -> list[Any]:
        """Assign a flat list of inputs to the operator's operands, and return one argument per operand.

        The argument is None if an optional operand is absent, and a tuple of all remaining inputs for a variadic one.
        """
        operands, arguments = self.operands, [*inputs]
        arguments += [None] * (len(operands) - len(arguments))
        if operands and operands[-1].variadic:
            num_fixed = len(operands) - 1
            arguments[num_fixed:] = [tuple(inputs[num_fixed:])]  # type: ignore[list-item]
        return arguments

    def operand_name(self, index: int) -> str:
        """Return the name of the operand that takes the input at `index`.

        The inputs of a variadic operand are numbered, as in ``inputs[1]``.
        """
        declared_operand = self.operands[min(index, len(self.operands) - 1)]
        return (
            f"{declared_operand.name}[{index - len(self.operands) + 1}]"
            if declared_operand.variadic
            else declared_operand.name
        )

    def arity_problem(self, count: int) -> str | None:
        """Return an error message if `count` inputs are more than the operator has operands, else None."""
        is_variadic = bool(self.operands) and self.operands[-1].variadic
        if is_variadic or count <= len(self.operands):
            return None
        return f"{self.op_name()} takes at most {len(self.operands)} inputs, but {count} were given"

    def violations(self, *infos: TensorInfo | None) -> list[str]:
        """Return error messages for operands with these infos; empty if the operator is valid for them.

        Operands of unknown rank are valid if there is a rank for which the operator is valid.
        """
        error = self.arity_problem(len(infos))
        if error:
            return [error]
        if not self.operands:
            return list(self.check())
        if not are_ranked(infos):
            return min((self.violations(*ranked_infos) for ranked_infos in of_every_rank(infos)), key=len)
        arguments = self.arguments(infos)
        problems: list[str] = []
        for declared_operand, argument in zip(self.operands, arguments, strict=True):
            if not declared_operand.surely_accepts(argument):
                problems += _operand_problems(declared_operand, argument)
        if not problems and any([declared_operand.same_dtype_as for declared_operand in self.operands]):
            problems += self._dtype_problems(arguments)
        return problems or list(self.check(*arguments))

    def _by_name(self, arguments: Sequence[Any]) -> dict[str, Any]:
        return dict(zip([declared_operand.name for declared_operand in self.operands], arguments, strict=True))

    def _dtype_problems(self, arguments: list[Any]) -> Iterator[str]:
        by_name = self._by_name(arguments)
        for declared_operand in self.operands:
            if declared_operand.same_dtype_as is None:
                continue
            for model in _present_infos(by_name[declared_operand.same_dtype_as])[:1]:
                for info in _present_infos(by_name[declared_operand.name]):
                    if info.dtype is not model.dtype:
                        expected = f"{model.dtype}, the type of {declared_operand.same_dtype_as}"
                        yield f"{declared_operand.name} is {info.dtype}; expected {expected}"

    def infer_infos(self, *infos: TensorInfo | None) -> tuple[TensorInfo | None, ...]:
        """Return the infos of all results for valid operands; None for a result whose info must be declared.

        If the rank of an operand is unknown, each info is what the results for all valid ranks have in common.
        """
        if not are_ranked(infos):
            return true_of_all(self._inferred_for(ranked_infos) for ranked_infos in of_every_rank(infos))
        inferred_infos = self.infer(*self.arguments(infos))
        results = inferred_infos if isinstance(inferred_infos, tuple) else (inferred_infos,)
        if len(results) != self.num_results():
            raise InvalidArgumentError(f"{self.op_name()} infers {len(results)} infos for {self.num_results()} results")
        return results

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
        for name in self.attributes:
            own_value, other_value = getattr(self, name), getattr(other, name)
            if own_value is not other_value and not codecs[name].equal(own_value, other_value):
                return False
        return True

    def __hash__(self) -> int:
        cached_hash: int | None = self.__dict__.get("_hash")
        if cached_hash is None:
            codecs = self.codecs()
            cached_hash = hash((type(self), *[codecs[name].hash(getattr(self, name)) for name in self.attributes]))
            object.__setattr__(self, "_hash", cached_hash)  # attributes never change
        return cached_hash

    def __repr__(self) -> str:
        attributes = ", ".join(f"{name}={value!r}" for name, value in self.changed_attributes().items())
        return f"{type(self).__name__}({attributes})"


def _codec(cls: type[Op], name: str) -> Codec:
    try:
        return codec_of(annotation(cls, name))
    except (InvalidArgumentError, NameError, TypeError) as error:
        raise InvalidArgumentError(f"{cls.__name__}.{name}: {error}") from error


def annotation(cls: type[Op], name: str) -> Any:
    """Return the annotated type of the attribute `name` of an operator."""
    owner = next(base for base in cls.__mro__ if name in getattr(base, "__annotations__", {}))
    hint = owner.__annotations__[name]
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


def _present_infos(argument: TensorInfo | tuple[TensorInfo | None, ...] | None) -> tuple[TensorInfo, ...]:
    if isinstance(argument, tuple):
        return tuple([info for info in argument if info is not None])
    return () if argument is None else (argument,)


def _operand_problems(declared_operand: Operand, argument: Any) -> Iterator[str]:
    labeled = [(declared_operand.name, argument)]
    if declared_operand.variadic:
        if not argument and not declared_operand.optional:
            yield f"{declared_operand.name} needs at least one value"
        labeled = [(f"{declared_operand.name}[{index}]", info) for index, info in enumerate(argument)]
    for label, info in labeled:
        if info is not None:
            yield from declared_operand.problems(info, label)
        elif not declared_operand.optional:
            yield f"{label} is not connected"


def _like(declared_result: Result, by_name: Mapping[str, Any]) -> TensorInfo | None:
    return (
        None if declared_result.like is None else _present_infos(by_name[declared_result.like])[0].with_constant(None)
    )


_REGISTRY: Final[dict[str, type[Op]]] = {}


def register_op(cls: type[Op]) -> None:
    """Let files and `op_class` name the operator; raise `InvalidArgumentError` if another module took its name."""
    namesake = _REGISTRY.get(cls.op_name())
    if namesake is not None and namesake.__module__ != cls.__module__:
        raise InvalidArgumentError(f"an operator {cls.op_name()!r} is declared in {namesake.__module__} already")
    _REGISTRY[cls.op_name()] = cls


def registered_ops() -> dict[str, type[Op]]:
    """Return all operators declared so far, sorted by name (import `interposer.ops` for the built-in operators)."""
    return dict(sorted(_REGISTRY.items()))


def op_class(name: str) -> type[Op]:
    """Return the operator with this name; raise `InvalidArgumentError` with the most similar name if there is none."""
    cls = _REGISTRY.get(name)
    if cls is None:
        raise InvalidArgumentError(f"unknown operator {name!r}{did_you_mean(name, _REGISTRY)}")
    return cls
