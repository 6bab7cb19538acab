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
    assert format_pairs([("model", "digits"), ("MACs", 73472)]) == "model  digits\nMACs   73,472"
