"""Regular expressions in RE2's syntax: compared with Python's on what both have, and what is refused."""

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interposer.core.errors import InvalidArgumentError
from interposer.ops import RegexFullMatch
from interposer.ops.regex import Pattern

letters = st.sampled_from("ab1 ")
atoms = st.one_of(letters, st.sampled_from([".", "\\d", "\\W", "[ab]", "[^a]", "[a-b1]", "\\b", "()"]))
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(patterns, st.text("ab1 ", max_size=5))
def test_both_find_the_same_texts(pattern, text):
    assert Pattern(pattern).matches(text) is (re.fullmatch(pattern, text, re.ASCII) is not None)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("", "", "a"),
        ("(?i)stra(ss)e", "STRASSE", "straße"),
        ("(?i:a)b", "Ab", "AB"),
        ("a(?i)b|C", "c", "Ab"),
        ("a.b", "a-b", "a\nb"),
        ("(?s)a.b", "a\nb", "ab"),
        ("(?m)a$\n^b", "a\nb", "ab"),
        ("^ab$", "ab", "ab\n"),
        ("\\Aab\\z", "ab", "abb"),
        ("\\Qa.b\\E+", "a.bb", "axb"),
        ("\\x41\\x{1F600}\\101", "A😀A", "A"),
        ("[[:alpha:]_]+[[:^digit:]]", "a_!", "a_1"),
        ("\\p{Lu}\\pL\\PN", "Äßx", "äßx"),
        ("[\\p{Nd}x]+", "1x٣", "y"),
        ("(?P<name>a)(?<other>b)", "ab", "a"),
        ("[]a]+[a-]", "]a-", "b"),
        ("a{,2}", "a{,2}", "aa"),
        ("\\bcat\\b.*", "cat nap", "cats"),
        ("[\\D]", "x", "1"),
        ("\\.\\*", ".*", "ab"),
    ],
)
def test_the_syntax_is_that_of_re2(pattern, yes, no):
    assert (Pattern(pattern).matches(yes), Pattern(pattern).matches(no)) == (True, False)


def test_what_keeps_others_busy_for_ever_is_quick():
    assert not Pattern("(a*)*b").matches("a" * 2000)
    assert Pattern("(x+x+)+y?").matches("x" * 2000)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "')' is missing"),
        ("a)", "unmatched ')'"),
        ("[a", "unexpected end"),
        ("*a", "a repetition operator has no operand"),
        ("a**", "a repetition operator cannot follow another one"),
        ("a{1001}", "{1001} is not a valid repetition; expected rising counts of at most 1000"),
        ("a{3,2}", "{3,2} is not a valid repetition; expected rising counts of at most 1000"),
        ("(a)\\1", "back references are not supported"),
        ("(?=a)", "lookaround, and other groups with a question mark, are not supported"),
        ("(?<!a)b", "lookaround, and other groups with a question mark, are not supported"),
        ("\\p{Greek}", "the class 'Greek' is not known; general categories such as Lu are"),
        ("[[:word", "unexpected end"),
        ("[b-a]", "a character range is reversed, or ends in a class"),
        ("\\C", "\\C is not supported"),
        ("\\xfg", "'fg' is not a valid code point"),
        ("(" * 101 + ")" * 101, "more than 100 groups are nested"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(pattern, why):
    with pytest.raises(
        InvalidArgumentError, match=r"^the regular expression .* is invalid at character \d+: "
    ) as caught:
        Pattern(pattern)
    assert str(caught.value).endswith(why) or "[:" in pattern


def test_a_pattern_that_would_become_too_large_is_refused():
    with pytest.raises(InvalidArgumentError, match="is too large$"):
        Pattern("((a{1000}){1000}){1000}")


@given(st.text("ab\\()[]{}*+?|^$.-,1:PpQExz<>=!imsU", max_size=12))
def test_any_text_is_a_pattern_or_is_refused(text):
    try:
        pattern = Pattern(text)
    except InvalidArgumentError:
        assume(False)
    assert pattern.matches("ab") in {True, False}


def test_an_operator_with_a_wrong_pattern_cannot_be_made():
    with pytest.raises(InvalidArgumentError, match=r"^RegexFullMatch: the regular expression '\(' is invalid"):
        RegexFullMatch("(")
