"""C identifiers for names in models."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firmwright.base.c_identifiers import (
    MAX_LENGTH,
    UniqueNamer,
    is_identifier,
    to_c_identifier,
    to_model_identifier,
)

RUNTIME = Path(__file__).parents[3] / "runtime_c"


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("input_1", "input_1"),
        ("serving_default_input:0", "serving_default_input_0"),
        (
            "model/conv2d/Relu;model/conv2d/BiasAdd",
            "model_conv2d_Relu_model_conv2d_BiasAdd",
        ),
        ("96_vww", "n96_vww"),
        ("", "unnamed"),
        ("###", "unnamed"),
        ("__x__", "x"),
        ("gr\u00f6\u00dfe", "gr_e"),
        ("int", "int_"),
        ("int8_t", "int8_t_"),
        ("memcpy", "memcpy_"),
    ],
)
def test_names_become_identifiers(name: str, identifier: str) -> None:
    assert to_c_identifier(name) == identifier


@given(st.text())
def test_identifiers_of_any_text_are_valid_and_stable(name: str) -> None:
    identifier = to_c_identifier(name)
    assert is_identifier(identifier)
    assert len(identifier) <= MAX_LENGTH + 1
    assert to_c_identifier(identifier).rstrip("_") == identifier.rstrip("_")


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("features", "features_"),
        ("String", "String_"),
        ("fwr_baud", "fwr_baud_"),
        ("int", "int_"),
        ("kws", "kws"),
    ],
)
def test_no_model_is_named_as_a_header(name: str, identifier: str) -> None:
    assert to_model_identifier(name) == identifier
    assert to_model_identifier(identifier) == identifier


def test_no_model_is_named_as_a_header_of_the_runtime() -> None:
    headers = [file.stem for file in RUNTIME.rglob("*.h")]
    assert "fwr" in headers
    assert [to_model_identifier(name) for name in headers] == [f"{h}_" for h in headers]


@given(st.lists(st.text(alphabet="aA_1-/", max_size=4)))
def test_names_are_unique_and_deterministic(names: list[str]) -> None:
    first, second = UniqueNamer(["a"]), UniqueNamer(["a"])
    results = [first.unique(name) for name in names]
    assert results == [second.unique(name) for name in names]
    upper = [name.upper() for name in results]
    assert len({*upper, "A"}) == len(upper) + 1


def test_reserved_names_are_skipped() -> None:
    supply = UniqueNamer()
    assert [supply.unique(n) for n in ("x", "x_1", "x", "X")] == [
        "x",
        "x_1",
        "x_2",
        "X_3",
    ]
    supply.reserve("y")
    assert supply.unique("y") == "y_1"


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "if", "size_t", "a b", "\u00e9", "a\n"]
)
def test_keywords_are_not_identifiers(name: str) -> None:
    assert not is_identifier(name)
