"""Tables are aligned, numbers to the right; None is shown as a dash."""

from firmwright.cli.text_table import format_number, format_pairs, format_table


def test_table_columns_are_aligned():
    text = format_table(["name", "bytes"], [["a", 1234567], ["longer", None]])
    assert text.splitlines() == [
        "name        bytes",
        "──────  ─────────",
        "a       1,234,567",
        "longer          –",
    ]


def test_empty_table_has_a_heading():
    assert format_table(["a", "b"], []).splitlines()[0] == "a  b"


def test_number_formats():
    assert [format_number(value) for value in (None, 0, 12345, 1.5, "x")] == [
        "–",
        "0",
        "12,345",
        "1.50",
        "x",
    ]


def test_pairs_are_formatted_in_two_columns():
    assert (
        format_pairs([("model", "digits"), ("MACs", 73472)])
        == "model  digits\nMACs   73,472"
    )


HEAD = ["operator", "kind", "two words", "ms", "share", ""]
ROW = [
    "depthwise_conv_2d_1",
    "depthwise_conv2d",
    "words that are wrapped",
    "0.010",
    "11.5 %",
    "█" * 12,
]


def test_narrow_tables_lose_columns_before_names_or_numbers_are_broken(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert len(format_table(HEAD, [ROW]).splitlines()) == 4, "words are wrapped"
    words = [*ROW[:2], "words of a very_long_name_in_lower_case", *ROW[3:]]
    text = format_table(HEAD, [words], drop=("", "kind"))
    assert "█" not in text
    assert "kind" in text
    assert "0.010  11.5 %" in text
    text = format_table(HEAD * 2, [ROW * 2])
    assert "0.010  11.5 %" in text
    assert "depthwise_conv_2d_1" not in text, "there is nothing else left"


def test_words_are_not_broken_at_the_separators_of_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = format_table(["a"] * 4, [["3.11.2 on Linux x86_64"] * 4])
    assert text.count("x86_64") == 4
    assert max(map(len, text.splitlines())) <= 80
