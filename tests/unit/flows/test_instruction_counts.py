"""Exact counts add up, and agree with the board's counter to its resolution."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from firmwright.base.dtypes import BOOL
from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.boards import load_board
from firmwright.device.emulator_plugins import check_plugin_support
from firmwright.device.instruction_counter import (
    InstructionCount,
    build_counter_plugin,
)
from firmwright.flows.board.build_cache import cache_root
from firmwright.flows.board.emulated_board import emulate
from firmwright.flows.measure import call_attribution, instruction_counts
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.measure.profiling import profile
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.verify.verification import verify
from firmwright.ir import tir
from firmwright.ir.module import IRModule
from firmwright.ir.tir.builder import INDEX
from firmwright.ir.tir.traversal import prim_calls

AROUND = 16  # instructions of the glue that calls the model's run, and rounding of its own cost


def can_count(program: str) -> None:
    try:
        check_plugin_support(program)
        build_counter_plugin(cache_root() / "plugins")
    except ToolMissingError as missing:
        pytest.skip(str(missing))


def agree(board: str, program: str, model: Path):
    can_count(program)
    counts = measure_instructions(compile_for(load_model(model), board))
    assert abs(counts.total.instructions - counts.timer) <= counts.resolution + AROUND
    shares = [*counts.operators.values(), counts.between]
    assert sum(share.instructions for share in shares) == counts.total.instructions
    assert (
        sum(instructions for _, instructions in counts.functions)
        == counts.total.instructions
    )
    assert sum(counts.total.kinds.values()) == counts.total.instructions
    return counts


@pytest.mark.sampled(2)
@pytest.mark.qemu
@pytest.mark.parametrize(
    "board",
    [
        pytest.param("mps2-an385", marks=pytest.mark.deep),
        "mps2-an386",
        "mps3-an547",
        "microbit",
    ],
)
def test_counts_agree_with_the_timer_of_cortex_m(board: str, digits_path: Path):
    counts = agree(board, "qemu-system-arm", digits_path)
    assert counts.total.cycles is not None
    assert counts.total.cycles > 0.9 * counts.total.instructions


@pytest.mark.qemu
@pytest.mark.deep
def test_the_flash_of_another_board_adds_stalls_to_the_same_instructions(
    digits_path: Path,
):
    can_count("qemu-system-arm")
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    here = measure_instructions(compiled)
    there = measure_instructions(compiled, timing_board=load_board("nucleo-l4r5zi"))
    assert there.total.instructions == here.total.instructions
    assert there.total.cycles > here.total.cycles
    low, high = there.silicon_range
    assert low < there.total.cycles < high
    with pytest.raises(UsageError, match="cortex-m0"):
        measure_instructions(compiled, timing_board=load_board("microbit"))


@pytest.mark.qemu("riscv32")
def test_counts_agree_with_the_timer_of_riscv_which_has_no_table(digits_path: Path):
    counts = agree("qemu-riscv32-virt", "qemu-system-riscv32", digits_path)
    assert counts.total.cycles is None
    assert counts.timing is None


@pytest.mark.qemu
def test_an_exact_profile_agrees_with_the_probes(digits_path: Path):
    can_count("qemu-system-arm")
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    exact, probed = profile(compiled, count_instructions=True), profile(compiled)
    assert exact.total == probed.total
    for ours, theirs in zip(exact.operators, probed.operators, strict=True):
        assert ours.name == theirs.name
        assert abs(ours.count - theirs.count) <= 2 * exact.resolution
        assert ours.kinds is not None
        assert sum(ours.kinds.values()) == ours.count
        assert theirs.modeled_cycles is None


@pytest.mark.qemu
def test_a_multiply_heavy_operator_shows_its_multiplies(digits_path: Path):
    can_count("qemu-system-arm")
    counts = measure_instructions(compile_for(load_model(digits_path), "mps2-an386"))
    first = counts.operators[0]
    assert first.kinds["multiply_add"] > 0.1 * first.instructions
    assert 0 < first.branches_taken < first.instructions


@pytest.mark.qemu
def test_qemu_that_rejects_the_plugin_is_reported(
    digits_path: Path, tmp_path: Path, monkeypatch
):
    can_count("qemu-system-arm")
    library = tmp_path / "count.so"
    library.write_text("no library at all")
    monkeypatch.setattr(
        instruction_counts, "build_counter_plugin", lambda folder: library
    )
    with pytest.raises(ToolMissingError, match="does not load the counting plugin"):
        measure_instructions(compile_for(load_model(digits_path), "mps2-an386"))


@pytest.mark.host_c
def test_exact_counts_need_an_emulator(digits_path: Path):
    with pytest.raises(UsageError, match="instruction counts need QEMU"):
        measure_instructions(compile_for(load_model(digits_path), "host"))


def test_missing_qemu_or_plugin_support_is_reported(tmp_path: Path, monkeypatch):
    with pytest.raises(ToolMissingError, match="is not installed"):
        check_plugin_support("qemu-system-none")
    fake = tmp_path / "qemu-system-plain"
    fake.write_text("#!/bin/sh\necho '-machine type'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ToolMissingError, match="built without plugin support"):
        check_plugin_support("qemu-system-plain")


def test_missing_plugin_compiler_is_reported(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="requires a C compiler"):
        build_counter_plugin(tmp_path)


def compilation_of(body: tir.Stmt) -> SimpleNamespace:
    main = tir.PrimFunc("run", (), body, {"aot_main": True})
    kernels = {
        call.callee: tir.PrimFunc(call.callee, (), tir.Seq(()))
        for call in prim_calls(body)
    }
    module = IRModule("net", {**kernels, "run": main}, entry_name="run")
    return SimpleNamespace(module=module, c_prefix="net")


def branch(*names: str) -> SimpleNamespace:
    """Return an if whose branches call these kernels, after a call on a device."""
    test = tir.BufferLoad(tir.Buffer("x", BOOL, (1,)), (tir.IntImm(0, INDEX),))
    a, b = (tir.PrimFuncCall(name, (), op=op) for op, name in enumerate(names))
    other = tir.PrimFuncCall("other", (), op=2, device="npu0", phase="start")
    return compilation_of(tir.Seq((other, tir.If(test, a, b))))


def test_the_branch_that_ran_is_counted():
    names = {64: "start_npu0", 256: "net_b"}
    code = SimpleNamespace(name_at=names.__getitem__)
    sites = {4: [InstructionCount(64, 4, 9, 0)], 8: [InstructionCount(256, 8, 5, 0)]}
    found = call_attribution.group_by_operator(
        branch("a", "b"), code, {4: 1, 8: 1}, sites, {}
    )
    counts = {op: [cell.count for cell in cells] for op, cells in found.items()}
    assert counts == {-1: [9], 0: [], 1: [5], 2: []}
    with pytest.raises(
        UsageError, match="operators share the kernel net_b, so its calls cannot"
    ):
        call_attribution.group_by_operator(
            branch("b", "b"), code, {4: 1, 8: 1}, sites, {}
        )
    known = call_attribution.group_by_operator(
        branch("b", "b"), code, {4: 1, 8: 1}, sites, {4: 0, 8: 1}
    )
    assert [cell.count for cell in known[1]] == [5]


def test_calls_of_merged_functions_are_attributed():
    names = ("spoil", "first", "spoil", "second")
    calls = tuple(
        tir.PrimFuncCall(name, (), op=op)
        for name, op in zip(names, (-1, 0, -1, 1), strict=True)
    )
    compiled = compilation_of(tir.Seq(calls))
    # One function at 0x100 is both kernels; nothing in the image is called second.
    sites = {
        4: [InstructionCount(64, 4, 9, 0)],
        8: [InstructionCount(256, 8, 5, 0)],
        12: [InstructionCount(64, 12, 9, 0)],
    }
    sites[16] = [InstructionCount(256, 16, 7, 0)]
    found = call_attribution.group_by_operator(
        compiled, None, dict.fromkeys(sites, 1), sites, {}
    )
    assert {op: [cell.count for cell in cells] for op, cells in found.items()} == {
        -1: [9, 9],
        0: [5],
        1: [7],
    }


def test_duplicated_calls_of_a_shared_kernel_are_attributed_by_their_lines():
    row = tir.Var("row", INDEX)
    calls = tir.Seq(tuple(tir.PrimFuncCall("add", (), op=op) for op in (3, 7)))
    loop = tir.For(row, tir.IntImm(0, INDEX), tir.IntImm(4, INDEX), calls)
    # The compiler peeled the first iteration: the operators' calls alternate.
    times = {4: 1, 8: 1, 12: 3, 16: 3}
    sites = {site: [InstructionCount(256, site, site, 0)] for site in times}
    lines = {4: 3, 8: 7, 12: 3, 16: 7}
    code = SimpleNamespace(name_at={256: "net_add"}.__getitem__)
    counts = call_attribution.group_by_operator(
        compilation_of(loop), code, times, sites, lines
    )
    assert {op: [cell.count for cell in cells] for op, cells in counts.items()} == {
        3: [4, 12],
        7: [8, 16],
    }


def test_calls_of_equal_kernels_that_the_compiler_merged_are_attributed():
    row = tir.Var("row", INDEX)
    names = {3: "add_3", 7: "add_7"}
    calls = tuple(tir.PrimFuncCall(name, (), op=op) for op, name in names.items())
    loop = tir.For(row, tir.IntImm(0, INDEX), tir.IntImm(4, INDEX), calls[0])
    body = tir.Seq((loop, calls[1]))
    # The kernel add_3 is not in the image: both operators call add_7.
    times, lines = {4: 1, 8: 3, 12: 1}, {4: 3, 8: 3, 12: 7}
    sites = {site: [InstructionCount(256, site, site, 0)] for site in times}
    code = SimpleNamespace(name_at={256: "net_add_7"}.__getitem__)
    counts = call_attribution.group_by_operator(
        compilation_of(body), code, times, sites, lines
    )
    assert {op: [cell.count for cell in cells] for op, cells in counts.items()} == {
        3: [4, 8],
        7: [12],
    }


@pytest.mark.qemu
def test_source_lines_lead_to_the_operators(digits_path: Path, monkeypatch):
    can_count("qemu-system-arm")
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    seen = []
    commented = call_attribution.commented_operators

    def spy(*args):
        seen.append(commented(*args))
        return seen[-1]

    monkeypatch.setattr(instruction_counts, "commented_operators", spy)
    counts = measure_instructions(compiled)
    assert list(seen[0].values()) == list(counts.operators)


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.deep
def test_additions_that_share_a_row_kernel_are_counted(model_path):
    can_count("qemu-system-arm")
    compiled = compile_for(
        load_model(model_path("pretrainedResnet_quant.tflite")), "mps2-an385"
    )
    exact, probed = profile(compiled, count_instructions=True), profile(compiled)
    for ours, theirs in zip(exact.operators, probed.operators, strict=True):
        # Each of up to 32 rows is measured with the probes, rounded.
        assert abs(ours.count - theirs.count) <= 32 * probed.resolution


@pytest.mark.qemu
@pytest.mark.deep
def test_kernels_of_a_real_board_are_counted_on_a_machine_with_its_core(
    digits_path: Path,
):
    can_count("qemu-system-arm")
    compiled = compile_for(load_model(digits_path), "nucleo-l4r5zi")
    counts = profile(compiled, count_instructions=True).exact
    assert (counts.machine, counts.timing_board.name) == ("mps2-an386", "nucleo-l4r5zi")
    low, high = counts.silicon_range
    assert low < counts.total.cycles < high
    milliseconds = (
        f"{counts.total.cycles / 120e3:.3f} ms at 120 MHz; on silicon {low:,}"
    )
    assert milliseconds in counts.describe_cycles()
    assert verify(emulate(compiled), samples=1).exact
    unknown = replace(counts, timing_board=load_board("rpi-pico2"))
    assert "the flash of rpi-pico2 is not modeled" in unknown.describe_cycles()
    assert unknown.silicon_range is None


def test_a_timing_board_is_for_counted_instructions_only(digits_path: Path):
    compiled = compile_for(load_model(digits_path), "mps2-an386")
    with pytest.raises(UsageError, match="counted instructions only"):
        profile(compiled, timing_board=load_board("nucleo-l4r5zi"))
