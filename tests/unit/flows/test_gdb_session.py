"""Debugging an emulated board, stopped at the start of an operator."""

from pathlib import Path

import pytest

from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.boards import load_board
from firmwright.device.gdb_client import GdbClient
from firmwright.flows.board.gdb_session import (
    check_operator,
    debug_commands,
    find_debugger,
    start_halted,
)
from firmwright.flows.model.compilation import compile_for
from firmwright.flows.model.model import load_model

ELF = Path("fw.elf")
STOPS_MAX = 200
A0 = {"cortex_m": 0, "riscv32": 10}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mps2-an385", marks=pytest.mark.qemu),
        pytest.param(
            "qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]
        ),
    ],
)
def test_emulator_is_halted_and_stops_at_every_operator(
    name: str, digits_path: Path
) -> None:
    """The client for flashing executes the printed GDB commands."""
    compiled = compile_for(load_model(digits_path), name)
    indices = [operator.index for operator in compiled.summary.operators]
    assert indices[-1] == 9, "operator 7 is a view, without code"
    for index in indices:
        check_operator(compiled, index)
    with (
        start_halted(compiled) as (image, address),
        GdbClient(f"unix:{address}") as stub,
    ):
        (probe,) = (
            s.address & ~1 for s in image.sizes.symbols if s.name == "fwr_probe"
        )
        first = A0[compiled.board.port]
        seen = []
        for _ in range(STOPS_MAX):
            stop_at(stub, probe, 2 if compiled.board.port == "cortex_m" else 4)
            index, phase, data = (stub.register(first + i) for i in range(3))
            if data:  # calls without data measure the probe's own cost
                seen.append((index, phase))
            if len(seen) == 2 * len(indices):
                break
            stub.step()
        assert seen == [(index, phase) for index in indices for phase in (0, 1)]


def stop_at(stub: GdbClient, address: int, size_bytes: int) -> None:
    """Resume the target until it reaches the instruction of this size."""
    place = b"0,%x,%x" % (address, size_bytes)
    stub._expect_ok(b"Z" + place, "set a breakpoint")
    stopped = stub._request(b"c")
    stub._expect_ok(b"z" + place, "remove the breakpoint")
    stub._expect_stop(stopped, "stop")


def test_gdb_commands_have_a_breakpoint_and_boards_have_a_server() -> None:
    emulated = debug_commands(load_board("mps2-an386"), ELF, "/tmp/gdb", 3)
    assert emulated.server == ()
    assert emulated.gdb == (
        "gdb-multiarch",
        "-nx",
        "-iex",
        "set auto-load off",
        str(ELF.absolute()),
        "-ex",
        "target remote /tmp/gdb",
        "-ex",
        "break fwr_probe if operator_index == 3 && phase == 0 && data != 0",
        "-ex",
        "continue",
        "-ex",
        "up",
    )
    physical = debug_commands(load_board("nrf52840-dk"), ELF, "", None)
    assert physical.server == ("pyocd", "gdbserver", "--target", "nrf52840")
    assert physical.gdb[-1] == "target remote localhost:3333"
    with pytest.raises(UsageError, match="configures no debug probe"):
        debug_commands(load_board("mps2-an386"), ELF, "", None)


def test_missing_operators_and_a_missing_gdb_are_usage_errors(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_for(load_model(digits_path), "host")
    with pytest.raises(UsageError, match="no code of an operator 99: the model has 10"):
        check_operator(compiled, 99)
    with pytest.raises(UsageError, match="operator 7: it is a view"):
        check_operator(compiled, 7)
    check_operator(compiled, 0)
    with pytest.raises(UsageError, match="only an emulator"), start_halted(compiled):
        pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(
        ToolMissingError, match=r"neither gdb-multiarch nor arm-none-eabi-gdb"
    ):
        find_debugger("arm-none-eabi")
