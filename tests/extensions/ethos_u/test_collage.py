"""Collage among the NPU, Arm's CMSIS-NN and the core, on a board with both."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from firmwright.cli.main import main
from firmwright.extensions.cmsis_nn.backend import PATH_VARIABLE
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.model.partition_methods import PartitionRequest, partition_model
from firmwright.flows.verify.verification import verify
from tests.conftest import models_folder

pytest.importorskip(
    "ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')"
)
REAL = os.environ.get(PATH_VARIABLE, "")
GIVEN = {
    "board": "mps3-an547",
    "target": "ethos-u55-128, cmsis-nn",
    "numerics": "tflm",
}
ON_CORE = ("fully_connected", "softmax")


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.skipif(not REAL, reason="needs CMSIS-NN; CMSIS_NN_PATH names its folder")
def test_keywords_are_divided_among_npu_library_and_core(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page has the cheapest program; its outputs are those of LiteRT and TFLM."""
    path = models_folder() / "kws_ref_model.tflite"
    log, page = tmp_path / "costs.jsonl", tmp_path / "kws.html"
    words = [str(path), *(f"--{name}={value}" for name, value in GIVEN.items())]
    words += [f"--partition-log={log}", "--partition=collage"]
    saved = tmp_path / "found.json"
    assert main(["partition", *words, "--save-partition", str(saved)]) == 0
    found = json.loads(saved.read_text())
    totals = {how: total["count"] for how, total in found["totals"].items()}
    assert found["chosen"] == "collage"
    assert totals["collage"] < totals["eager"] < totals["none"]
    for part in found["parts"]:
        on_core = part["ops"][0] in ON_CORE
        assert (part["target"] == "cpu") == on_core
        places = {part["target"], *(other["target"] for other in part["alternatives"])}
        assert places == {"cpu", "ethos-u55-128", "cmsis-nn"} - (
            {"cmsis-nn"} if part["ops"] == ["reshape"] else set()
        )
        costs = [part["cost"], *(other["cost"] for other in part["alternatives"])]
        assert {cost["status"] for cost in costs} == {"ok"}
        for other in part["alternatives"]:
            assert other["reason"], f"why {other['target']} lost {part['makes']}"
    table = capsys.readouterr().out
    assert "than apart" in table, "the NPU alone has the whole network in one region"

    counted = ["--count-instructions", "--json"]
    assert main(["report", *words, *counted, "-o", str(page)]) == 0
    facts = json.loads(capsys.readouterr().out)
    makespan = facts["parallel"]["makespan"]
    assert makespan == totals["collage"]
    assert facts["time"] is None, "the core's time is not that of the run"
    text = page.read_text()
    for shown in (f"{makespan:,}", "<b>collage</b>, chosen", "<code>cmsis-nn</code>"):
        assert shown in text
    assert f"{totals['eager'] - makespan:,} more" in text

    words = [*words[:-1], f"--partition={saved}"]
    assert main(["profile", *words, "--count-instructions"]) == 0
    assert f"{makespan:,} cycles, modeled" in capsys.readouterr().out

    for numerics, runtime in (("tflm", "TFLM"), ("litert", "LiteRT")):
        given = {**GIVEN, "numerics": numerics}
        choice = partition_model(load_model(path), given, PartitionRequest(str(saved)))
        outcome = verify(compile_for(choice.model, **choice.options), samples=2)
        assert outcome.exact
        assert runtime in outcome.reference
