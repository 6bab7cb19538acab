"""The example notebook: stored without outputs, runs completely, shows progress."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import firmwright as fw
from firmwright.cli.progress import CellProgress, attach_progress, render_progress
from firmwright.flows.measure.profiling import OperatorCost, Profile

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples/10_notebook/digits.ipynb"
EXECUTE = """
import sys, nbclient, nbformat
notebook = nbformat.read(sys.argv[1], as_version=4)
resources = {"metadata": {"path": sys.argv[2]}}
nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
nbformat.write(notebook, sys.argv[3])
"""


def test_notebook_is_committed_without_outputs() -> None:
    """examples/10_notebook/README.md has people run it for themselves."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(
        not cell.get("outputs") and not cell.get("execution_count") for cell in cells
    )


@pytest.mark.host_c
def test_notebook_runs_and_renders_its_values(
    tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    missing = [
        name for name in ("nbclient", "ipykernel") if not importlib.util.find_spec(name)
    ]
    if missing:
        reason = f"needs {', '.join(missing)}: pip install '.[dev]'"
        if pytestconfig.getoption("--require-tools"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    executed = tmp_path / "executed.ipynb"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "toolchain"),
        "IPYTHONDIR": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, NOTEBOOK, NOTEBOOK.parent, executed],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    shown = _outputs(json.loads(executed.read_text(encoding="utf-8")))
    assert "model digits" in shown["load"]
    assert "358 of 360 digits are right" in shown["run"]
    assert "all 50 values equal" in shown["verify"]
    assert "<svg" in shown["compile"]
    assert "the lower bound" in shown["compile"]


def _outputs(notebook: dict[str, Any]) -> dict[str, str]:
    """Return the output of each cell as text; output on stderr is an error."""
    found = {}
    for cell in notebook["cells"]:
        texts = []
        for output in cell.get("outputs", ()):
            assert output.get("name") != "stderr", output["text"]
            assert output["output_type"] != "error"
            data = output.get("data", {})
            texts.append("".join(data.get("text/html", output.get("text", ""))))
        found[cell["id"]] = "".join(texts)
    return found


# ---- progress ------------------------------------------------------------------------


class Shell:
    """Plays IPython's events."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., None]] = {}

    def register(self, event: str, function: Callable[..., None]) -> None:
        self.functions[event] = function

    def unregister(self, event: str, function: Callable[..., None]) -> None:
        del self.functions[event]


def test_log_messages_are_shown_until_the_cell_has_finished() -> None:
    shell, shown = Shell(), []
    attach_progress(shell, lambda: shown.append)
    logger = logging.getLogger("firmwright.flows.model.tuning_log")
    level = logging.getLogger("firmwright").level
    logger.info("before any cell")
    shell.functions["pre_run_cell"]()
    logger.info("measuring 3 of 1,200 kernels of a<b")
    shell.functions["post_run_cell"]()
    logger.info("between cells")
    assert shown == [
        '<progress value="3" max="1200"></progress> '
        "<span>measuring 3 of 1,200 kernels of a&lt;b</span>",
        "",
    ]
    assert logging.getLogger("firmwright").level == level


def test_cell_without_messages_shows_nothing() -> None:
    def no_place() -> Callable[[str], None]:
        raise AssertionError("a place was made")

    progress = CellProgress(no_place)
    progress.begin()
    progress.end()


def test_progress_without_total_has_no_value() -> None:
    assert (
        render_progress("compiling") == "<progress></progress> <span>compiling</span>"
    )


# ---- values --------------------------------------------------------------------------


@pytest.mark.host_c
def test_images_and_sessions_are_rendered(digits_path: Path) -> None:
    compiled = fw.compile(fw.load(digits_path))
    image = fw.build_image(compiled)
    assert f">{image.sizes.flash_bytes:,}</td>" in image._repr_html_()
    with fw.session(compiled, image=image) as session:
        assert "session: digits on host" in session._repr_html_()


def test_profile_is_rendered_with_operator_shares() -> None:
    costs = (
        OperatorCost(
            0, "first", "conv2d", 9_216, 750, "dsp.conv2d.im2col", 700, "first"
        ),
        OperatorCost(1, "second", "softmax", 0, 250, "default", 300, "second"),
    )
    found = Profile(
        "digits", "mps2-an386", "instructions", 1_000, 40, costs, 0, 248, 4_096
    )
    shown = found._repr_html_()
    assert "digits on mps2-an386: 1,000 instructions" in shown
    assert re.findall(r"width:(\d+)px", shown) == ["90", "30"]  # of 120
    assert "modeled cycles" not in shown  # no exact counts


def test_model_names_are_escaped_in_html() -> None:
    from firmwright.base.html_fragments import (
        render_properties,
        render_section,
        render_table,
    )

    bad = "<script>alert(1)</script>"
    shown = render_section(
        bad, render_properties([(bad, bad)]), render_table((bad,), [(bad,)])
    )
    assert "<script" not in shown
    assert shown.count("&lt;script&gt;") == 5


def test_long_table_states_the_number_of_hidden_rows() -> None:
    from firmwright.base.html_fragments import render_table

    shown = render_table(("n",), [(n,) for n in range(1_500)])
    assert "and 1,440 more" in shown
    assert shown.count("<tr") == 61
