"""Predicted memory and time agree with builds, and remedies make a model fit."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from firmwright.base.errors import DoesNotFitError
from firmwright.boards import load_board
from firmwright.choose.kernel_selection import KernelSelector
from firmwright.cli import text_table
from firmwright.cli.fit import _capped_pools, format_fit, format_fits
from firmwright.flows.board.firmware_images import build_image
from firmwright.flows.measure.instruction_counts import measure_instructions
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.given_options import OptionValues
from firmwright.flows.model.model import Model, load_model
from firmwright.flows.predict import memory_prediction
from firmwright.flows.predict.fit import Fit, MemoryNeed, fit_model, fit_of_program
from firmwright.flows.predict.remedies import RemedyKind, _way_to_int8
from firmwright.ir.core import PoolInfo
from tests import mlperf_tiny

ROOT = Path(__file__).resolve().parents[3]
FLASH_ERROR = 0.03
STACK_ERROR_BYTES = 80
TIME_ERROR = 0.10

BOARDS = (
    "mps2-an386",
    "mps2-an385",
    "mps2-an505",
    "mps3-an547",
    "nrf52840-dk",
    "nucleo-l4r5zi",
    "nucleo-h743zi",
    "rpi-pico",
)
TIME_ERRORS = {
    # The loops of its kernels are larger than the instruction cache.
    ("ad01_int8", "nucleo-l4r5zi"): 0.16,
    ("str_ww_ref_model", "nucleo-h743zi"): 0.12,
}


def check_against_build(model: Model, board: str) -> None:
    compiled = compile_for(model, board)
    fit = fit_of_program(compiled)
    image = build_image(compiled, allow_stack=True)
    assert fit.workspace.need_bytes == compiled.summary.workspace_bytes
    assert fit.flash is not None
    flash_error = FLASH_ERROR * image.model_flash_bytes
    assert abs(fit.flash.need_bytes - image.model_flash_bytes) <= flash_error
    assert fit.stack_bytes is not None
    assert abs(fit.stack_bytes - image.stack.size_bytes) <= STACK_ERROR_BYTES
    modeled = measure_instructions(compiled).total.cycles
    assert fit.time is not None
    assert modeled is not None
    limit = TIME_ERRORS.get((model.name, board), TIME_ERROR)
    assert abs(fit.time.cycles / modeled - 1) <= limit


@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("board", ["mps2-an386", "nucleo-l4r5zi"])
def test_predictions_agree_with_a_build(
    board: str, model_path: Callable[[str], Path]
) -> None:
    check_against_build(load_model(model_path("kws_ref_model.tflite")), board)


@pytest.mark.deep
@pytest.mark.qemu
@pytest.mark.models
@pytest.mark.parametrize("name", mlperf_tiny.MODELS)
@pytest.mark.parametrize("board", BOARDS)
def test_predictions_agree_with_builds_on_all_cores(
    board: str, name: str, model_path: Callable[[str], Path]
) -> None:
    check_against_build(load_model(model_path(f"{name}.tflite")), board)


def test_neither_compiler_nor_emulator_runs(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", fail)
    fit = fit_model(load_model(digits_path), {"board": "nucleo-l4r5zi"})
    assert fit.fits
    assert fit.time is not None
    assert fit.time.clock_hz == 120_000_000
    assert fit.time_as_built is None, "start-up raises the clock"
    assert fit.time.chip == "STM32L4R5ZI"


def test_a_model_with_a_smaller_budget_fits_less_ram(digits_path: Path) -> None:
    fit = fit_model(load_model(digits_path), {"board": "mps2-an386"})
    answers = {size.ram_bytes: size.fits for size in fit.other_ram}
    assert answers[4096]
    assert not all(answers.values()), "the search ends at a size that is too small"
    smallest = min(size for size, fits in answers.items() if fits)
    beside = (fit.stack_bytes or 0) + 640
    budget = smallest - beside
    compiled = compile_for(load_model(digits_path), "mps2-an386", ram_bytes=budget)
    assert compiled.summary.workspace_bytes <= budget


def boards_with_larger_flash(folder: Path) -> Path:
    """Write a Blue Pill with 1 MB of flash, as the largest STM32F103 have it."""
    for name in ("soc/stm32f103c8.toml", "bluepill-f103/board.toml"):
        text = (ROOT / "boards" / name).read_text(encoding="utf-8")
        file = folder / name
        file.parent.mkdir()
        file.write_text(text.replace("0x0001_0000", "0x0010_0000"), encoding="utf-8")
    return folder


@pytest.mark.deep
@pytest.mark.models
def test_what_the_input_excludes_is_refused_before_the_search(
    model_path: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches: list[int] = []
    select = KernelSelector.select

    def counted(self: KernelSelector) -> object:
        searches.append(1)
        return select(self)

    monkeypatch.setattr(KernelSelector, "select", counted)
    model = load_model(model_path("vww_96_float.tflite"))
    fit = fit_model(
        model,
        {
            "board": "bluepill-f103",
            "board_dirs": (boards_with_larger_flash(tmp_path),),
            "stream_input_rows": False,
        },
    )
    assert not fit.fits
    # The input has 96 x 96 x 3 floats; only the trials of options search.
    assert fit.workspace.need_bytes == 110_592
    assert len(searches) <= 2
    kinds = [remedy.kind for remedy in fit.remedies]
    assert kinds == [RemedyKind.QUANTIZE, RemedyKind.INPUT, RemedyKind.BOARD]


def remedy(fit: Fit, kind: RemedyKind) -> str:
    texts = [item.text for item in fit.remedies if item.kind is kind]
    assert len(texts) == 1, f"{fit.remedies}"
    return texts[0]


@pytest.mark.deep
@pytest.mark.models
def test_an_option_is_named_with_which_the_model_is_compiled(
    model_path: Callable[[str], Path],
) -> None:
    model = load_model(model_path("vww_96_int8.tflite"))
    fit = fit_model(model, {"board": "microbit"})
    assert remedy(fit, RemedyKind.OPTION) == "--stream-input-rows"
    compiled = compile_for(model, "microbit", stream_input_rows=True)
    needs = [item.workspace_bytes for item in fit.remedies if not item.is_estimate]
    assert needs == [compiled.summary.workspace_bytes]
    # The firmware links: it fits the flash of the chip, too.
    assert build_image(compiled).model_flash_bytes > 0


def test_a_budget_that_is_too_small_is_answered_with_the_least(
    digits_path: Path,
) -> None:
    model = load_model(digits_path)
    fit = fit_model(model, {"board": "mps2-an386", "ram_bytes": 1000})
    assert not fit.fits
    assert fit.workspace.have_bytes == 1000
    words = remedy(fit, RemedyKind.OPTION).split()
    assert words[0] in ("--ram", "--stream-input-rows", "--optimize")
    if words[0] == "--ram":
        compile_for(model, "mps2-an386", ram_bytes=int(words[1]))


def test_a_budget_below_the_input_is_answered_with_one_that_compiles(
    digits_path: Path,
) -> None:
    model = load_model(digits_path)
    fit = fit_model(model, {"board": "mps2-an386", "ram_bytes": 10})
    budgets = [item.text.split() for item in fit.remedies]
    (budget,) = [int(words[1]) for words in budgets if words[0] == "--ram"]
    compiled = compile_for(model, "mps2-an386", ram_bytes=budget)
    assert compiled.summary.workspace_bytes == budget
    assert RemedyKind.BOARD not in {item.kind for item in fit.remedies}


def test_less_ram_is_no_remedy_for_too_little_flash(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(digits_path)
    flash_bytes = load_board("bluepill-f103").flash.size_bytes
    monkeypatch.setattr(
        memory_prediction, "FIRMWARE_FLASH_BYTES", flash_bytes - 8 * 1024
    )
    fit = fit_model(model, {"board": "bluepill-f103"})
    assert not fit.fits
    assert "of flash" in fit.problem
    assert {item.kind for item in fit.remedies} <= {RemedyKind.BOARD}


def test_the_clock_of_an_image_is_named_if_no_driver_raises_it(
    digits_path: Path,
) -> None:
    board = load_board("stm32l552ze")
    assert board.run_hz < board.modeled_hz, "the chip has no clock driver"
    fit = fit_model(load_model(digits_path), {"board": board.name})
    assert fit.time is not None
    assert fit.time_as_built is not None
    assert fit.time_as_built.clock_hz == board.run_hz
    assert fit.time_as_built.least_ms > fit.time.least_ms
    assert "stays at 4 MHz" in format_fit(fit)


def two_problems() -> DoesNotFitError:
    return DoesNotFitError(
        "the workspace does not fit.", lowest_bytes=10_000, peak=[("image", 9_000)]
    )


def test_ram_and_flash_that_are_short_are_both_named(
    digits_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise two_problems()

    file = tmp_path / "small" / "board.toml"
    file.parent.mkdir()
    text = SMALL_BOARD.replace("NAME", "small")
    file.write_text(text, encoding="utf-8")
    monkeypatch.setattr("firmwright.flows.predict.fit.lower_program", fail)
    monkeypatch.setattr("firmwright.flows.predict.remedies.lower_program", fail)
    given: OptionValues = {"board": "small", "board_dirs": (tmp_path,)}
    fit = fit_model(load_model(digits_path), given)
    said = format_fit(fit)
    head = " ".join(said.split())
    assert "bytes of RAM and" in head
    assert "bytes of flash are missing" in head
    assert "image takes 9,000 bytes in one pool, and the largest, a, has" in head
    assert "(a 2,560, b 2,048)" in head
    boards = remedy(fit, RemedyKind.BOARD)
    assert boards.startswith("a board or chip with more memory: stm32")


SMALL_BOARD = """
name = "NAME"
description = "an STM32 that is too small"
soc = "stm32g474re"
validation = "built"

[[memory]]
name = "flash"
start = 0x0800_0000
size = 0x1800
kind = "flash"

[[memory]]
name = "a"
start = 0x2000_0000
size = 0x2000
kind = "ram"
pool = "a"

[[memory]]
name = "b"
start = 0x1000_0000
size = 0x800
kind = "ram"
pool = "b"

[run]
kind = "serial"
"""


def test_the_way_to_int8_is_that_of_the_file() -> None:
    assert "firmwright quantize" in _way_to_int8("net.onnx")
    for file in ("net.tflite", "net.keras", "net.pt2"):
        assert "firmwright quantize" not in _way_to_int8(file)
        page, _, anchor = _way_to_int8(file).rpartition(": ")[2].partition("#")
        text = (ROOT / page).read_text(encoding="utf-8")
        assert f"\n## {anchor}\n" in text.lower()


def test_a_pool_that_is_smaller_than_asked_is_named(digits_path: Path) -> None:
    asked: OptionValues = {"board": "stm32g474re", "pools": (PoolInfo("sram", 125440),)}
    (warning,) = _capped_pools(asked)
    assert "92,672 bytes in this pool" in warning
    asked["pools"] = (PoolInfo("sram", 92672),)
    assert _capped_pools(asked) == ()


def test_the_table_of_boards_says_what_is_tested_and_drops_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    need = MemoryNeed(100_000, 200_000)
    fit = Fit("m", "qemu-riscv32-virt", "c", need, need, 1_000)
    assert "emulated" in format_fits([fit], ["emulated"])
    monkeypatch.setattr(text_table, "_columns", lambda: 44)
    head, *_ = format_fits([fit], ["emulated"]).splitlines()
    assert head.split()[:3] == ["board", "fits", "RAM"]
    assert "tested" not in head


def test_smaller_sizes_than_the_budget_are_tried(digits_path: Path) -> None:
    given: OptionValues = {"board": "mps2-an386", "ram_bytes": 6000}
    fit = fit_model(load_model(digits_path), given)
    assert [size.ram_bytes for size in fit.other_ram] == [4096, 2048]


def test_a_flash_budget_that_is_too_small_does_not_fit(digits_path: Path) -> None:
    fit = fit_model(
        load_model(digits_path), {"board": "mps2-an386", "flash_bytes": 100}
    )
    assert not fit.fits
    assert fit.workspace is None
    assert "at least" in fit.problem
    assert fit.remedies == ()
