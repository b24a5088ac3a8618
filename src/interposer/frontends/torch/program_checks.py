"""Checks of the description of a program in a .pt2 file, before PyTorch builds the program from it.

PyTorch generates Python code from the names in the description, evaluates its expressions, looks its functions up by
name, and imports modules that its trees name. So only names, expressions and operators are let through here that
`torch.export.save` writes.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from interposer.core.errors import DamagedFileError, ParseError, UnsupportedOperatorError

__all__ = ["checked_program"]

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PATH: Final = re.compile(r"[A-Za-z0-9_.$-]*")
_SYMBOL: Final = re.compile(r"[suz][0-9]{1,9}|zuf[0-9]{1,9}")
_LONGEST: Final = 4096
_LARGEST: Final = 1 << 64
_LARGEST_POWER: Final = 8
_FUNCTIONS: Final = frozenset({
    "FloorDiv", "ModularIndexing", "Where", "PythonMod", "Mod", "CleanDiv", "CeilToInt", "FloorToInt", "CeilDiv",
    "FloatTrueDiv", "IntTrueDiv", "TruncToFloat", "TruncToInt", "RoundToInt", "ToFloat", "Identity", "Max", "Min",
    "Eq", "Ne", "Lt", "Le", "Gt", "Ge", "And", "Or", "Not", "Abs", "floor", "ceiling", "true", "false", "Add", "Mul",
    "Integer", "Rational", "Equality", "Unequality", "LessThan", "GreaterThan", "StrictLessThan", "StrictGreaterThan",
})  # fmt: skip
_TARGET: Final = re.compile(
    r"torch\.ops\.([a-z][A-Za-z0-9_]*)((\.(?!__(?!and__|or__|xor__|lshift__|rshift__))\w+){1,2})"
)
_NAMESPACES: Final = frozenset({
    "aten", "prim", "prims", "higher_order", "quantized_decomposed", "torchao", "torchvision", "export", "quantized",
})  # fmt: skip
_PLAIN: Final = re.compile(
    r"_operator\.(eq|ne|le|ge|lt|gt|neg|pos|mul|add|sub|floordiv|mod|pow|truediv|and_|or_|lshift|rshift|getitem)"
    r"|math\.(trunc|ceil|floor)|torch\.sym_(not|int|float|ite|max|min|sqrt|sum)|torch\._sym_sqrt"
)
_FILES: Final = ("torch.ops.aten.from_file",)
_FACTORIES: Final = frozenset({"builtins.list", "builtins.dict", "builtins.int", "builtins.float", "builtins.set"})
_PLACES: Final = frozenset({"parameter_name", "buffer_name", "tensor_constant_name", "fqn", "user_input_name"})
_DROPPED: Final = frozenset({"source_fn_stack", "from_node", "custom", "torch_fn"})
"""Entries of the metadata of nodes that are not used, and that name functions."""


def checked_program(document: Any) -> Any:
    """Return the description of a program without the parts that are not needed, after all checks.

    Raises:
        ParseError: a name, an expression, a tree or an object in it may do more than describe a program.
        UnsupportedOperatorError: it calls functions that are no operators.
    """
    if not isinstance(document, dict) or not isinstance(document.get("graph_module"), dict):
        raise DamagedFileError("the description of the program is wrong")
    try:
        _check(document)
        document["guards_code"] = []
        _without(document["graph_module"], "metadata", {})
    except RecursionError as error:
        raise DamagedFileError("the description of the program is nested too deeply") from error
    unknown_functions = _unknown_functions(document)
    if unknown_functions:
        raise UnsupportedOperatorError(unknown_functions)
    return document


def _without(fields: dict[str, Any], name: str, replacement: Any) -> None:
    if name in fields:
        fields[name] = replacement


def _check(node: Any, key: str = "") -> None:
    if isinstance(node, dict):
        for name, child in list(node.items()):
            _check_keys(key, name)
            node[name] = _CHANGES[name](child) if name in _CHANGES else child
            _check(node[name], name)
    elif isinstance(node, list):
        for child in node:
            _check(child, key)
    elif isinstance(node, str) and key in _TEXTS:
        _TEXTS[key](node)


def _check_keys(key: str, name: str) -> None:
    if key in _NAMED and not _NAME.fullmatch(name):
        raise DamagedFileError(f"{name[:40]!r} is no name of a value")


def _check_name(text: str) -> None:
    if text and (not _NAME.fullmatch(text) or keyword.iskeyword(text)):
        raise DamagedFileError(f"{text[:40]!r} is no name of a value")


def _check_path(text: str) -> None:
    if not _PATH.fullmatch(text) or "__" in text.replace("__mangled", "") and _dunder(text):
        raise DamagedFileError(f"{text[:40]!r} is no name of a tensor")


def _dunder(text: str) -> bool:
    return any(part.startswith("__") and part.endswith("__") for part in text.split("."))


def _check_expression(text: str) -> None:
    """Raise `ParseError` unless the text is arithmetic on symbols.

    Examples are ``2*s77 + 1`` and ``Add(Symbol('s77', positive=True), Integer(1))``.
    """
    if not _is_arithmetic(text):
        raise ParseError(f"the expression {text[:60]!r} of a size is not one that PyTorch writes, and is not evaluated")


def _is_arithmetic(text: str) -> bool:
    if len(text) > _LONGEST:
        return False
    try:
        tree = ast.parse(text, mode="eval")
        return _is_size(tree.body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False


def _is_size(node: ast.AST) -> bool:
    """Return True if evaluating the expression only combines symbols and numbers, and needs little time."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and _is_call(node.func.id, node)
    if isinstance(node, ast.Name):
        return bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | float) or (isinstance(node.value, int) and abs(node.value) < _LARGEST)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _is_power(node.left, node.right)
    if isinstance(node, ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp):
        return _is_plain(node) and all(
            _is_size(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)
        )
    return False


def _is_plain(node: ast.AST) -> bool:
    return not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift | ast.RShift | ast.MatMult))


def _is_call(name: str, call: ast.Call) -> bool:
    if name == "Symbol":
        return _is_symbol(call)
    if call.keywords:
        return False
    if name in {"Pow", "PowByNatural"}:
        return len(call.args) == 2 and _is_power(*call.args)
    return name in _FUNCTIONS and all(map(_is_size, call.args))


def _is_symbol(call: ast.Call) -> bool:
    [name, *other_args] = call.args or [call]
    is_name = isinstance(name, ast.Constant) and isinstance(name.value, str) and _SYMBOL.fullmatch(name.value)
    keyword_values = [keyword.value for keyword in call.keywords]
    return (
        bool(is_name)
        and not other_args
        and all(isinstance(fact, ast.Constant) and type(fact.value) is bool for fact in keyword_values)
    )


def _is_power(base: ast.AST, exponent: ast.AST) -> bool:
    """Return True for a small constant power of a symbol."""
    if isinstance(exponent, ast.Call) and exponent.args:
        exponent = exponent.args[0]
    if isinstance(exponent, ast.UnaryOp):
        exponent = exponent.operand
    is_small = isinstance(exponent, ast.Constant) and exponent.value in range(_LARGEST_POWER + 1)
    is_call = isinstance(base, ast.Call) and isinstance(base.func, ast.Name) and base.func.id == "Symbol"
    return is_small and (isinstance(base, ast.Name) or is_call) and _is_size(base)


def _checked_tree(text: Any) -> Any:
    """Return the text of a tree of inputs or outputs, with plain containers for types that PyTorch does not know here.

    A type that another package registers, such as the outputs of a model of transformers, becomes a dictionary if the
    tree has the keys, else a tuple.
    """
    if not isinstance(text, str) or not text:
        return text
    try:
        version, tree = json.loads(text)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(
            f"a specification of inputs or outputs (TreeSpec) is {text[:60]!r}; expected JSON with a version and a "
            "tree; export the program again"
        ) from error
    return json.dumps([version, _plain_tree(tree)])


def _plain_tree(tree: Any) -> Any:
    if not isinstance(tree, dict) or not isinstance(tree.get("children_spec"), list):
        raise DamagedFileError(
            f"a specification of inputs or outputs (TreeSpec) has {str(tree)[:60]!r}; expected a node with a list "
            "children_spec; export the program again"
        )
    children = [_plain_tree(child) for child in tree["children_spec"]]
    kind, context = tree.get("type"), tree.get("context")
    _check_context(context)
    if kind is not None and kind not in _known_types():
        kind, context = _plain_kind(context, len(children))
    return {"type": kind, "context": context, "children_spec": children}


def _known_types() -> Any:
    from torch.utils._pytree import SERIALIZED_TYPE_TO_PYTHON_TYPE  # noqa: PLC0415 - only a file needs it

    return SERIALIZED_TYPE_TO_PYTHON_TYPE


def _plain_kind(context: Any, count: int) -> tuple[str, Any]:
    keys = _keys_in(context, count)
    return ("builtins.tuple", "null") if keys is None else ("builtins.dict", json.dumps(keys))


def _keys_in(context: Any, count: int) -> list[str] | None:
    """Return the keys that the context of an unknown container has for its children, or None."""
    try:
        parsed_context = json.loads(context) if isinstance(context, str) else context
    except ValueError:
        return None
    candidates = (
        [parsed_context, *parsed_context]
        if isinstance(parsed_context, list)
        else list(parsed_context.values())
        if isinstance(parsed_context, dict)
        else []
    )
    for keys in candidates:
        if isinstance(keys, list) and len(keys) == count and all(isinstance(key, str) for key in keys):
            return keys
    return None


def _check_context(context: Any) -> None:
    """Raise `ParseError` if reading the context of a container would import a module or make an object of a class."""
    for dictionary in _dictionaries(context):
        if "__enum__" in dictionary:
            raise ParseError("a tree of inputs or outputs has a key of an enumeration, which is not supported")
        if "default_factory_module" in dictionary:
            factory = f"{dictionary['default_factory_module']}.{dictionary.get('default_factory_name')}"
            if factory not in _FACTORIES:
                raise ParseError(
                    f"a defaultdict in the inputs or outputs is made by {factory[:60]!r}, which is not run"
                )


def _dictionaries(context: Any) -> Iterator[dict[str, Any]]:
    """Yield all dictionaries in the context of a container, which may be JSON inside of JSON."""
    if isinstance(context, str) and "{" in context:
        try:
            context = json.loads(context)
        except ValueError:
            return
    if isinstance(context, dict):
        yield context
    for child in context.values() if isinstance(context, dict) else context if isinstance(context, list) else ():
        yield from _dictionaries(child)


def _plain_metadata(metadata: Any) -> Any:
    if not isinstance(metadata, dict):
        return metadata
    return {name: text for name, text in metadata.items() if name not in _DROPPED and isinstance(text, str)}


_TEXTS: Final[dict[str, Callable[[str], None]]] = {
    "name": _check_name,
    "as_name": _check_name,
    "forward_arg_names": _check_name,
    "expr_str": _check_expression,
    **dict.fromkeys(_PLACES, _check_path),
}
_CHANGES: Final[dict[str, Callable[[Any], Any]]] = {
    "in_spec": _checked_tree,
    "out_spec": _checked_tree,
    "metadata": _plain_metadata,
}
_NAMED: Final = frozenset({"tensor_values", "sym_int_values", "sym_float_values", "sym_bool_values"})


def _unknown_functions(document: Any) -> dict[str, int]:
    """Return how often the program calls functions that are no operators of PyTorch, by name."""
    counts: dict[str, int] = {}
    for target in _targets(document):
        if not _is_operator(target):
            counts[target[:100]] = counts.get(target[:100], 0) + 1
    return counts


def _is_operator(target: str) -> bool:
    target_match = _TARGET.fullmatch(target)
    if target_match is None:
        return bool(_PLAIN.fullmatch(target))
    return target_match[1] in _NAMESPACES and not target.startswith(_FILES)


def _targets(node: Any) -> Iterator[str]:
    """Yield the names of all functions that the nodes of a description call, or pass to others."""
    if isinstance(node, dict):
        names = ("target", "as_operator") if "inputs" in node else ("as_operator",)
        yield from (node[name] for name in names if isinstance(node.get(name), str))
    for child in node.values() if isinstance(node, dict) else node:
        if isinstance(child, dict | list):
            yield from _targets(child)
