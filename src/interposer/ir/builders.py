"""The methods of `Network` that add one layer each, created from the operators' declarations when they are first used.

``builders.pyi`` holds the same signatures for type checkers and editors; ``tools/generate.py`` writes it.
"""

from __future__ import annotations
import __future__

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from interposer.core.schema import Op
from interposer.ir.signatures import (
    attribute_classes,
    builder_arguments,
    builder_name,
    builder_parameters,
    builder_summary,
    built_operators,
)

if TYPE_CHECKING:
    from interposer.core.types import TensorInfo
    from interposer.ir.graph import Graph, Layer, Value

__all__ = ["Builders"]


class Builders(ABC):
    """A method for every operator: operands by position, None for an absent operand, and attributes by name.

    The methods raise what the operators raise: `InvalidArgumentError` for an attribute that is not allowed, and
    `InvalidNetworkError` for operands of the wrong number, type or shape.
    """

    @abstractmethod
    def add_layer(
        self,
        op: Op,
        *values: Value | Layer | None,
        name: str | None = None,
        outputs: Sequence[TensorInfo | None] | TensorInfo | None = None,
        source: str = "",
        regions: Sequence[Builders | Graph] = (),
    ) -> Layer:
        """Add a layer that runs `op` on `values`, one for each operand in order (None for an absent one).

        `outputs` declares infos of the outputs, `source` is the layer's origin in a model file, and `regions` are the
        subgraphs of a control flow layer. See `Network.add_layer`.
        """


class _LazyBuilder:
    """An attribute of `Builders` that stands for an operator's method until the method is first read.

    The method is then created and replaces this object, so that importing the package does not create all methods.
    """

    def __init__(self, op: type[Op]) -> None:
        self._op = op

    def __get__(self, instance: Builders | None, owner: type[Builders]) -> Any:
        function = _builder(self._op)
        setattr(Builders, function.__name__, function)
        return getattr(owner if instance is None else instance, function.__name__)


def _builder(op: type[Op]) -> Callable[..., Layer]:
    """Create the method of `Builders` that adds a layer of this operator, such as ``add_softmax_layer``.

    Its signature has the operands and attributes that the operator declares. The method is compiled from text, as those
    of data classes are, so that Python itself checks its arguments.
    """
    name = builder_name(op)
    parameters, arguments = ", ".join(builder_parameters(op)), ", ".join(builder_arguments(op))
    source = f"def {name}({parameters}) -> Layer:\n    return self.add_layer({arguments})\n"
    namespace: dict[str, Any] = {class_.__name__: class_ for class_ in (op, *attribute_classes(op))}
    code = compile(source, f"<builder of {op.op_name()}>", "exec", __future__.annotations.compiler_flag)
    exec(code, namespace)
    function = namespace[name]
    function.__doc__ = builder_summary(op)
    function.__module__, function.__qualname__ = __name__, f"Builders.{name}"
    return function  # type: ignore[no-any-return]


for _op in built_operators():
    setattr(Builders, builder_name(_op), _LazyBuilder(_op))
