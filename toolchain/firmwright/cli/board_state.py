"""What a board has been tested with, in the words of tables."""

from typing import Final

from firmwright.boards import Board

_STATES: Final = {"hardware": "run on hardware", "built": "only built"}
_PROGRAMS: Final = {"qemu": "QEMU", "labwired": "LabWired"}


def describe_validation(board: Board) -> str:
    """Return `emulated by QEMU`, `only built`, `export only` and so on."""
    if board.is_host:
        return "runs here"
    if board.export_only:
        return "export only"
    emulator = emulator_of(board)
    if emulator is None:
        return _STATES[board.validation]
    return f"emulated by {_PROGRAMS.get(emulator, emulator)}"


def emulator_of(board: Board) -> str | None:
    """Return the emulator that the board was tested with: `qemu`, or a transport."""
    if board.validation != "emulated":
        return None
    return "qemu" if board.emulator is None else board.emulator.transport
