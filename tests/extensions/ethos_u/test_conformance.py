"""The kit of backends, on the patterns of an NPU whose programs are streams of Vela."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from firmwright.extensions.ethos_u import vela
from firmwright.extensions.ethos_u.tflite_writer import WRITABLE
from firmwright.flows.verify.backend_conformance import PatternResult, run_backend_test
from firmwright.flows.verify.chain_runs import Check

pytest.importorskip(
    "ethosu.vela", reason="needs Vela (pip install 'firmwright[ethos-u]')"
)

NPU = "ethos-u55-128"
ROUNDED_ANOTHER_WAY = ("fully_connected", "softmax")


def kit(op: str, board: str = "host", numerics: Any = "tflm") -> PatternResult:
    """Test a pattern beside that of addition, so that another may match nothing."""
    patterns = (op,) if op == "add" else (op, "add")
    result = run_backend_test(
        NPU, board, sample_count=2, numerics=numerics, patterns=patterns
    )
    (entry,) = [item for item in result.entries if item.name == f"{NPU}.{op}"]
    return entry


@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.parametrize("op", WRITABLE)
def test_each_pattern_equals_the_core(op: str) -> None:
    entry = kit(op)
    assert entry.matched
    assert entry.differing == []


@pytest.mark.qemu
@pytest.mark.deep
@pytest.mark.parametrize("op", ["add", "conv2d", "pad"])
def test_in_an_emulator_the_npu_accesses_only_its_operands(op: str) -> None:
    entry = kit(op, "mps3-an547")
    assert entry.matched
    assert entry.differing == []


@pytest.mark.host_c
@pytest.mark.deep
@pytest.mark.parametrize("op", ROUNDED_ANOTHER_WAY)
def test_a_pattern_that_takes_no_case_has_reasons(op: str) -> None:
    entry = kit(op, numerics="litert")
    assert not entry.matched
    assert any("--numerics tflm" in reason for reason in entry.reasons.values())
    assert len(entry.reasons) == len(entry.outcomes) > 0


@pytest.mark.host_c
@pytest.mark.deep
def test_a_stream_with_wrong_weights_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_region = vela.compile_region

    def with_other_weights(*arguments: Any) -> vela.NpuProgram:
        program = compile_region(*arguments)
        weights = bytearray(program.weights)
        weights[len(weights) // 2] ^= 16
        return replace(program, weights=bytes(weights))

    monkeypatch.setattr(vela, "compile_region", with_other_weights)
    checks = {difference.check for _, difference in kit("conv2d").differing}
    assert Check.OUTPUT in checks
