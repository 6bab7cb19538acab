"""docs/developing/adding-an-operator.md adds an operator, its importer and a schedule."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.extensions.test_installed_extension import FILE, ROOT, install
from tests.state.model_writer import ModelFile

PAGE = ROOT / "docs" / "developing" / "adding-an-operator.md"
RUN = """\
import json, sys
import numpy as np
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.reference_outputs import run_numpy_reference

model = load_model(sys.argv[1])
compiled = compile_for(model)
samples = [{"x": np.arange(-12, 12, dtype=np.int8).reshape(2, 12)}]
with open_session(compiled, in_process=True) as session:
    (got,) = session.run_all(samples)
(expected,) = run_numpy_reference(model.module, samples).outputs
schedules = [row.schedule for row in compiled.summary.operators]
print(json.dumps([schedules, got["y"].tolist(), expected["y"].tolist()]))
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages with the one of the page."""
    site = tmp_path / "site"
    for name, text in FILE.findall(PAGE.read_text(encoding="utf-8")):
        file = site / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    install(site, "raise-to", "firmwright_raise_to")
    return site


@pytest.fixture
def model(tmp_path: Path) -> Path:
    file = ModelFile()
    main = file.graph("main")
    x = main.input("x", "int8", (2, 12), 0.5)
    y = main.tensor("y", "int8", (2, 12), 0.5)
    main.op("custom:RaiseTo", [x], [y], limit=-3)
    main.outputs(y)
    path = tmp_path / "raise.tflite"
    path.write_bytes(file.data())
    return path


@pytest.mark.host_c
def test_a_model_with_the_operator_is_imported_scheduled_and_run(
    site: Path, model: Path, python: Callable[..., str]
) -> None:
    path = os.pathsep.join((str(ROOT / "toolchain"), str(site)))
    schedules, got, expected = json.loads(
        python(["-c", RUN, model], {"PYTHONPATH": path})
    )
    x = np.arange(-12, 12).reshape(2, 12)
    assert schedules == ["raise_to.by_four"]
    assert got == expected == np.maximum(x, -3).tolist()


def test_the_operator_is_listed_with_its_attribute(
    site: Path, python: Callable[..., str]
) -> None:
    path = os.pathsep.join((str(ROOT / "toolchain"), str(site)))
    words = ["-m", "firmwright", "ops", "--json"]
    rows = json.loads(python(words, {"PYTHONPATH": path}))["operators"]
    (row,) = (row for row in rows if row["name"] == "raise_to")
    assert (row["tflite"], row["inputs"]) == (["custom:RaiseTo"], ["x"])
    (attribute,) = row["attributes"]
    assert attribute["name"] == "limit"
    assert attribute["meaning"] == "Least stored number of the results."
    assert "raise_to.by_four" in row["schedules"]


def test_without_the_package_the_model_is_refused_by_the_operators_name(
    model: Path, fw: Callable[..., Any]
) -> None:
    said = fw("compile", model, "-o", model.parent / "out")
    assert said.status == 2
    assert re.search(r"custom:RaiseTo at .*: this operator is not supported", said.err)
    assert "a custom operator (docs/reference/custom-operators.md)" in said.err


def test_an_operator_of_the_core_cannot_be_replaced(
    site: Path, python: Callable[..., str], tmp_path: Path
) -> None:
    file = site / "firmwright_raise_to" / "operator.py"
    text = file.read_text()
    assert text.count('    "raise_to",\n') == 1
    file.write_text(text.replace('    "raise_to",\n', '    "relu",\n'))
    path = os.pathsep.join((str(ROOT / "toolchain"), str(site)))
    script = (
        "from firmwright.ops.registry import op_table\n"
        "try:\n    op_table()\n"
        "except Exception as error:\n    print(type(error).__name__, error)\n"
    )
    said = python(["-c", script], {"PYTHONPATH": path})
    twice = "the operator relu is defined twice, by firmwright.ops.activations and "
    assert said.startswith(f"PluginError {twice}firmwright_raise_to.operator")
    assert sys.modules.get("firmwright_raise_to") is None
