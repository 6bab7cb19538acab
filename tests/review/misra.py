"""docs/reference/misra.md against what the addon counts: its list of deviations, and its table.

    PYTHONPATH=toolchain python -m tests.review.misra MODELS

MODELS is the folder of the MLPerf Tiny models; the command writes the table.

Read the diff before committing it. A rule is a heading of the page, `### Rule 10.1
(required): text`; what is found and has none ends this script, as it fails the tests.
Findings count over both forms of the C, the one that gcc compiles for the core and the
portable one; the runtime is that of the board, the same in each project.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.review.analysers import (
    CORTEX_M4,
    PORTABLE,
    Finding,
    Project,
    cppcheck,
    misra_rules,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "misra.md"
MARKER = "<!-- misra: counts -->\n"
BOARD = "mps2-an386"
MODELS = {
    "kws": "kws_ref_model",
    "vww": "vww_96_int8",
    "ic": "pretrainedResnet_quant",
    "ad": "ad01_int8",
    "ww": "str_ww_ref_model",
}
RUNTIME = "runtime"
_HEADING = re.compile(
    r"^### Rule (?P<rule>\d+\.\d+) \((?P<category>required|advisory)\): \S", re.M
)

Counts = Mapping[str, Counter[str]]
"""Column of the table -> rule -> how many."""


def deviations() -> dict[str, str]:
    """Rule -> its category, of every rule that the page says is not kept."""
    return {
        m["rule"]: m["category"] for m in _HEADING.finditer(PAGE.read_text("utf-8"))
    }


def both_forms(project: Project) -> list[Finding]:
    """The rules broken in the C that gcc compiles for the core, or in portable C."""
    with ThreadPoolExecutor(2) as pool:
        found = pool.map(
            lambda defines: cppcheck(project, defines), (CORTEX_M4, PORTABLE)
        )
        return misra_rules(sorted({finding for form in found for finding in form}))


def unlisted(findings: Iterable[Finding]) -> list[Finding]:
    """Those of rules that the page does not list."""
    known = deviations()
    return [finding for finding in findings if finding.rule not in known]


def counted(findings: Iterable[Finding], column: str) -> dict[str, Counter[str]]:
    """How often a model's C, its glue included, and the runtime break each rule."""
    counts: dict[str, Counter[str]] = {column: Counter(), RUNTIME: Counter()}
    for finding in findings:
        ours = finding.file.startswith(("runtime/", "board/"))
        counts[RUNTIME if ours else column][finding.rule] += 1
    return counts


def table(counts: Counts) -> str:
    """The page's table: a row a rule, required ones first, then their sums."""
    known = deviations()
    columns = [*MODELS, RUNTIME]
    used = {rule for column in columns for rule in counts[column]}
    rules = sorted(
        used, key=lambda rule: (known[rule] != "required", *map(int, rule.split(".")))
    )
    lines = [
        f"| rule | category | {' | '.join(columns)} |",
        f"| --- | --- |{' --: |' * len(columns)}",
    ]
    for rule in rules:
        cells = " | ".join(str(counts[column][rule] or "–") for column in columns)
        lines.append(f"| {rule} | {known[rule]} | {cells} |")
    for category in ("required", "advisory"):
        sums = (
            sum(n for r, n in counts[c].items() if known[r] == category)
            for c in columns
        )
        lines.append(f"| all | {category} | {' | '.join(map(str, sums))} |")
    return "\n".join(lines)


def table_of_the_page() -> str:
    return PAGE.read_text("utf-8").partition(MARKER)[2].partition("\n\n")[0]


def column_of_the_page(column: str) -> Counter[str]:
    """Rule -> count, as the page's table says it of a model or of the runtime."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table_of_the_page().splitlines()
    )
    at = head.index(column)
    return Counter(
        {row[0]: int(row[at]) for row in rows if row[0] != "all" and row[at] != "–"}
    )


def project_of(model: Path, folder: Path) -> Project:
    """A model compiled for the board, written to `folder`."""
    from firmwright.flows.model.model import load_model
    from firmwright.pipeline import Options, compile_model

    compile_model(load_model(model).module, Options(board=BOARD)).save(folder)
    return Project.read(folder)


def missing_models(models: Path) -> str:
    """What to do about models that are not in the folder; "" if all are."""
    names = [
        name for name in MODELS.values() if not (models / f"{name}.tflite").is_file()
    ]
    if not names:
        return ""
    return (
        f"{models} has no {', '.join(names)} (.tflite). examples/mlperf_tiny/fetch.py"
        " downloads them; FIRMWRIGHT_MODELS names another folder."
    )


def main(models: Path) -> None:
    if missing := missing_models(models):
        sys.exit(missing)
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory(prefix="firmwright-misra-") as scratch:
        for column, name in MODELS.items():
            print(name, file=sys.stderr)
            found = both_forms(
                project_of(models / f"{name}.tflite", Path(scratch) / column)
            )
            if more := unlisted(found):
                sys.exit(
                    "not in docs/reference/misra.md:\n" + "\n".join(map(str, more))
                )
            counts |= counted(found, column)
    text = PAGE.read_text("utf-8")
    PAGE.write_text(text.replace(table_of_the_page(), table(counts)), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
