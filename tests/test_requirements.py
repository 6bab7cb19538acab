"""The requirements of the qualification kit have tests that exist, and are in its page."""

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "qualification.md"
REQUIREMENTS = tomllib.loads((ROOT / "tests" / "requirements.toml").read_text("utf-8"))


def functions_of(file: Path) -> set[str]:
    """Return the names of the test functions of a file, and of those in its classes."""
    tree = ast.parse(file.read_text("utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            names.add(node.name)
    return names


@pytest.mark.parametrize("key", REQUIREMENTS)
def test_each_requirement_has_tests_that_exist(key: str) -> None:
    tests = REQUIREMENTS[key]["tests"]
    assert tests
    for test in tests:
        file, _, function = test.partition("::")
        names = functions_of(ROOT / file)
        assert function in names if function else names, test


def test_the_page_has_the_table() -> None:
    rows = ["| requirement | text | tests |", "|---|---|---|"]
    for key, entry in REQUIREMENTS.items():
        tests = ", ".join(f"`{test}`" for test in entry["tests"])
        rows.append(f"| {key} | {entry['text']} | {tests} |")
    table = "\n".join(rows)
    assert table in PAGE.read_text("utf-8"), f"the table has to be:\n{table}"


def test_each_error_of_the_analysis_names_requirements() -> None:
    """Each row of the malfunctions has measures, and these are requirements."""
    text = PAGE.read_text("utf-8")
    _, _, section = text.partition("## Malfunctions and how they are found")
    rows = [
        line for line in section.split("\n## ")[0].splitlines() if line[:3] == "| M"
    ]
    assert len(rows) >= 8
    for row in rows:
        named = [word.strip(" ,.") for word in row.replace("|", " ").split()]
        assert any(word in REQUIREMENTS for word in named), row
