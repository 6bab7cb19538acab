"""Faults of firmware are reported with operator, source line and a hint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firmwright.artifacts import SourceTree, Variant
from firmwright.boards import load_board
from firmwright.boards.new_board import copy_board
from firmwright.build.project_files import project_files
from firmwright.device.errors import FaultError
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.board.model_session import open_session
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model
from firmwright.flows.samples.sample_batches import generate_samples
from firmwright.pipeline import Compilation

MARK = "/* the planted defect */"
CRASHES = {
    "arm": '__asm__ volatile(".short 0xde00");',
    "riscv32": '__asm__ volatile("unimp");',
    "host": "__builtin_trap();",
}


def crashing(compiled: Compilation, operator: str, family: str) -> Compilation:
    """The same with a line at the beginning of one operator's kernel that crashes."""
    row = next(r for r in compiled.metadata["operators"] if r["name"] == operator)
    files = dict(compiled.tree.files)
    text = str(files["model/digits.c"])
    head = text.index(f"digits_{row['kernel']}(")
    start = text.index("\n{\n", head) + 3
    files["model/digits.c"] = (
        f"{text[:start]}    {CRASHES[family]} {MARK}\n{text[start:]}"
    )
    return replace(compiled, tree=SourceTree(files))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("board", "family", "variant"),
    [
        pytest.param("host", "host", "profile", marks=pytest.mark.host_c),
        pytest.param("mps2-an386", "arm", "release", marks=pytest.mark.qemu),
        pytest.param(
            "qemu-riscv32-virt", "riscv32", "profile", marks=pytest.mark.qemu("riscv32")
        ),
        pytest.param(
            "microbit", "arm", "release", marks=[pytest.mark.qemu, pytest.mark.deep]
        ),
        pytest.param(
            "mps2-an505", "arm", "release", marks=[pytest.mark.qemu, pytest.mark.deep]
        ),
    ],
)
def test_crash_is_reported_with_operator_and_line(
    board: str, family: str, variant: Variant, digits_path: Path
) -> None:
    compiled = compile_for(load_model(digits_path), board)
    image = build_image(crashing(compiled, "conv_2d_2", family), variant)
    (sample,) = generate_samples(compiled.module.io.inputs, 1).samples
    with open_session(compiled, variant=variant, image=image) as session:
        with pytest.raises(FaultError) as caught:
            session.run(sample)
        text = (image.directory / "model/digits.c").read_text().splitlines()
    said = str(caught.value)
    assert "The operator is " in said
    assert ", conv_2d_2 (conv2d, digits.tflite: subgraph 0, node 2 (conv_2d_2))" in said
    assert " Try: " in said
    if family != "host":
        line = 1 + next(number for number, row in enumerate(text) if MARK in row)
        assert f"(model/digits.c:{line})" in said
        assert "bytes of stack" in said


def with_statement(compiled: Compilation, statement: str, operator: int) -> Compilation:
    """The same with a statement at an operator's start, where pools are in reach."""
    files = dict(compiled.tree.files)
    text = str(files["model/digits.c"])
    at = text.index("\n", text.index(f"DIGITS_PROBE({operator}, 0")) + 1
    files["model/digits.c"] = f"{text[:at]}    {statement}\n{text[at:]}"
    return replace(compiled, tree=SourceTree(files))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("board", "statement", "told"),
    [
        pytest.param(
            "host",
            "pools->sram[-6] = 0;",
            "1 guard byte before it changed, the nearest at distance 5",
            marks=pytest.mark.host_c,
        ),
        pytest.param(
            "mps2-an386",
            "pools->sram[DIGITS_SRAM_SIZE] = pools->sram[DIGITS_SRAM_SIZE + 1] = 0;",
            "2 guard bytes after it changed, the nearest at distance 0",
            marks=pytest.mark.qemu,
        ),
    ],
)
def test_a_write_next_to_a_pool_is_reported_with_pool_and_operator(
    board: str, statement: str, told: str, digits_path: Path
) -> None:
    compiled = compile_for(load_model(digits_path), board)
    (sample,) = generate_samples(compiled.module.io.inputs, 1).samples
    image = build_image(with_statement(compiled, statement, 2), "debug")
    with (
        open_session(compiled, image=image) as session,
        pytest.raises(FaultError) as caught,
    ):
        session.run(sample)
    said = str(caught.value)
    assert (
        f"out-of-bounds write next to pool 'sram', detected during operator 2: {told}"
        in said
    )
    assert "The operator is 2, conv_2d_2 (conv2d, " in said
    assert caught.value.fault.pool == "sram"


@pytest.mark.host_c
def test_debug_image_computes_the_same_outputs(digits_path: Path) -> None:
    compiled = compile_for(load_model(digits_path), "host")
    (sample,) = generate_samples(compiled.module.io.inputs, 1).samples
    with open_session(compiled, in_process=True) as session:
        (expected,) = session.run(sample).values()
    with open_session(compiled, variant="debug") as session:
        (digit,) = session.run(sample).values()
    assert digit.tolist() == expected.tolist()


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("chip", "variant"),
    [
        ("mps2-an386", "release"),
        pytest.param("mps2-an505", "profile", marks=pytest.mark.deep),
    ],
)
def test_watchdog_restart_names_the_hanging_operator(
    chip: str, variant: Variant, digits_path: Path, tmp_path: Path
) -> None:
    file = copy_board("watched", chip, tmp_path)
    file.write_text(file.read_text() + "\n[watchdog]\ntimeout_ms = 20\n")
    compiled = compile_for(load_model(digits_path), "watched", board_dirs=(tmp_path,))
    hangs = "for (volatile int hangs = image[0] == 127; hangs;) {}"
    image = build_image(with_statement(compiled, hangs, 0), variant)
    _, hanging, sample = generate_samples(compiled.module.io.inputs, 3).samples
    with open_session(compiled, image=image) as session:
        expected = session.run(sample)["digit"].tolist()
        assert session.device.execute(200).total > 20_000_000, (
            "of 1 ns each: fed in between"
        )
        with pytest.raises(FaultError) as caught:
            session.run(hanging)
        session.device.reset()
        assert session.run(sample)["digit"].tolist() == expected
    said = str(caught.value)
    assert "the watchdog expired and restarted the board in operator 0: " in said
    assert "The operator is 0, conv_2d_1 (conv2d, " in said
    assert "The program counter was in digits_run (model/digits.c:" in said


def test_board_without_timeout_has_no_watchdog() -> None:
    files = project_files(load_board("mps2-an386")).files
    assert "runtime/port/cortex_m/watchdog_cmsdk.c" not in files
    assert "watchdog" not in str(files["board/fwr_board.h"]).lower()
    assert "FWR_WATCHDOG" not in str(files["board/board.json"])
