"""Creates board files, from another board or for a chip."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from firmwright.base.errors import UsageError
from firmwright.base.templates import render_template
from firmwright.boards.load import BOARD_FILE, board_file, load_board, load_chip
from firmwright.boards.peripherals import CONSOLES
from firmwright.boards.schema import STACK_BYTES_MIN, Board, Limits

ConsoleChoice = Literal["rtt", "uart", "none"]

RTT_BYTES: Final = 1104
"""The RAM of `console_rtt.c`: two buffers and the block that describes them."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


def copy_board(
    name: str, like: str, place: Path, extra_dirs: Sequence[Path] = ()
) -> Path:
    """Write `place/name/board.toml`, the board `like` with new name and description."""
    board = load_board(like, extra_dirs)
    text = board_file(like, extra_dirs).read_text(encoding="utf-8")
    changes = {
        "name": name,
        "description": f"{name}, from {like} ({board.description})",
        "validation": "built",
    }
    for key, value in changes.items():
        text = re.sub(rf"(?m)^{key} = .*$", f'{key} = "{value}"', text, count=1)
    return _write_board(name, text, place, extra_dirs)


def board_of_chip(
    name: str,
    part: str,
    place: Path,
    extra_dirs: Sequence[Path] = (),
    console: ConsoleChoice | None = None,
) -> Path:
    """Write `place/name/board.toml`, a board with the chip `part`.

    Its console is the chip's UART, or memory that a debug probe reads (RTT), or none;
    by default the first of RTT, UART and none for which the chip has a driver.
    """
    chip = load_chip(part, extra_dirs)
    known = _console_choices(chip)
    if console is not None and console not in known:
        what = f"{chip.name} has no driver for the console {console!r}."
        raise UsageError(what, where="--console", hint=f"use {' or '.join(known)}.")
    text = render_template(
        "firmwright.boards",
        "board.toml.j2",
        name=name,
        chip=chip,
        console=console or known[0],
        choices=known,
        uart=_describe_uart(chip),
        mhz=lambda hz: f"{hz / 1e6:g}",
        rtt_bytes=RTT_BYTES,
        runtime_bytes=_runtime_bytes(chip, console or known[0]),
    )
    return _write_board(name, text, place, extra_dirs)


def _describe_uart(chip: Board) -> str:
    """Return driver, address and pins of the chip's UART."""
    console = chip.console
    pins = [str(console.tx_pin), str(console.rx_pin)]
    if console.driver.startswith("stm32"):
        pins = [f"P{chr(ord('A') + int(pin) // 16)}{int(pin) % 16}" for pin in pins]
    where = f"{console.driver} at {console.base:#010x}"
    return f"{where}, TX at {pins[0]} and RX at {pins[1]}"


def _runtime_bytes(chip: Board, console: ConsoleChoice) -> int | None:
    """Return the runtime's RAM if it is more than the chip's file reserves."""
    reserved = chip.limits.runtime_bytes
    is_small = reserved < Limits(STACK_BYTES_MIN).runtime_bytes
    return reserved + RTT_BYTES if console == "rtt" and is_small else None


def _console_choices(chip: Board) -> list[ConsoleChoice]:
    choices: list[ConsoleChoice] = []
    if "rtt" in CONSOLES[chip.port]:
        choices.append("rtt")
    if chip.console.driver != "none":
        choices.append("uart")
    return [*choices, "none"]


def _write_board(name: str, text: str, place: Path, extra_dirs: Sequence[Path]) -> Path:
    if not _NAME.fullmatch(name) or name == "soc":
        hint = "small letters, digits, '-', '_' and '.', a letter or digit first."
        raise UsageError(f"{name!r} is not a valid board name.", hint=hint)
    file = place / name / BOARD_FILE
    if file.exists():
        what = "a board of that name exists."
        raise UsageError(what, where=str(file), hint="another name.")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="\n")
    load_board(name, (place, *extra_dirs))
    return file
