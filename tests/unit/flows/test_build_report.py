"""A report has the figures of compile, build and profile, and its parts add up."""

import json
from pathlib import Path

import pytest

from firmwright.base.errors import UsageError
from firmwright.cli.main import main
from firmwright.flows.measure.build_report import read_report

EARLIER = {
    "model": "an older one",
    "board": "paper",
    "optimize": "speed",
    "operators": [],
    "total": 1,
    "workspace_bytes": 1,
}


@pytest.mark.qemu
def test_report_figures_add_up(
    digits_path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1764374400")
    out, old = tmp_path / "report.html", tmp_path / "old.json"
    old.write_text(json.dumps(EARLIER), encoding="utf-8")
    words = [
        "report",
        str(digits_path),
        "--board",
        "mps2-an386",
        "--optimize",
        "ram",
        "--json",
        "--verify",
    ]
    assert main([*words, "-o", str(out), "--baseline", str(old)]) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_report(out)
    assert found.items() >= {k: v for k, v in told.items() if k in found}.items()
    assert max(found["occupied_bytes"]) == found["workspace_bytes"]
    assert len(found["operator_by_time"]) == max(
        end for b in found["buffers"] for _, end in b["live"]
    )
    operators = found["operators"]
    assert sum(row["constant_bytes"] for row in operators) == found["constants_bytes"]
    own = sum(row["code_bytes"] + row["constant_bytes"] for row in operators)
    assert 0.8 * found["model_flash_bytes"] < own < found["model_flash_bytes"]
    assert all(row["code_bytes"] > 0 for row in operators)
    first, *_, last = found["tradeoffs"]
    assert first["instructions"] < last["instructions"]
    assert first["workspace_bytes"] > last["workspace_bytes"]
    page = out.read_text(encoding="utf-8")
    assert "compared with an older one on paper" in page
    assert told["verification"]["mismatches"] == 0
    assert "Checked on 2025-11-29 by <code>firmwright report digits.tflite" in page
    nodes = found["network"]["nodes"]
    indices = [node["index"] for node in nodes if node["role"] == "operator"]
    assert indices == [row["index"] for row in operators]
    assert "sources" not in found["network"]


@pytest.mark.parametrize("content", ["", "[]", '{"total": 1}', "<html></html>"])
def test_invalid_baseline_reports_are_refused(content: str, tmp_path: Path):
    file = tmp_path / "old.html"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="this is not a report"):
        read_report(file)
