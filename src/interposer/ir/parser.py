"""The parser of the text form: from text to a graph, or to a `ParseError` with the position and what was expected."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any, Final, TypeVar

from interposer.core.codec import Codec, array_from_plain
from interposer.core.errors import did_you_mean
from interposer.core.records import dataclass
from interposer.core.schema import Op, op_class
from interposer.core.types import UNRANKED, Array, DataType, Quantization, ShapeLike, TensorInfo
from interposer.ir.graph import Graph, Layer, Value
from interposer.ir.lexer import Lexer, Token
from interposer.ir.literals import array_of, number
from interposer.ops.control import Constant

__all__ = ["parse_graph"]

_T = TypeVar("_T")
DEPTH: Final = 32
"""The maximum nesting depth of graphs and of tuples."""
_CONSTANTS: Final = {"True": True, "False": False, "None": None}


def parse_graph(text: str, *, opaque: Mapping[str, Any] | None = None) -> Graph:
    """Return the graph that `print_graph` wrote.

    Infos are read without checks: `infer_graph` computes missing infos, and `verify` checks the graph. `opaque` maps
    layer names to the objects that text cannot represent (printed as `<opaque>`).

    Raises:
        ParseError: the text is not a valid graph; `where` is the line and column.
    """
    import interposer.ops  # noqa: F401, PLC0415 - a text may name any operator

    parser = _Parser(Lexer(text), opaque or {})
    graph = parser.graph()
    parser.lexer.take("end")
    return graph


class _Word(str):
    """A bare word as the value of an attribute: the name of an enum member, whose class is not known to the parser."""

    __slots__ = ()


class _Opaque:
    """Stands for the value ``<opaque>``: an object that text cannot represent, such as a compiled part."""


@dataclass(slots=True)
class _Output:
    info: TensorInfo | None = None
    declared: TensorInfo | None = None


@dataclass(slots=True)
class _Statement:
    """What the text says about one layer, before the layer is created.

    `start` is the first token, `names` has the tokens of its results, `kind` the token of the operator, and `inputs`
    the tokens of its inputs. `attributes` has the token and the value of each attribute, by name.
    """

    start: Token
    names: list[Token]
    kind: Token
    attributes: dict[str, tuple[Token, Any]] = field(default_factory=dict)
    inputs: list[Token] = field(default_factory=list)
    backend: str | None = None
    hint: str | None = None
    name: str = ""
    outputs: list[_Output] = field(default_factory=list)
    source: str = ""
    replaced: tuple[str, ...] = ()
    regions: tuple[Graph, ...] = ()


class _Parser:
    def __init__(self, lexer: Lexer, opaque: Mapping[str, Any]) -> None:
        self.lexer = lexer
        self.opaque = opaque
        self.depth = 0

    # --- graphs and layers ---

    def graph(self) -> Graph:
        self.lexer.take("word", "graph")
        name = self.string() if self.lexer.sees("string") else ""
        return _Builder(self, name).built(self.block(self.statement))

    def block(self, parse_item: Callable[[], _T]) -> list[_T]:
        """Return the items between braces, each on one or more lines."""
        statements = []
        with self.deeper(self.lexer.take("mark", "{")):
            while not self.lexer.accept("mark", "}"):
                if not self.lexer.peek().starts_line:
                    raise self.lexer.expected("a new line")
                statements.append(parse_item())
        return statements

    def statement(self) -> _Statement:
        lexer, start_token = self.lexer, self.lexer.peek()
        names = self.items(lambda: lexer.take("name")) if lexer.sees("name") else []
        if names:
            lexer.take("mark", "=")
        statement = _Statement(start_token, names, lexer.take("word", what="an operator's name"))
        if lexer.sees("mark", "("):
            statement.attributes = self.attributes()
        if not lexer.peek().starts_line and (lexer.sees("name") or lexer.sees("word", "_")):
            statement.inputs = self.items(self.input_token)
        self.suffixes(statement)
        return statement

    def suffixes(self, statement: _Statement) -> None:
        lexer = self.lexer
        if lexer.accept("mark", "@"):
            statement.backend = self.word("a backend's id")
        if lexer.accept("word", "hint"):
            statement.hint = self.word("a backend's id")
        if not statement.names:
            lexer.take("word", "as")
            statement.name = self.string()
        elif lexer.accept("mark", ":"):
            statement.outputs = self.items(lambda: self.output(is_implied=statement.kind.text == "Input"))
        if lexer.accept("word", "from"):
            statement.source = self.string()
        if lexer.accept("word", "replacing"):
            statement.replaced = tuple(self.items(self.string))
        if lexer.sees("mark", "{"):
            statement.regions = tuple(self.block(self.graph))

    def input_token(self) -> Token:
        return self.lexer.accept("word", "_") or self.lexer.take("name", what="a value such as %x, or _")

    def output(self, is_implied: bool) -> _Output:
        info = self.info()
        if not self.lexer.accept("word", "declared"):
            return _Output(info, info if is_implied else None)
        if self.lexer.sees("word", "_") or self.sees_type():
            return _Output(info, self.info())
        return _Output(info, info)

    # --- infos ---

    def sees_type(self) -> bool:
        return self.lexer.sees("word") and self.lexer.sees("mark", "[", ahead=1)

    def info(self) -> TensorInfo | None:
        if self.lexer.accept("word", "_"):
            return None
        start_token = self.lexer.peek()
        dtype, shape = self.type()
        quantization = self.quantization() if self.lexer.sees("word", "q") else None
        element = self.element_info() if self.lexer.sees("word", "of") else None
        with self.at(start_token):
            info = TensorInfo(shape, dtype, quantization, element=element)
        if not self.lexer.accept("mark", "="):
            return info
        constant = self.elements(info) if self.lexer.sees("mark", "{") else self.array()
        with self.at(start_token):
            return info.with_constant(constant)

    def element_info(self) -> TensorInfo | None:
        with self.deeper(self.lexer.take("word", "of")):
            return self.info()

    def type(self) -> tuple[DataType, ShapeLike]:
        token = self.lexer.take("word", what="a data type")
        with self.at(token):
            dtype = DataType.of(token.text)
        self.lexer.take("mark", "[")
        if self.lexer.accept("elided", "..."):
            self.lexer.take("mark", "]")
            return dtype, UNRANKED
        return dtype, self.items(self.extent, until="]")

    def extent(self) -> int | str | None:
        if self.lexer.accept("mark", "?"):
            return None
        return self.integer() if self.lexer.sees("number") else self.word("a dimension")

    def quantization(self) -> Quantization:
        start_token = self.lexer.take("word", "q")
        self.lexer.take("mark", "(")
        scale: Any = self.numbers()
        self.lexer.take("mark", ",")
        zero_point: Any = self.numbers()
        axis = self.axis() if self.lexer.accept("mark", ",") else None
        self.lexer.take("mark", ")")
        with self.at(start_token):
            return Quantization(scale, zero_point, axis)

    def numbers(self) -> list[float] | float:
        return self.items(self.number, until="]") if self.lexer.accept("mark", "[") else self.number()

    def axis(self) -> int:
        self.lexer.take("word", "axis")
        self.lexer.take("mark", "=")
        return self.integer()

    # --- values of attributes ---

    def attributes(self) -> dict[str, tuple[Token, Any]]:
        attributes: dict[str, tuple[Token, Any]] = {}
        self.lexer.take("mark", "(")
        for token, value in self.items(self.attribute, until=")"):
            if token.text in attributes:
                raise self.lexer.error(token, f"the attribute {token.text!r} is given twice")
            attributes[token.text] = token, value
        return attributes

    def attribute(self) -> tuple[Token, Any]:
        token = self.lexer.take("word", what="an attribute's name")
        self.lexer.take("mark", "=")
        return token, self.value()

    def value(self) -> Any:
        lexer = self.lexer
        if lexer.sees("number"):
            return self.number()
        if lexer.sees("string"):
            return self.string()
        if lexer.accept("opaque"):
            return _Opaque()
        if lexer.sees("mark", "("):
            return self.tuple()
        if lexer.sees("word", "q") and lexer.sees("mark", "(", ahead=1):
            return self.quantization()
        if self.sees_type():
            return self.array()
        word = lexer.take("word", what="a value").text
        return _CONSTANTS[word] if word in _CONSTANTS else _Word(word)

    def tuple(self) -> tuple[Any, ...]:
        with self.deeper(self.lexer.take("mark", "(")):
            return tuple(self.items(self.value, until=")"))

    def array(self) -> Array:
        start_token = self.lexer.peek()
        dtype, shape = self.type()
        with self.at(start_token):
            info = TensorInfo(shape, dtype)
        if not info.is_concrete:
            raise self.lexer.error(start_token, f"an array needs a known shape, not {info.shape}")
        return self.elements(info)

    def elements(self, info: TensorInfo) -> Array:
        start_token = self.lexer.take("mark", "{")
        if self.lexer.sees("elided"):
            raise self.lexer.error(start_token, "these elements were left out when the graph was printed")
        if not self.lexer.accept("word", "base64"):
            values = self.items(self.element, until="}")
            with self.at(start_token):
                return array_of(info.dtype, info.shape, values)
        array_data = {"dtype": str(info.dtype), "shape": info.shape, "base64": self.string()}
        self.lexer.take("mark", "}")
        with self.at(start_token):
            return array_from_plain(array_data)

    def element(self) -> Any:
        if self.lexer.sees("string"):
            return self.string()
        flag = self.lexer.accept("word", "True") or self.lexer.accept("word", "False")
        return flag.text == "True" if flag else self.number()

    # --- small parts ---

    def string(self) -> str:
        return self.unquoted(self.lexer.take("string"))

    def unquoted(self, token: Token) -> str:
        with self.at(token):
            return str(json.loads(token.text))

    def word(self, what: str) -> str:
        return self.string() if self.lexer.sees("string") else self.lexer.take("word", what=what).text

    def number(self) -> int | float:
        token = self.lexer.take("number")
        with self.at(token):
            return number(token.text)

    def integer(self) -> int:
        token = self.lexer.peek()
        integer = self.number()
        if not isinstance(integer, int):
            raise self.lexer.expected("an integer", token)
        return integer

    def items(self, parse_item: Callable[[], _T], until: str | None = None) -> list[_T]:
        """Return items separated by commas, up to the mark `until`; a trailing comma is allowed."""
        parsed_items: list[_T] = []
        while until is None or not self.lexer.accept("mark", until):
            parsed_items.append(parse_item())
            if self.lexer.accept("mark", ","):
                continue
            if until is not None and not self.lexer.accept("mark", until):
                raise self.lexer.expected(f"',' or '{until}'")
            break
        return parsed_items

    @contextmanager
    def at(self, token: Token) -> Iterator[None]:
        """Return a context that turns an error about a value into a `ParseError` with the position of `token`.

        Such errors are ValueError, TypeError and OverflowError.
        """
        try:
            yield
        except (ValueError, TypeError, OverflowError) as error:
            raise self.lexer.error(token, str(error)) from error

    @contextmanager
    def deeper(self, token: Token) -> Iterator[None]:
        self.depth += 1
        if self.depth > DEPTH:
            raise self.lexer.error(token, f"more than {DEPTH} levels are nested")
        yield
        self.depth -= 1


class _Builder:
    """Builds a graph from the parsed statements of a text: first all layers, then the connections.

    A text may use a value before the statement that defines it.
    """

    def __init__(self, parser: _Parser, name: str) -> None:
        self.parser = parser
        self.error = parser.lexer.error
        self.graph = Graph(name)
        self.values: dict[tuple[str, int | None], Value] = {}
        self.names: set[str] = set()

    def built(self, statements: Sequence[_Statement]) -> Graph:
        layers = [self.layer(statement) for statement in statements]
        for statement, layer in zip(statements, layers, strict=True):
            self.connect(statement, layer)
        return self.graph

    def layer(self, statement: _Statement) -> Layer:
        name = self.name(statement)
        op = self.op(statement, name)
        self.check_names(statement, op, name)
        outputs = statement.outputs or [_Output() for _ in statement.names]
        if len(outputs) != len(statement.names):
            raise self.error(
                statement.start, f"{len(statement.names)} results are named, but {len(outputs)} infos given"
            )
        with self.parser.at(statement.start):
            infos = [_with_value(output.info, op) for output in outputs]
        declared_infos = [
            info if output.declared is output.info else output.declared
            for info, output in zip(infos, outputs, strict=True)
        ]
        layer = self.graph.add(op, name=name, outputs=declared_infos, source=statement.source)
        layer.backend, layer.hint = statement.backend, statement.hint
        layer.replaced, layer.regions = statement.replaced, statement.regions
        for value, info in zip(layer.outputs, infos, strict=True):
            value.info = info
            self.values[name, value.index if len(outputs) > 1 else None] = value
        return layer

    def name(self, statement: _Statement) -> str:
        name = self.split(statement.names[0])[0] if statement.names else statement.name
        if not name:
            raise self.error(statement.start, "a layer needs a name")
        if name in self.names:
            raise self.error(statement.start, f"the name {name!r} is given twice")
        self.names.add(name)
        return name

    def split(self, token: Token) -> tuple[str, int | None]:
        """Split a token into name and output number: ``%"a b":1`` gives ("a b", 1), and ``%x`` gives ("x", None)."""
        written_name, colon, index = token.text[1:].rpartition(":")
        if not colon or index.endswith('"'):
            written_name, index = token.text[1:], ""
        is_quoted = written_name.startswith('"')
        name = self.parser.unquoted(token._replace(text=written_name)) if is_quoted else written_name
        return name, int(index[:9]) if index else None

    def check_names(self, statement: _Statement, op: Op, name: str) -> None:
        count = op.num_results()
        if len(statement.names) != count:
            error = f"{op.op_name()} gives {count} results here, but {len(statement.names)} stand there"
            raise self.error(statement.start, error)
        for index, token in enumerate(statement.names):
            expected = (name, index if count > 1 else None)
            if self.split(token) != expected:
                raise self.error(token, f"expected result {index} of {name!r}, found {token}")

    def op(self, statement: _Statement, name: str) -> Op:
        with self.parser.at(statement.kind):
            cls = op_class(statement.kind.text)
        codecs = cls.codecs()
        for token, _ in statement.attributes.values():
            if token.text not in codecs:
                hint = did_you_mean(token.text, codecs)
                raise self.error(token, f"{cls.op_name()} has no attribute {token.text!r}{hint}")
        arguments = {key: self.resolved(key, value, codecs[key], name) for key, value in statement.attributes.items()}
        with self.parser.at(statement.kind):
            return cls(**arguments)

    def resolved(self, key: str, token_and_value: tuple[Token, Any], codec: Codec, layer: str) -> Any:
        token, value = token_and_value
        if isinstance(value, _Opaque):
            if layer not in self.parser.opaque:
                raise self.error(token, f"text cannot hold {key} of layer {layer!r}; give it as opaque[{layer!r}]")
            return self.parser.opaque[layer]
        try:
            return _named(value, codec)
        except (KeyError, ValueError) as error:
            word = value if isinstance(value, _Word) else error.args[0]
            raise self.error(token, f"{key} must be {codec.title}, not {word}") from error

    def connect(self, statement: _Statement, layer: Layer) -> None:
        error = layer.op.arity_problem(len(statement.inputs))
        if error:
            raise self.error(statement.inputs[0], error)
        for index, token in enumerate(statement.inputs):
            self.graph.set_input(layer, index, None if token.kind == "word" else self.value(token))

    def value(self, token: Token) -> Value:
        value = self.values.get(self.split(token))
        if value is None:
            hint = did_you_mean(token.text, [f"%{value.name}" for value in self.values.values()])
            raise self.error(token, f"no layer gives {token}{hint}")
        return value


def _with_value(info: TensorInfo | None, op: Op) -> TensorInfo | None:
    """Return the info of a Constant's output with the operator's array; return any other info unchanged.

    The text of a constant has its value only once, as an attribute of the operator.
    """
    if info is None or not isinstance(op, Constant):
        return info
    return info.with_constant(op.value) if info.constant is None else info


def _named(value: Any, codec: Codec) -> Any:
    """Return a value in which bare words are replaced by the enum members that they name, also inside of tuples.

    `codec` is that of the attribute. A KeyError is raised for a word that names no member.
    """
    if isinstance(value, tuple):
        return tuple(_named(element, codec) for element in value)
    return codec.named(value) if isinstance(value, _Word) else value
