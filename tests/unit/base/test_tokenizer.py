"""The writer and the tokenizer: layout, every kind of token, error locations."""

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmwright.base.errors import ModelError
from firmwright.base.indented_writer import IndentedWriter
from firmwright.base.tokenizer import (
    Tokenizer,
    TokenKind,
    format_float,
    format_global,
    format_local,
    quote,
)


def tokens(text: str) -> list[tuple[str, object]]:
    tokenizer = Tokenizer(text, "t.fwir")
    values = []
    while not tokenizer.at_end:
        token = tokenizer.next()
        values.append((token.kind.name, token.value))
    return values


def test_blocks_indent_and_empty_lines_stay_empty() -> None:
    writer = IndentedWriter()
    with writer.block("func @f()"):
        writer.line("x")
        writer.line()
        with writer.block("for i in 8"), writer.block("loads", brackets="[]"):
            writer.line("y")
    assert writer.text() == (
        "func @f() {\n  x\n\n  for i in 8 {\n    loads [\n      y\n    ]\n  }\n}\n"
    )


def test_every_kind_of_token_is_read() -> None:
    text = (
        'nn.conv2d %x.1 @"odd name" -3 0x1F 1.5e-3 "a\\"b" -> i8[1, 2] // end\n; more'
    )
    assert tokens(text) == [
        ("IDENT", "nn.conv2d"),
        ("LOCAL", "x.1"),
        ("GLOBAL", "odd name"),
        ("INT", -3),
        ("INT", 31),
        ("FLOAT", 1.5e-3),
        ("STRING", 'a"b'),
        ("PUNCT", "->"),
        ("IDENT", "i8"),
        ("PUNCT", "["),
        ("INT", 1),
        ("PUNCT", ","),
        ("INT", 2),
        ("PUNCT", "]"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i - 1", ["i", "-", 1]),
        ("i-1", ["i", "-", 1]),
        ("(i)-1", ["(", "i", ")", "-", 1]),
        ("i = -1", ["i", "=", -1]),
        ("[-1,-2.0]", ["[", -1, ",", -2.0, "]"]),
        ("3-inf", [3, "-", math.inf]),
        ("-inf", [-math.inf]),
        ("0..8", [0, "..", 8]),
        ("a % b %b", ["a", "%", "b", "b"]),
        ("info nano inf.x", ["info", "nano", "inf.x"]),
        ("1.e", [1, ".", "e"]),
    ],
)
def test_minus_ranges_and_modulo_are_distinguished(
    text: str, expected: list[object]
) -> None:
    assert [value for _, value in tokens(text)] == expected


@given(st.floats(allow_nan=False))
def test_floats_round_trip(value: float) -> None:
    read = Tokenizer(format_float(value), "t").float_()
    assert read == value
    assert math.copysign(1, read) == math.copysign(1, value)


def test_nan_round_trips() -> None:
    assert math.isnan(Tokenizer(format_float(math.nan), "t").float_())


@given(st.integers(-(2**64), 2**64))
def test_integers_round_trip(value: int) -> None:
    assert Tokenizer(str(value), "t").int_() == value


@given(st.text())
def test_strings_and_names_round_trip_in_ascii(text: str) -> None:
    for written, read in (
        (quote(text), Tokenizer.string),
        (format_local(text), Tokenizer.local),
        (format_global(text), Tokenizer.global_),
    ):
        assert written.isascii()
        tokenizer = Tokenizer(f" {written} ", "t")
        assert read(tokenizer) == text
        assert tokenizer.at_end


@given(st.text(alphabet='ab1.%@"\\-;/ \n(x', max_size=30))
def test_any_text_ends_in_tokens_or_a_model_error(text: str) -> None:
    tokenizer = Tokenizer(text, "t")
    with contextlib.suppress(ModelError):
        for _ in range(len(text) + 1):
            if tokenizer.next().kind is TokenKind.END:
                return
        pytest.fail("the tokenizer does not advance")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\n  7", "t.fwir:2:3: found '7', expected ')'."),
        ("a", "t.fwir:1:2: found the end of the text, expected ')'."),
        ("a\n\n 12ab", "t.fwir:3:2: the number 12a is malformed."),
        ('a "xy', "t.fwir:1:3: an unterminated string, '\"'."),
        ("a $", "t.fwir:1:3: an unexpected character, '$'."),
        ('a "x\\qz"', "t.fwir:1:5: the escape \\q is unknown."),
        ('a "\\Uffffffff"', "t.fwir:1:4: the escape \\Uffffffff is unknown."),
        ("a " + "9" * 50, "t.fwir:1:3: an integer of 50 characters is too long."),
    ],
)
def test_errors_name_line_and_column(text: str, message: str) -> None:
    tokenizer = Tokenizer(text, "t.fwir")
    assert tokenizer.ident() == "a"
    with pytest.raises(ModelError) as caught:
        tokenizer.expect(")")
    assert str(caught.value) == message


def test_the_wrong_kind_of_token_is_named() -> None:
    with pytest.raises(ModelError, match="found 'x', expected an integer"):
        Tokenizer("x", "t").int_()
    with pytest.raises(ModelError, match="expected an @name"):
        Tokenizer("%x", "t").global_()


def test_accept_consumes_only_matching_tokens() -> None:
    tokenizer = Tokenizer("to (", "t")
    assert not tokenizer.accept("(")
    assert tokenizer.accept("to")
    assert tokenizer.where() == "t:1:4"
    assert tokenizer.accept("(")
    assert not tokenizer.accept("")
    assert tokenizer.next().kind is tokenizer.next().kind is TokenKind.END
