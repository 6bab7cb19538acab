"""A debugger in front of an emulated board, stopped where the wanted operator begins."""

from pathlib import Path

import pytest

from firmwright.base.errors import ToolMissingError, UsageError
from firmwright.boards import load_board
from firmwright.device.gdb_client import GdbClient
from firmwright.flows.compilation import compile_for
from firmwright.flows.debugger import check_operator, debug_commands, find_debugger, start_halted
from firmwright.flows.model import load_model

ELF = Path("fw.elf")
STOPS_MAX = 200
A0 = {"cortex_m": 0, "riscv32": 10}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("mps2-an385", marks=pytest.mark.qemu),
        pytest.param("qemu-riscv32-virt", marks=[pytest.mark.qemu("riscv32"), pytest.mark.deep]),
    ],
)
def test_the_emulator_waits_and_then_stops_before_every_operator(
    name: str, digits_path: Path
) -> None:
    """What the printed command has GDB do, done by the client for flashing."""
    compiled = compile_for(load_model(digits_path), name)
    with start_halted(compiled) as (image, address), GdbClient(f"unix:{address}") as stub:
        (probe,) = (s.address & ~1 for s in image.sizes.symbols if s.name == "fwr_probe")
        first = A0[compiled.board.port]
        seen = []
        for _ in range(STOPS_MAX):
            stub.stop_at(probe, thumb=compiled.board.port == "cortex_m")
            index, phase, data = (stub.register(first + i) for i in range(3))
            if data:  # else the probe's own cost is being measured
                seen.append((index, phase))
            if len(seen) == 6:
                break
            stub.step()
        assert seen == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


def test_gdb_is_told_where_to_stop_and_boards_have_a_server() -> None:
    emulated = debug_commands(load_board("mps2-an386"), ELF, "/tmp/gdb", 3)
    assert emulated.server == ()
    assert emulated.gdb == (
        "gdb-multiarch",
        "fw.elf",
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
    with pytest.raises(UsageError, match="no debug probe is known"):
        debug_commands(load_board("mps2-an386"), ELF, "", None)


def test_an_operator_that_is_not_there_and_a_missing_gdb_are_named(
    digits_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compile_for(load_model(digits_path), "host")
    with pytest.raises(UsageError, match="no operator 99: the model has"):
        check_operator(compiled, 99)
    check_operator(compiled, 0)
    with pytest.raises(UsageError, match="only an emulator"), start_halted(compiled):
        pass
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ToolMissingError, match=r"neither gdb-multiarch nor arm-none-eabi-gdb"):
        find_debugger("arm-none-eabi")
