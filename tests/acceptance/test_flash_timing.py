"""Kernels for flash with wait states: fewer modeled cycles, the same outputs."""

import pytest

from firmwright.boards import load_board
from firmwright.cli.compile import format_summary
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify

BOARD = "mps2-an386@nucleo-l4r5zi"
KWS_CYCLES_MAX = (
    4_450_000  # 4,419,362 when written; 8,723,538 with the loops for fast memory
)
KWS_FAST_MAX = 3_650_000  # with functions and weights in RAM; 3,619,806 when written
KWS_BY_ST = 5_180_000  # published for the chip: X-CUBE-AI, MLPerf Tiny v1.2


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
def test_keyword_spotting_is_faster_than_the_best_published(model_path):
    model = load_model(model_path("kws_ref_model.tflite"))
    compiled = compile_for(model, BOARD)
    cycles = measure_instructions(compiled).total.cycles
    assert cycles < KWS_CYCLES_MAX < KWS_BY_ST
    assert verify(compiled, samples=2).exact


@pytest.mark.deep
@pytest.mark.qemu
def test_short_loops_are_chosen_for_the_small_cache_only(digits_path):
    model = load_model(digits_path)
    slow = compile_for(model, BOARD)
    fast = compile_for(model, "mps2-an386")

    def schedules(compiled) -> str:
        return " ".join(operator.schedule for operator in compiled.summary.operators)

    assert "steps=" in schedules(slow)
    assert "steps=" not in schedules(fast)
    timing = load_board(BOARD)
    here = measure_instructions(slow)
    there = measure_instructions(fast, timing_board=timing)
    assert here.total.cycles < there.total.cycles
    assert verify(slow, samples=2).exact


@pytest.mark.qemu
def test_speed_spends_ram_on_functions_and_weights(digits_path):
    model = load_model(digits_path)
    usual, fast = (
        compile_for(model, BOARD, optimize=goal) for goal in ("balanced", "speed")
    )
    counts = measure_instructions(fast)
    assert counts.total.cycles < 0.9 * measure_instructions(usual).total.cycles
    by_kind = [row["kind"] for row in fast.metadata["plan"]["buffers"]]
    assert "const" in by_kind
    assert ", of which digits_init copies " in format_summary(fast, 0.0, None)
    kernels = [
        kernel
        for kernel in fast.module.functions.values()
        if "schedule" in kernel.attrs
    ]
    assert kernels
    assert all(kernel.attrs.get("ramfunc") for kernel in kernels)
    (section,) = (
        s for s in build_image(fast).sizes.sections if s.name == ".ramfunc.sram2"
    )
    assert section.size_bytes > 256
    assert verify(fast, samples=2).exact
    limited = compile_for(
        model, BOARD, optimize="speed", ram_bytes=usual.summary.workspace_bytes
    )
    assert limited.summary.workspace_bytes <= usual.summary.workspace_bytes


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
def test_keyword_spotting_from_ram_reaches_its_bar(model_path):
    compiled = compile_for(
        load_model(model_path("kws_ref_model.tflite")), BOARD, optimize="speed"
    )
    assert measure_instructions(compiled).total.cycles < KWS_FAST_MAX
    assert verify(compiled, samples=2).exact
