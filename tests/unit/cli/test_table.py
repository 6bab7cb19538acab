"""Tables line up, numbers stand at the right, what is not known is a dash."""

from firmwright.cli.table import facts, quantity, table


def test_a_table_lines_up():
    text = table(["name", "bytes"], [["a", 1234567], ["longer", None]])
    assert text.splitlines() == [
        "name        bytes",
        "──────  ─────────",
        "a       1,234,567",
        "longer          –",
    ]


def test_an_empty_table_has_its_head():
    assert table(["a", "b"], []).splitlines()[0] == "a  b"


def test_quantities_read_well():
    assert [quantity(value) for value in (None, 0, 12345, 1.5, "x")] == [
        "–",
        "0",
        "12,345",
        "1.50",
        "x",
    ]


def test_facts_stand_in_two_columns():
    assert facts([("model", "digits"), ("MACs", 73472)]) == "model  digits\nMACs   73,472"
