"""Lines of C: where they break, and what a comment or a string may not do."""

from __future__ import annotations

import ast

import pytest

from firmwright.codegen.c_writer import (
    CWriter,
    format_c_string,
    wrap_comment,
    wrap_line,
)


def test_a_short_line_stays_whole() -> None:
    assert list(wrap_line("x = y;", 100)) == ["x = y;"]


def test_a_long_call_breaks_after_a_comma() -> None:
    text = f"f({', '.join(f'argument_{i}' for i in range(12))});"
    parts = list(wrap_line(text, 96))
    assert [len(part) <= 96 for part in parts] == [True, True]
    assert parts[0].endswith(",")
    assert "".join(part + " " for part in parts).replace("  ", " ").strip() == text


def test_a_condition_breaks_before_the_logical_operator() -> None:
    text = f"if ({' || '.join(f'pointer_{i} == NULL' for i in range(8))}) {{"
    assert list(wrap_line(text, 100))[1].startswith("|| ")


def test_strings_and_comments_are_not_broken() -> None:
    text = f'puts("{"a, b " * 30}"); /* {"c, d " * 30}*/'
    assert list(wrap_line(text, 100)) == [text]


def test_directives_stay_whole_and_at_the_margin() -> None:
    out = CWriter()
    with out.indent():
        out.line("#if " + " && ".join(["defined(SOMETHING_LONG)"] * 6))
    assert out.text().count("\n") == 1
    assert out.text().startswith("#if")


@pytest.mark.parametrize(
    "text", ["*/", "/*", "a */ b /* c", "??/", "\\", "*\\/", "/*/", "???", "über"]
)
def test_no_text_ends_a_comment_early(text: str) -> None:
    (line,) = wrap_comment([text])
    assert "*/" not in line
    assert "/*" not in line
    assert "??" not in line
    assert "\\" not in line
    assert line.isascii()


def test_comments_fold_at_blanks_and_semicolons_and_in_need_anywhere() -> None:
    long = "functional_1/activation/Relu;" * 9 + "x" * 300
    for line in wrap_comment([long, "short"]):
        assert len(f" * {line}") <= 100
    joined = "".join(line.strip() for line in wrap_comment([long]))
    assert joined == long


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a??/b", "é\n\x00", "plain"])
def test_strings_read_back_to_the_same_bytes(text: str) -> None:
    literal = format_c_string(text)
    assert literal.isascii()
    assert "\n" not in literal
    assert ast.literal_eval("b" + literal.replace("\\?", "?")) == text.encode()
