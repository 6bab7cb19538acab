"""ONNX Runtime within the test process: no new Python for each of some 200 models.

tests/unit/oracle and the verification of whole models run it in its worker process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.oracle import reference_runner, reference_worker


@pytest.fixture(autouse=True)
def _runtime_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    start = reference_runner._run_worker_process
    runtime = reference_runner.RUNTIME_TITLES["onnxruntime"]

    def run(folder: Path, module: str, oracle: str, timeout_s: float) -> None:
        if oracle == runtime and module == "reference_worker":
            reference_worker.write_answer(folder, reference_worker.run_request)
        else:
            start(folder, module, oracle, timeout_s)

    monkeypatch.setattr(reference_runner, "_run_worker_process", run)
