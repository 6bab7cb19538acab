"""Static analysis of generated C and the runtime: findings are fixed or listed.

Tools: gcc -fanalyzer (the board's and this machine's), clang-tidy, cppcheck and its
addon for MISRA C:2012, in the configurations below tests/review. docs/reference/misra.md lists
every rule that is not kept.
"""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.boards import list_boards
from firmwright.pipeline import Compilation
from tests.review.analysers import (
    Finding,
    Project,
    clang_tidy,
    gcc_analyzer,
    misra_rules,
    others,
    review,
)
from tests.review.misra import (
    BOARD,
    MODELS,
    PAGE,
    RUNTIME,
    column_of_the_page,
    counted,
    deviations,
    missing_models,
    unlisted,
)

Compile = Callable[..., Compilation]
Write = Callable[..., Project]
TOOLS = ("gcc", "arm-none-eabi-gcc", "clang-tidy", "cppcheck")


@pytest.fixture(autouse=True)
def _tools(request: pytest.FixtureRequest) -> None:
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        reason = f"needs {', '.join(missing)}, not found on PATH"
        if request.config.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


@pytest.fixture
def project(compiled: Compile, tmp_path: Path) -> Write:
    """`project("kws")`: that model compiled for a board and written."""

    def write(model: str, board: str = BOARD) -> Project:
        compiled(model, board=board).save(tmp_path / board)
        return Project.read(tmp_path / board)

    return write


@pytest.mark.deep
def test_static_analyzers_report_only_listed_findings(project: Write) -> None:
    assert_listed(review(project("digits"), jobs=2), "digits", RUNTIME)


@pytest.mark.deep
@pytest.mark.models
@pytest.mark.parametrize("model", MODELS)
def test_the_five_models_have_the_findings_that_the_page_counts(
    model: str, project: Write
) -> None:
    assert_listed(review(project(model), jobs=2), model, model)


def assert_listed(found: list[Finding], model: str, column: str) -> None:
    """Require only MISRA C deviations of the page, with the counts in `column`."""
    assert shown(others(found)) == ""
    rules = misra_rules(found)
    assert shown(unlisted(rules)) == ""
    counts = counted(rules, model)[column]
    assert counts.total() > 100  # the addon did look
    if version() in PAGE.read_text("utf-8"):  # others count otherwise
        assert dict(counts) == dict(column_of_the_page(column))


def shown(findings: list[Finding]) -> str:
    return "\n".join(map(str, findings))


def version() -> str:
    """As the page names it: `Cppcheck 2.10`."""
    said = subprocess.run(
        ["cppcheck", "--version"], capture_output=True, text=True, check=True
    )
    return said.stdout.strip()


def test_missing_models_are_named_with_their_source(tmp_path: Path) -> None:
    (tmp_path / "kws_ref_model.tflite").touch()
    said = missing_models(tmp_path)
    assert "vww_96_int8" in said
    assert "kws_ref_model" not in said
    assert "examples/mlperf_tiny/fetch.py" in said


def test_page_lists_exactly_the_findings() -> None:
    found: Counter[str] = Counter()
    for column in (*MODELS, RUNTIME):
        found += column_of_the_page(column)
    assert set(deviations()) == set(found)


@pytest.mark.parametrize(
    "board",
    [
        pytest.param(
            board.name, marks=[pytest.mark.deep] * (board.name != "nucleo-h743zi")
        )
        for board in list_boards()
    ],
)
def test_the_runtime_of_every_board_is_clean_to_compilers(
    board: str, project: Write, request: pytest.FixtureRequest
) -> None:
    own = project("digits", board)
    if shutil.which(own.cross_gcc) is None:
        pytest.skip(f"needs {own.cross_gcc}, not found on PATH")
    files = set(own.facts["runtime_sources"])
    if not request.config.getoption("--deep"):  # the others are analyzed for BOARD
        files -= {*project("digits").facts["runtime_sources"]}
    found = [
        finding
        for file in sorted(files)
        for tool in (gcc_analyzer, clang_tidy)
        for finding in tool(own, file)
    ]
    assert shown(found) == ""


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        (gcc_analyzer, "int f(void)\n{\n    int *p = 0;\n    return *p;\n}\n"),
        (clang_tidy, "int f(int a)\n{\n    return (int)sizeof(sizeof(a));\n}\n"),
    ],
    ids=["gcc_analyzer", "clang_tidy"],
)
def test_seeded_defect_is_reported(
    tool: Callable[[Project, str], list[Finding]], text: str, project: Write
) -> None:
    own = project("digits")
    (own.folder / "model" / "planted.c").write_text(text)
    assert tool(own, "model/planted.c")
    (own.folder / "model" / "planted.c").write_text("int f(void) { return }\n")
    with pytest.raises(RuntimeError, match=r"planted\.c"):
        tool(own, "model/planted.c")
