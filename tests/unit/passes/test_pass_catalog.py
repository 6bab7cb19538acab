"""Pipeline, target selection, modules and documentation agree with the pass catalog."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from firmwright import passes
from firmwright.ir.module import Pass
from firmwright.ir.pass_catalog import PASS_NAMES, SELECTABLE_PASSES
from firmwright.pipeline import Options, passes_for

ARCHITECTURE = Path(__file__).parents[3] / "docs" / "developing" / "architecture.md"
START, END = "<!-- stages -->\n\n", "\n\n<!-- end of stages -->"


def test_pass_names_are_unique() -> None:
    assert len(PASS_NAMES) == len(set(PASS_NAMES))


def test_the_pipeline_follows_the_catalog() -> None:
    every = [step.name for step in passes_for(Options(link_params=False))]
    assert every == list(PASS_NAMES)
    linked = [step.name for step in passes_for(Options())]
    assert linked == [name for name in PASS_NAMES if name != "externalize-constants"]


def test_every_pass_module_is_registered() -> None:
    modules = [
        importlib.import_module(info.name)
        for info in pkgutil.walk_packages(passes.__path__, "firmwright.passes.")
    ]
    steps = [
        module.PASS
        for module in modules
        if isinstance(getattr(module, "PASS", None), Pass)
    ]
    assert {step.name: step for step in steps} == passes.BY_NAME
    assert set(passes.BY_NAME) <= set(PASS_NAMES)


def test_targets_select_among_passes_of_the_catalog() -> None:
    assert set(passes.BY_NAME) >= SELECTABLE_PASSES


def test_the_stage_table_of_the_documentation() -> None:
    _, _, rest = ARCHITECTURE.read_text(encoding="utf-8").partition(START)
    table, _, after = rest.partition(END)
    assert after, "the markers of the stage table are missing"
    rows = table.splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(PASS_NAMES)
