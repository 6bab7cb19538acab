"""Tables are aligned, numbers to the right; None is shown as a dash."""

import pytest

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


def test_bars_are_dropped_before_texts_are_wrapped(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    row = ["conv2d 2, 25x5x64", "a text of some words", 1_113_620, 2_113_620, "█" * 12]
    head = ["operator", "note", "instructions", "cycles", ""]
    first, _, second = format_table(head, [row], drop=("",)).splitlines()
    assert second.split("  ")[0] == "conv2d 2, 25x5x64"
    assert first.endswith("cycles")


@pytest.mark.parametrize("columns", [24, 40, 60, 79])
def test_rows_are_stacked_rather_than_numbers_or_names_broken(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    row = [10, "functional_1_activation_1", 1_113_620, 2_113_620, "12.5 %", "█" * 12]
    head = ["#", "operator", "instructions", "cycles", "share", ""]
    text = format_table(head, [row, row])
    if columns < 60:
        first, second = text.split("\n\n")
        assert first == second
        assert "█" not in text
        assert "functional_1_activation_1" in first
    for number in ("1,113,620", "2,113,620", "12.5 %"):
        assert text.count(number) == 2
    assert max(map(len, text.splitlines())) <= max(columns, 27)


def test_a_stacked_row_keeps_texts_without_a_name(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    row = ["nucleo-l4r5zi-and-more", 2048, "STM32L4R5 at 120 MHz", "██"]
    text = format_table(["board", "flash KiB", "", ""], [row])
    assert text.splitlines() == [
        "board      nucleo-l4r5zi-and-more",
        "flash KiB  2,048",
        "           STM32L4R5 at 120 MHz",
    ]


def test_values_without_room_stand_below_their_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    pairs = [("instructions per run, at most", "113,620 on the longest path")]
    assert format_pairs(pairs).splitlines() == [
        "instructions per run, at most",
        "  113,620 on the longest path",
    ]
    assert format_pairs([("instructions per run, at most", 113_620)]).splitlines() == [
        "instructions per run, at most  113,620"
    ]


def test_words_are_not_broken_at_the_separators_of_names(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = format_table(["a"] * 4, [["3.11.2 on Linux x86_64"] * 4])
    assert text.count("x86_64") == 4
    assert max(map(len, text.splitlines())) <= 80
