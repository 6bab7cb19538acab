"""Faulty kernels are isolated; errors that no kernel causes are raised."""

from __future__ import annotations

from pathlib import Path

import pytest

from firmwright.base.errors import (
    DeviceError,
    FirmwrightError,
    ToolFailedError,
    UsageError,
)
from firmwright.boards import load_board
from firmwright.extensions.tune import kernel_measurement
from firmwright.extensions.tune.kernel_measurement import (
    KernelResult,
    MeasurementSetup,
    MeasurementTask,
    make_measurement_setup,
    run_task,
)
from firmwright.flows.board.flashing import run_flash_command
from firmwright.ir.graph.op_call import OpCall
from firmwright.ops.tuning_records import ConfiguredSchedule
from firmwright.pipeline import Options

CHOICES: list[ConfiguredSchedule] = [ConfiguredSchedule(name) for name in "abcde"]
FIRST, SECOND = OpCall("add", (), ()), OpCall("mul", (), ())


def task(setup: MeasurementSetup = MeasurementSetup()) -> MeasurementTask:  # noqa: B008
    kernels = [
        *((FIRST, choice) for choice in CHOICES),
        *((SECOND, c) for c in CHOICES),
    ]
    return MeasurementTask(tuple(kernels), Options(board="mps2-an386"), setup)


def breaking(
    monkeypatch: pytest.MonkeyPatch, bad: set[tuple[str, str]], error: FirmwrightError
):
    runs: list[int] = []

    def together(given: MeasurementTask) -> tuple[KernelResult, ...]:
        kernels = [(call.op, choice.rule) for call, choice in given.kernels]
        runs.append(len(kernels))
        if bad & set(kernels):
            raise error
        return tuple(KernelResult("ok", ord(rule)) for _, rule in kernels)

    monkeypatch.setattr(kernel_measurement, "_run_together", together)
    return runs


@pytest.mark.parametrize("error", [ToolFailedError("no"), DeviceError("fault")])
def test_faulty_kernel_is_isolated(
    monkeypatch: pytest.MonkeyPatch, error: FirmwrightError
) -> None:
    runs = breaking(monkeypatch, {("add", "d"), ("mul", "a")}, error)
    result = run_task(task())
    assert [r.status for r in result] == ["ok"] * 3 + ["failed"] + ["ok"] + [
        "failed"
    ] + ["ok"] * 4
    assert [r.count for r in result if r.status == "ok"] == [
        97,
        98,
        99,
        101,
        98,
        99,
        100,
        101,
    ]
    assert runs[:2] == [10, 5]


def test_board_that_does_not_answer_is_not_attributed_to_a_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs = breaking(
        monkeypatch, {("add", "a")}, DeviceError("the cable.", where="/dev/tty")
    )
    with pytest.raises(DeviceError, match="the cable"):
        run_task(task(MeasurementSetup("timer", "/dev/tty", "flash {bin}")))
    assert runs == [10]


def test_board_on_a_port_needs_a_flash_command() -> None:
    with pytest.raises(UsageError, match="there is no command to flash it"):
        make_measurement_setup(load_board("mps2-an386"), "/dev/ttyACM0", "")


def test_host_cannot_be_measured() -> None:
    with pytest.raises(
        UsageError, match="measured in QEMU, or on a board behind a port"
    ):
        make_measurement_setup(load_board("host"), "", "")


def test_failed_flash_command_is_reported_with_its_output(tmp_path: Path) -> None:
    script = tmp_path / "flash"
    script.write_text("#!/bin/sh\necho no probe >&2\nexit 3\n")
    script.chmod(0o755)
    image = type(
        "Files", (), {"elf": tmp_path / "e", "bin": tmp_path / "b", "hex": None}
    )()
    with pytest.raises(DeviceError, match="flash ended with 3"):
        run_flash_command(image, f"{script} {{elf}}")
    with pytest.raises(UsageError, match="the board cannot be flashed: "):
        run_flash_command(image, f"{tmp_path}/none {{elf}}")
