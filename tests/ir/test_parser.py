"""What the parser of the text form says of a text that is no graph."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interposer.core.errors import ParseError
from interposer.ir.text import parse_graph, print_graph
from interposer.ir.verify import verify
from tests.graphs import annotated

X = "%x = Input : float32[2, 3]"


def refusal(text):
    with pytest.raises(ParseError) as caught:
        parse_graph(text)
    return str(caught.value)


@pytest.mark.parametrize(("line", "message"), [
    ("%", "3:3: '%' starts nothing that is known here"),
    ("x", "4:1: expected 'as', found '}'"),
    ("%x", "4:1: expected '=', found '}'"),
    ("%y =", "4:1: expected an operator's name, found '}'"),
    ("%y = Activatoin %x", "3:8: unknown operator 'Activatoin'; did you mean 'Activation'?"),
    ("%y = Activation(", "4:1: expected an attribute's name, found '}'"),
    ("%y = Activation(a 6)", "3:21: expected '=', found '6'"),
    ("%y = Activation(a=6 b=1) %x", "3:23: expected ',' or ')', found 'b'"),
    ("%y = Activation(a=) %x", "3:21: expected a value, found ')'"),
    ("%y = Activation(a=1, a=2) %x", "3:24: the attribute 'a' is given twice"),
    ("%y = Activation(funktion=RELU) %x",
     "3:19: Activation has no attribute 'funktion'; did you mean 'function'?"),
    ("%y = Activation(a=RELU) %x", "3:19: a must be a number, not RELU"),
    ('%y = Activation(a="6") %x', "3:8: Activation: a must be a number, not '6'"),
    ("%y = Quantize(dtype=int7) %x",
     "3:17: dtype must be a member of interposer.types.DataType (BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, "
     "UINT32, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, INT4, UINT4, INT2, UINT2, FLOAT8_E4M3FN, FLOAT8_E4M3FNUZ, "
     "FLOAT8_E5M2, FLOAT8_E5M2FNUZ, FLOAT8_E8M0FNU, FLOAT6_E2M3FN, FLOAT6_E3M2FN, FLOAT4_E2M1FN, STRING), not int7"),
    ("%y = Splitter(axis=0, sizes=(1, 1)) %x", "3:3: Splitter gives 2 results here, but 1 stand there"),
    ("%y:0, %y:2 = Splitter(axis=0, sizes=(1, 1)) %x", "3:9: expected result 1 of 'y', found '%y:2'"),
    ("%y:0, %z:1 = Splitter(axis=0, sizes=(1, 1)) %x", "3:9: expected result 1 of 'y', found '%z:1'"),
    ("%y = StandIn(num_outputs=1000000000)", "3:3: StandIn gives 1000000000 results here, but 1 stand there"),
    ("%y = Activation %x, %x", "3:19: Activation takes at most 1 inputs, but 2 were given"),
    ("%y = Activation %z", "3:19: no layer gives '%z'"),
    ("%y = Activation %x:0", "3:19: no layer gives '%x:0'; did you mean '%x'?"),
    ("%y = Activation %x,", "4:1: expected a value such as %x, or _, found '}'"),
    ("%y = Activation %x @", "4:1: expected a backend's id, found '}'"),
    ("%y = Activation %x : float33[2]", "3:24: unknown data type 'float33'; did you mean 'float32'?"),
    ("%y = Activation %x : float32", "4:1: expected '[', found '}'"),
    ("%y = Activation %x : float32[-1]",
     "3:24: a dimension must not be negative, but -1 was given; None means unknown"),
    ("%y = Activation %x : float32[1.5]", "3:32: expected an integer, found '1.5'"),
    ("%y = Activation %x : float32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
     "3:24: a tensor has rank 17; ranks 0 to 16 are supported"),
    ("%y = Activation %x : float32[2], float32[2]", "3:3: 1 results are named, but 2 infos given"),
    ("%y = Activation %x : float32[2] q(1.0, 0)", "3:24: a tensor of type float32 cannot be quantized"),
    ("%y = Activation %x : int8[2] q(0.0, 0)", "3:32: a scale must be positive and finite, not 0.0"),
    ("%y = Activation %x : int8[2] q([1.0, 2.0], [0, 0])",
     "3:32: 2 scales were given without the axis that they belong to"),
    ("%y = Activation %x : int8[2] = {1}", "3:34: expected 2 elements for int8[2], found 1"),
    ("%y = Activation %x : int8[2] = int8[3]{1, 2, 3}", "3:24: the constant is int8[3], but the tensor int8[2]"),
    ("%x = Activation %x", "3:3: the name 'x' is given twice"),
    ('%"" = Activation %x', "3:3: a layer needs a name"),
    ("Output %x", "4:1: expected 'as', found '}'"),
    ('Output %x as ""', "3:3: a layer needs a name"),
    ('Output %x as "a" Output %x as "b"', "3:20: expected a new line, found 'Output'"),
    ('Output %x as "\\q"', "3:16: Invalid \\escape: line 1 column 2 (char 1)"),
    ('Output %x as "y', "3:16: '\"' starts nothing that is known here"),
    ("%c = Constant(value=int8[2]{1, 2}", "4:1: expected ',' or ')', found '}'"),
    ("%c = Constant(value=int8[2]{1, 300})", "3:30: 300 is no element of int8, which holds -128 to 127"),
    ("%c = Constant(value=int64[1]{9223372036854775808})", "3:31: 9223372036854775808 is no element of int64, which "
     "holds -9223372036854775808 to 9223372036854775807"),
    ("%c = Constant(value=int8[1]{1.0})", "3:30: 1.0 is no element of int8"),
    ("%c = Constant(value=int8[1]{1}) : int8[2]", "3:3: the constant is int8[1], but the tensor int8[2]"),
    ("%c = Constant(value=int8[1]{True})", "3:30: True is no element of int8"),
    ("%c = Constant(value=bool[1]{1})", "3:30: 1 is no element of bool"),
    ('%c = Constant(value=float32[1]{"1"})', "3:33: '1' is no element of float32"),
    ("%c = Constant(value=int8[?]{1})", "3:23: an array needs a known shape, not [?]"),
    ("%c = Constant(value=int8[9999999999]{1})", "3:39: expected 9999999999 elements for int8[9999999999], found 1"),
    ('%c = Constant(value=int8[3]{base64 "AAA="})', "3:30: 2 elements were given for the shape [3]"),
    ('%c = Constant(value=int8[2]{base64 "AAA"})', "3:30: Incorrect padding"),
    ("%c = Constant", "3:8: Constant needs the attribute 'value'"),
    ("%c = StandIn(description=<opaque>)", "3:16: text cannot hold description of layer 'c'; give it as opaque['c']"),
    ("%c = PreCompiled(object=" + "(" * 40, "3:58: more than 32 levels are nested"),
    ("%c = Activation(a=" + "9" * 5000 + ")", "3:21: an integer of 5000 digits is too long"),
], ids=lambda value: value[:40])  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(line, message):
    assert refusal(f"graph {{\n  {X}\n  {line}\n}}") == message


@pytest.mark.parametrize(("text", "message"), [
    ("", "1:1: expected 'graph', found the end"),
    ("graf {}", "1:1: expected 'graph', found 'graf'"),
    ("graph {", "1:8: expected a new line, found the end"),
    ("graph {\n", "2:1: expected an operator's name, found the end"),
    ("graph {\n} x", "2:3: expected the end, found 'x'"),
    ("graph 'a' {}", "1:7: \"'\" starts nothing that is known here"),
    ("graph " + '"' + "a" * 60, "1:7: '\"' starts nothing that is known here"),
    ("graph " + "a" * 60, "1:7: expected '{', found '" + "a" * 40 + "...'"),
    ("graph {\n if = If {\n" * 2, "2:5: expected 'as', found '='"),
    ('graph {\nStandIn(num_outputs=0) as "a" {\n' * 20, "33:7: more than 32 levels are nested"),
])  # fmt: skip
def test_what_is_no_graph_at_all_is_refused(text, message):
    assert refusal(text) == message


def test_the_place_is_an_attribute_of_the_error():
    with pytest.raises(ParseError) as caught:
        parse_graph("graph {\n  ?")
    assert caught.value.where == "2:3"


PIECES = st.lists(st.sampled_from(re.findall(r'\w+|"[^"]*"|\s|.', """
graph "a" { %x %y:0 = Input Constant StandIn ( num_outputs binding_id value object ) _ , : float32 int8 [ 1 ? n ] q
@ hint as from replacing declared <opaque> base64 "AAA=" {... 1 } inf -1 1e9 axis RELU True None # \\ \0 é
""")))  # fmt: skip


@given(st.one_of(st.text(), PIECES.map(" ".join), PIECES.map("".join)))
@example('"' + "a" * 100_000)
@example('"' + "\\a" * 100_000)
@example("# " * 100_000)
@example("graph {\n" * 10_000)
@settings(max_examples=200)
def test_any_text_is_a_graph_or_a_parse_error(text):
    try:
        parse_graph(text)
    except ParseError as error:
        assert re.fullmatch(r"\d+:\d+", error.where)


@given(annotated(), st.data())
@settings(max_examples=60)
def test_a_damaged_graph_is_a_graph_or_a_parse_error(graph, data):
    text = print_graph(graph)
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(start + 6, len(text))))
    damaged = text[:start] + data.draw(st.sampled_from(["", "0", ",", "%", '"', "{", "}", " x ", "\n"])) + text[stop:]
    try:
        verify(parse_graph(damaged))
    except Exception as error:
        assert type(error).__name__ in ("ParseError", "VerificationError")
