"""The table of SECURITY.md and the tests of this folder correspond one to one."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
PAGE = FOLDER.parents[1] / "SECURITY.md"
ANSWERS = ("trusted", "not trusted", "needs `--trust`")


def table() -> list[list[str]]:
    text = (
        PAGE.read_text(encoding="utf-8")
        .partition("## Trust model")[2]
        .partition("\n## ")[0]
    )
    rows = [
        line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")
    ]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_each_kind_of_input_has_an_answer_and_a_test() -> None:
    rows = table()
    assert len(rows) >= 10
    for kind, answer, tests in rows:
        assert kind
        assert answer in ANSWERS, kind
        assert tests, kind


def test_each_test_of_this_folder_belongs_to_a_row_and_exists() -> None:
    named = [
        name for _, _, tests in table() for name in re.findall(r"`(test_\w+)`", tests)
    ]
    files = set(FOLDER.glob("test_*.py")) - {Path(__file__)}
    texts = [file.read_text(encoding="utf-8") for file in sorted(files)]
    defined = [
        name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)
    ]
    assert sorted(named) == sorted(defined)
