"""Public names of `interposer.core.schema`: The declaration of operators."""

from interposer.core.schema import (
    Attribute,
    Op,
    Operand,
    Result,
    ResultQuantization,
    Role,
    Trait,
    annotation,
    attribute,
    op,
    op_class,
    operand,
    registered_ops,
    result,
)

__all__ = [
    "Attribute",
    "Op",
    "Operand",
    "Result",
    "ResultQuantization",
    "Role",
    "Trait",
    "annotation",
    "attribute",
    "op",
    "op_class",
    "operand",
    "registered_ops",
    "result",
]
